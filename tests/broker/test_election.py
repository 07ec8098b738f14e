"""The election of the leader, as a machine: standby, leading, over."""

import pytest

from broker.election import ElectedBroker, Election
from broker.hosts import HostRow, Hosts
from common.control_messages import LeasePolled
from common.messages import Header
from common.names import LEASE
from common.wire import NEVER, BrokerAddress, Incoming, Outgoing, encode_body, make_outgoing

OWN = BrokerAddress("ipc:///run/a/broker.sock")
OTHER = BrokerAddress("tcp://10.0.0.2:9094", "b's key")
DURATION_S = 6.0


def election() -> Election:
    return Election(OWN, duration_s=DURATION_S)


def polled(machine: Election | ElectedBroker, now: float, **fields: object) -> list[Outgoing]:
    answer = LeasePolled(**fields)  # type: ignore[arg-type]
    return machine.handle(Incoming(LEASE, Header(kind="LeasePolled"), encode_body(answer)), now)


def following(machine: Election, now: float, left_s: float = 6.0) -> None:
    assert [one.to for one in machine.tick(now)] == [LEASE]
    polled(machine, now, holder="b", endpoint=OTHER.address, public_key=OTHER.key, left_s=left_s)


def leading(machine: Election, now: float) -> None:
    assert [one.to for one in machine.tick(now)] == [LEASE]
    polled(machine, now, epoch=7)


def test_a_standby_follows_the_leader_and_tries_again_when_its_lease_ends() -> None:
    machine = election()
    following(machine, 100.0)
    assert (machine.leaders, machine.epoch) == ([OTHER], 0)
    assert machine.deadline == 102.0
    following(machine, 102.0, left_s=0.5)
    assert machine.deadline == pytest.approx(102.55)
    following(machine, 102.55, left_s=-0.1)
    assert machine.leaders == [OTHER]
    leading(machine, 103.0)
    assert (machine.leaders, machine.epoch) == ([OTHER, OWN], 7)
    assert machine.notes == [
        "the broker of host b leads; this one is a standby",
        "this broker leads, under epoch 7",
    ]


def test_a_leader_that_other_hosts_cannot_reach_is_not_followed() -> None:
    machine = election()
    machine.tick(100.0)
    polled(machine, 100.0, holder="b", left_s=6.0)
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


def test_a_host_that_does_not_reach_the_store_counts_once_the_leader_has_for_a_lease_timeout() -> None:
    machine, hosts = election(), Hosts()
    hosts.restore([HostRow(name="a"), HostRow(name="b")], 2 * DURATION_S, 100.0)
    leading(machine, 100.0)
    broker = ElectedBroker(Echo(), machine, hosts)

    def poll(now: float, **fields: object) -> list[str]:
        machine.tick(now)
        polled(broker, now, **fields)
        return [one.name for one in hosts.list_available()]

    for now in (102.0, 104.0, 106.0, 108.0, 110.0):
        assert poll(now, epoch=7, silent_hosts=["b"]) == ["a", "b"], "the store may have been down for all"
    assert poll(112.0, epoch=7, silent_hosts=["b"]) == ["a"]
    assert machine.warnings == ["host b does not reach the store: its partitions move to other hosts"]
    assert poll(114.0, epoch=7) == ["a", "b"]
    assert poll(116.0, epoch=7, silent_hosts=["b"]) == ["a"]
    assert poll(118.0, problem="the store is unreachable") == ["a", "b"]
    assert poll(120.0, epoch=7, silent_hosts=["b"]) == ["a", "b"]
