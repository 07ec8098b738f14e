import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from yunishard.common.messages.control_messages import Hello
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, encode_body
from yunishard.common.transport.event_loop import Transport, clock, drive
from yunishard.common.transport.inbox import Inbox

TEST_MAX_S = 10
HEADER = Header(kind="Hello", rm="rm-1", seq=5)
BODY = encode_body(Hello(role="worker"))


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_MAX_S):
            await story()

    asyncio.run(bounded())


def incoming(kind: str) -> Incoming:
    return Incoming("peer", Header(kind=kind), b"")


def message(kind: str) -> Outgoing:
    return Outgoing("peer", Header(kind=kind), b"")


class Network(Transport):
    """A wire with a script: what arrives in each turn. When it is over, it is time to stop."""

    def __init__(self, *turns: list[str]) -> None:
        super().__init__()
        self.stopping = asyncio.Event()
        self.timeouts: list[float] = []
        self.sent: list[str] = []
        self._turns = list(turns)

    def follow(self, turn: Callable[[list[Incoming]], float]) -> None:
        self.turn = turn

    async def receive(self, timeout_s: float) -> list[Incoming]:
        self.timeouts.append(timeout_s)
        arrived = self._turns.pop(0)
        if not self._turns:
            self.stopping.set()
        return [incoming(kind) for kind in arrived]

    def send(self, message: Outgoing) -> None:
        self.sent.append(message.header.kind)


class Machine:
    """Repeats what it hears, and says `tick` at its deadline."""

    def __init__(self, deadline: Callable[[], float] = lambda: NEVER) -> None:
        self.times: list[float] = []
        self._deadline = deadline

    @property
    def deadline(self) -> float:
        return self._deadline()

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        self.times.append(now)
        if incoming.header.kind == "broken":
            raise ValueError("a defect")
        return [message(incoming.header.kind)]

    def tick(self, now: float) -> list[Outgoing]:
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


def test_notes_are_written_after_a_turn_that_left_some() -> None:
    class Noting(Machine):
        def __init__(self) -> None:
            super().__init__()
            self.notes: list[str] = []

        def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
            self.notes += [incoming.header.kind] * (incoming.header.kind != "silent")
            return []

    written: list[list[str]] = []

    async def play() -> None:
        machine, network = Noting(), Network(["silent"], ["a", "b"], ["silent"], ["c"])
        notes = machine.notes

        def write() -> None:
            written.append(list(notes))
            notes.clear()

        await drive(machine, network, network.stopping, notes=[[], notes], write_notes=write)

    asyncio.run(play())
    assert written == [["a", "b"], ["c"]]


def test_time_never_goes_back() -> None:
    times = [clock() for _ in range(1000)]
    assert times == sorted(times)


# Endpoints ------------------------------------------------------------------------------------------------------------


def test_a_wait_ends_at_its_time_or_when_it_is_woken() -> None:
    async def story() -> None:
        transport = Transport()
        assert await transport.receive(0) == []
        assert await transport.receive(-1) == []
        assert await transport.receive(0.001) == []
        asyncio.get_running_loop().call_soon(transport.wake)
        assert await transport.receive(float("inf")) == []

    play(story)


def inbox_of(transport: Transport) -> Inbox:
    inbox = Inbox(wake=transport.wake)
    transport.add("@self", inbox)
    return inbox


async def waiting(transport: Transport) -> "asyncio.Task[list[Incoming]]":
    """A task that waits for messages."""
    task = asyncio.create_task(transport.receive(float("inf")))
    await asyncio.sleep(0)
    return task


def test_messages_that_arrive_are_processed_before_the_wait_ends() -> None:
    async def story() -> None:
        transport, turns = Transport(), list[int]()
        inbox = inbox_of(transport)

        def turn(batch: list[Incoming]) -> float:
            turns.append(len(batch))
            if len(turns) == 1:  # what a turn brings about in the process itself gets one, too
                inbox.put(Incoming("@self", HEADER, BODY))
            return 1000.0 if len(turns) < 4 else 0.0

        transport.follow(turn)
        task = await waiting(transport)
        inbox._waiting.extend([Incoming("@self", HEADER, BODY)] * 2)
        transport.arrived("@self")
        assert turns == [2, 1]
        transport.arrived("@self")
        await asyncio.sleep(0)
        assert not task.done()
        transport.arrived("@self")
        assert turns == [2, 1, 0, 0]
        assert await task == []  # as there is something to be done now

    play(story)


