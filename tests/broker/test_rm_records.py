"""Records of RMs: contents, when they are written, and messages that wait."""

import msgspec
import pytest
from msgspec.structs import replace

from broker.registry import Registry
from broker.rm_records import HELD_MAX, PROBE_S, RETRY_S, build_record, decode_record, restore_session
from broker.routing import BrokerMachine
from common.config.problems import ConfigError
from common.control_messages import Hello, ManagerRecord, Recorded
from common.names import RECORD, worker_name
from common.query_messages import ListPartitions, PartitionList
from common.rm_messages import Leave, NodeRequest, Refused, RegisterResourceManager, Resume, UpdateConfiguration
from common.wire import NEVER, Outgoing, decode_body
from tests.broker.house import GPU, PATIENT, PROXY, WEB, House, kinds, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, arrives, said, two_partitions


def whole() -> House:
    """An RM of which there is something to know in every respect."""
    house = registered(two_partitions())
    house.update(two_partitions(), a="1")
    house.lost(GPU)
    house.agree(house.update(ONE_QUEUE, a="1"))
    return house


def test_what_is_recorded_is_all_that_has_to_be_known_again() -> None:
    house = whole()
    registration = house.switch.registry.sessions[RM]
    facts = build_record(registration, house.switch.registry)
    assert facts == house.facts[RM]
    assert decode_record(msgspec.json.encode(facts)) == facts
    assert restore_session(facts) == replace(registration, proxy="")


def test_leases_are_of_partitions_that_are_configured_or_being_taken_down() -> None:
    house = whole()
    assert house.facts[RM].leases == {PARTITION: 1, GPU: 2}
    assert (house.facts[RM].leaving, house.facts[RM].generations) == ([GPU], {GPU: 1})
    house.retired(GPU)
    assert house.facts[RM].leases == {PARTITION: 1}
    assert (house.facts[RM].leaving, house.facts[RM].generations, house.facts[RM].last_generation) == ([], {}, 1)


def test_a_text_that_is_no_configuration_any_more_is_an_error() -> None:
    house = registered()
    registry = Registry()
    registry.set_session(house.switch.registry.sessions[RM])
    facts = build_record(replace(house.switch.registry.sessions[RM], text="]"), registry)
    with pytest.raises(ConfigError):
        restore_session(facts)


def test_what_a_later_release_adds_is_ignored() -> None:
    data = msgspec.json.encode(whole().facts[RM])
    assert decode_record(data[:-1] + b',"later":7}') == whole().facts[RM]


NONE = {"rm": "", "session": ""}


def lost(house: House, partition: str = PARTITION) -> list[Outgoing]:
    """A worker without its journal comes; what is sent at once."""
    house.speaks(partition)
    epoch = house.epoch(partition)
    hello = Hello(role="worker", problem="damaged")
    return house.switch.handle(
        arrives(worker_name(partition, epoch), hello, partition=partition, epoch=epoch, **NONE), house.now
    )


def test_what_happened_is_recorded_before_anybody_hears_of_it() -> None:
    house = registered()
    [record] = lost(house)
    assert (record.to, record.header.kind, record.header.rm) == (RECORD, "ManagerRecord", RM)
    sends = house.recorded([record])
    assert kinds(sends) == [(PARTITION, "PrepareConfig"), (PARTITION, "CommitConfig"), (PROXY, "PartitionRestarted")]
    assert house.facts[RM].generations == {PARTITION: 1}


def test_what_is_only_routed_waits_for_nothing() -> None:
    house = registered()
    lost(house)
    assert house.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1)[0].to == PARTITION


def test_everything_about_an_rm_waits_in_its_order_and_nothing_about_another() -> None:
    house = registered()
    house.register(rm="rm-2", session="another")
    [record] = lost(house)
    assert house.hear(PROXY, Resume(received={PARTITION: 1}), ref="again") == []
    assert kinds(house.hear(PROXY, Resume(), rm="rm-2", session="another", ref="2"))[0] == (PROXY, "Registered")
    told = [kind for _, kind in kinds(house.recorded([record]))]
    assert told == [
        *("PrepareConfig", "CommitConfig", "PartitionRestarted"),
        *("Registered", "PartitionRestarted", "Repeat"),
    ]


def test_what_changes_while_something_is_recorded_is_recorded_too_before_either_is_told() -> None:
    house = registered()
    [first] = lost(house)
    assert house.switch.handle(arrives(PROXY, UpdateConfiguration(config="]", extra_config={"a": "1"})), 1.0)[1:] == []
    assert decode_body(ManagerRecord, first.body).number == 2
    [second] = house.switch.handle(arrives(RECORD, Recorded(number=2), session=""), 1.0)
    assert decode_body(ManagerRecord, second.body).number == 3
    assert (PARTITION, "Settings") in kinds(house.recorded([second]))
    assert house.facts[RM].extra == {"a": "1"}


