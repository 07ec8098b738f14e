"""The worker's journal: it stores every step of the partition before any message about it is sent.

    protocol.py          what every store of journals does
    writer.py            the endpoint of the worker: appends steps in a thread, takes snapshots
    snapshot_process.py  the forked process that writes a snapshot
    sqlite_journal.py    journals in SQLite: transactions under an epoch, trimming, deletion
    database.py          their schema, reading, verification
    files.py             their files, and those of snapshots
    quarantine.py        messages that end workers
    cli.py               the command `yunishard journal`

The content of steps and snapshots is in `partition_worker/recovery.py` and `engine/durable_records.py`;
`OutboxBarrier` in `rm_channel.py` decides when steps are appended and when a snapshot is due.
"""
