"""A resource manager of the SDK that says what it knows when the core asks."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from common.rm_messages import (
    STATE_DUMP_BYTES_MAX,
    Registered,
    RegisterResourceManager,
    StateDumpAnswered,
    StateDumpAsked,
)
from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, play
from yunishard.manager import StateDump
from yunishard.state_dump import WAITING_MAX, StateDumps, answer

ASKED = StateDumpAsked(question=7, deadline_milli_seconds=2000)
TOLD = StateDumpAnswered(question=7, text='{"pods": 12}')


def plain() -> str:
    return TOLD.text


async def waiting() -> str:
    await asyncio.sleep(0)
    return TOLD.text


@pytest.mark.parametrize("state_dump", [plain, waiting])
def test_a_plain_function_and_one_that_waits_are_answers(state_dump: StateDump) -> None:
    assert asyncio.run(answer(ASKED, state_dump)) == TOLD


def fails() -> str:
    raise KeyError("pods")


async def fails_later() -> str:
    raise KeyError("pods")


@pytest.mark.parametrize(
    ("state_dump", "problem"),
    [
        (fails, "failed: KeyError: 'pods'"),
        (fails_later, "failed: KeyError: 'pods'"),
        (lambda: "x" * (STATE_DUMP_BYTES_MAX + 1), "gave 1048577 bytes, at most 1048576 are taken"),
        (lambda: "\ud800", "failed: UnicodeEncodeError"),
        (lambda: {"not": "a text"}, "failed: TypeError"),
    ],
)
def test_there_is_an_answer_whatever_the_function_does(state_dump: StateDump, problem: str) -> None:
    answered = asyncio.run(answer(ASKED, state_dump))
    assert answered.text == ""
    assert answered.problem.startswith(f"state_dump of the resource manager {problem}")


def connected(story: Callable[[FakeCore, Kept], Awaitable[None]], state_dump: StateDump | None) -> None:
    async def whole() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1", state_dump=state_dump))
            _, request = await core.hears(RegisterResourceManager)
            assert isinstance(request, RegisterResourceManager)
            assert request.capabilities == ([] if state_dump is None else ["state-dump"])
            await core.says(Registered(partitions=[PARTITION]), partition="")
            async with await connecting as rm:
                await story(core, rm)

    play(whole)


def test_it_is_asked_and_answers_though_nobody_reads_results() -> None:
    async def story(core: FakeCore, rm: Kept) -> None:
        await core.says(ASKED)
        header, answered = await core.hears(StateDumpAnswered)
        assert answered == TOLD
        assert (header.partition, header.seq) == (PARTITION, 0)

    connected(story, plain)


def test_a_function_that_takes_its_time_holds_up_nothing_and_is_not_called_twice_at_once() -> None:
    begun, go_on, running = threading.Event(), threading.Event(), []

    def slow() -> str:
        running.append(1)
        assert len(running) == 1
        begun.set()
        go_on.wait(timeout=30)
        running.pop()
        return TOLD.text

    async def story(core: FakeCore, rm: Kept) -> None:
        await core.says(ASKED)
        await core.says(StateDumpAsked(question=8, deadline_milli_seconds=2000))
        await asyncio.to_thread(begun.wait, 30)
        await core.says(Registered(partitions=[PARTITION]), partition="")  # the loop goes on
        go_on.set()
        assert [(await core.hears(StateDumpAnswered))[1] for _ in range(2)] == [
            TOLD,
            StateDumpAnswered(question=8, text=TOLD.text),
        ]

    connected(story, slow)


def test_without_a_function_it_says_that_it_has_none_and_answers_nothing() -> None:
    async def story(core: FakeCore, rm: Kept) -> None:
        await core.says(ASKED)
        leaving = asyncio.create_task(rm.update_configuration("x", timeout_s=0))
        header, _ = await core.hears()
        assert header.kind == "UpdateConfiguration"
        await asyncio.gather(leaving, return_exceptions=True)

    connected(story, None)


def test_beyond_so_many_questions_the_answer_is_that_it_is_busy_and_a_close_ends_all() -> None:
    async def story() -> None:
        told: list[StateDumpAnswered] = []
        never = asyncio.Event()

        async def hangs() -> str:
            await never.wait()
            return ""

        dumps = StateDumps(hangs, lambda partition, answered: told.append(answered))
        for number in range(WAITING_MAX + 1):
            dumps.asked(PARTITION, StateDumpAsked(question=number, deadline_milli_seconds=2000))
        [busy] = told
        assert (busy.question, busy.problem) == (
            WAITING_MAX,
            "state_dump of the resource manager is busy with earlier questions",
        )
        dumps.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(others) == WAITING_MAX
        await asyncio.gather(*others, return_exceptions=True)
        assert told == [busy]

    asyncio.run(story())
