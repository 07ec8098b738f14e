"""Which partition a name in a path means, and by which name a partition is shown.

Inside, a partition is `<rm-id>_<name>`, and `<rm-id>_<name>` and `[rm-id]name` always work. The plain name means the
partition that was registered first of those that have it, unless the setting `default-rm` names another RM that has
one. So a new RM never changes what a name means, for whoever uses the API. A shown name always leads back to the
partition that it stands for. With `?rm=` only the partitions of that RM are named and shown.

Not here: asking the partition.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from common.query_messages import PartitionEntry, PartitionList

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


def default_rm(known: PartitionList, preferred: str) -> str:
    """The RM that a request is about that names neither an RM nor a partition: the preferred one if it is registered,
    else the one that registered first. Empty while there is none.
    """
    return preferred if preferred in known.build_information else next(iter(known.build_information), "")


class Directory:
    """The partitions that exist at one moment, in the order of registration, by all their names."""

    def __init__(self, partitions: Iterable[PartitionEntry], preferred: str = "") -> None:
        """`preferred` is the RM whose partitions have their plain names even if others were registered earlier."""
        self._entries = list(partitions)
        self._unique: dict[str, PartitionEntry] = {}
        self._plain: dict[str, PartitionEntry] = {}
        for entry in self._entries:
            self._unique[entry.full_name] = entry
            self._unique[f"[{entry.rm_id}]{entry.name}"] = entry
            if entry.rm_id == preferred:
                self._plain[entry.name] = entry
            else:
                self._plain.setdefault(entry.name, entry)

    def find(self, name: str) -> PartitionEntry | None:
        """The partition of that name."""
        return self._unique.get(name) or self._plain.get(name)

    def shown(self, entry: PartitionEntry) -> str:
        """The name to show: the plain one if it leads here, else the full one."""
        return entry.name if self.find(entry.name) is entry else entry.full_name

    def all(self) -> list[tuple[str, PartitionEntry]]:
        """Every partition with the name to show, in the order of registration."""
        return [(self.shown(entry), entry) for entry in self._entries]
