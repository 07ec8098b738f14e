"""The worker's journal: it stores every step of the partition before any message about it is sent.

    writer.py      the endpoint of the worker: appends steps in a thread, takes snapshots
    database.py    the SQLite file of the steps: transactions under an epoch, reading, verification
    snapshots.py   snapshot files, and the forked process that writes them
    files.py       the paths of a partition's files, quarantined messages, damaged journals that are put aside
    cli.py         the command `yunishard journal`

The content of steps and snapshots is in `partition_worker/recovery.py` and `engine/durable_records.py`;
`OutboxBarrier` in `rm_channel.py` decides when steps are appended and when a snapshot is due.
"""
