"""The election of the leader, as a machine: standby, leading, over."""

from collections.abc import Callable

import pytest

from yunishard.broker.election import ElectedBroker, Election
from yunishard.broker.hosts import HostRow, Hosts
from yunishard.common.messages.control_messages import LeasePolled, PollLease, Refusal, Rival
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import (
    NEVER,
    BrokerAddress,
    Incoming,
    Outgoing,
    decode_body,
    encode_body,
    make_outgoing,
)
from yunishard.common.names import LEASE

OWN = BrokerAddress("ipc:///run/a/broker.sock")
OTHER = BrokerAddress("tcp://10.0.0.2:9094", "b's key")
DURATION_S = 6.0


def election(address: str = "tcp://10.0.0.1:9094") -> Election:
    return Election(OWN, host="a", address=address, duration_s=DURATION_S)


def polled(machine: Election | ElectedBroker, now: float, **fields: object) -> list[Outgoing]:
    answer = LeasePolled(**fields)  # type: ignore[arg-type]
    return machine.handle(Incoming(LEASE, Header(kind="LeasePolled"), encode_body(answer)), now)


def poll(machine: Election | ElectedBroker, now: float) -> PollLease:
    [message] = machine.tick(now)
    assert message.to == LEASE
    return decode_body(PollLease, message.body)


def following(machine: Election, now: float, left_s: float = 6.0, *, expires: float | None = None) -> PollLease:
    """Poll while host b leads, whose lease was renewed since the last poll unless `expires` is the same; the poll."""
    message = poll(machine, now)
    where = {"endpoint": OTHER.address, "public_key": OTHER.key}
    polled(machine, now, holder="b", **where, left_s=left_s, expires=now if expires is None else expires)
    return message


def leading(machine: Election, now: float) -> None:
    assert [one.to for one in machine.tick(now)] == [LEASE]
    polled(machine, now, epoch=7)


def test_a_standby_follows_the_leader_and_acquires_its_lease_once_that_has_ended() -> None:
    machine = election()
    assert following(machine, 100.0).ended is None
    assert (machine.leaders, machine.epoch) == ([OTHER], 0)
    assert machine.deadline == 102.0
    assert following(machine, 102.0, left_s=5.5).ended is None
    assert machine.deadline == 104.0
    assert following(machine, 104.0, left_s=3.5, expires=102.0).ended is None
    assert following(machine, 106.0, left_s=1.5, expires=102.0).ended is None
    assert machine.deadline == pytest.approx(107.55), "when the lease ends"
    assert following(machine, 107.55, left_s=5.9).ended == 102.0
    assert following(machine, 109.55, left_s=5.9).ended is None, "it was renewed in time after all"
    assert machine.leaders == [OTHER]
    leading(machine, 115.55)
    assert (machine.leaders, machine.epoch) == ([OTHER, OWN], 7)
    assert machine.notes == [
        "the broker of host b leads; this one is a standby",
        "this broker leads, under epoch 7",
    ]


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_jump_of_the_clock_of_the_database_ends_no_lease(jump_s: float) -> None:
    machine = election()
    following(machine, 100.0)
    for number in range(1, 60):
        assert following(machine, 100.0 + number, left_s=5.0 - jump_s).ended is None
    ended = [following(machine, 160.0 + number, left_s=5.0, expires=159.0).ended for number in range(70)]
    assert ended[-1] == 159.0, "a leader that does not renew any more is replaced all the same"
    assert ended.index(159.0) == (5 if jump_s > 0 else 59), "seconds after 160"


def test_a_lease_that_expired_before_the_start_is_not_followed_but_awaited() -> None:
    machine = election()
    assert following(machine, 100.0, left_s=-50.0, expires=1.0).ended is None
    assert machine.leaders == []
    assert following(machine, 106.1, left_s=-56.0, expires=1.0).ended == 1.0


def test_a_host_without_an_address_is_refused_if_a_leader_has_one() -> None:
    machine = election(address="")
    following(machine, 100.0)
    assert machine.leaders == []
    assert machine.refused == machine.lost == machine.warnings[-1]
    assert machine.refused == (
        "host b at tcp://10.0.0.2:9094 leads the system of this store, and this host has no address at which others"
        " reach it: give it --cluster-address and --cluster-keys, or another --store"
    )


# A host of the same name ----------------------------------------------------------------------------------------------


def rival(expires: float, *, is_copy: bool = True) -> Rival:
    since, address = 1_795_980_000, "tcp://10.0.0.1:9094"
    machine = "vm-1 (10.0.0.1)"
    return Rival(machine=machine, address=address, since=since, expires=expires, left_s=5.0, is_copy=is_copy)


