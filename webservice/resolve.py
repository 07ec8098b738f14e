"""Which partition a name in a path means, and by which name a partition is shown.

Inside, a partition is `<rm-id>_<name>`. People say the plain name while no other resource manager has one of the same
name; `<rm-id>_<name>` and `[rm-id]name` always work. What is shown always leads back to the partition it stands for.

Not here: asking the partition.
"""

from collections.abc import Iterable

from common.messages import PartitionEntry


class AmbiguityError(LookupError):
    """A plain name that several resource managers use."""

    def __init__(self, name: str, candidates: list[str]) -> None:
        super().__init__(f"Partition '{name}' is ambiguous, use one of: {', '.join(candidates)}")


class Directory:
    """The partitions that exist at one moment, by all their names."""

    def __init__(self, partitions: Iterable[PartitionEntry]) -> None:
        self._unique: dict[str, PartitionEntry] = {}
        self._plain: dict[str, list[PartitionEntry]] = {}
        for entry in partitions:
            self._unique[entry.full_name] = entry
            self._unique[f"[{entry.rm_id}]{entry.name}"] = entry
            self._plain.setdefault(entry.name, []).append(entry)

    def find(self, name: str) -> PartitionEntry | None:
        """The partition of that name.

        Raises:
            AmbiguityError: a plain name of several.
        """
        entry = self._unique.get(name)
        if entry is not None:
            return entry
        candidates = self._plain.get(name, [])
        if len(candidates) > 1:
            raise AmbiguityError(name, sorted(candidate.full_name for candidate in candidates))
        return candidates[0] if candidates else None

    def shown(self, entry: PartitionEntry) -> str:
        """The name to show: the plain one if it leads here, else the one used inside."""
        plain = entry.name not in self._unique and len(self._plain[entry.name]) == 1
        return entry.name if plain else entry.full_name

    def all(self) -> list[tuple[str, PartitionEntry]]:
        """Every partition with the name to show, in the order of these names."""
        entries = [entry for group in self._plain.values() for entry in group]
        return sorted(((self.shown(entry), entry) for entry in entries), key=lambda pair: pair[0])
