"""What a resource manager knows, for the core's state dump: asked for when somebody looks for a fault.

Not here: who may ask, and what else is in a state dump (`docs/rest.md`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from common.rm_messages import STATE_DUMP_BYTES_MAX, StateDumpAnswered, StateDumpAsked

StateDump = Callable[[], str | Awaitable[str]]
"""Gives what is of use for finding a fault, as the text of a JSON object. It is called in a thread of its own, so it
may take its time, though the core waits for two seconds only; what it gives to be awaited runs in the event loop. It is
never called again before it is done.
"""

WAITING_MAX: Final = 16
"""Questions that wait for the same function; to more the answer is that it is busy."""

Say = Callable[[str, StateDumpAnswered], None]
"""Called with a partition's normalised name and what is to be said to it."""


class StateDumps:
    """The questions that are being answered, one after the other, in the running event loop."""

    def __init__(self, state_dump: StateDump, say: Say) -> None:
        self._state_dump = state_dump
        self._say = say
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    def asked(self, partition: str, question: StateDumpAsked) -> None:
        """Answer this, in a while."""
        if len(self._tasks) >= WAITING_MAX:
            busy = "state_dump of the resource manager is busy with earlier questions"
            self._say(partition, StateDumpAnswered(question=question.question, problem=busy))
            return
        task = asyncio.get_running_loop().create_task(self._answer(partition, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """Nobody waits for the answers any more."""
        for task in tuple(self._tasks):
            task.cancel()

    async def _answer(self, partition: str, question: StateDumpAsked) -> None:
        async with self._turn:
            answered = await answer(question, self._state_dump)
        self._say(partition, answered)


async def answer(asked: StateDumpAsked, state_dump: StateDump) -> StateDumpAnswered:
    """What the function says, or why it says nothing."""
    try:
        found = await asyncio.to_thread(state_dump)
        text = found if isinstance(found, str) else await found
        size = len(text.encode())
    except Exception as error:  # the core gets an answer all the same, and people read the reason
        return _problem(asked, f"failed: {type(error).__name__}: {error}")
    if size > STATE_DUMP_BYTES_MAX:
        return _problem(asked, f"gave {size} bytes, at most {STATE_DUMP_BYTES_MAX} are taken")
    return StateDumpAnswered(question=asked.question, text=text)


def _problem(asked: StateDumpAsked, problem: str) -> StateDumpAnswered:
    told = f"state_dump of the resource manager {problem}".encode(errors="replace").decode()
    return StateDumpAnswered(question=asked.question, problem=told)
