"""A spare worker: everything is imported, and it waits for the partition that it is to take over.

Not here: who gets it (`deploy/supervisor.py`), how it goes on from there (`service.py`).
"""

import argparse

import msgspec

from common.process import Assignment, Life


async def assigned(args: argparse.Namespace, life: Life) -> bool:
    """Wait for a partition and its lease, and put them where they would be had it been started for them; False when it
    is time to stop first.
    """
    life.ready()
    line = await life.told()
    if line is None:
        return False
    assignment = msgspec.json.decode(line, type=Assignment)
    args.partition, args.epoch = assignment.partition, assignment.epoch
    return True
