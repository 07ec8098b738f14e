"""Map the jobs of a log to the partitions and queues of the user's own `queues.yaml`.

A log has sites, groups and users; a configuration has partitions and queues. The mapping works with any pair of
them, and depends on nothing else, so that two replays of a log request the same queues:

* A site belongs to the partition of its name, if the log names it and the file has such a partition. All other sites
  share the partition `default`, or the first one if there is no such partition.
* A job requests the leaf queue whose name is that of its user or of its group (`u7`, `g2`). Other groups share the
  leaf queues of the partition: the first one that appears in the log gets the first leaf, and so on, in turn.

If the partition has placement rules, they have the last word; the application carries user and group, and the tags
`group` and `namespace` with the name of the group.
"""

from dataclasses import dataclass, field

from yunishard.cli.commands import console
from yunishard.cli.main import CommandUnusable
from yunishard.common.config.model import PartitionConfig, root_place
from yunishard.common.config.problems import ConfigError
from yunishard.common.config.validation import load
from yunishard.common.names import DEFAULT_PARTITION


@dataclass(slots=True)
class PartitionQueues:
    """The leaf queues of a partition, and which groups use them."""

    name: str
    leaves: tuple[str, ...]
    """Full paths, in the order of the file."""
    has_rules: bool
    _chosen: dict[str, str] = field(default_factory=dict)
    """Group to leaf."""
    _dealt: int = 0
    """Groups without a leaf of their name."""

    def choose(self, group: str, user: str) -> str:
        """Return the queue that a job requests; empty if there is no leaf."""
        if group not in self._chosen and self.leaves:
            self._chosen[group] = self._find(group) or self.leaves[self._dealt % len(self.leaves)]
            self._dealt += not self._find(group)
        return self._find(user) or self._chosen.get(group, "")

    def _find(self, name: str) -> str:
        """Return the first leaf of this name; empty if there is none."""
        return next((path for path in self.leaves if path.rpartition(".")[2] == name), "")


class UserQueues:
    """The partitions and queues of a `queues.yaml`."""

    def __init__(self, text: str) -> None:
        """Raises ConfigError with all problems of the text."""
        self.text = text
        configuration = load(text)
        self.partitions = {part.name.lower(): _read_partition(part) for part in configuration.partitions}
        self._rest = self.partitions.get(DEFAULT_PARTITION) or next(iter(self.partitions.values()), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The partitions, in the order of the file."""
        return tuple(part.name for part in self.partitions.values())

    @property
    def targets(self) -> tuple[tuple[str, str], ...]:
        """All leaf queues with their partitions; an empty one if only placement rules can choose."""
        return tuple((part.name, leaf) for part in self.partitions.values() for leaf in part.leaves or ("",))

    def choose_partition(self, site: str) -> str:
        """Return the partition of a site, by its name in the log; empty if the log does not name it."""
        chosen = self.partitions.get(site.lower()) or self._rest
        assert chosen is not None, "a file without partitions was refused"
        return chosen.name

    def choose_queue(self, partition: str, group: str, user: str) -> str:
        """Return the queue that a job requests."""
        return self.partitions[partition.lower()].choose(group, user)


def read_user_queues(file: str) -> UserQueues:
    """Read the user's `queues.yaml`.

    Raises:
        CommandUnusable: it cannot be read, is invalid, has no partition, or one in which no application can be placed.
    """
    try:
        queues = UserQueues(console.read_configuration(file))
    except ConfigError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        text = " ".join(str(error.problems[0]).split())
        raise CommandUnusable(f"--config {file}: {text}{more}; `yunishard validate` lists all problems") from None
    if not queues.partitions:
        raise CommandUnusable(f"--config {file}: there is no partition in it")
    for part in queues.partitions.values():
        if not part.leaves and not part.has_rules:
            problem = f"partition {part.name} has neither a leaf queue nor placement rules"
            raise CommandUnusable(f"--config {file}: {problem}, so no application could be placed; add one")
    return queues


def _read_partition(partition: PartitionConfig) -> PartitionQueues:
    places = root_place(partition, "").walk()
    leaves = tuple(place.full_path for place in places if place.level and not place.queue.is_parent)
    return PartitionQueues(partition.name, leaves, bool(partition.placement_rules))
