"""Maps the names of partitions in requests to partitions, and partitions to the names that answers show.

Internally a partition is `<rm-id>_<name>`. `<rm-id>_<name>` and `[rm-id]name` always work. The plain name means the
partition of that name that was registered first, unless the setting `default-rm` names another RM that has one. So a
new RM never changes what a name means. A shown name always leads back to its partition. With `?rm=` only the partitions
of that RM have names.
"""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from common.query_messages import PartitionEntry, PartitionList

RM_SHOWN_MAX: Final = 64
"""Characters of an RM ID that an error repeats."""


class UnknownRmError(LookupError):
    """A resource manager that is not registered."""

    def __init__(self, rm_id: str, known: list[str]) -> None:
        registered = ", ".join(known) or "none"
        super().__init__(f"RM {rm_id[:RM_SHOWN_MAX]!r} is not registered, those that are: {registered}")


def only_of_rm(known: PartitionList, rm_id: str) -> PartitionList:
    """The part of a list of partitions that belongs to one RM. An RM without partitions may be registered.

    Raises:
        UnknownRmError: no RM with this ID is registered.
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
    """The RM of a request that names neither an RM nor a partition: the preferred one if it is registered, else the one
    that registered first. Empty while there is none.
    """
    return preferred if preferred in known.build_information else next(iter(known.build_information), "")


class PartitionNames:
    """The partitions of one moment by all their names, in the order of registration."""

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

    def is_full(self, name: str) -> bool:
        """Whether it is the full name of a partition, which never means another one."""
        return name in self._unique

    def shown(self, entry: PartitionEntry) -> str:
        """The name to show: the plain one if it means this partition, else the full one."""
        return entry.name if self.find(entry.name) is entry else entry.full_name

    def all(self) -> list[tuple[str, PartitionEntry]]:
        """Every partition with the name to show, in the order of registration."""
        return [(self.shown(entry), entry) for entry in self._entries]
