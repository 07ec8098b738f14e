"""The shell of the replay, over a real socket to a small core: exit status, output, and what Ctrl-C does."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from common.rm_messages import (
    AllocationRequest,
    ApplicationRequest,
    Leave,
    Left,
    NodeRequest,
    PartitionRestarted,
    Refused,
    RegisterResourceManager,
    SyncBegin,
    SyncDone,
    SyncEnd,
)
from tests.yunishard.fake_core import FakeCore, play
from tests.yunishard.replay.small_core import SmallCore
from tests.yunishard.replay.swf_lines import swf_line, swf_log
from yunishard.replay import drive
from yunishard.replay.drive import Options, replay_file, replay_plan
from yunishard.replay.machine import Batch
from yunishard.replay.plan import plan

LINES = [swf_line(n, submit=n, run=100, site=1 + n % 2) for n in range(50)]


def options_for(address: str = "tcp://127.0.0.1:1", *, file: Path = Path("a.swf"), **changed: bool) -> Options:
    return Options(
        file=file,
        address=address,
        rm_id="rm-1",
        speed=5000.0,
        partitions=6,
        load=0.7,
        nodes=None,
        strict=changed.get("strict", False),
        json=changed.get("json", False),
    )


async def serve(fake: FakeCore, core: SmallCore, *, heard: Callable[[Batch], Iterable[str]] = lambda batch: ()) -> None:
    """Answer a resource manager until it leaves. What `heard` gives after a batch are partitions that begin anew."""
    await fake.welcomes("rm-1_site-1", "rm-1_site-2")
    said: Counter[str] = Counter()
    while True:
        header, message = await fake.hears()
        match message:
            case NodeRequest():
                batch = Batch(nodes=message.nodes)
            case ApplicationRequest():
                batch = Batch(applications=message.new, removals=message.remove)
            case AllocationRequest():
                batch = Batch(asks=message.allocations, releases=message.releases.allocations_to_release)
            case SyncBegin():
                continue
            case SyncEnd():
                said[header.partition] += 1
                await fake.says(SyncDone(), partition=header.partition, seq=said[header.partition], ack=header.seq)
                continue
            case Leave():
                await fake.says(Left(), partition="", ref=header.ref)
                return
            case _:
                raise AssertionError(message)
        for partition, news in core.take(batch):
            said[partition] += 1
            await fake.says(news, partition=partition, seq=said[partition], ack=header.seq)
        for partition in heard(batch):
            said[partition] = 0
            await fake.says(PartitionRestarted(), partition=partition)


def against(
    core: SmallCore, story: Callable[[str], Awaitable[None]], **options: Callable[[Batch], Iterable[str]]
) -> None:
    async def both() -> None:
        async with FakeCore() as fake:
            serving = asyncio.create_task(serve(fake, core, **options))
            await story(fake.address)
            await serving

    play(both)


def test_a_log_is_replayed_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    core = SmallCore("rm-1")

    async def story(address: str) -> None:
        assert await replay_plan(options_for(address), plan(swf_log(*LINES), rm_id="rm-1")) == drive.OK

    against(core, story)
    assert core.empty
    out = capsys.readouterr().out
    assert "50 jobs in 0.0 hours" in out
    assert "50 of 50 jobs submitted" not in out.splitlines()[0]
    assert out.endswith("no application is left.\n")


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(address: str) -> None:
        assert await replay_plan(options_for(address, json=True), plan(swf_log(*LINES), rm_id="rm-1")) == 0

    against(SmallCore("rm-1"), story)
    document = json.loads(capsys.readouterr().out)
    assert (document["total"]["done"], document["complete"]) == (50, True)


def test_a_job_that_did_not_run_is_exit_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    core = SmallCore("rm-1")
    core.refuse.add("job-7")

    async def story(address: str) -> None:
        status = await replay_plan(options_for(address), plan(swf_log(*LINES), rm_id="rm-1"))
        assert status == drive.INCOMPLETE

    against(core, story)
    assert "job-7 (site-2, root.g1.u1) failed: refused: not today" in capsys.readouterr().out


def test_an_interruption_leaves_the_core_clean_and_prints_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    core = SmallCore("rm-1")
    lines = [*LINES, swf_line(99, submit=10**9)]

    def heard(batch: Batch) -> Iterable[str]:
        if any(item.application_id == "job-30" for item in batch.removals):
            os.kill(os.getpid(), signal.SIGINT)
        return ()

    async def story(address: str) -> None:
        assert await replay_plan(options_for(address), plan(swf_log(*lines), rm_id="rm-1", load=50)) == 130

    against(core, story, heard=heard)  # which ends when it has left
    assert "interrupted" in capsys.readouterr().out


def test_a_partition_that_begins_anew_is_reported_and_the_replay_completes(capsys: pytest.CaptureFixture[str]) -> None:
    core = SmallCore("rm-1")
    lost: list[str] = []

    def heard(batch: Batch) -> Iterable[str]:
        if lost or not any(item.application_id == "job-31" for item in batch.removals):
            return ()
        lost.extend(core.partitions.pop("rm-1_site-2").applications)
        return ("rm-1_site-2",)

    async def story(address: str) -> None:
        assert await replay_plan(options_for(address), plan(swf_log(*LINES), rm_id="rm-1")) == drive.OK

    against(core, story, heard=heard)
    assert lost
    assert core.empty
    assert capsys.readouterr().out.endswith("no application is left.\n")


def test_a_refused_registration_is_exit_status_two(capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> None:
        async with FakeCore() as fake:

            async def refuse() -> None:
                await fake.hears(RegisterResourceManager)
                await fake.says(Refused(code="config", reason="no such thing"), partition="")

            refusing = asyncio.create_task(refuse())
            assert await replay_plan(options_for(fake.address), plan(swf_log(*LINES), rm_id="rm-1")) == 2
            await refusing

    play(story)
    error = capsys.readouterr().err
    assert "no such thing" in error
    assert len(error.splitlines()) == 1


def test_a_core_that_falls_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(drive, "SILENCE_S_MAX", 0.1)

    async def story() -> None:
        async with FakeCore() as fake:

            async def welcomed_only() -> None:
                await fake.welcomes("rm-1_site-1")
                await fake.lets_go()

            serving = asyncio.create_task(welcomed_only())
            assert await replay_plan(options_for(fake.address), plan(swf_log(*LINES), rm_id="rm-1")) == 1
            await serving

    play(story)
    assert "heard nothing for 0.1 s while joining" in capsys.readouterr().out


def test_files_that_cannot_be_replayed_are_exit_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    malformed, endless = tmp_path / "a.swf", tmp_path / "b.swf"
    malformed.write_text("rubbish\n" * 30 + swf_line(1, run=-1))
    endless.write_text(swf_line(1, run=-1))
    assert replay_file(options_for(file=tmp_path / "none")) == 2
    assert "No such file" in capsys.readouterr().err
    assert replay_file(options_for(file=malformed, strict=True)) == 2
    assert "line 1: 1 columns" in capsys.readouterr().err
    assert replay_file(options_for(file=malformed)) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 22
    assert said[0] == "yunishard replay: skipped line 1: 1 columns, expected 18: rubbish"
    assert said[20] == "yunishard replay: skipped 10 more malformed lines"
    assert "no job can be replayed: {'run time unknown': 1}" in said[21]
