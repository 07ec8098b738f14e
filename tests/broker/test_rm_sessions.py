"""Registration of RMs, and RMs that are away, resume and leave."""

import dataclasses
import json
from typing import Literal

import pytest
from msgspec.structs import replace

from broker.config_rollout import ROLLOUT_MAX_S
from broker.state import WARNINGS_LOGGED_MAX, BrokerState, ConfigVersions
from common.config.model import compute_checksum
from common.control_messages import Hello, ManagerAway, Pause, Repeat, Settings
from common.rm_messages import Leave, Left, NodeRequest, Refused, Registered, RegisterResourceManager
from common.wire import NEVER, Outgoing, decode_body
from tests.broker.house import GPU, PATIENT, PROXY, House, answers, is_prepare, joined, kinds, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, SESSION, said, sent, two_partitions

MORE = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
QUEUES = "queues: [{name: root, submitacl: '*', queues: [{name: %s, queues: [{name: dev}]}]}]"
MOVED = f"partitions: [{{name: default, {QUEUES % 'a'}}}, {{name: gpu, {QUEUES % 'b'}}}]"
PROBLEM = (
    "queue dev is below root.b here, but below root.a in partition default "
    "(a queue has the same parent in every partition that has it)"
)


def reason(house: House, **fields: str) -> str:
    [refusal] = said(house.call(**fields))
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
    house = House(settings=dataclasses.replace(PATIENT, allowed_rms=("rm-2",)))
    text = "registration of RM failed: RM 'rm-1' may not register here: the setting allowed-rms does not name it"
    assert reason(house) == text
    assert house.switch.registry.slots == {}
    assert kinds(house.register(rm="rm-2"))[-1] == (PROXY, "Registered")


def test_an_id_with_a_colon_is_taken_with_a_warning() -> None:
    house = House()
    house.register(rm="eu:prod")
    (warning,) = house.switch.state.warnings
    assert warning == (
        "the id of RM eu:prod has a colon, at which YuniKorn's web UI splits names of partitions: it cannot show a "
        "partition under its full name, which it has if another RM registered the plain name first; choose an id "
        "without a colon, or name this RM with the setting default-rm"
    )
    house.register(rm="eu_prod")
    assert len(house.switch.state.warnings) == 1


def test_an_id_with_a_colon_that_is_refused_is_not_warned_about() -> None:
    house = House(settings=dataclasses.replace(PATIENT, allowed_rms=("rm-2",)))
    house.call(rm="eu:prod")
    assert house.switch.state.warnings == []


# With what ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["off", "warn", "enforce"])
def test_a_queue_that_has_another_parent_elsewhere_is_refused_or_warned_about(
    mode: Literal["off", "warn", "enforce"],
) -> None:
    house = House(settings=dataclasses.replace(PATIENT, same_hierarchy=mode))
    if mode == "enforce":
        assert PROBLEM in reason(house, config=MOVED)
        return
    assert kinds(house.register(MOVED))[-1] == (PROXY, "Registered")
    warned = [(line.startswith("configuration of RM rm-1: "), PROBLEM in line) for line in house.switch.state.warnings]
    assert warned == ([(True, True)] if mode == "warn" else [])


def test_the_first_registration_is_recorded_as_the_first_version() -> None:
    house = House()
    house.register()
    [version] = house.record
    assert (version.number, version.author, version.origin) == (1, "RM rm-1", "registration")
    assert (version.config, version.checksum, version.base) == (ONE_QUEUE, *[compute_checksum(ONE_QUEUE)] * 2)


@pytest.mark.parametrize(("watched", "origin"), [("/etc/queues.yaml", "file"), ("", "registration")])
def test_a_text_from_the_core_is_recorded_with_where_it_is_from(watched: str, origin: str) -> None:
    house = House(default_config=MORE, watched=watched)
    house.register("")
    assert [(one.origin, one.config) for one in house.record] == [(origin, MORE)]


def test_a_name_that_no_partition_can_have_is_told_with_its_place() -> None:
    house = House()
    text = "partitions:\n- queues: [{name: root, submitacl: '*'}]\n  name: a b\n"
    [answer] = house.call(text)
    place = "line 3, partitions[0].name: partition name 'a b' must be"
    assert place.encode() in answer.body
    house.register()
    [(status, body)] = answers(house.change(text))
    [problem] = json.loads(body)["problems"]
    assert (status, problem["line"], problem["path"]) == (400, 3, "partitions[0].name")
    assert problem["kind"] == "partition-name"


