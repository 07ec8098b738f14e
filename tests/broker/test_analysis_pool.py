"""The child processes that analyse configurations."""

import asyncio
import sys
from unittest.mock import patch

import msgspec
import pytest

from tests.deploy.system import eventually
from yunishard.broker import analysis_pool
from yunishard.broker.analysis_pool import AnalysisProcess
from yunishard.broker.config_analysis import analyze
from yunishard.common.messages.control_messages import TextRead
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Outgoing, decode_body
from yunishard.common.names import READER

TEXT = "partitions:\n- name: default\n  queues:\n  - name: root\n"
NAME = f"{READER}/0"
PATIENCE_S = 60.0


def run_python(code: str) -> tuple[str, ...]:
    """A program that takes the place of the child process."""
    return (sys.executable, "-c", code)


LIMITED = """
from yunishard.broker import analysis_process
{}
analysis_process.serve(__import__("sys").stdin.buffer, __import__("sys").stdout.buffer)
"""
SLOW = LIMITED.format(
    "import time\nanalysis_process.PROCESSOR_MAX_S = 1\n"
    "analysis_process.analyze = lambda text: [time.process_time() for _ in iter(int, 1)]"
)
LARGE = LIMITED.format("def run_out(text): raise MemoryError\nanalysis_process.analyze = run_out")


async def answer(process: AnalysisProcess, came: asyncio.Event, text: str = TEXT) -> TextRead:
    """The outcome of a text."""
    came.clear()
    process.send(Outgoing(NAME, Header(kind="ReadText", ref="5"), text.encode()))
    assert process.receive() is None
    async with asyncio.timeout(PATIENCE_S):
        await came.wait()
    found = process.receive()
    assert found is not None
    assert (found.source, found.header) == (NAME, Header(kind="TextRead", ref="5"))
    return decode_body(TextRead, found.body)


async def answer_once(text: str = TEXT, *, program: tuple[str, ...] = (), limit_s: float = PATIENCE_S) -> TextRead:
    came = asyncio.Event()
    process = AnalysisProcess(NAME, wake=came.set)
    with patch.multiple(analysis_pool, PROGRAM=program or analysis_pool.PROGRAM, ANALYSIS_MAX_S=limit_s):
        found = await answer(process, came, text)
    process.close()
    return found


def test_a_process_analyses_texts_one_after_the_other() -> None:
    async def analyse() -> None:
        came = asyncio.Event()
        process = AnalysisProcess(NAME, wake=came.set)
        for text in (TEXT, "]", TEXT):
            outcome = await answer(process, came, text)
            assert outcome.analysis == msgspec.msgpack.encode(analyze(text))
            assert (outcome.problem, outcome.unavailable) == ("", "")
            child = process._child
        assert child is process._child, "it has ended in between"
        process.close()
        assert child is not None
        assert child.poll() is not None

    asyncio.run(analyse())


@pytest.mark.parametrize(
    ("program", "problem", "unavailable"),
    [
        (run_python(SLOW), "its analysis takes more than 15 seconds of processor time: make it smaller", ""),
        (run_python(LARGE), "its analysis needs more than 1 GiB of memory: make it smaller", ""),
        (run_python("raise SystemExit(3)"), "the process that analysed it ended (exit status 3)", ""),
        (run_python("import os; os.abort()"), "the process that analysed it ended (SIGABRT)", ""),
        (run_python("raise SystemExit"), "", "its process ended"),
        (("/there/is/no/such/program",), "", "the process for it cannot be started: "),
    ],
    ids=["processor time", "memory", "exit status", "signal", "no answer", "no program"],
)
def test_a_text_without_an_analysis_has_the_reason(program: tuple[str, ...], problem: str, unavailable: str) -> None:
    outcome = asyncio.run(answer_once(program=program))
    assert outcome.analysis == b""
    assert outcome.problem.startswith(problem)
    assert outcome.unavailable.startswith(unavailable)
    assert (outcome.problem == "", outcome.unavailable == "") == (problem == "", unavailable == "")


def test_a_process_that_takes_too_long_is_killed() -> None:
    outcome = asyncio.run(answer_once(program=run_python("import time; time.sleep(600)"), limit_s=0.05))
    assert outcome.unavailable.startswith("its analysis took longer than 0.05 s: make it smaller")


def test_a_text_that_exceeds_the_memory_is_refused() -> None:
    code = LIMITED.format("import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 27, 1 << 27))")
    values = ", ".join(f"t{number}: {number}" for number in range(400_000))
    outcome = asyncio.run(answer_once(f"partitions: [{{{values}}}]", program=run_python(code)))
    assert outcome.problem.startswith("its analysis needs more than 1 GiB of memory")


def test_a_process_that_had_much_memory_is_replaced() -> None:
    async def analyse() -> None:
        came = asyncio.Event()
        process = AnalysisProcess(NAME, wake=came.set)
        with patch.object(analysis_pool, "KEPT_BYTES_MAX", 0):
            for _ in range(2):
                assert (await answer(process, came)).analysis
                assert process._child is None
        process.close()

    asyncio.run(analyse())


def test_an_idle_process_ends_and_the_next_text_has_another_one() -> None:
    async def analyse() -> None:
        came = asyncio.Event()
        process = AnalysisProcess(NAME, wake=came.set)
        code = LIMITED.format("analysis_process.IDLE_MAX_S = 0.01")
        with patch.object(analysis_pool, "PROGRAM", run_python(code)):
            assert (await answer(process, came)).analysis
            child = process._child
            assert child is not None
            await asyncio.to_thread(eventually, lambda: child.poll() is not None)
            assert child.returncode == 0
        assert (await answer(process, came)).analysis
        process.close()

    asyncio.run(analyse())


def test_closing_does_not_wait_for_a_text() -> None:
    async def close() -> TextRead:
        came = asyncio.Event()
        process = AnalysisProcess(NAME, wake=came.set)
        with patch.object(analysis_pool, "PROGRAM", run_python("import time; time.sleep(600)")):
            process.send(Outgoing(NAME, Header(kind="ReadText", ref="1"), b""))
            await asyncio.to_thread(eventually, lambda: process._child is not None)
            process.close()
            await came.wait()
        found = process.receive()
        assert found is not None
        return decode_body(TextRead, found.body)

    assert asyncio.run(close()).analysis == b""
