"""How the SDK takes a port that it cannot get into; how it gets in is in `tests/processes/test_keys.py`."""

import asyncio
import logging
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.rmproxy.port import ONE, SERVER, Port
from tests.rmproxy.port import play as play_with_keys
from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, allocated, play, taken, until
from yunishard.common.messages.rm_messages import (
    STATE_DUMP_BYTES_MAX,
    Goodbye,
    Heartbeat,
    NodeRequest,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
    StateDumpAnswered,
    StateDumpAsked,
)
from yunishard.common.transport.curve_keys import fingerprint, read_public, write_pair
from yunishard.sdk.client import KEYS_VARIABLE, ResourceManager
from yunishard.sdk.connection import Endpoint, SessionDriver, StateDump, call_state_dump
from yunishard.sdk.exceptions import KeyFileError, KeyRefused, RegistrationRefused
from yunishard.sdk.items import Result, node
from yunishard.sdk.session import READ_AHEAD_MESSAGES, STATE_DUMPS_WAITING_MAX, ClientSession

SOON_S = 15.0
"""Long before the deadline of a connection."""


def pair_of(folder: Path, *, server: str) -> Path:
    """A new pair, with this as the server's public key beside it."""
    _, secret = write_pair(folder, "rm-1")
    shutil.copy(folder / "rm-1.key", folder / "server.key")
    (folder / "server.key").write_text(f'public-key = "{server}"')
    return secret


async def refusal(address: str, keys: Path | str) -> str:
    with pytest.raises(KeyRefused) as error:
        await ResourceManager.connect(address, rm_id="rm-1", keys=keys, timeout_s=SOON_S)
    return str(error.value).removeprefix(f"{address} does not let rm-1 in: ")


def test_a_key_that_is_not_listed_hears_so_at_once(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        keys = pair_of(tmp_path, server=SERVER.public)
        ours = fingerprint(read_public(keys))
        told = f"our key {ours} is not on its allow-list (`yunishard keys allow` puts it there)"
        assert await refusal(port.router.address, keys) == told

    play_with_keys(tmp_path, story)


def test_another_server_than_the_one_we_know_is_found_out(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        keys = pair_of(tmp_path, server=ONE.public)
        told = f"it hangs up: its key is not {fingerprint(ONE.public)}, as in our file, or it has none"
        assert await refusal(port.router.address, keys) == told

    play_with_keys(tmp_path, story)


def test_without_keys_a_port_with_keys_says_so(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        told = "it takes only connections with keys (YUNISHARD_KEYS names the file of ours)"
        assert await refusal(port.router.address, "") == told

    play_with_keys(tmp_path, story)


def test_nothing_is_said_in_clear_to_a_port_that_has_no_keys(tmp_path: Path) -> None:
    async def story() -> None:
        keys = pair_of(tmp_path, server=ONE.public)
        async with FakeCore() as core:
            assert await refusal(core.address, keys) in (
                "it has no keys, and we want it to",
                f"it hangs up: its key is not {fingerprint(ONE.public)}, as in our file, or it has none",
            )

    play(story)


def test_the_environment_names_the_keys_of_who_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, str(tmp_path / "nowhere"))

    async def story() -> None:
        with pytest.raises(KeyFileError, match="nowhere: cannot be read"):
            await ResourceManager.connect("tcp://127.0.0.1:1", rm_id="rm-1")

    play(story)


HEARTBEAT_MS, SILENCE_MS = 10, 60


def test_nothing_more_is_read_than_the_consumer_can_be_expected_to_take() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            session = ClientSession(RegisterResourceManager(rm_id="rm-1"), session="s")
            driver = SessionDriver([Endpoint(core.address)], session, None)
            driver.open()
            await core.welcomes()
            for number in range(1, READ_AHEAD_MESSAGES + 101):
                await core.says(allocated(number), seq=number)
            await until(lambda: not driver.is_reading)
            assert len(session.buffer) == READ_AHEAD_MESSAGES
            await driver.close()

    play(story)


def test_signs_of_life_go_both_ways_while_nothing_happens() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers(heartbeat_ms=HEARTBEAT_MS, silence_ms=30_000) as rm:
            first = core.peer
            for _ in range(5):
                header, _ = await core.hears(Heartbeat)
                assert (header.rm, header.session) == ("rm-1", core.session)
                await core.says(Heartbeat(), partition="")
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            assert core.peer == first

    play(story)


def test_a_timer_that_is_due_already_has_a_plain_handle_in_uvloop() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers(heartbeat_ms=HEARTBEAT_MS, silence_ms=30_000) as rm:
            driver, loop = rm._driver, asyncio.get_running_loop()
            assert driver._timer is not None
            driver._timer.cancel()
            driver._timer = loop.call_soon(driver._run_timer)  # as uvloop's call_at does for a time that has come
            driver._timer_at = loop.time()
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)

    play(story)


def test_a_core_that_falls_silent_is_looked_for_on_a_new_connection_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers(heartbeat_ms=HEARTBEAT_MS, silence_ms=SILENCE_MS) as rm:
            first = core.peer
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)
            await core.hears(Resume)  # nothing was said to it
            assert core.peer != first
            await core.says(Registered(partitions=["rm-1_default"]), partition="")
            header, _ = await core.hears(NodeRequest)
            assert header.seq == 1

    with caplog.at_level(logging.WARNING):
        play(story)
    assert "no answer from" in caplog.text


