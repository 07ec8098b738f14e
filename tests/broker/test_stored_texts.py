"""Messages that wait for a text from the record: who needs one, and what follows if it cannot be read."""

import pytest

from tests.analyses import handle_with_analyses
from tests.broker.bench import GPU, PROXY, BrokerBench, is_prepare, kinds, registered
from tests.machines import ONE_QUEUE, PARTITION, RM, arrives, said, two_partitions
from yunishard.broker.config_versions import RETRY_S
from yunishard.common.messages.control_messages import Hello, PrepareConfig, VersionRead
from yunishard.common.messages.rm_messages import Refused, RegisterResourceManager
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body
from yunishard.common.names import RECORD, lease_name

CHANGED = ONE_QUEUE.replace("batch", "changed")
READ = (RECORD, "ReadVersion")


def claim(bench: BrokerBench, partition: str, **fields: str | int) -> Incoming:
    """The Hello of a worker that has lost what it had."""
    epoch = bench.epoch(partition)
    hello = Hello(role="worker", problem="damaged")
    return arrives(lease_name(partition, epoch), hello, partition=partition, epoch=epoch, rm="", session="", **fields)


def handle(bench: BrokerBench, incoming: Incoming) -> list[Outgoing]:
    """What the broker sends at once."""
    return handle_with_analyses(bench.broker, incoming, bench.now)


def answer(bench: BrokerBench, text: str, version: int = 1, rm: str = RM, **fields: str | bool) -> list[Outgoing]:
    """The record answers."""
    found = VersionRead(version=version, text=text, **fields)
    return handle(bench, arrives(RECORD, found, rm=rm, session=""))


def prepared(sends: list[Outgoing]) -> list[str]:
    return [one.header.partition for one in sends if is_prepare(one)]


def test_a_worker_that_has_its_configuration_needs_no_text() -> None:
    bench = registered()
    bench.begin_again()
    bench.texts.clear()
    assert (PROXY, "ResumeWanted") not in kinds(bench.returns(PARTITION))
    assert kinds(bench.resume())[0] == (PROXY, "Registered")


def test_workers_that_have_lost_it_wait_for_one_read_and_each_gets_its_part() -> None:
    bench = registered(two_partitions())
    for partition in (PARTITION, GPU):
        bench.speaks(partition)
    assert kinds(handle(bench, claim(bench, PARTITION))) == [READ]
    assert handle(bench, claim(bench, GPU)) == []
    assert handle(bench, claim(bench, GPU)) == [], "it sends Hello again, as it has no answer"
    assert not bench.broker.registry.slots[GPU].is_present
    sends = bench.recorded(answer(bench, two_partitions()))
    assert prepared(sends) == [PARTITION, GPU]
    names = [decode_body(PrepareConfig, one.body).config.name for one in sends if is_prepare(one)]
    assert names == ["default", "gpu"]


def test_a_hello_that_waits_is_dropped_once_its_worker_has_gone_on() -> None:
    bench = registered()
    bench.speaks(PARTITION)
    handle(bench, claim(bench, PARTITION))
    restarted = bench.recorded(answer(bench, ONE_QUEUE))
    assert "PartitionRestarted" in [one.header.kind for one in restarted]
    handle(bench, claim(bench, PARTITION))  # sent before the worker received that
    assert not bench.broker.registry.slots[PARTITION].is_present
    bench.speaks(PARTITION)
    assert bench.broker.registry.slots[PARTITION].is_present
    assert bench.recorded(answer(bench, ONE_QUEUE)) == []


def test_one_text_is_read_at_a_time() -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another")
    bench.speaks(PARTITION)
    bench.speaks("rm-2_default")
    assert kinds(handle(bench, claim(bench, PARTITION))) == [READ]
    assert handle(bench, claim(bench, "rm-2_default")) == []
    following = answer(bench, ONE_QUEUE)
    assert [one.header.rm for one in following if one.header.kind == "ReadVersion"] == ["rm-2"]


