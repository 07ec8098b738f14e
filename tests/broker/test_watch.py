"""Who counts as gone when nothing is heard of them, and who does not."""

import pytest

from broker.config_rollout import ROLLOUT_MAX_S
from broker.liveness import CHECK_INTERVAL_S, OVERDUE_S
from common.control_messages import ManagerAway
from common.rm_messages import Heartbeat, NodeResponse, ResumeWanted
from common.settings import Settings
from common.wire import NEVER, Outgoing, decode_body
from tests.broker.house import GPU, PROXY, WEB, House, kinds, wanted
from tests.machines import PARTITION, RM, sent, two_partitions

NONE = {"rm": "", "session": ""}
LEASE_S = 10.0


def watchful(lease_s: float = LEASE_S) -> House:
    house = House(settings=Settings(lease_timeout_s=lease_s))
    house.register(two_partitions())
    return house


def beat(house: House, source: str, **fields: str | int) -> list[str]:
    """A heartbeat; the incarnations that are answered."""
    sends = house.hear(source, Heartbeat(), **{**NONE, **fields})
    return [decode_body(Heartbeat, one.body).incarnation for one in sends if one.header.kind == "Heartbeat"]


def together(house: House, seconds: float, *alive: str) -> list[Outgoing]:
    """Time passes, and these send heartbeats."""
    sends: list[Outgoing] = []
    until = house.now + seconds
    while house.now < until:
        for name in alive:
            if name in house.switch.registry.slots:
                beat(house, name, partition=name, epoch=house.epoch(name))
            else:
                sends += [one for one in house.hear(name, Heartbeat(), **NONE) if one.header.kind != "Heartbeat"]
        sends += house.wait(min(until, house.now + CHECK_INTERVAL_S))
    return sends


# Heartbeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [PROXY, WEB, "supervisor", "rm-9_default#7"])
def test_a_heartbeat_is_answered_with_the_incarnation_whoever_sends_it(source: str) -> None:
    house = watchful()
    assert beat(house, source) == ["0"]
    house.begin_again()
    assert beat(house, source) == ["1"]


def test_a_worker_that_has_not_said_hello_to_this_broker_is_not_told_which_it_is() -> None:
    house = watchful()
    house.begin_again()
    lease = {"partition": PARTITION, "epoch": house.epoch(PARTITION)}
    assert beat(house, PARTITION, **lease) == [""]
    house.returns(PARTITION)
    assert beat(house, PARTITION, **lease) == ["1"]


# Workers ------------------------------------------------------------------------------------------------------------


def test_a_worker_that_is_silent_loses_its_lease_and_no_other_does() -> None:
    house = watchful()
    sends = together(house, LEASE_S + 2 * CHECK_INTERVAL_S, GPU)
    assert wanted(sends) == [{PARTITION: 3, GPU: 2}]
    assert house.facts[RM].leases == {PARTITION: 3, GPU: 2}
    assert house.switch.state.warnings == ["worker rm-1_default#1 was silent for 10 s: another one takes over"]


def test_what_a_worker_says_otherwise_is_a_sign_of_life_too() -> None:
    house = watchful()
    for _ in range(30):
        house.hear(PARTITION, NodeResponse(), partition=PARTITION, epoch=1)
        house.hear(GPU, NodeResponse(), partition=GPU, epoch=2)
        assert wanted(house.wait(house.now + CHECK_INTERVAL_S)) == []


def test_a_worker_that_lost_its_lease_cannot_say_anything_any_more_and_the_next_one_goes_on() -> None:
    house = watchful()
    old = house.switch.registry.slots[PARTITION].worker
    together(house, LEASE_S + 2 * CHECK_INTERVAL_S, GPU)
    assert house.switch.handle(house.from_peer(old, NodeResponse(), partition=PARTITION, epoch=1), house.now) == []
    assert kinds(house.returns(PARTITION)) == [(PARTITION, "Settings"), (PROXY, "ResumeWanted")]
    assert wanted(together(house, 5.0, PARTITION, GPU)) == []


def test_a_worker_that_never_comes_is_the_business_of_the_supervisor_and_worth_one_warning() -> None:
    house = watchful()
    house.begin_again()
    sends = together(house, 3 * OVERDUE_S)
    assert wanted(sends) == []
    assert sorted(house.switch.state.warnings) == [
        f"worker {name} has not connected within {OVERDUE_S:g} s" for name in ("rm-1_default#1", "rm-1_gpu#2")
    ]


def test_leases_may_be_for_ever() -> None:
    house = watchful(NEVER)
    assert house.switch.deadline == NEVER


# Proxies ------------------------------------------------------------------------------------------------------------


def test_the_rms_of_a_proxy_that_is_silent_are_away_and_no_others() -> None:
    house = watchful(NEVER)
    house.register(rm="rm-2", session="another", proxy="rmproxy-2")
    sends = together(house, 2.0, PROXY, "rmproxy-2")
    sends += together(house, 5.0, "rmproxy-2")
    assert kinds(sends) == [(PARTITION, "Pause"), (GPU, "Pause")]
    assert list(house.switch.registry.away) == [RM]


def test_a_proxy_that_is_back_has_the_rms_resume_that_were_away_because_of_it() -> None:
    house = watchful(NEVER)
    together(house, 1.0, PROXY)
    together(house, 5.0)
    sends = together(house, 2.0, PROXY)
    assert sends == [sent(PROXY, ResumeWanted(reason="its proxy was silent"))]


def test_a_front_end_that_is_silent_is_nothing_to_anybody() -> None:
    house = watchful(NEVER)
    together(house, 1.0, WEB)
    assert together(house, 10.0) == []
    assert (house.switch.state.warnings, house.switch.deadline) == ([], NEVER)


# When this process stood still --------------------------------------------------------------------------------------


def test_time_in_which_the_broker_stood_still_makes_nobody_silent() -> None:
    house = watchful()
    together(house, 2.0, PARTITION, GPU, PROXY)
    house.now += 1000.0
    assert kinds(house.recorded(house.switch.tick(house.now))) == []
    assert house.switch.state.warnings[0].startswith("the broker did not run for 999.")
    assert together(house, 2.0, PARTITION, GPU, PROXY) == []
    assert house.switch.registry.away == {}
    assert wanted(together(house, LEASE_S + 2, GPU, PROXY)) == [{PARTITION: 3, GPU: 2}]


def test_nor_does_it_end_an_rm_or_give_up_a_change() -> None:
    house = watchful()
    house.hear(PROXY, ManagerAway())
    [first, _] = house.change(two_partitions().replace("batch", "other"))
    house.now += 1000.0
    house.recorded(house.switch.tick(house.now))
    assert house.vote(first) == []
    assert list(house.facts) == [RM]
    assert house.switch.state.registry.away[RM] > house.now - 10
    sends = together(house, ROLLOUT_MAX_S + 2, PARTITION, GPU)
    assert (WEB, "Answer") in kinds(sends)
