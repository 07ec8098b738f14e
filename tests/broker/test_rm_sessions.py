"""Registration of RMs, and RMs that are away, resume and leave."""

import dataclasses
import json
from typing import Literal

import pytest
from msgspec.structs import replace

from tests.broker.bench import (
    GPU,
    KEEPER,
    PATIENT,
    PROXY,
    BrokerBench,
    answers,
    is_prepare,
    joined,
    kinds,
    registered,
    wanted,
)
from tests.machines import ONE_QUEUE, PARTITION, RM, SESSION, said, sent, two_partitions
from yunishard.broker.config_rollout import ROLLOUT_MAX_S
from yunishard.broker.config_versions import ConfigVersions
from yunishard.broker.state import WARNINGS_LOGGED_MAX, BrokerState
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import Hello, ManagerAway, Pause, Repeat, Settings, WorkerEnded
from yunishard.common.messages.query_messages import Actor, Answer, EndSession
from yunishard.common.messages.rm_messages import (
    Leave,
    Left,
    NodeRequest,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
)
from yunishard.common.messages.wire import NEVER, Outgoing, decode_body
from yunishard.common.names import RECORD, lease_name

MORE = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
QUEUES = "queues: [{name: root, submitacl: '*', queues: [{name: %s, queues: [{name: dev}]}]}]"
MOVED = f"partitions: [{{name: default, {QUEUES % 'a'}}}, {{name: gpu, {QUEUES % 'b'}}}]"
PROBLEM = (
    "queue dev is below root.b here, but below root.a in partition default "
    "(a queue has the same parent in every partition that has it)"
)


def reason(bench: BrokerBench, **fields: str) -> str:
    [refusal] = said(bench.call(**fields))
    assert isinstance(refusal, Refused)
    assert refusal.code == "registration"
    return refusal.reason


# Who ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "rm", "admitted"),
    [
        ("*", "anybody", True),
        ("rm-1", "rm-1", True),
        ("rm-1", "rm-10", False),
        ("rm-1", "RM-1", False),
        ("rm-1,prod-*", "prod-eu", True),
        ("rm-1,prod-*", "test-prod-eu", False),
        ("*-eu", "prod-eu", True),
        ("", "rm-1", False),
        ("rm.1", "rmx1", False),
        ("rm-?,rm-[12]", "rm-1", False),
    ],
)
def test_only_rms_that_the_setting_names_may_register(allowed: str, rm: str, admitted: bool) -> None:
    assert (
        BrokerState(settings=dataclasses.replace(PATIENT, allowed_rms=tuple(allowed.split(",")))).may_register(rm)
        == admitted
    )


def test_one_that_may_not_is_told_which_setting_says_so() -> None:
    bench = BrokerBench(settings=dataclasses.replace(PATIENT, allowed_rms=("rm-2",)))
    text = "registration of RM failed: RM 'rm-1' may not register here: the setting allowed-rms does not name it"
    assert reason(bench) == text
    assert bench.broker.registry.slots == {}
    assert kinds(bench.register(rm="rm-2"))[-1] == (PROXY, "Registered")


def test_an_id_with_a_colon_is_taken_with_a_warning() -> None:
    bench = BrokerBench()
    bench.register(rm="eu:prod")
    (warning,) = bench.broker.state.warnings
    assert warning == (
        "the id of RM eu:prod has a colon, at which YuniKorn's web UI splits names of partitions: it cannot show a "
        "partition under its full name, which it has if another RM registered the plain name first; choose an id "
        "without a colon, or name this RM with the setting default-rm"
    )
    bench.register(rm="eu_prod")
    assert len(bench.broker.state.warnings) == 1


def test_an_id_with_a_colon_that_is_refused_is_not_warned_about() -> None:
    bench = BrokerBench(settings=dataclasses.replace(PATIENT, allowed_rms=("rm-2",)))
    bench.call(rm="eu:prod")
    assert bench.broker.state.warnings == []