def test_what_is_allowed_and_hardly_meant_is_warned_about_and_not_without_end() -> None:
    house = House()
    queues = ", ".join(f"{{name: q{number}, submitacl: '1bad'}}" for number in range(30))
    text = f"partitions: [{{queues: [{{name: root, submitacl: '*', queues: [{queues}]}}]}}]"
    assert kinds(house.register(text))[-1] == (PROXY, "Registered")
    *told, rest = house.switch.state.warnings
    assert len(told) == WARNINGS_LOGGED_MAX
    assert all(line.startswith("configuration of RM rm-1: line 1, partitions[0].queues[0].queues[") for line in told)
    assert rest == "configuration of RM rm-1: 10 more such warnings: `yunishard validate` shows them"


def test_the_same_text_again_is_no_new_version() -> None:
    house = House()
    for session in ("session-1", "session-2", "session-3"):
        house.register(session=session)
    house.register(MORE, session="session-4")
    assert [one.number for one in house.record] == [1, 2]


def test_an_rm_that_comes_with_what_was_changed_on_top_of_its_text_owns_it() -> None:
    house = House()
    house.register()
    house.agree(house.change(MORE))
    house.register(MORE, session="session-2")
    assert [(one.number, one.base) for one in house.record[1:]] == [
        (2, compute_checksum(ONE_QUEUE)),
        (3, compute_checksum(MORE)),
    ]
    house.register(session="session-3")
    assert house.text() == ONE_QUEUE


def test_what_was_changed_on_top_of_its_text_is_what_it_gets_even_from_a_core_that_was_started_anew() -> None:
    before = House()
    before.register()
    before.agree(before.change(MORE))
    versions = ConfigVersions()
    for version in before.record:
        versions.add_version(RM, version)
    house = House(versions=versions)
    answer = house.register()[-1]
    assert answer.header.kind == "Registered"
    assert compute_checksum(MORE).encode() in answer.body
    assert house.text() == MORE
    assert house.record == []
    house.register(two_partitions(), session="session-2")
    assert house.text() == two_partitions()
    assert [(one.number, one.base) for one in house.record] == [(3, compute_checksum(two_partitions()))]


def test_what_was_changed_on_top_does_not_keep_an_rm_out_when_it_cannot_be_any_more() -> None:
    before = House()
    before.register(rm="a", session="session-a")
    before.agree([*before.change(two_partitions("default", "b_c"), rm="a"), *before.hello("a_b_c")])
    small = dataclasses.replace(PATIENT, partitions_max=1)
    house = House(versions=before.switch.state.versions, settings=small)
    assert kinds(house.register(rm="a"))[-1] == (PROXY, "Registered")
    assert house.text("a") == ONE_QUEUE
    [warning] = house.switch.state.warnings
    assert warning.startswith("RM a begins with its own configuration, as its changed one is not valid: ")
    assert (house.record[-1].number, house.record[-1].base) == (3, compute_checksum(ONE_QUEUE))


def test_a_version_that_cannot_be_recorded_refuses_it() -> None:
    house = House()
    house.disk_problem = "disk full"
    house.call()
    sends = house.vote(house.hello(PARTITION)[0])
    [refusal] = [one for one in said(sends) if isinstance(one, Refused)]
    assert refusal.reason == "registration of RM failed: the configuration cannot be recorded: disk full"
    assert house.switch.registry.slots == {}
    assert house.switch.registry.sessions == {}


def test_the_rms_settings_reach_every_worker_after_the_commit() -> None:
    house = House()
    request = RegisterResourceManager(rm_id=RM, config=ONE_QUEUE, extra_config={"a": "1"})
    house.hear(PROXY, request, ref="call")
    commit, settings, _ = house.vote(house.hello(PARTITION)[0])
    assert commit.header.kind == "CommitConfig"
    assert settings == sent(PARTITION, Settings(values={"a": "1"}), partition=PARTITION)
    _, commit, settings, _ = house.hello(PARTITION)
    assert (commit.header.kind, settings.header.kind) == ("CommitConfig", "Settings")


def test_the_same_call_on_another_connection_is_answered_there() -> None:
    house = House()
    house.call()
    assert house.call(proxy="rmproxy-2", ref="again") == []
    [asked] = [one for one in house.hello(PARTITION) if is_prepare(one)]
    answer = house.vote(asked)[-1]
    assert (answer.to, answer.header.kind, answer.header.ref) == ("rmproxy-2", "Registered", "again")


def test_what_an_rm_can_do_reaches_every_worker_even_without_settings() -> None:
    house = House()
    request = RegisterResourceManager(rm_id=RM, config=ONE_QUEUE, capabilities=["predicates"])
    house.hear(PROXY, request, ref="call")
    _, settings, _ = house.vote(house.hello(PARTITION)[0])
    wanted = sent(PARTITION, Settings(values={}, capabilities=["predicates"]), partition=PARTITION)
    assert settings == wanted
    _, _, settings, _ = house.hello(PARTITION)
    assert settings == wanted


