"""The rule that a queue has the same parent in every partition that has it.

A queue is known by its name, ignoring case, and a name may stand at several places of one partition. So for each name
below root and each partition the set of the parents' paths counts, and two partitions agree on a name if one set
includes the other: a partition need not have a queue everywhere, but what it has beyond another partition's places is
then all that the two differ in. Where neither set includes the other the queue seems to have moved, and each place that
only the later partition has is a problem.

    gpu: root.eng.dev      cpu: root.ops.dev                  `dev` is below root.eng here, below root.ops there
    gpu: root.eng.dev      cpu: root.eng.dev, root.ops.dev    agreed: cpu has one more
    gpu: root.a.eng.dev    cpu: root.b.eng.dev                only `eng` is told: `dev` went with it

Not here: whether the rule is in force (the setting `queues.same-hierarchy`), and what validation refuses (`check.py`).
"""

from collections.abc import Iterator
from typing import Final

from common.config.model import Configuration, PartitionConfig, QueuePlace, partition_name, root_place
from common.config.problems import NO_LINES, Lines, Problem, Report

KIND: Final = "hierarchy"

_Paths = frozenset[str]
"""Of queues: from the root, dotted, in lower case."""


def find_hierarchy_problems(configuration: Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return each place where a partition has a queue below another parent than an earlier partition, at most 100.

    Places and lines are those of the text for a configuration as it was parsed; one in its normal form is judged alike,
    with the places of that form.
    """
    report = Report(lines)
    known: dict[str, dict[_Paths, str]] = {}  # name to where partitions have it, each with the first such partition
    for index, partition in enumerate(configuration.partitions):
        places = _places_of(partition, f"partitions[{index}]")
        own = _by_name(places)
        moved = _moved(own, known)
        for path, (parents, elsewhere) in moved.items():
            if not any(above in moved for above in _above(path)):
                above, _, name = path.rpartition(".")
                message = f"queue {name} is below {above} here, but below {parents} in partition {elsewhere}"
                hint = "a queue has the same parent in every partition that has it"
                report.add(KIND, f"{places[path]}.name", message, hint=hint)
        for name, paths in own.items():
            known.setdefault(name, {}).setdefault(paths, partition_name(partition))
    return report.problems


def _places_of(partition: PartitionConfig, written_at: str) -> dict[str, str]:
    """Return the path of each queue below root, and where it was written, parents first."""
    found: dict[str, str] = {}

    def walk(place: QueuePlace, path: str) -> None:
        for child in place.children:
            child_path = f"{path}.{child.queue.name.lower()}"
            found.setdefault(child_path, child.path)
            walk(child, child_path)

    root = root_place(partition, written_at)
    walk(root, root.queue.name.lower())
    return found


def _by_name(places: dict[str, str]) -> dict[str, _Paths]:
    """Return the names of the queues, each with all places that have it."""
    found: dict[str, list[str]] = {}
    for path in places:
        found.setdefault(path.rpartition(".")[2], []).append(path)
    return {name: frozenset(paths) for name, paths in found.items()}


def _moved(own: dict[str, _Paths], known: dict[str, dict[_Paths, str]]) -> dict[str, tuple[str, str]]:
    """Return the paths that contradict an earlier partition, each with the parents there and the partition's name."""
    moved: dict[str, tuple[str, str]] = {}
    for name, paths in own.items():
        for others, partition in known.get(name, {}).items():
            if paths <= others or others <= paths:
                continue
            parents = " and ".join(sorted(other.rpartition(".")[0] for other in others))
            for path in sorted(paths - others):
                moved.setdefault(path, (parents, partition))
    return moved


def _above(path: str) -> Iterator[str]:
    """Yield the paths of the queues above, nearest first."""
    while "." in path:
        path = path.rpartition(".")[0]
        yield path
