"""Records of RMs: contents, when they are written, and messages that wait."""

import msgspec
from msgspec.structs import replace

from tests.analyses import answer_text, handle_with_analyses
from tests.broker.bench import GPU, KEEPER, PATIENT, PROXY, WEB, BrokerBench, kinds, registered
from tests.machines import ONE_QUEUE, PARTITION, RM, arrives, said, two_partitions
from yunishard.broker.rm_records import HELD_MAX, RETRY_S, build_record, decode_record, restore_session
from yunishard.broker.routing import BrokerMachine
from yunishard.broker.state import BrokerState
from yunishard.common.messages.control_messages import Hello, ManagerRecord, Recorded, VersionRead
from yunishard.common.messages.query_messages import ListPartitions, PartitionList
from yunishard.common.messages.rm_messages import (
    Leave,
    NodeRequest,
    Refused,
    RegisterResourceManager,
    Resume,
    UpdateConfiguration,
)
from yunishard.common.messages.wire import NEVER, Outgoing, decode_body
from yunishard.common.names import RECORD, lease_name


def whole() -> BrokerBench:
    """An RM of which there is something to know in every respect."""
    bench = registered(two_partitions())
    bench.update(two_partitions(), a="1")
    bench.lost(GPU)
    bench.agree(bench.update(ONE_QUEUE, a="1"))
    return bench


def test_what_is_recorded_is_all_that_has_to_be_known_again() -> None:
    bench = whole()
    registration = bench.broker.registry.sessions[RM]
    facts = build_record(registration, bench.broker.registry)
    assert facts == bench.facts[RM]
    assert decode_record(msgspec.json.encode(facts)) == facts
    assert restore_session(facts, registration.checksum) == replace(registration, proxy="")


def test_leases_are_of_partitions_that_are_configured_or_being_taken_down() -> None:
    bench = whole()
    assert bench.facts[RM].leases == {PARTITION: 1, GPU: 2}
    assert (bench.facts[RM].leaving, bench.facts[RM].generations) == ([GPU], {GPU: 1})
    bench.retired(GPU)
    assert bench.facts[RM].leases == {PARTITION: 1}
    assert (bench.facts[RM].leaving, bench.facts[RM].generations, bench.facts[RM].last_generation) == ([], {}, 1)


def test_what_a_later_release_adds_is_ignored() -> None:
    data = msgspec.json.encode(whole().facts[RM])
    assert decode_record(data[:-1] + b',"later":7}') == whole().facts[RM]


NONE = {"rm": "", "session": ""}


def lost(bench: BrokerBench, partition: str = PARTITION) -> list[Outgoing]:
    """A worker without its journal comes; what is sent at once."""
    bench.speaks(partition)
    epoch = bench.epoch(partition)
    hello = Hello(role="worker", problem="damaged")
    [read] = bench.broker.handle(
        arrives(lease_name(partition, epoch), hello, partition=partition, epoch=epoch, **NONE), bench.now
    )
    assert read.header.kind == "ReadVersion"
    found = VersionRead(version=1, text=ONE_QUEUE)
    return bench.broker.handle(arrives(RECORD, found, rm=RM, session=""), bench.now)


def test_what_happened_is_recorded_before_anybody_hears_of_it() -> None:
    bench = registered()
    [record] = lost(bench)
    assert (record.to, record.header.kind, record.header.rm) == (RECORD, "ManagerRecord", RM)
    sends = bench.recorded([record])
    assert kinds(sends) == [(PARTITION, "PrepareConfig"), (PARTITION, "CommitConfig"), (PROXY, "PartitionRestarted")]
    assert bench.facts[RM].generations == {PARTITION: 1}


def test_what_is_only_routed_waits_for_nothing() -> None:
    bench = registered()
    lost(bench)
    assert bench.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1)[0].to == PARTITION


def test_everything_about_an_rm_waits_in_its_order_and_nothing_about_another() -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another")
    [record] = lost(bench)
    assert bench.hear(PROXY, Resume(received={PARTITION: 1}), ref="again") == []
    assert kinds(bench.hear(PROXY, Resume(), rm="rm-2", session="another", ref="2"))[0] == (PROXY, "Registered")
    told = [kind for _, kind in kinds(bench.recorded([record]))]
    assert told == [
        *("PrepareConfig", "CommitConfig", "PartitionRestarted"),
        *("Registered", "PartitionRestarted", "Repeat"),
    ]


def test_what_changes_while_something_is_recorded_is_recorded_too_before_either_is_told() -> None:
    bench = registered()
    [first] = lost(bench)
    update = arrives(PROXY, UpdateConfiguration(config="]", extra_config={"a": "1"}))
    assert handle_with_analyses(bench.broker, update, 1.0)[1:] == []
    assert decode_body(ManagerRecord, first.body).number == 2
    [second] = bench.broker.handle(arrives(RECORD, Recorded(number=2), session=""), 1.0)
    assert decode_body(ManagerRecord, second.body).number == 3
    assert (PARTITION, "Settings") in kinds(bench.recorded([second]))
    assert bench.facts[RM].extra == {"a": "1"}


def test_a_full_disk_refuses_a_registration_and_a_change_with_the_reason() -> None:
    bench = registered()
    bench.disk_problem = "disk full"
    bench.call(rm="rm-2", session="another")
    [refusal] = [one for one in said(bench.vote(bench.hello("rm-2_default")[0])) if isinstance(one, Refused)]
    assert refusal.reason.endswith("the configuration cannot be recorded: disk full")
    sends = bench.agree(bench.update(two_partitions().replace("batch", "other").replace("gpu", "default2")))
    sends = bench.agree(bench.hello("rm-1_default2"))
    assert any("cannot be recorded: disk full" in one.reason for one in said(sends) if isinstance(one, Refused))
    assert list(bench.broker.registry.slots) == [PARTITION]