@pytest.mark.parametrize(
    ("is_copy", "ends"),
    [
        (
            True,
            (
                "with the same host id: this machine or its state directory is a copy; stop one of them, or make this"
                " one another host, with an empty --state directory, --host-name, --cluster-address and keys of its own"
                " (`yunishard cluster init`)"
            ),
        ),
        (False, "with another state directory; stop it, or choose another --host-name for this one"),
    ],
)
def test_a_system_with_the_name_of_a_host_that_runs_is_refused(is_copy: bool, ends: str) -> None:
    machine = election()
    for now in (100.0, 102.0):
        assert poll(machine, now).host_ended is None
        polled(machine, now, rival=rival(1.0, is_copy=is_copy))
        assert (machine.refused, machine.leaders, machine.epoch) == ("", [], 0)
    assert machine.warnings == ["another system was host a last, on vm-1 (10.0.0.1): waiting until its lease ends"]
    poll(machine, 104.0)
    polled(machine, 104.0, rival=rival(2.0, is_copy=is_copy))
    assert machine.is_over(104.0)
    where = "host a runs on vm-1 (10.0.0.1) at tcp://10.0.0.1:9094 since 2026-11-29T19:20:00Z, "
    assert machine.refused == machine.warnings[-1] == where + ends


def test_a_system_takes_the_place_of_one_that_was_killed_after_the_duration_of_a_lease() -> None:
    machine = election()
    for now in (100.0, 102.0, 104.0):
        assert poll(machine, now).host_ended is None
        polled(machine, now, rival=rival(1.0))
    assert machine.deadline == pytest.approx(106.0)
    poll(machine, 106.0)
    polled(machine, 106.0, rival=rival(1.0))
    assert poll(machine, machine.deadline).host_ended == 1.0
    polled(machine, 106.1, epoch=7)
    assert (machine.epoch, machine.leaders, machine.refused) == (7, [OWN], "")


def test_a_leader_of_which_a_copy_has_taken_the_host_does_not_go_on() -> None:
    """Such as one that a snapshot of its machine has restored, or that was cut off from the store meanwhile."""
    machine = election()
    leading(machine, 100.0)
    poll(machine, 102.0)
    polled(machine, 102.0, rival=rival(1.0))
    poll(machine, 104.0)
    assert not machine.is_over(104.0)
    polled(machine, 104.0, rival=rival(2.0))
    assert machine.is_over(104.0)
    assert machine.refused.startswith("host a runs on vm-1 (10.0.0.1)")


# Leading --------------------------------------------------------------------------------------------------------------


def test_a_leader_that_other_hosts_cannot_reach_is_not_followed() -> None:
    machine = election()
    machine.tick(100.0)
    polled(machine, 100.0, holder="b", left_s=6.0, expires=1.0)
    assert machine.leaders == []
    reason = "and this host cannot reach it, as it has no cluster-address"
    assert machine.notes == [f"the broker of host b leads, {reason}; this one is a standby"]


def test_the_leader_renews_in_time() -> None:
    machine = election()
    leading(machine, 100.0)
    assert machine.deadline == 102.0
    leading(machine, 102.0)
    assert not machine.is_over(106.9)
    assert machine.is_over(107.0)
    assert machine.lost == "this broker does not lead any more: its lease could not be renewed for 5.0 s"
    assert machine.deadline <= 107.0


def test_the_duration_counts_from_before_the_question() -> None:
    machine = election()
    machine.tick(100.0)
    polled(machine, 103.0, epoch=7)
    assert machine.is_over(105.0)


def test_a_lease_that_was_acquired_too_slowly_is_acquired_again() -> None:
    machine = election()
    machine.tick(100.0)
    polled(machine, 105.0, epoch=7)
    assert (machine.epoch, machine.leaders, machine.lost, machine.deadline) == (0, [], "", 105.0)
    leading(machine, 105.0)
    assert (machine.leaders, machine.is_over(109.9)) == ([OWN], False)


def test_a_poll_without_an_answer_does_not_keep_the_leader_from_stopping() -> None:
    machine = election()
    leading(machine, 100.0)
    assert machine.tick(102.0)
    assert machine.deadline == 105.0
    assert machine.tick(105.0) == []
    assert machine.lost


def test_a_replaced_leader_stops_at_once() -> None:
    machine = election()
    leading(machine, 100.0)
    machine.tick(102.0)
    polled(machine, 102.1, holder="b", left_s=5.0)
    assert machine.is_over(102.1)
    assert machine.lost == "this broker does not lead any more: the broker of host b has replaced it"
    assert machine.warnings == [machine.lost]


