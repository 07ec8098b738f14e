"""Time to validate a large configuration, to start with it, and to apply it to a running partition.

    python -m benchmarks.configuration --queues 10000

The partition is busy: every tenth leaf has a running application. All work is in one
process; sending a configuration to the workers of other partitions is not included.
"""

import argparse
import json
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

from common.config.model import PartitionConfig, compute_checksum
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
from partition_worker.engine.partition import Partition

LEAVES_PER_PARENT: Final = 99
NODES: Final = 100
TARGET_S: Final = 2.0
"""Maximum time to validate a configuration with 10,000 queues and apply the largest change."""

NOW_S: Final = 1_700_000_000.0


class Row(NamedTuple):
    """A measured step: its median over all rounds."""

    step: str
    seconds: float


def text_of(queues: int, *, maximum: int = 100, changed: int = 0, renamed: float = 0.0) -> str:
    """A configuration with about this many queues.

    `maximum` is that of every leaf but for the first `changed` ones, which have one more; `renamed` is the share of
    leaves that have another name.
    """
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", "    submitacl: '*'", "    queues:"]
    leaf = 0
    for parent in range(max(1, queues // (LEAVES_PER_PARENT + 1))):
        lines += [f"    - name: p{parent}", f"      adminacl: 'boss{parent} ops'", "      properties:"]
        lines += ["        application.sort.policy: fair", "      queues:"]
        for _ in range(LEAVES_PER_PARENT):
            name = "new" if leaf % 1000 < renamed * 1000 else "leaf"
            lines += [f"      - name: {name}{leaf}", f"        submitacl: 'user{leaf} dev,ops'", "        resources:"]
            lines += ["          guaranteed: {memory: 1Gi, vcore: 1}"]
            lines += [f"          max: {{memory: {maximum + (leaf < changed)}Gi, vcore: {maximum}}}"]
            if leaf % 10 == 0:
                lines += ["        limits:", "        - users: ['*']", "          maxresources: {memory: 1Gi}"]
            leaf += 1
    return "\n".join(lines) + "\n"


def measured(queues: int, rounds: int) -> list[Row]:
    """Every step, so many times."""
    before = text_of(queues)
    changes = {
        "apply: one maximum of all": text_of(queues, changed=1),
        "apply: every maximum": text_of(queues, maximum=200),
        "apply: a tenth of the leaves replaced": text_of(queues, renamed=0.1),
    }
    config = load(before).partitions[0]
    rows = [
        _row("checksum", rounds, lambda: compute_checksum(before)),
        _row("validate", rounds, lambda: load(before)),
        _row("start with it", rounds, lambda: Partition(config, name="rm_default", now=NOW_S)),
    ]
    for step, text in changes.items():
        wanted = load(text).partitions[0]
        rows.append(Row(step, median(_apply_s(busy(config), wanted) for _ in range(rounds))))
    return rows


def busy(config: PartitionConfig) -> Partition:
    """A partition in which every tenth leaf has an application that runs."""
    partition = Partition(config, name="rm_default", now=NOW_S)
    capacity = {"memory": 10**15, "vcore": 10**9}
    partition.apply(
        NodeRequest(nodes=[NodeInfo(f"n{n}", action=NODE_CREATE, schedulable_resource=capacity) for n in range(NODES)]),
        NOW_S,
    )
    leaves = [queue.path for queue in partition.tree if queue.leaf][::10]
    user = UserGroupInformation(user="ann", groups=["dev"])
    new = [AddApplicationRequest(f"app-{number}", path, ugi=user) for number, path in enumerate(leaves)]
    partition.apply(ApplicationRequest(new=new), NOW_S)
    asks = [
        Allocation(f"ask-{number}", application_id=f"app-{number}", resource_per_alloc={"memory": 10**6, "vcore": 100})
        for number in range(len(leaves))
    ]
    partition.apply(AllocationRequest(allocations=asks), NOW_S)
    while not partition.idle:
        partition.step(NOW_S, 256)
    return partition


def _row(step: str, rounds: int, work: Callable[[], object]) -> Row:
    return Row(step, median(_timed(work) for _ in range(rounds)))


def _timed(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def _apply_s(partition: Partition, wanted: PartitionConfig) -> float:
    """Return the seconds for the vote, the change, and the decisions that follow."""
    start = perf_counter()
    assert not partition.objections(wanted)
    partition.reconfigure(wanted, NOW_S + 1)
    while not partition.idle:
        partition.step(NOW_S + 1, 256)
    return perf_counter() - start


def main() -> int:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.configuration", description=__doc__.split("\n\n")[0])
    parser.add_argument("--queues", type=int, default=10_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the median of so many is shown")
    parser.add_argument("--json", action="store_true", help="one object instead of a table")
    options = parser.parse_args()
    rows = measured(options.queues, options.rounds)
    seconds = dict(rows)
    total = seconds["validate"] + max(second for step, second in rows if step.startswith("apply"))
    if options.json:
        sys.stdout.write(json.dumps({"queues": options.queues, "seconds": seconds, "validate and apply": total}) + "\n")
        return 0
    lines = [f"a configuration with {options.queues} queues, median of {options.rounds}", ""]
    lines += [f"  {step:<40} {second:8.3f} s" for step, second in rows]
    lines += ["", f"  {'validate and the slowest change':<40} {total:8.3f} s   (10,000 queues: at most {TARGET_S} s)"]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
