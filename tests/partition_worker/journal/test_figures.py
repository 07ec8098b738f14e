"""What is told of the journal."""

from pathlib import Path

from common.families import Family
from common.journal_messages import Kept, SnapshotTaken, TakeSnapshot
from common.machine import send
from common.names import JOURNAL
from partition_worker.journal.figures import families
from tests.partition_worker.journal.hand import Hand, run

NAME = "rm-1_default"


def told(hand: Hand) -> dict[str, Family]:
    found = families(hand.journal, NAME, replayed=7, recovery_s=0.25)
    return {family.name.removeprefix("yunishard_"): family for family in found}


def value(family: Family) -> float:
    [(labels, number)] = family.samples
    assert labels == (NAME,)
    return number


def test_transactions_are_timed_and_the_size_is_that_on_the_disk(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1, 2, 3)
        await hand.hears(Kept)
        found = told(hand)
        [(labels, counts, total_s)] = found["journal_commit_seconds"].distributions
        assert (labels, sum(counts)) == ((NAME,), 1)
        assert 0 < total_s < 5
        assert value(found["journal_size_bytes"]) == hand.files.size_bytes() > 0
        assert (value(found["recovery_steps"]), value(found["recovery_seconds"])) == (7, 0.25)
        assert value(found["journal_snapshot_seconds"]) == 0
        hand.journal.close()

    run(test)


def test_a_snapshot_has_a_duration_and_an_age(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1)
        await hand.hears(Kept)
        hand.journal.send(send(JOURNAL, TakeSnapshot(number=1)))
        assert await hand.hears(SnapshotTaken) == SnapshotTaken(number=1)
        found = told(hand)
        assert value(found["journal_snapshot_seconds"]) > 0
        assert value(found["journal_snapshot_age_seconds"]) >= 0
        hand.journal.close()

    run(test)