# With what ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "warn", "enforce"])
def test_a_queue_that_has_another_parent_elsewhere_is_refused_or_warned_about(
    mode: Literal["off", "warn", "enforce"],
) -> None:
    bench = BrokerBench(settings=dataclasses.replace(PATIENT, same_hierarchy=mode))
    if mode == "enforce":
        assert PROBLEM in reason(bench, config=MOVED)
        return
    assert kinds(bench.register(MOVED))[-1] == (PROXY, "Registered")
    warned = [(line.startswith("configuration of RM rm-1: "), PROBLEM in line) for line in bench.broker.state.warnings]
    assert warned == ([(True, True)] if mode == "warn" else [])


def test_the_first_registration_is_recorded_as_the_first_version() -> None:
    bench = BrokerBench()
    bench.register()
    [version] = bench.record
    assert (version.number, version.author, version.origin) == (1, "RM rm-1", "registration")
    assert (version.config, version.checksum, version.base) == (ONE_QUEUE, *[compute_checksum(ONE_QUEUE)] * 2)


@pytest.mark.parametrize(("watched", "origin"), [("/etc/queues.yaml", "file"), ("", "registration")])
def test_a_text_from_the_core_is_recorded_with_where_it_is_from(watched: str, origin: str) -> None:
    bench = BrokerBench(default_config=MORE, watched=watched)
    bench.register("")
    assert [(one.origin, one.config) for one in bench.record] == [(origin, MORE)]


def test_a_name_that_no_partition_can_have_is_told_with_its_place() -> None:
    bench = BrokerBench()
    text = "partitions:\n- queues: [{name: root, submitacl: '*'}]\n  name: a b\n"
    [answer] = bench.call(text)
    place = "line 3, partitions[0].name: partition name 'a b' must be"
    assert place.encode() in answer.body
    bench.register()
    [(status, body)] = answers(bench.change(text))
    [problem] = json.loads(body)["problems"]
    assert (status, problem["line"], problem["path"]) == (400, 3, "partitions[0].name")
    assert problem["kind"] == "partition-name"


def test_what_is_allowed_and_hardly_meant_is_warned_about_and_not_without_end() -> None:
    bench = BrokerBench()
    queues = ", ".join(f"{{name: q{number}, submitacl: '1bad'}}" for number in range(30))
    text = f"partitions: [{{queues: [{{name: root, submitacl: '*', queues: [{queues}]}}]}}]"
    assert kinds(bench.register(text))[-1] == (PROXY, "Registered")
    *told, rest = bench.broker.state.warnings
    assert len(told) == WARNINGS_LOGGED_MAX
    assert all(line.startswith("configuration of RM rm-1: line 1, partitions[0].queues[0].queues[") for line in told)
    assert rest == "configuration of RM rm-1: 10 more such warnings: `yunishard validate` shows them"


def test_the_same_text_again_is_no_new_version() -> None:
    bench = BrokerBench()
    for session in ("session-1", "session-2", "session-3"):
        bench.register(session=session)
    bench.register(MORE, session="session-4")
    assert [one.number for one in bench.record] == [1, 2]


def test_an_rm_that_comes_with_what_was_changed_on_top_of_its_text_owns_it() -> None:
    bench = BrokerBench()
    bench.register()
    bench.agree(bench.change(MORE))
    bench.register(MORE, session="session-2")
    assert [(one.number, one.base) for one in bench.record[1:]] == [
        (2, compute_checksum(ONE_QUEUE)),
        (3, compute_checksum(MORE)),
    ]
    bench.register(session="session-3")
    assert bench.text() == ONE_QUEUE


def test_what_was_changed_on_top_of_its_text_is_what_it_gets_even_from_a_core_that_was_started_anew() -> None:
    before = BrokerBench()
    before.register()
    before.agree(before.change(MORE))
    versions = ConfigVersions()
    for version in before.record:
        versions.add_version(RM, version)
    bench = BrokerBench(versions=versions, texts=before.texts)
    answer = bench.register()[-1]
    assert answer.header.kind == "Registered"
    assert compute_checksum(MORE).encode() in answer.body
    assert bench.text() == MORE
    assert bench.record == []
    bench.register(two_partitions(), session="session-2")
    assert bench.text() == two_partitions()
    assert [(one.number, one.base) for one in bench.record] == [(3, compute_checksum(two_partitions()))]


