"""The simulated record belongs to one broker at a time. Not here: the real one (`tests/broker/test_store.py`)."""

import random

from tests.sim.record import DurableRecord
from tests.sim.timeline import Timeline
from yunishard.common.messages.control_messages import ManagerRecord, Recorded
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import RECORD


def written(rm: str) -> Outgoing:
    facts = b'{"rm":"%s","session":"s","registered_ns":1,"call":"c"}' % rm.encode()
    return make_outgoing(RECORD, ManagerRecord(number=1, facts=facts), Header(kind="ManagerRecord", rm=rm))


def kept(record: DurableRecord) -> list[str]:
    return sorted(one.rm for one in record.record.read_records())


def test_what_the_broker_before_still_hands_over_is_never_answered_in_place_of_what_the_present_one_does() -> None:
    timeline = Timeline()
    record = DurableRecord(timeline, random.Random(1))
    heard: list[Incoming] = []
    before = record.open(heard.append)
    present = record.open(heard.append)
    before(written("rm-1"))
    present(written("rm-2"))
    for _ in range(2):
        timeline.step()
    assert [one.header.rm for one in heard] == ["rm-2"]


def test_a_write_is_there_before_the_broker_hears_of_it_and_stays_if_it_dies_meanwhile() -> None:
    timeline = Timeline()
    record = DurableRecord(timeline, random.Random(1))
    heard: list[Incoming] = []
    record.open(heard.append)(written("rm-1"))
    timeline.step()
    assert (kept(record), heard) == (["rm-1"], [])
    record.open(heard.append)
    timeline.step()
    assert (kept(record), heard) == (["rm-1"], [])


def test_of_what_is_handed_over_when_a_broker_dies_the_first_ones_are_there_or_none() -> None:
    found = set()
    for seed in range(20):
        record = DurableRecord(Timeline(), random.Random(seed))
        give = record.open(lambda incoming: None)
        for number in range(3):
            give(written(f"rm-{number}"))
        record.open(lambda incoming: None)
        found.add(tuple(kept(record)))
    assert found == {(), ("rm-0",), ("rm-0", "rm-1"), ("rm-0", "rm-1", "rm-2")}


def test_a_full_disk_refuses_a_write() -> None:
    timeline = Timeline()
    record = DurableRecord(timeline, random.Random(1))
    record.full = True
    heard: list[Incoming] = []
    record.open(heard.append)(written("rm-1"))
    for _ in range(2):
        timeline.step()
    assert [decode_body(Recorded, one.body).problem for one in heard] == ["the disk is full"]
    assert kept(record) == []
