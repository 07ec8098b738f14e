"""A process answers questions about itself, one at a time, and leaves the others to its machine."""

import asyncio
from collections.abc import Awaitable, Callable

from common.inspector import Inspected
from common.machine import NEVER, Incoming, Outgoing
from common.messages import Header, Message
from common.query_messages import Answer, Query
from common.wire import body_of, decoded

ASKER = "webservice"


class FakeMachine:
    deadline = NEVER

    def __init__(self) -> None:
        self.heard: list[Incoming] = []

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        self.heard.append(incoming)
        return [Outgoing("peer", incoming.header, b"")]

    def tick(self, now: float) -> list[Outgoing]:
        return [Outgoing("peer", Header(kind="Tick"), b"")]


class Process:
    def __init__(self) -> None:
        self.machine = FakeMachine()
        self.sent: asyncio.Queue[Outgoing] = asyncio.Queue()
        self.inspected = Inspected(self.machine, self.sent.put_nowait, partition="rm_p", epoch=3)

    def ask(self, message: Message, ref: str = "1", partition: str = "rm_p") -> list[Outgoing]:
        header = Header(kind=type(message).__name__, ref=ref, partition=partition)
        return self.inspected.handle(Incoming(ASKER, header, body_of(message)), 1.0)

    async def answer(self) -> tuple[str, Answer]:
        return read(await self.sent.get())


def read(sent: Outgoing) -> tuple[str, Answer]:
    assert (sent.to, sent.header.kind, sent.header.partition, sent.header.epoch) == (ASKER, "Answer", "rm_p", 3)
    return sent.header.ref, decoded(Answer, sent.body)


def run(test: Callable[[Process], Awaitable[None]]) -> None:
    async def running() -> None:
        process = Process()
        await test(process)
        process.inspected.close()

    asyncio.run(running())


def test_it_tells_where_the_process_is() -> None:
    async def test(process: Process) -> None:
        assert process.ask(Query(what="stack"), "7") == []
        ref, answer = await process.answer()
        assert (ref, answer.status) == ("7", 200)
        assert b"thread MainThread:" in answer.body
        assert process.machine.heard == []

    run(test)


def test_there_is_one_look_at_a_time() -> None:
    async def test(process: Process) -> None:
        assert process.ask(Query(what="profile", args={"seconds": "0.05"}), "long") == []
        [refused] = process.ask(Query(what="stack"), "short")
        assert read(refused) == ("short", Answer(status=503, body=b"somebody else is looking into this process"))
        ref, answer = await process.answer()
        assert (ref, answer.status) == ("long", 200)
        assert process.ask(Query(what="stack"), "later") == []
        assert (await process.answer())[1].status == 200

    run(test)


def test_a_question_that_makes_no_sense_is_refused() -> None:
    async def test(process: Process) -> None:
        process.ask(Query(what="trace", args={"seconds": "long"}))
        assert (await process.answer())[1].status == 400

    run(test)


def test_everything_else_is_the_machines() -> None:
    async def test(process: Process) -> None:
        assert len(process.ask(Query(what="queues"))) == 1
        assert len(process.ask(Query(what="stack"), partition="rm_q")) == 1
        assert len(process.ask(Answer(status=200, body=b"stack"))) == 1
        nonsense = Incoming(ASKER, Header(kind="Query", partition="rm_p"), b"\xc1")
        assert len(process.inspected.handle(nonsense, 1.0)) == 1
        assert len(process.machine.heard) == 4
        assert process.inspected.deadline == NEVER
        assert [one.header.kind for one in process.inspected.tick(1.0)] == ["Tick"]

    run(test)