def test_what_was_changed_on_top_does_not_keep_an_rm_out_when_it_cannot_be_any_more() -> None:
    before = BrokerBench()
    before.register(rm="a", session="session-a")
    before.agree([*before.change(two_partitions("default", "b_c"), rm="a"), *before.hello("a_b_c")])
    small = dataclasses.replace(PATIENT, partitions_max=1)
    bench = BrokerBench(versions=before.broker.state.versions, settings=small, texts=before.texts)
    assert kinds(bench.register(rm="a"))[-1] == (PROXY, "Registered")
    assert bench.text("a") == ONE_QUEUE
    [warning] = bench.broker.state.warnings
    assert warning.startswith("RM a begins with its own configuration, as its changed one is not valid: ")
    assert (bench.record[-1].number, bench.record[-1].base) == (3, compute_checksum(ONE_QUEUE))


def test_a_version_that_cannot_be_recorded_refuses_it() -> None:
    bench = BrokerBench()
    bench.disk_problem = "disk full"
    bench.call()
    sends = bench.vote(bench.hello(PARTITION)[0])
    [refusal] = [one for one in said(sends) if isinstance(one, Refused)]
    assert refusal.reason == "registration of RM failed: the configuration cannot be recorded: disk full"
    assert bench.broker.registry.slots == {}
    assert bench.broker.registry.sessions == {}


def test_the_rms_settings_reach_every_worker_after_the_commit() -> None:
    bench = BrokerBench()
    request = RegisterResourceManager(rm_id=RM, config=ONE_QUEUE, extra_config={"a": "1"})
    bench.hear(PROXY, request, ref="call")
    commit, settings, _ = bench.vote(bench.hello(PARTITION)[0])
    assert commit.header.kind == "CommitConfig"
    assert settings == sent(PARTITION, Settings(values={"a": "1"}), partition=PARTITION)
    _, commit, settings, _ = bench.hello(PARTITION)
    assert (commit.header.kind, settings.header.kind) == ("CommitConfig", "Settings")


def test_the_same_call_on_another_connection_is_answered_there() -> None:
    bench = BrokerBench()
    bench.call()
    assert bench.call(proxy="rmproxy-2", ref="again") == []
    [asked] = [one for one in bench.hello(PARTITION) if is_prepare(one)]
    answer = bench.vote(asked)[-1]
    assert (answer.to, answer.header.kind, answer.header.ref) == ("rmproxy-2", "Registered", "again")


def test_what_an_rm_can_do_reaches_every_worker_even_without_settings() -> None:
    bench = BrokerBench()
    request = RegisterResourceManager(rm_id=RM, config=ONE_QUEUE, capabilities=["predicates"])
    bench.hear(PROXY, request, ref="call")
    _, settings, _ = bench.vote(bench.hello(PARTITION)[0])
    wanted = sent(PARTITION, Settings(values={}, capabilities=["predicates"]), partition=PARTITION)
    assert settings == wanted
    _, _, settings, _ = bench.hello(PARTITION)
    assert settings == wanted


PAUSE_S = 900.0


# Away and back ------------------------------------------------------------------------------------------------------


def test_while_an_rm_is_away_nothing_new_is_placed_for_it() -> None:
    bench = registered(two_partitions())
    assert bench.away() == [sent(name, Pause(), partition=name) for name in (PARTITION, GPU)]
    assert bench.away() == []
    assert list(bench.broker.registry.away) == [RM]
    assert bench.broker.state.notes[-1] == (
        "RM rm-1 disconnected (no messages, or its connection was closed): no new allocations until it reconnects; its"
        " partitions end in 900 s"
    )


def test_an_rm_that_is_back_hears_what_it_does_not_have_and_its_partitions_place_again() -> None:
    bench = registered()
    bench.away()
    assert bench.resume(received={PARTITION: 3}) == [
        sent(PROXY, joined([PARTITION]), ref="again"),
        sent(PARTITION, Repeat(), partition=PARTITION, ack=3, ref="1"),
    ]
    assert bench.broker.registry.away == {}
    assert bench.broker.deadline == NEVER


def test_a_partition_is_told_how_many_commands_its_rm_has_had_acknowledged_in_the_same_life() -> None:
    bench = registered()
    [_, repeat] = bench.resume(received={PARTITION: 3}, acknowledged={PARTITION: 7})
    assert repeat == sent(PARTITION, Repeat(acknowledged=7), partition=PARTITION, ack=3, ref="1")
    bench.lost(PARTITION)
    *_, repeat = bench.resume(received={PARTITION: 3}, acknowledged={PARTITION: 7})
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, life=1, ref="2")