def test_a_change_waits_for_a_worker_that_waits() -> None:
    bench = registered()
    bench.speaks(PARTITION)
    handle(bench, claim(bench, PARTITION))
    assert bench.change(CHANGED) == []
    present, changed = [one for one in bench.recorded(answer(bench, ONE_QUEUE)) if is_prepare(one)]
    queues = [decode_body(PrepareConfig, one.body).config.root.queues for one in (present, changed)]
    assert [one.name for [one] in queues] == ["batch", "changed"]


def test_a_worker_whose_partition_has_ended_meanwhile_gets_nothing() -> None:
    bench = registered()
    bench.speaks(PARTITION)
    handle(bench, claim(bench, PARTITION))
    bench.agree(bench.update("partitions: []"))
    bench.retired(PARTITION)
    assert prepared(answer(bench, ONE_QUEUE)) == []


def test_a_record_that_cannot_be_read_at_present_is_asked_again() -> None:
    bench = registered()
    bench.speaks(PARTITION)
    handle(bench, claim(bench, PARTITION))
    assert answer(bench, "", problem="the store does not answer", may_retry=True) == []
    assert handle(bench, claim(bench, PARTITION)) == []
    bench.now += RETRY_S
    assert kinds(bench.broker.tick(bench.now)) == [READ]
    assert prepared(bench.recorded(answer(bench, ONE_QUEUE))) == [PARTITION]


@pytest.mark.parametrize(
    ("text", "problem", "reason"),
    [
        ("", "the text of version 1 of RM rm-1 is damaged", "the text of version 1 of RM rm-1 is damaged"),
        ("]", "", "line 1: this is not YAML"),
        ("partitions: []", "", "the recorded text has no partition rm-1_default"),
    ],
)
def test_an_rm_whose_text_is_lost_registers_again_and_the_text_is_written_again(
    text: str, problem: str, reason: str
) -> None:
    bench = registered()
    bench.speaks(PARTITION)
    handle(bench, claim(bench, PARTITION))
    told = kinds(bench.recorded(answer(bench, text, problem=problem)))
    assert (PROXY, "Left") in told
    [warning] = [one for one in bench.broker.state.warnings if "has to register again" in one]
    assert f"its recorded configuration is not valid: {reason}" in warning
    assert kinds(bench.register(session="session-2"))[-1] == (PROXY, "Registered")
    assert [(one.number, one.config) for one in bench.record] == [(1, ONE_QUEUE), (2, ONE_QUEUE)]


# Registrations --------------------------------------------------------------------------------------------------------


def with_changed_text() -> BrokerBench:
    """An RM that has left, whose configuration has been changed over REST."""
    bench = registered()
    bench.agree(bench.change(CHANGED))
    bench.facts.clear()
    bench.begin_again()
    return bench


def call(bench: BrokerBench, **fields: str) -> list[Outgoing]:
    """A registration; what is sent at once."""
    request = RegisterResourceManager(rm_id=RM, config=ONE_QUEUE, build_info={"v": "1"})
    return handle(bench, arrives(PROXY, request, **{"ref": "call", **fields}))


def test_an_rm_with_a_changed_text_is_registered_once_that_has_been_read() -> None:
    bench = with_changed_text()
    assert kinds(call(bench)) == [READ]
    [refusal] = said(call(bench, session="another", ref="2"))
    assert isinstance(refusal, Refused)
    assert refusal.code == "busy"
    answer(bench, CHANGED, version=2)
    assert kinds(bench.agree(bench.hello(PARTITION)))[-1] == (PROXY, "Registered")
    assert bench.text() == CHANGED


def test_an_rm_whose_changed_text_is_lost_starts_with_its_own() -> None:
    bench = with_changed_text()
    call(bench)
    answer(bench, "", version=2, problem="it is damaged")
    bench.agree(bench.hello(PARTITION))
    assert bench.text() == ONE_QUEUE
    assert "RM rm-1 begins with its own configuration, as its changed one is not valid: it is damaged" in (
        bench.broker.state.warnings
    )


def test_an_rm_that_sends_the_text_in_force_needs_no_other() -> None:
    bench = registered()
    bench.facts.clear()
    bench.begin_again()
    assert READ not in kinds(call(bench))