def test_a_full_disk_refuses_a_registration_and_a_change_with_the_reason() -> None:
    house = registered()
    house.disk_problem = "disk full"
    house.call(rm="rm-2", session="another")
    [refusal] = [one for one in said(house.vote(house.hello("rm-2_default")[0])) if isinstance(one, Refused)]
    assert refusal.reason.endswith("the configuration cannot be recorded: disk full")
    sends = house.agree(house.update(two_partitions().replace("batch", "other").replace("gpu", "default2")))
    sends = house.agree(house.hello("rm-1_default2"))
    assert any("cannot be recorded: disk full" in one.reason for one in said(sends) if isinstance(one, Refused))
    assert list(house.switch.registry.slots) == [PARTITION]


def test_a_failed_write_is_counted_listed_and_probed_until_the_disk_takes_one_again() -> None:
    house = registered()
    written = house.switch.state.counters.record_writes["durable"]
    house.disk_problem = "disk full"
    house.call(rm="rm-2", session="another")
    house.vote(house.hello("rm-2_default")[0])
    assert house.switch.state.counters.record_writes["refused"] == 1
    assert record_problem(house) == "disk full"
    house.wait(house.now + 2 * PROBE_S)
    assert (house.switch.state.counters.record_writes["refused"], record_problem(house)) == (3, "disk full")
    house.disk_problem = ""
    house.wait(house.now + PROBE_S)
    assert (house.switch.state.counters.record_writes["durable"], record_problem(house)) == (written + 1, "")
    assert house.switch.deadline == NEVER


def test_a_record_that_the_broker_could_not_write_when_it_began_is_probed_too() -> None:
    switch = BrokerMachine(now=1.0, settings=PATIENT, record_problem="disk full")
    assert (switch.state.counters.record_writes["refused"], switch.deadline) == (1, 1.0 + PROBE_S)
    assert kinds(switch.tick(1.0 + PROBE_S)) == [(RECORD, "ProbeRecord")]
    assert switch.handle(arrives(RECORD, Recorded(number=0), **NONE), 7.0) == []
    assert (switch.state.counters.record_writes["durable"], switch.deadline) == (1, NEVER)


def record_problem(house: House) -> str:
    [listed] = house.hear(WEB, ListPartitions(), rm="", session="", ref="1")
    return decode_body(PartitionList, listed.body).record_problem


def test_a_registration_whose_text_is_in_the_history_already_is_recorded_too() -> None:
    house = registered()
    house.disk_problem = "disk full"
    sends = house.agree(house.call(session="session-2"))
    assert [one.code for one in said(sends) if isinstance(one, Refused)] == ["registration"]
    house.disk_problem = ""
    assert kinds(house.register(session="session-2"))[-1] == (PROXY, "Registered")
    assert house.facts[RM].session == "session-2"
    assert len(house.record) == 1


def test_what_has_happened_is_tried_again_until_the_disk_takes_it() -> None:
    house = registered()
    house.disk_problem = "disk full"
    assert house.lost(PARTITION) == []
    assert (
        house.switch.state.warnings[-1] == "changes of RM rm-1 cannot be recorded now, and are tried again: disk full"
    )
    for _ in range(3):
        assert house.switch.deadline == house.now + RETRY_S
        assert house.wait(house.now + RETRY_S) == []
    house.disk_problem = ""
    told = kinds(house.wait(house.now + RETRY_S))
    assert told == [(PARTITION, "PrepareConfig"), (PARTITION, "CommitConfig"), (PROXY, "PartitionRestarted")]
    assert house.switch.deadline == NEVER


def test_a_full_disk_does_not_keep_an_rm_from_hearing_that_it_is_refused() -> None:
    house = registered()
    house.disk_problem = "disk full"
    house.lost(PARTITION)
    request = RegisterResourceManager(rm_id=RM, config="]")
    assert kinds(house.hear(PROXY, request, session="session-2", ref="call")) == [(PROXY, "Refused")]


def test_the_supervisor_hears_of_another_lease_once_it_is_durable_and_of_other_rms_at_once() -> None:
    house = registered()
    house.disk_problem = "disk full"
    house.switch.registry.renew_lease(PARTITION)
    told = wanted(house.call(ONE_QUEUE, rm="rm-2", session="another"))
    assert told == [{PARTITION: 1, "rm-2_default": 3}]
    house.disk_problem = ""
    assert wanted(house.wait(house.now + RETRY_S)) == [{PARTITION: 2, "rm-2_default": 3}]


def test_what_the_record_says_of_what_it_was_given_earlier_counts_for_nothing() -> None:
    house = registered()
    [record] = lost(house)
    assert house.switch.handle(arrives(RECORD, Recorded(number=1), session=""), 1.0) == []
    assert house.switch.handle(arrives(RECORD, Recorded(number=9, problem="x"), session=""), 1.0) == []
    assert len(house.recorded([record])) == 3


def test_a_bounded_number_of_messages_waits_for_one_record_and_later_ones_are_dropped() -> None:
    house = registered()
    [record] = lost(house)
    for number in range(HELD_MAX):
        assert house.hear(PROXY, Leave(), session="earlier", ref=str(number)) == []
    answered = [one.header.ref for one in house.recorded([record]) if one.header.kind == "Left"]
    assert answered == [str(number) for number in range(HELD_MAX - 3)]  # three messages were held before them