def test_an_rm_that_knows_a_later_life_than_the_record_has_to_register_anew() -> None:
    """An operator has restored an older record."""
    bench = registered()
    [refused] = said(bench.resume(received={PARTITION: 3}, lives={PARTITION: 1}))
    reason = "the core's record of RM 'rm-1' is older than this session's last state, register again"
    assert refused == Refused(code="unknown-session", reason=reason)
    assert bench.broker.state.warnings == [
        "RM rm-1 has to register again: its record has gone back to an earlier state"
    ]


def test_an_rm_that_knows_a_later_configuration_than_the_record_has_to_register_again() -> None:
    """The older record has a partition again that the RM saw removed."""
    bench = registered()
    [refused] = said(bench.hear(PROXY, Resume(received={PARTITION: 3}, configuration_number=2), ref="again"))
    reason = "the core's record of RM 'rm-1' is older than this session's last state, register again"
    assert refused == Refused(code="unknown-session", reason=reason)
    resumed = bench.hear(PROXY, Resume(received={PARTITION: 3}, configuration_number=1), ref="again")
    assert kinds(resumed)[0] == (PROXY, "Registered")


def test_the_life_of_another_partition_does_not_hide_that_the_record_is_older() -> None:
    bench = registered(two_partitions())
    bench.lost(GPU)
    assert said(bench.resume(received={PARTITION: 3, GPU: 1}, lives={PARTITION: 1, GPU: 1}))[0] == Refused(
        code="unknown-session",
        reason="the core's record of RM 'rm-1' is older than this session's last state, register again",
    )
    assert kinds(bench.resume(received={GPU: 1}, lives={GPU: 1}))[0] == (PROXY, "Registered")


def test_only_the_proxy_by_which_it_speaks_can_say_that_it_is_away() -> None:
    bench = registered()
    assert bench.hear("rmproxy-2", ManagerAway()) == []
    assert bench.hear(PROXY, ManagerAway(), session="earlier") == []
    assert bench.hear(PROXY, ManagerAway(), rm="rm-2") == []
    assert bench.broker.registry.away == {}


def test_a_proxy_that_begins_anew_has_none_of_its_rms_until_they_resume() -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another", proxy="rmproxy-2")
    assert kinds(bench.hear(PROXY, Hello(role="rmproxy"), rm="", session="")) == [(PARTITION, "Pause")]
    assert list(bench.broker.registry.away) == [RM]
    bench.resume()
    assert bench.broker.registry.away == {}


def test_a_new_session_is_there() -> None:
    bench = registered()
    bench.away()
    bench.register(session="session-2")
    assert bench.broker.registry.away == {}


def test_a_new_partition_is_heard_of_as_life_in_the_answer_and_not_as_a_restart() -> None:
    """What the RM never knew has not begun anew for it."""
    bench = registered()
    bench.agree([*bench.change(two_partitions()), *bench.hello(GPU)])
    told, *repeats = bench.resume(received={PARTITION: 1})
    assert decode_body(Registered, told.body).lives == {GPU: 1}
    assert [one.header.kind for one in repeats] == ["Repeat", "Repeat"]


def test_one_that_stays_away_for_too_long_has_to_begin_anew() -> None:
    bench = registered()
    bench.away()
    sends = bench.wait(bench.now + PAUSE_S - 1)
    assert (sends, RM in bench.facts) == ([], True)
    sends = bench.wait(bench.now + 2)
    assert sent(PROXY, Left()) in sends, "or its proxy would remember it for ever"
    assert wanted(sends) == [[]]
    assert bench.facts == {}
    assert bench.broker.state.warnings[-1] == "RM rm-1 has been away for 900 s: its partitions end"
    [refusal] = said(bench.resume())
    assert isinstance(refusal, Refused)
    assert refusal.code == "unknown-session"
    assert kinds(bench.register(session="session-2"))[-1] == (PROXY, "Registered")


OP = Actor(user="op", scheduler_admin=True)
WEB = "webservice"