def test_messages_that_arrive_before_the_wait_are_received() -> None:
    async def story() -> None:
        transport, turns = Transport(), list[int]()
        inbox = inbox_of(transport)
        transport.follow(lambda batch: turns.append(len(batch)) or 0.0)
        inbox._waiting.append(Incoming("@self", HEADER, BODY))
        transport.arrived("@self")
        assert len(await transport.receive(float("inf"))) == 1
        assert turns == []

    play(story)


def test_an_exception_of_a_turn_is_raised_by_receive() -> None:
    async def story() -> None:
        transport = Transport()

        def turn(_: list[Incoming]) -> float:
            raise ValueError("a defect")

        transport.follow(turn)
        task = await waiting(transport)
        transport.arrived("@self")
        with pytest.raises(ValueError, match="a defect"):
            await task

    play(story)


def test_the_event_loop_runs_other_callbacks_under_load() -> None:
    async def story() -> None:
        transport, turns = Transport(), 0
        inbox = Inbox(wake=transport.wake)
        transport.add("@self", inbox)

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        for _ in range(20):
            inbox.put(Incoming("@self", HEADER, BODY))
            assert len(await transport.receive(float("inf"))) == 1
        beside.cancel()
        assert turns >= 9

    play(story)


def test_messages_from_inside_the_process_arrive_like_others() -> None:
    async def story() -> None:
        transport = Transport()
        inbox = Inbox(wake=transport.wake)
        given: list[Outgoing] = []
        inbox.deliver = given.append
        transport.add("grpc:", inbox)
        waiting = asyncio.create_task(transport.receive(float("inf")))
        await asyncio.sleep(0)
        inbox.put(Incoming("grpc:rm-1", HEADER, BODY))
        assert await waiting == [Incoming("grpc:rm-1", HEADER, BODY)]
        transport.send(Outgoing("grpc:rm-1", HEADER, BODY))
        assert given == [Outgoing("grpc:rm-1", HEADER, BODY)]

    play(story)


def test_only_endpoints_that_may_have_messages_are_read() -> None:
    async def story() -> None:
        transport = Transport()
        boxes = {name: Inbox(wake=partial(transport.wake, name)) for name in ("a", "b")}
        for name, inbox in boxes.items():
            transport.add(name, inbox)
        assert await transport.receive(0) == []
        boxes["b"]._waiting.append(Incoming("b", HEADER, BODY))
        boxes["a"].put(Incoming("a", HEADER, BODY))
        assert [one.source for one in await transport.receive(float("inf"))] == ["a"]
        transport.wake()
        assert [one.source for one in await transport.receive(float("inf"))] == ["b"]

    play(story)


def test_a_message_goes_to_the_endpoint_with_the_longest_prefix() -> None:
    async def story() -> None:
        transport = Transport()
        given: dict[str, list[str]] = {"": [], "grpc:": []}
        for prefix, box in given.items():
            inbox = Inbox(wake=transport.wake)
            inbox.deliver = lambda message, box=box: box.append(message.to)
            transport.add(prefix, inbox)
        for to in ("grpc:rm-1", "grp", "broker"):
            transport.send(Outgoing(to, HEADER, BODY))
        assert given == {"": ["grp", "broker"], "grpc:": ["grpc:rm-1"]}

    play(story)


def test_a_message_that_no_endpoint_leads_to_is_a_defect() -> None:
    async def story() -> None:
        with pytest.raises(LookupError, match="no endpoint leads to 'elsewhere'"):
            Transport().send(Outgoing("elsewhere", HEADER, BODY))

    play(story)
