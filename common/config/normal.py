"""The normal form of a partition: a name, and one root queue that carries the limits of the whole partition.

Also where each of its queues was written, which the normal form no longer shows. What makes a partition wrong is
decided in `check.py`; a wrong one has a normal form too.

Not here: judging it (`check.py`).
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from common.config.model import Configuration, PartitionConfig, QueueConfig
from common.config.problems import under
from common.names import DEFAULT_PARTITION, ROOT


def normalised(configuration: Configuration) -> Configuration:
    """Return the configuration with every partition in its normal form; a normal one comes out the same."""
    return replace(configuration, partitions=tuple(normal_partition(part) for part in configuration.partitions))


def normal_partition(partition: PartitionConfig) -> PartitionConfig:
    """Return the partition named, and with one root queue: the one written, or one put above all the others."""
    written = _written_root(partition)
    root = QueueConfig(name=ROOT, queues=partition.queues or ()) if written is None else written
    return replace(
        partition,
        name=partition_name(partition),
        queues=(replace(root, parent=True, limits=root.limits or partition.limits),),
    )


def partition_name(partition: PartitionConfig) -> str:
    """Return its name; nothing, and `default` in any case, are `default`."""
    return DEFAULT_PARTITION if partition.name.lower() in ("", DEFAULT_PARTITION) else partition.name


class Place(Struct, frozen=True, kw_only=True, gc=False):  # a tree, which no garbage collector need look at
    """A queue of a normal partition, and where it was written."""

    queue: QueueConfig
    path: str  # of the queue; an inserted root stands at the path of its partition
    limits_path: str  # of its limits, which root may have from its partition
    level: int  # 0 for root
    children: tuple["Place", ...]  # the queues directly below, in the order they were written

    def walk(self) -> Iterator["Place"]:
        """Yield this queue and everything below, parents before children."""
        yield self
        for child in self.children:
            yield from child.walk()


def root_place(partition: PartitionConfig, path: str) -> Place:
    """Return the root of the normal form of a partition that was written at `path`, with everything below."""
    written = _written_root(partition)
    root_path = path if written is None else under(path, "queues[0]")
    has_own_limits = written is not None and written.limits
    limits_path = under(root_path if has_own_limits else path, "limits")
    return _place(normal_partition(partition).root, root_path, limits_path=limits_path, level=0)


def _place(queue: QueueConfig, path: str, *, limits_path: str, level: int) -> Place:
    prefix = under(path, "queues[")
    below = [(child, f"{prefix}{index}]") for index, child in enumerate(queue.queues)]
    children = [_place(child, at, limits_path=f"{at}.limits", level=level + 1) for child, at in below]
    return Place(queue=queue, path=path, limits_path=limits_path, level=level, children=tuple(children))


def _written_root(partition: PartitionConfig) -> QueueConfig | None:
    """Return the root queue that was written: the only queue at the top, called root in any case."""
    match partition.queues:
        case (QueueConfig() as only,) if only.name.lower() == ROOT:
            return only
    return None