PAUSE_S = 900.0


# Away and back ------------------------------------------------------------------------------------------------------


def test_while_an_rm_is_away_nothing_new_is_placed_for_it() -> None:
    house = registered(two_partitions())
    assert house.away() == [sent(name, Pause(), partition=name) for name in (PARTITION, GPU)]
    assert house.away() == []
    assert list(house.switch.registry.away) == [RM]
    assert house.switch.state.notes[-1] == (
        "RM rm-1 is away, it is silent or has hung up: nothing new is placed for it until it is back, and its"
        " partitions end if it is not within 900 s"
    )


def test_an_rm_that_is_back_hears_what_it_does_not_have_and_its_partitions_place_again() -> None:
    house = registered()
    house.away()
    assert house.resume(received={PARTITION: 3}) == [
        sent(PROXY, joined([PARTITION]), ref="again"),
        sent(PARTITION, Repeat(), partition=PARTITION, ack=3),
    ]
    assert house.switch.registry.away == {}
    assert house.switch.deadline == NEVER


def test_a_partition_is_told_how_many_commands_its_rm_has_had_acknowledged_in_the_same_life() -> None:
    house = registered()
    [_, repeat] = house.resume(received={PARTITION: 3}, acknowledged={PARTITION: 7})
    assert repeat == sent(PARTITION, Repeat(acknowledged=7), partition=PARTITION, ack=3)
    house.lost(PARTITION)
    *_, repeat = house.resume(received={PARTITION: 3}, acknowledged={PARTITION: 7})
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, life=1)


def test_an_rm_that_knows_a_later_life_than_the_record_has_to_register_anew() -> None:
    """An operator has restored an older record."""
    house = registered()
    [refused] = said(house.resume(received={PARTITION: 3}, lives={PARTITION: 1}))
    reason = "the core's record of RM 'rm-1' is older than this session's last state, register again"
    assert refused == Refused(code="unknown-session", reason=reason)
    assert house.switch.state.warnings == [
        "RM rm-1 has to register again: its record has gone back to an earlier state"
    ]


def test_the_life_of_another_partition_does_not_hide_that_the_record_is_older() -> None:
    house = registered(two_partitions())
    house.lost(GPU)
    assert said(house.resume(received={PARTITION: 3, GPU: 1}, lives={PARTITION: 1, GPU: 1}))[0] == Refused(
        code="unknown-session",
        reason="the core's record of RM 'rm-1' is older than this session's last state, register again",
    )
    assert kinds(house.resume(received={GPU: 1}, lives={GPU: 1}))[0] == (PROXY, "Registered")


def test_only_the_proxy_by_which_it_speaks_can_say_that_it_is_away() -> None:
    house = registered()
    assert house.hear("rmproxy-2", ManagerAway()) == []
    assert house.hear(PROXY, ManagerAway(), session="earlier") == []
    assert house.hear(PROXY, ManagerAway(), rm="rm-2") == []
    assert house.switch.registry.away == {}


def test_a_proxy_that_begins_anew_has_none_of_its_rms_until_they_resume() -> None:
    house = registered()
    house.register(rm="rm-2", session="another", proxy="rmproxy-2")
    assert kinds(house.hear(PROXY, Hello(role="rmproxy"), rm="", session="")) == [(PARTITION, "Pause")]
    assert list(house.switch.registry.away) == [RM]
    house.resume()
    assert house.switch.registry.away == {}


def test_a_new_session_is_there() -> None:
    house = registered()
    house.away()
    house.register(session="session-2")
    assert house.switch.registry.away == {}


def test_a_new_partition_is_heard_of_as_life_in_the_answer_and_not_as_a_restart() -> None:
    """What the RM never knew has not begun anew for it."""
    house = registered()
    house.agree([*house.change(two_partitions()), *house.hello(GPU)])
    told, *repeats = house.resume(received={PARTITION: 1})
    assert decode_body(Registered, told.body).lives == {GPU: 1}
    assert [one.header.kind for one in repeats] == ["Repeat", "Repeat"]


def test_one_that_stays_away_for_too_long_has_to_begin_anew() -> None:
    house = registered()
    house.away()
    sends = house.wait(house.now + PAUSE_S - 1)
    assert (sends, RM in house.facts) == ([], True)
    sends = house.wait(house.now + 2)
    assert sent(PROXY, Left()) in sends, "or its proxy would remember it for ever"
    assert wanted(sends) == [{}]
    assert house.facts == {}
    assert house.switch.state.warnings[-1] == "RM rm-1 has been away for 900 s: its partitions end"
    [refusal] = said(house.resume())
    assert isinstance(refusal, Refused)
    assert refusal.code == "unknown-session"
    assert kinds(house.register(session="session-2"))[-1] == (PROXY, "Registered")


