"""A partition whose records are put together after each step, as its journal would.

one = Trial("root.a", made=Recorded)
one.does(...)                     after each step the image of all records equals a snapshot
one.partition.restored()          what would be recovered now; verified and compared
"""

import msgspec

from tests.invariants import check
from tests.likeness import differences
from yunishard.partition_worker.engine.durable_records import Image, Record, Removed, decode_records, kind_of
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.recording import collect_changes, list_everything
from yunishard.partition_worker.engine.restoring import restore_partition
from yunishard.partition_worker.engine.state import Changes

Content = dict[tuple[str, str | int], Record]


def encoded(records: list[Record]) -> list[Record]:
    """The records as they are read again."""
    found: list[Record] = list(decode_records(msgspec.msgpack.encode(records)))
    return found


def content(image: Image) -> Content:
    return {(kind_of(type(record)), record.identity): record for record in image}


def snapshot(partition: Partition) -> Content:
    """The records of everything."""
    image = Image()
    image.apply(encoded(list(list_everything(partition))))
    return content(image)


class Recorded(Partition):
    """A partition that is recorded."""

    image: Image | None = None
    restorations = 0

    def drain_effects(self) -> list[Effect]:
        marks, effects = self.changes, super().drain_effects()
        records = encoded(collect_changes(self))
        if self.image is None:
            self.image = Image()
            self._start_recording()
        for record in records:
            assert not isinstance(record, Removed) or record.kind, record
        self._record_step(self.image, records, marks)
        return effects

    def _record_step(self, image: Image, records: list[Record], marks: Changes) -> None:
        """The records of a step, and the marks that they were collected by."""
        image.apply(records)
        _compare(content(image), snapshot(self))

    def _start_recording(self) -> None:
        """Called with the first step."""

    def restored(self) -> Partition:
        """What would be recovered now."""
        assert self.image is not None
        plugins = self.nodes.predicates.plugins
        partition = restore_partition(self.image, name=self.name, now=self.now, plugins=plugins, tuning=self.tuning)
        partition.nodes.predicates.asks_manager = self.nodes.predicates.asks_manager
        partition.nodes.predicates.asks_about_victims = self.nodes.predicates.asks_about_victims
        check(partition)
        found, expected = snapshot(partition), snapshot(self)
        _compare(found, expected)
        unlike = list(differences(self, partition))
        assert not unlike, "\n".join(unlike)
        self.restorations += 1
        return partition


def _compare(found: Content, expected: Content) -> None:
    unlike = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
    assert not unlike, "\n".join(f"{key}: found {found.get(key)}, expected {expected.get(key)}" for key in unlike)
