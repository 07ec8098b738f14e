"""Cost of the auditor: the processor time of its slices as a share of the elapsed time.

    python -m benchmarks.auditor --allocations 50000

The partition is large and idle, so that a round examines as much as possible.
"""

import argparse
import json
import sys
from time import process_time
from typing import Final, NamedTuple

from common.config.validation import load
from common.rm_messages import (
    NODE_CREATE,
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    UserGroupInformation,
)
from partition_worker.engine.auditor import SLICE_EVERY_S
from partition_worker.engine.partition import Partition

QUEUES: Final = 50
USERS: Final = 40
PER_APPLICATION: Final = 100
PER_NODE: Final = 50
NOW_S: Final = 1_700_000_000.0

TARGET: Final = 0.02
"""Maximum share."""


class Row(NamedTuple):
    """Measurements of one round."""

    allocations: int
    slices: int
    round_s: float
    """Duration of the round, most of which is waiting."""
    share: float
    """The processor time as a share of that duration."""
    longest_ms: float
    """The slowest slice, during which the worker does nothing else."""


def measure(allocations: int) -> Row:
    """One round over a partition of this size."""
    partition = filled(allocations)
    partition.auditor.every_s = 1.0
    partition.auditor.schedule_round(partition)
    now, spent = NOW_S, []
    while (due := partition.auditor.deadline) < NOW_S + 1e6:
        now = max(now, due)
        began = process_time()
        partition.audit(now)
        spent.append(process_time() - began)
    assert partition.auditor.drift == 0, partition.auditor.health.drift
    length = len(spent) * SLICE_EVERY_S
    return Row(allocations, len(spent), length, sum(spent) / length, max(spent) * 1e3)


def filled(allocations: int) -> Partition:
    """A partition with so many allocations, over queues, users, applications and nodes."""
    leaves = "".join(f"          - name: q{number}\n" for number in range(QUEUES))
    text = (
        "partitions:\n  - name: default\n    queues:\n      - name: root\n"
        f'        submitacl: "*"\n        queues:\n{leaves}'
    )
    partition = Partition(load(text).partitions[0], name="bench_default", now=NOW_S)
    size = {"memory": PER_NODE, "vcore": PER_NODE}
    nodes = [f"n{number}" for number in range(-(-allocations // PER_NODE))]
    partition.apply(
        NodeRequest(nodes=[NodeInfo(node_id=name, action=NODE_CREATE, schedulable_resource=size) for name in nodes]),
        NOW_S,
    )
    applications = range(-(-allocations // PER_APPLICATION))
    for number in applications:
        submission = AddApplicationRequest(
            application_id=f"app-{number}",
            queue_name=f"root.q{number % QUEUES}",
            ugi=UserGroupInformation(user=f"u{number % USERS}"),
        )
        partition.apply(ApplicationRequest(new=[submission]), NOW_S)
    one = {"memory": 1, "vcore": 1}
    asks = [
        Allocation(
            allocation_key=f"k{number}", application_id=f"app-{number // PER_APPLICATION}", resource_per_alloc=one
        )
        for number in range(allocations)
    ]
    partition.apply(AllocationRequest(allocations=asks), NOW_S)
    while not partition.idle:
        partition.step(NOW_S, 256)
    return partition


def main(arguments: list[str] | None = None) -> int:
    """Print a line of JSON; the exit status is 1 if the share exceeds its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.auditor", description="Cost of the auditor.")
    parser.add_argument("--allocations", type=int, default=50_000, metavar="N")
    row = measure(parser.parse_args(arguments).allocations)
    sys.stdout.write(json.dumps(row._asdict()) + "\n")
    return 0 if row.share <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