def test_a_failed_write_is_counted_listed_and_probed_until_the_disk_takes_one_again() -> None:
    bench = registered()
    written = bench.broker.state.counters.record_writes["durable"]
    bench.disk_problem = "disk full"
    bench.call(rm="rm-2", session="another")
    bench.vote(bench.hello("rm-2_default")[0])
    assert bench.broker.state.counters.record_writes["refused"] == 1
    assert record_problem(bench) == "disk full"
    bench.wait(bench.now + 2 * RETRY_S)
    assert (bench.broker.state.counters.record_writes["refused"], record_problem(bench)) == (3, "disk full")
    bench.disk_problem = ""
    bench.wait(bench.now + RETRY_S)
    assert (bench.broker.state.counters.record_writes["durable"], record_problem(bench)) == (written + 1, "")
    assert bench.broker.deadline == NEVER


def test_a_record_that_the_broker_could_not_write_when_it_began_is_probed_too() -> None:
    broker = BrokerMachine(BrokerState(settings=PATIENT), now=1.0, record_problem="disk full")
    [request] = broker.tick(1.0)
    broker.handle(answer_text(request), 1.0)
    assert (broker.state.counters.record_writes["refused"], broker.deadline) == (1, 1.0 + RETRY_S)
    assert kinds(broker.tick(1.0 + RETRY_S)) == [(RECORD, "ProbeRecord")]
    assert broker.handle(arrives(RECORD, Recorded(number=0), **NONE), 7.0) == []
    assert (broker.state.counters.record_writes["durable"], broker.deadline) == (1, NEVER)


def record_problem(bench: BrokerBench) -> str:
    [listed] = bench.hear(WEB, ListPartitions(), rm="", session="", ref="1")
    return decode_body(PartitionList, listed.body).record_problem


def test_a_registration_whose_text_is_in_the_history_already_is_recorded_too() -> None:
    bench = registered()
    bench.disk_problem = "disk full"
    sends = bench.agree(bench.call(session="session-2"))
    assert [one.code for one in said(sends) if isinstance(one, Refused)] == ["registration"]
    bench.disk_problem = ""
    bench.wait(bench.now + RETRY_S)
    assert not any("recorded again" in note for note in bench.broker.state.notes), "a probe writes no record"
    assert kinds(bench.register(session="session-2"))[-1] == (PROXY, "Registered")
    assert bench.facts[RM].session == "session-2"
    assert len(bench.record) == 1


def test_what_has_happened_is_tried_again_until_the_disk_takes_it() -> None:
    bench = registered()
    bench.disk_problem = "disk full"
    assert bench.lost(PARTITION) == []
    cause = "changes of resource managers cannot be recorded now, and are tried again each second: disk full"
    warnings, notes = bench.broker.state.warnings, bench.broker.state.notes
    assert warnings.count(cause) == 1
    for _ in range(3):
        assert bench.broker.deadline == bench.now + RETRY_S
        assert bench.wait(bench.now + RETRY_S) == []
    bench.disk_problem = ""
    told = kinds(bench.wait(bench.now + RETRY_S))
    assert told == [(PARTITION, "PrepareConfig"), (PARTITION, "CommitConfig"), (PROXY, "PartitionRestarted")]
    assert bench.broker.deadline == NEVER
    assert warnings.count(cause) == 1, "once, however often and for however many RMs"
    assert notes[-1] == "changes of resource managers can be recorded again"


def test_a_full_disk_does_not_keep_an_rm_from_hearing_that_it_is_refused() -> None:
    bench = registered()
    bench.disk_problem = "disk full"
    bench.lost(PARTITION)
    request = RegisterResourceManager(rm_id=RM, config="]")
    assert kinds(bench.hear(PROXY, request, session="session-2", ref="call")) == [(PROXY, "Refused")]


def test_a_full_disk_does_not_keep_a_worker_from_its_partition_but_what_the_rm_hears_of_it() -> None:
    bench = registered()
    bench.disk_problem = "disk full"
    bench.broker.registry.renew_lease(PARTITION)
    assert kinds(bench.hear("worker/1", Hello(role="worker"), rm="", session="")) == [
        ("worker/1", "Grant"),
        (KEEPER, "WorkersWanted"),
    ]
    recovered = Hello(role="worker", rollout=1)
    assert bench.hear(PARTITION, recovered, partition=PARTITION, epoch=bench.epoch(PARTITION)) == []
    bench.disk_problem = ""
    assert (PROXY, "ResumeWanted") in kinds(bench.wait(bench.now + RETRY_S))
    assert bench.facts[RM].leases == {PARTITION: bench.epoch(PARTITION)}


def test_what_the_record_says_of_what_it_was_given_earlier_counts_for_nothing() -> None:
    bench = registered()
    [record] = lost(bench)
    assert bench.broker.handle(arrives(RECORD, Recorded(number=1), session=""), 1.0) == []
    assert bench.broker.handle(arrives(RECORD, Recorded(number=9, problem="x"), session=""), 1.0) == []
    assert len(bench.recorded([record])) == 3


def test_a_bounded_number_of_messages_waits_for_one_record_and_later_ones_are_dropped() -> None:
    bench = registered()
    [record] = lost(bench)
    for number in range(HELD_MAX):
        assert bench.hear(PROXY, Leave(), session="earlier", ref=str(number)) == []
    answered = [one.header.ref for one in bench.recorded([record]) if one.header.kind == "Left"]
    assert answered == [str(number) for number in range(HELD_MAX - 3)]  # three messages were held before them