def end(bench: BrokerBench, rm: str = RM, *, force: bool = False) -> tuple[list[Outgoing], int, str]:
    """What else is sent; the status and the body of the answer."""
    sends = bench.hear(WEB, EndSession(actor=OP, force=force), rm=rm, session="", ref="1")
    [answer] = [one for one in sends if one.to == WEB]
    told = decode_body(Answer, answer.body)
    return [one for one in sends if one is not answer], told.status, told.body.decode()


def test_an_operator_ends_an_rm_that_is_away() -> None:
    bench = registered()
    bench.away()
    sends, status, body = end(bench)
    assert (status, json.loads(body)) == (200, {"rm": RM, "partitions": [PARTITION]})
    assert sent(PROXY, Left()) in sends
    assert wanted(sends) == [[]]
    assert bench.facts == {}
    assert bench.broker.state.notes[-1] == "op ended the session of RM rm-1, its partitions end"
    [refusal] = said(bench.resume())
    assert isinstance(refusal, Refused)
    assert kinds(bench.register(session="session-2"))[-1] == (PROXY, "Registered")


def test_a_connected_rm_is_ended_only_by_force() -> None:
    bench = registered()
    sends, status, body = end(bench)
    assert (sends, status) == ([], 409)
    assert body.startswith("RM rm-1 is connected")
    assert RM in bench.broker.registry.sessions
    assert end(bench, force=True)[1] == 200
    assert bench.broker.registry.sessions == {}


def test_an_unknown_rm_cannot_be_ended() -> None:
    assert end(registered(), "rm-9")[1:] == (404, "RM rm-9 is not registered")


def test_a_change_of_an_rm_that_ends_ends_too() -> None:
    bench = registered()
    bench.away()
    bench.wait(bench.now + PAUSE_S - ROLLOUT_MAX_S / 2)
    bench.change(two_partitions())
    sends = bench.wait(bench.now + ROLLOUT_MAX_S)
    assert ("webservice", "Answer") in kinds(sends)
    assert wanted(sends)[-1] == []
    assert bench.broker.deadline == NEVER


# Leaving ------------------------------------------------------------------------------------------------------------


def leave(bench: BrokerBench, session: str = SESSION) -> list[Outgoing]:
    return bench.hear(PROXY, Leave(reason="done"), session=session, ref="bye")


def test_an_rm_that_leaves_leaves_nothing_behind_and_is_told_so_at_last() -> None:
    bench = registered()
    bench.register(rm="rm-2", session="another")
    left, removal, supervisor = leave(bench)
    assert left == sent(PROXY, Left(), ref="bye")
    assert (removal.to, removal.header.kind, removal.header.partition) == (PARTITION, "PartitionRemoved", PARTITION)
    assert wanted([supervisor]) == [["rm-2_default"]]
    assert list(bench.facts) == ["rm-2"]
    assert kinds(bench.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1)) == [(PROXY, "Refused")]


def test_it_is_told_again_if_it_asks_again_whoever_has_its_name_by_then() -> None:
    bench = registered()
    leave(bench)
    assert leave(bench) == [sent(PROXY, Left(), ref="bye")]
    bench.register(session="session-2")
    assert leave(bench) == [sent(PROXY, Left(), ref="bye")]
    assert bench.facts[RM].session == "session-2"


def test_it_is_not_told_before_that_is_durable() -> None:
    bench = registered()
    bench.disk_problem = "disk full"
    assert kinds(leave(bench)) == []
    bench.disk_problem = ""
    assert kinds(bench.wait(bench.now + 1)) == [
        (PROXY, "Left"),
        (PARTITION, "PartitionRemoved"),
        (KEEPER, "WorkersWanted"),
    ]


def test_a_journal_in_the_store_stays_until_the_end_of_its_partition_is_durable() -> None:
    """A broker that begins before has the partition again, and its worker needs the journal."""
    bench = BrokerBench(settings=dataclasses.replace(PATIENT, store="postgresql://db/y"))
    bench.register()
    epoch = bench.epoch(PARTITION)
    ended = WorkerEnded(worker=lease_name(PARTITION, epoch), reason="")
    bench.hear(KEEPER, ended, rm="", session="", partition=PARTITION, epoch=epoch)
    bench.disk_problem = "the database is unreachable"
    assert kinds(leave(bench)) == []
    bench.disk_problem = ""
    assert (RECORD, "RemoveJournal") in kinds(bench.wait(bench.now + 1))


