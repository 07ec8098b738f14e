"""Partitions are processes: all resource managers together have no more of them than the setting says."""

from tests.broker.bench import PROXY, BrokerBench
from tests.machines import ONE_QUEUE
from yunishard.common.messages.rm_messages import Refused
from yunishard.common.messages.wire import NEVER, Outgoing, decode_body
from yunishard.common.settings import Settings

QUEUES = "queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]"
TWO = f"partitions: [{{name: default, {QUEUES}}}, {{name: gpu, {QUEUES}}}]"
TEXT = "2 partitions are too many now: all RMs together may have 2, the limit of the setting partitions-max"


def refusals(sends: list[Outgoing]) -> list[str]:
    return [decode_body(Refused, one.body).reason for one in sends if one.header.kind == Refused.__name__]


def limited() -> BrokerBench:
    return BrokerBench(settings=Settings(lease_timeout_s=NEVER, partitions_max=2))


def test_a_registration_beyond_the_setting_is_refused_and_others_keep_what_they_have() -> None:
    bench = limited()
    bench.register(ONE_QUEUE, rm="first")
    assert refusals(bench.call(TWO, rm="second")) == [f"registration of RM failed: {TEXT}"]
    assert [seat.rm for seat in bench.broker.registry.slots.values()] == ["first"]
    assert bench.register(ONE_QUEUE, rm="second")[-1].header.kind == "Registered"


def test_one_that_registers_again_needs_no_more_room_than_before() -> None:
    bench = limited()
    bench.register(TWO, rm="first")
    assert bench.register(TWO, rm="first", session="next")[-1].header.kind == "Registered"


def test_a_configuration_beyond_it_is_refused_too_and_the_one_before_stays() -> None:
    bench = limited()
    for rm in ("first", "second"):
        bench.register(ONE_QUEUE, rm=rm)
    sends = bench.update(TWO, rm="second", proxy=PROXY)
    assert refusals(sends) == [f"update of configuration failed: {TEXT}"]
    assert list(bench.broker.registry.sessions["second"].configs) == ["second_default"]
