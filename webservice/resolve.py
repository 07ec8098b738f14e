"""Which partition a name in a path means, and by which name a partition is shown.

Inside, a partition is `<rm-id>_<name>`. People say the plain name while no other resource manager has one of the same
name; `<rm-id>_<name>` and `[rm-id]name` always work. What is shown always leads back to the partition it stands for.
Whoever narrows a question down to one resource manager names, and is shown, what that one has and nothing else.

Not here: asking the partition.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from common.messages import PartitionEntry, PartitionList

RM_SHOWN_MAX: Final = 64
"""Characters of the id of a resource manager that an error repeats."""


class UnknownRmError(LookupError):
    """A resource manager that is not registered."""

    def __init__(self, rm_id: str, known: list[str]) -> None:
        registered = ", ".join(known) or "none"
        super().__init__(f"RM {rm_id[:RM_SHOWN_MAX]!r} is not registered, those that are: {registered}")


def narrowed(known: PartitionList, rm_id: str) -> PartitionList:
    """What one resource manager has of it. An RM that has no partition is an RM all the same.

    Raises:
        UnknownRmError: there is none of that id.
    """
    managers = [one for one in known.managers if one.rm_id == rm_id]
    if rm_id not in known.build_information and not managers:
        raise UnknownRmError(rm_id, sorted({*known.build_information, *(one.rm_id for one in known.managers)}))
    return replace(
        known,
        partitions=[entry for entry in known.partitions if entry.rm_id == rm_id],
        build_information={id_: build for id_, build in known.build_information.items() if id_ == rm_id},
        managers=managers,
    )


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