def test_a_resumption_that_is_not_answered_is_asked_for_on_another_connection() -> None:
    async def story() -> None:
        async with FakeCore() as core, await core.registers(heartbeat_ms=HEARTBEAT_MS, silence_ms=SILENCE_MS) as rm:
            await core.hears(Resume)
            second = core.peer
            await core.hears(Resume)
            assert core.peer != second
            await core.says(Registered(partitions=["rm-1_default"]), partition="")
            await rm.update_nodes([node("n1")])
            await core.hears(NodeRequest)

    play(story)


def test_after_a_goodbye_the_session_goes_on_at_the_next_core() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            rm = await core.registers()
            goodbye = Goodbye(reason="stopping", retry_after_milli_seconds=1)
            await core.says(goodbye, partition="")
            assert await taken(rm.results()) == Result("", goodbye)
            await rm.update_nodes([node("n1")])
        async with FakeCore(core.address) as again, rm:
            await again.hears(Resume)
            await again.says(Registered(partitions=["rm-1_default"]), partition="")
            await again.hears(NodeRequest)

    play(story)


def test_a_registration_waits_for_a_change_that_is_under_way() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1"))
            header, _ = await core.hears(RegisterResourceManager)
            await core.says(Refused(code="busy", reason="a change is under way"), partition="", ref=header.ref)
            again = await core.welcomes()
            assert (again.kind, again.session) == (header.kind, header.session)
            await (await connecting).close()

    play(story)


def test_one_that_stays_under_way_for_too_long_is_the_reason_why_nobody_got_in() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1", timeout_s=0.5))
            header, _ = await core.hears(RegisterResourceManager)
            await core.says(Refused(code="busy", reason="a change is under way"), partition="", ref=header.ref)
            with pytest.raises(RegistrationRefused, match=r"a change is under way.*0\.5 s"):
                await connecting

    play(story)


ASKED = StateDumpAsked(question=7, deadline_milli_seconds=2000)
TOLD = StateDumpAnswered(question=7, text='{"pods": 12}')


def plain() -> str:
    return TOLD.text


async def waiting() -> str:
    await asyncio.sleep(0)
    return TOLD.text


@pytest.mark.parametrize("state_dump", [plain, waiting])
def test_a_plain_function_and_one_that_waits_are_answers(state_dump: StateDump) -> None:
    assert asyncio.run(call_state_dump(ASKED, state_dump)) == TOLD


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
    answered = asyncio.run(call_state_dump(ASKED, state_dump))
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
    begun, never = asyncio.Event(), asyncio.Event()

    async def hangs() -> str:
        begun.set()
        await never.wait()
        return ""

    async def story(core: FakeCore, rm: Kept) -> None:
        before = asyncio.all_tasks()
        for number in range(STATE_DUMPS_WAITING_MAX + 1):
            await core.says(StateDumpAsked(question=number, deadline_milli_seconds=2000))
        _, busy = await core.hears(StateDumpAnswered)
        assert busy == StateDumpAnswered(
            question=STATE_DUMPS_WAITING_MAX,
            problem="state_dump of the resource manager is busy with earlier questions",
        )
        await begun.wait()
        (answering,) = {task for task in asyncio.all_tasks() - before if not task.done()}
        await rm.close()
        await asyncio.wait([answering])
        assert answering.cancelled()

    connected(story, hangs)