def test_a_problem_is_logged_once_and_the_poll_repeated() -> None:
    machine = election()
    for now in (100.0, 102.0):
        machine.tick(now)
        polled(machine, now, problem="the store is unreachable")
        assert machine.deadline == now + 2.0
    assert machine.warnings == ["the lease of the leader cannot be read: the store is unreachable"]
    leading(machine, 104.0)
    machine.tick(106.0)
    polled(machine, 106.0, problem="the store is unreachable")
    assert machine.warnings[1:] == ["the lease of the leader cannot be renewed: the store is unreachable"]
    assert machine.deadline == 108.0


class Echo:
    """A broker that answers everything."""

    deadline = 104.0

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        return [Outgoing(incoming.source, incoming.header, incoming.body)]

    def tick(self, now: float) -> list[Outgoing]:
        self.deadline = NEVER
        return [make_outgoing("somebody", LeasePolled())]


def test_a_leader_answers_until_its_lease_is_over() -> None:
    machine = election()
    leading(machine, 100.0)
    broker = ElectedBroker(Echo(), machine, Hosts())
    call = Incoming("rmproxy/1", Header(kind="Resume"), b"")
    assert broker.deadline == 102.0
    assert [one.to for one in broker.handle(call, 101.0)] == ["rmproxy/1"]
    assert [one.to for one in broker.tick(102.0)] == [LEASE]
    assert broker.deadline == 104.0
    assert [one.to for one in broker.tick(104.0)] == ["somebody"]
    assert broker.deadline == 105.0
    assert broker.handle(call, 105.0) == broker.tick(105.0) == []
    assert machine.lost
    assert broker.deadline == NEVER
    assert polled(broker, 106.0, epoch=7) == []


Polls = Callable[..., list[str]]


@pytest.fixture
def leader() -> tuple[Polls, Election, Hosts]:
    """A poll of the leader of hosts a and b, with the hosts that are available after it; the machine, and the hosts."""
    machine, hosts = election(), Hosts()
    hosts.restore([HostRow(name="a"), HostRow(name="b")], 2 * DURATION_S, 100.0)
    leading(machine, 100.0)
    broker = ElectedBroker(Echo(), machine, hosts)

    def answer(now: float, **fields: object) -> list[str]:
        machine.tick(now)
        polled(broker, now, **fields)
        return [one.name for one in hosts.list_available()]

    return answer, machine, hosts


def test_a_host_that_does_not_reach_the_store_counts_once_the_leader_has_for_a_lease_timeout(
    leader: tuple[Polls, Election, Hosts],
) -> None:
    answer, machine, _ = leader
    for now in (102.0, 104.0, 106.0, 108.0, 110.0, 112.0):
        assert answer(now, epoch=7, heartbeats={"a": now, "b": 1.0}) == ["a", "b"], "the store may have been down"
    assert answer(114.0, epoch=7, heartbeats={"a": 114.0, "b": 1.0}) == ["a"]
    assert machine.warnings == ["host b does not reach the store: its partitions move to other hosts"]
    assert answer(116.0, epoch=7, heartbeats={"a": 116.0, "b": 2.0}) == ["a", "b"]
    for now in (118.0, 120.0, 122.0, 124.0, 126.0):
        assert answer(now, epoch=7, heartbeats={"a": now, "b": 2.0}) == ["a", "b"]
    assert answer(128.0, epoch=7, heartbeats={"a": 128.0, "b": 2.0}) == ["a"]
    assert answer(130.0, problem="the store is unreachable") == ["a", "b"]
    assert answer(132.0, epoch=7, heartbeats={"a": 132.0, "b": 2.0}) == ["a", "b"]


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_jump_of_the_clock_of_the_database_cuts_no_host_off(
    leader: tuple[Polls, Election, Hosts], jump_s: float
) -> None:
    answer, machine, _ = leader
    for number in range(40):
        now, clock = 102.0 + 2 * number, 102.0 + 2 * number + (jump_s if number >= 20 else 0.0)
        # host b polls every third time, and has not yet when the clock jumps
        assert answer(now, epoch=7, heartbeats={"a": clock, "b": number // 3}) == ["a", "b"]
    assert machine.warnings == []


def test_a_refusal_of_another_machine_is_reported_once_and_shown_while_it_is_recent(
    leader: tuple[Polls, Election, Hosts],
) -> None:
    answer, machine, hosts = leader
    refusal = Refusal(host="b", machine="vm-2 (10.0.0.9)", address="tcp://10.0.0.9:9094", count=2, at_s=1_795_980_000.5)
    for now in (102.0, 104.0):
        answer(now, epoch=7, refusals=[refusal])
    assert machine.warnings == [
        "another machine was refused as host b, which runs already: vm-2 (10.0.0.9), tcp://10.0.0.9:9094"
    ]
    host = hosts.find("b")
    assert host is not None
    assert host.refused == "vm-2 (10.0.0.9) at tcp://10.0.0.9:9094, 2 times, last at 2026-11-29T19:20:00Z"
    answer(106.0, epoch=7)
    assert host.refused == ""