def test_a_change_of_an_rm_that_ends_ends_too() -> None:
    house = registered()
    house.away()
    house.wait(house.now + PAUSE_S - ROLLOUT_MAX_S / 2)
    house.change(two_partitions())
    sends = house.wait(house.now + ROLLOUT_MAX_S)
    assert ("webservice", "Answer") in kinds(sends)
    assert wanted(sends)[-1] == {}
    assert house.switch.deadline == NEVER


# Leaving ------------------------------------------------------------------------------------------------------------


def leave(house: House, session: str = SESSION) -> list[Outgoing]:
    return house.hear(PROXY, Leave(reason="done"), session=session, ref="bye")


def test_an_rm_that_leaves_leaves_nothing_behind_and_is_told_so_at_last() -> None:
    house = registered()
    house.register(rm="rm-2", session="another")
    left, supervisor = leave(house)
    assert left == sent(PROXY, Left(), ref="bye")
    assert wanted([supervisor]) == [{"rm-2_default": 2}]
    assert list(house.facts) == ["rm-2"]
    assert kinds(house.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1)) == [(PROXY, "Refused")]


def test_it_is_told_again_if_it_asks_again_whoever_has_its_name_by_then() -> None:
    house = registered()
    leave(house)
    assert leave(house) == [sent(PROXY, Left(), ref="bye")]
    house.register(session="session-2")
    assert leave(house) == [sent(PROXY, Left(), ref="bye")]
    assert house.facts[RM].session == "session-2"


def test_it_is_not_told_before_that_is_durable() -> None:
    house = registered()
    house.disk_problem = "disk full"
    assert kinds(leave(house)) == [("supervisor", "WorkersWanted")]
    house.disk_problem = ""
    assert (PROXY, "Left") in kinds(house.wait(house.now + 1))


def test_one_that_leaves_while_its_configuration_changes_takes_the_change_with_it() -> None:
    house = registered()
    house.change(two_partitions())
    assert {("webservice", "Answer"), (PROXY, "Left")} < set(kinds(leave(house)))
    assert house.switch.registry.slots == {}
    assert house.switch.deadline == NEVER


def test_one_that_leaves_while_its_configuration_is_recorded_is_gone_all_the_same() -> None:
    house = registered()
    [record] = house.yes(house.change(ONE_QUEUE.replace("batch", "other"))[0])
    leave(house)
    house.recorded([record])
    assert house.facts == {}
    assert house.switch.registry.sessions == {}


def test_one_that_leaves_while_its_next_session_registers_has_that_try_again() -> None:
    house = registered()
    house.call(session="session-2")
    sends = leave(house)
    assert [one.code for one in said(sends) if isinstance(one, Refused)] == ["busy"]
    assert house.facts == {}
    assert kinds(house.register(session="session-2"))[-1] == (PROXY, "Registered")


# After the broker began anew ----------------------------------------------------------------------------------------


def test_an_rm_goes_on_after_a_broker_that_died() -> None:
    house = registered(two_partitions())
    before = house.switch.registry.sessions[RM]
    house.begin_again()
    assert house.leases() == {PARTITION: 1, GPU: 2}
    assert kinds(house.resume())[0] == (PROXY, "Registered")
    assert house.switch.registry.sessions[RM] == before
    assert house.hear(PROXY, NodeRequest(), partition=PARTITION, seq=1)[0].to == PARTITION


def test_the_same_call_of_a_session_that_the_last_broker_registered_is_an_answer_that_was_lost() -> None:
    house = registered()
    house.begin_again()
    assert kinds(house.call(ref="once more")) == [(PROXY, "Registered"), (PARTITION, "Repeat")]
    assert [one.code for one in said(house.call("partitions: []")) if isinstance(one, Refused)] == ["registration"]


def test_one_that_does_not_come_back_has_been_away_since_the_broker_began() -> None:
    house = registered()
    house.begin_again()
    assert house.switch.state.notes == ["waiting for 1 RM registered before this start"]
    assert kinds(house.returns(PARTITION)) == [(PARTITION, "Settings"), (PARTITION, "Pause")]
    house.wait(house.now + PAUSE_S + 2)
    assert house.facts == {}


def test_one_whose_configuration_is_none_in_this_release_has_to_register_anew() -> None:
    house = registered()
    house.facts[RM] = replace(house.facts[RM], text="]")
    house.begin_again()
    assert house.switch.state.warnings[0].startswith("RM rm-1 has to register again, its record is not valid: ")
    assert kinds(house.resume()) == [(PROXY, "Refused")]
    assert house.facts == {}
