"""RMs that go, stay away, come back, and leave."""

from msgspec.structs import replace

from broker.config_rollout import ROLLOUT_MAX_S
from common.control_messages import Hello, ManagerAway, Pause, Repeat
from common.rm_messages import Leave, Left, NodeRequest, Refused, Registered
from common.wire import NEVER, Outgoing, decode_body
from tests.broker.house import GPU, PROXY, House, joined, kinds, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, SESSION, said, sent, two_partitions

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