def test_one_that_leaves_while_its_configuration_changes_takes_the_change_with_it() -> None:
    bench = registered()
    bench.change(two_partitions())
    assert {("webservice", "Answer"), (PROXY, "Left")} < set(kinds(leave(bench)))
    assert bench.broker.registry.slots == {}
    assert bench.broker.deadline == NEVER


def test_one_that_leaves_while_its_configuration_is_recorded_is_gone_all_the_same() -> None:
    bench = registered()
    [record] = bench.yes(bench.change(ONE_QUEUE.replace("batch", "other"))[0])
    leave(bench)
    bench.recorded([record])
    assert bench.facts == {}
    assert bench.broker.registry.sessions == {}


@pytest.mark.parametrize(("problem", "numbers"), [("", [1, 2]), ("disk full", [1])])
def test_a_configuration_that_was_being_recorded_when_its_rm_left_counts_if_it_is_durable(
    problem: str, numbers: list[int]
) -> None:
    bench = registered()
    [record] = bench.yes(bench.change(ONE_QUEUE.replace("batch", "other"))[0])
    leave(bench)
    bench.disk_problem = problem
    bench.recorded([record])
    bench.disk_problem = ""
    assert [one.number for one in bench.broker.state.versions.history(RM).entries] == numbers


def test_one_that_leaves_while_its_next_session_registers_has_that_try_again() -> None:
    bench = registered()
    bench.call(session="session-2")
    sends = leave(bench)
    assert [one.code for one in said(sends) if isinstance(one, Refused)] == ["busy"]
    assert bench.facts == {}
    assert kinds(bench.register(session="session-2"))[-1] == (PROXY, "Registered")


# After the broker began anew ----------------------------------------------------------------------------------------


def test_an_rm_goes_on_after_a_broker_that_died() -> None:
    bench = registered(two_partitions())
    before = bench.broker.registry.sessions[RM]
    bench.begin_again()
    assert bench.leases() == {PARTITION: 1, GPU: 2}
    assert kinds(bench.resume())[0] == (PROXY, "Registered")
    assert bench.broker.registry.sessions[RM] == before
    assert bench.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1) == []
    assert (PROXY, "ResumeWanted") in kinds(bench.returns(PARTITION)), "so that it comes again"
    assert bench.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1)[0].to == PARTITION


def test_the_same_call_of_a_session_that_the_last_broker_registered_is_an_answer_that_was_lost() -> None:
    bench = registered()
    bench.begin_again()
    bench.returns(PARTITION)
    assert kinds(bench.call(ref="once more")) == [(PROXY, "Registered"), (PARTITION, "Repeat")]
    assert [one.code for one in said(bench.call("partitions: []")) if isinstance(one, Refused)] == ["registration"]


def test_one_that_does_not_come_back_has_been_away_since_the_broker_began() -> None:
    bench = registered()
    bench.begin_again()
    assert bench.broker.state.notes == ["waiting for 1 RM registered before this start"]
    assert kinds(bench.returns(PARTITION)) == [(PARTITION, "Settings"), (PARTITION, "Pause")]
    bench.wait(bench.now + PAUSE_S + 2)
    assert bench.facts == {}


def test_one_whose_configuration_is_none_in_this_release_has_to_register_anew() -> None:
    bench = registered()
    bench.texts[RM, 1] = replace(bench.texts[RM, 1], config="]")
    bench.begin_again()
    bench.returns(PARTITION)
    assert kinds(bench.resume())[0] == (PROXY, "Registered"), "its worker has the configuration"
    bench.lost(PARTITION)
    [warning] = [one for one in bench.broker.state.warnings if "has to register" in one]
    assert warning.startswith("RM rm-1 has to register again, its recorded configuration is not valid: line 1: ")
    assert kinds(bench.resume()) == [(PROXY, "Refused")]
    assert bench.facts == {}
    bench.register(session="session-2")
    assert bench.record[-1].number == 2, "the text is written again"
    assert bench.text() == ONE_QUEUE
