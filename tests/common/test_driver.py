import asyncio
from collections.abc import Callable

import pytest

from common.driver import clock, drive
from common.machine import NEVER, Delivery, Send
from common.messages import Header


def delivery(kind: str) -> Delivery:
    return Delivery("peer", Header(kind=kind), b"")


def message(kind: str) -> Send:
    return Send("peer", Header(kind=kind), b"")


class Network:
    """A wire with a script: what arrives in each turn. When it is over, it is time to stop."""

    def __init__(self, *turns: list[str]) -> None:
        self.stopping = asyncio.Event()
        self.timeouts: list[float] = []
        self.sent: list[str] = []
        self._turns = list(turns)

    def follow(self, turn: Callable[[list[Delivery]], float]) -> None:
        self.turn = turn

    async def receive(self, timeout_s: float) -> list[Delivery]:
        self.timeouts.append(timeout_s)
        arrived = self._turns.pop(0)
        if not self._turns:
            self.stopping.set()
        return [delivery(kind) for kind in arrived]

    def send(self, message: Send) -> None:
        self.sent.append(message.header.kind)


class Machine:
    """Repeats what it hears, and says `tick` at its deadline."""

    def __init__(self, deadline: Callable[[], float] = lambda: NEVER) -> None:
        self.times: list[float] = []
        self._deadline = deadline

    @property
    def deadline(self) -> float:
        return self._deadline()

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        self.times.append(now)
        if delivery.header.kind == "broken":
            raise ValueError("a defect")
        return [message(delivery.header.kind)]

    def tick(self, now: float) -> list[Send]:
        self.times.append(now)
        return [message("tick")]


def played(machine: Machine, *turns: list[str]) -> Network:
    async def play() -> Network:
        network = Network(*turns)
        await drive(machine, network, network.stopping)
        return network

    return asyncio.run(play())


def test_everything_that_arrives_is_handled_in_order_and_answered() -> None:
    assert played(Machine(), ["a", "b"], [], ["c"]).sent == ["a", "b", "c"]


def test_a_machine_that_waits_for_nothing_is_never_ticked() -> None:
    network = played(Machine(), ["a"], [])
    assert network.sent == ["a"]
    assert network.timeouts == [float("inf")] * 2


def test_a_machine_is_ticked_after_the_messages_once_its_deadline_has_passed() -> None:
    assert played(Machine(lambda: 0.0), ["a", "b"], ["c"]).sent == ["a", "b", "tick", "c", "tick"]


def test_the_wire_waits_no_longer_than_to_the_deadline() -> None:
    due = clock() + 1000
    network = played(Machine(lambda: due), [])
    assert 990 < network.timeouts[0] <= 1000
    assert network.sent == []


def test_messages_that_arrive_together_and_the_tick_after_them_have_one_time() -> None:
    machine = Machine(lambda: 0.0)
    played(machine, ["a", "b"])
    assert len(machine.times) == 3
    assert len(set(machine.times)) == 1


def test_a_defect_in_a_machine_ends_the_process() -> None:
    with pytest.raises(ValueError, match="a defect"):
        played(Machine(), ["a", "broken"], [])


def test_time_never_goes_back() -> None:
    times = [clock() for _ in range(1000)]
    assert times == sorted(times)
