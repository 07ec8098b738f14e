"""The simulated record belongs to one broker at a time. Not here: the real one (`tests/broker/test_record.py`)."""

import random

from common.control_messages import ManagerRecord
from common.messages import Header
from common.names import RECORD
from common.wire import Incoming, Outgoing, make_outgoing
from tests.sim.record import DurableRecord
from tests.sim.timeline import Timeline


def written(rm: str) -> Outgoing:
    return make_outgoing(RECORD, ManagerRecord(number=1, facts=b"{}"), Header(kind="ManagerRecord", rm=rm))


def test_what_the_broker_before_still_hands_over_is_never_answered_in_place_of_what_the_present_one_does() -> None:
    timeline = Timeline()
    record = DurableRecord(timeline, random.Random(1))
    heard: list[Incoming] = []
    before = record.open(heard.append)
    present = record.open(heard.append)
    before(written("rm-1"))
    present(written("rm-2"))
    timeline.step()
    assert [one.header.rm for one in heard] == ["rm-2"]
