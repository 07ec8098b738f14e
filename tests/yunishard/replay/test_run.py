"""Running a replay: the local system, signals, and a whole replay against the engine."""

import asyncio
import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest

from tests.yunishard.engine_core import EngineCore
from tests.yunishard.fake_core import FakeCore, play
from tests.yunishard.replay.swf_lines import swf_line, swf_log
from yunishard.cli.main import UNUSABLE, CommandFailed, main
from yunishard.common.messages.rm_messages import (
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
from yunishard.common.rm_player import Batch
from yunishard.workloads.replay import run
from yunishard.workloads.replay.report import WAITS
from yunishard.workloads.replay.run import ReplayDriver, local_system, run_replay
from yunishard.workloads.replay.workload import plan

READY = 'echo "native  tcp://127.0.0.1:4567"; echo "rest    http://127.0.0.1:1"; echo ready;'


def system(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def test_its_address_is_read_and_it_is_told_to_stop(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    script = (
        f'trap "touch {stopped}; exit 0" TERM; {READY} read forever </dev/tty || while :; do wait; sleep 0.01; done'
    )

    async def story() -> None:
        async with local_system(system(script)) as address:
            assert address == "tcp://127.0.0.1:4567"
            assert not stopped.exists()

    asyncio.run(story())
    assert stopped.exists()


def test_it_is_stopped_after_an_error_too(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def story() -> None:
        async with local_system(system(f"echo $$ > {pid}; {READY} exec sleep 60")):
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(story())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent was killed")
def test_it_is_stopped_when_we_are_killed(tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    os.mkfifo(stopped)
    program = """
import asyncio, os, signal, sys
from yunishard.workloads.replay.run import local_system
async def story():
    async with local_system(("/bin/sh", "-c", sys.argv[1])):
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(story())
"""
    script = f'trap "echo stopped > {stopped}; exit 0" TERM; {READY} while :; do sleep 0.01; done'
    killed = subprocess.Popen([sys.executable, "-P", "-c", program, script])
    assert stopped.read_text() == "stopped\n"
    assert killed.wait() == -signal.SIGKILL


def test_one_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STOP_S_MAX", 0.05)

    async def story() -> None:
        async with local_system(system(f'trap "" TERM; {READY} exec sleep 60')):
            pass

    asyncio.run(story())


def test_one_that_ends_or_hangs_at_the_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(script: str) -> None:
        async with local_system(system(script)):
            pytest.fail("was ready")

    with pytest.raises(CommandFailed, match="ended before it was ready"):
        asyncio.run(start("echo ready; exit 2"))
    monkeypatch.setattr(run, "START_S_MAX", 0.05)
    with pytest.raises(CommandFailed, match="not ready within"):
        asyncio.run(start("exec sleep 60"))


@pytest.mark.processes
def test_the_usual_hard_limit_of_file_descriptors_is_enough() -> None:
    async def story() -> None:
        async with local_system(("prlimit", "--nofile=1024:1024", *run.COMMAND)) as address:
            assert address.startswith("tcp://127.0.0.1:")

    asyncio.run(story())


LINES = [swf_line(n, submit=n, run=100, site=1 + n % 2) for n in range(50)]


def engine_core() -> EngineCore:
    return EngineCore(plan(swf_log(*LINES), rm_id="rm-1").build_configuration(), rm_id="rm-1")


def options_for(address: str = "tcp://127.0.0.1:1", *, file: Path = Path("a.swf"), **changed: bool) -> Namespace:
    return Namespace(
        file=file,
        address=address,
        keys=None,
        rm_id="rm-1",
        speed=5000.0,
        partitions=6,
        load=0.7,
        nodes=None,
        strict=changed.get("strict", False),
        json=changed.get("json", False),
        config=None,
        gang=False,
        jobs_csv=None,
        output=None,
    )


async def serve(
    fake: FakeCore, core: EngineCore, *, heard: Callable[[Batch], Iterable[str]] = lambda batch: ()
) -> None:
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
        for partition, news in core.take(batch, 0.0):
            said[partition] += 1
            await fake.says(news, partition=partition, seq=said[partition], ack=header.seq)
        for partition in heard(batch):
            said[partition] = 0
            await fake.says(PartitionRestarted(), partition=partition)


def against(
    core: EngineCore, story: Callable[[str], Awaitable[None]], **options: Callable[[Batch], Iterable[str]]
) -> None:
    async def both() -> None:
        async with FakeCore() as fake:
            serving = asyncio.create_task(serve(fake, core, **options))
            await story(fake.address)
            await serving

    play(both)


def test_a_log_is_replayed_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    core = engine_core()

    async def story(address: str) -> None:
        assert await ReplayDriver(options_for(address), plan(swf_log(*LINES), rm_id="rm-1")).run() == 0

    against(core, story)
    assert core.empty
    out = capsys.readouterr().out
    assert "50 jobs in 0.0 hours" in out
    assert out.splitlines()[1] == WAITS
    assert "50 of 50 jobs submitted" not in out.splitlines()[0]
    assert out.endswith("no application is left.\n")


def test_it_goes_to_the_address_that_answers() -> None:
    core = engine_core()

    async def story(address: str) -> None:
        with socket.socket() as absent:
            absent.bind(("127.0.0.1", 0))
            addresses = f"tcp://127.0.0.1:{absent.getsockname()[1]},{address}"
            assert await ReplayDriver(options_for(addresses), plan(swf_log(*LINES), rm_id="rm-1")).run() == 0

    against(core, story)
    assert core.empty


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    async def story(address: str) -> None:
        assert await ReplayDriver(options_for(address, json=True), plan(swf_log(*LINES), rm_id="rm-1")).run() == 0

    against(engine_core(), story)
    document = json.loads(capsys.readouterr().out)
    assert (document["total"]["done"], document["complete"]) == (50, True)


def test_a_job_that_did_not_run_is_exit_status_one(capsys: pytest.CaptureFixture[str]) -> None:
    core = engine_core()
    core.refuse.add("job-7")

    async def story(address: str) -> None:
        status = await ReplayDriver(options_for(address), plan(swf_log(*LINES), rm_id="rm-1")).run()
        assert status == 1

    against(core, story)
    assert "job-7 (site-2, root.g1.u1) failed: refused: not today" in capsys.readouterr().out


def test_an_interruption_leaves_the_core_clean_and_prints_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    core = engine_core()
    lines = [*LINES, swf_line(99, submit=10**9)]

    def heard(batch: Batch) -> Iterable[str]:
        if any(item.application_id == "job-30" for item in batch.removals):
            os.kill(os.getpid(), signal.SIGINT)
        return ()

    async def story(address: str) -> None:
        assert await ReplayDriver(options_for(address), plan(swf_log(*lines), rm_id="rm-1", load=50)).run() == 130

    against(core, story, heard=heard)  # which ends when it has left
    assert "interrupted" in capsys.readouterr().out


def test_a_partition_that_begins_anew_is_reported_and_the_replay_completes(capsys: pytest.CaptureFixture[str]) -> None:
    core = engine_core()
    lost: list[str] = []

    def heard(batch: Batch) -> Iterable[str]:
        if lost or not any(item.application_id == "job-31" for item in batch.asks):  # it has this one at least
            return ()
        lost.extend(core.partitions["rm-1_site-2"].applications)
        core.lose("rm-1_site-2")
        return ("rm-1_site-2",)

    async def story(address: str) -> None:
        assert await ReplayDriver(options_for(address), plan(swf_log(*LINES), rm_id="rm-1")).run() == 0

    against(core, story, heard=heard)
    assert lost
    assert core.empty
    assert capsys.readouterr().out.endswith("no application is left.\n")


def test_a_refused_registration_is_exit_status_two() -> None:
    async def story() -> None:
        async with FakeCore() as fake:

            async def refuse() -> None:
                await fake.hears(RegisterResourceManager)
                await fake.says(Refused(code="config", reason="no such thing"), partition="")

            refusing = asyncio.create_task(refuse())
            with pytest.raises(CommandFailed, match="no such thing") as failed:
                await ReplayDriver(options_for(fake.address), plan(swf_log(*LINES), rm_id="rm-1")).run()
            assert failed.value.status == UNUSABLE
            await refusing

    play(story)


def test_a_core_that_falls_silent_is_given_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, "SILENCE_S_MAX", 0.1)

    async def story() -> None:
        async with FakeCore() as fake:

            async def welcomed_only() -> None:
                await fake.welcomes("rm-1_site-1")
                await fake.lets_go()

            serving = asyncio.create_task(welcomed_only())
            assert await ReplayDriver(options_for(fake.address), plan(swf_log(*LINES), rm_id="rm-1")).run() == 1
            await serving

    play(story)
    assert "no answer for 0.1 s while joining" in capsys.readouterr().out


def test_files_that_cannot_be_replayed_are_exit_status_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    malformed, endless = tmp_path / "a.swf", tmp_path / "b.swf"
    malformed.write_text("rubbish\n" * 30 + swf_line(1, run=-1))
    endless.write_text(swf_line(1, run=-1))
    for options, text in (
        (options_for(file=tmp_path / "none"), "No such file"),
        (options_for(file=malformed, strict=True), "line 1: 1 columns"),
        (options_for(file=malformed), "no job can be replayed: {'run time unknown': 1}"),
    ):
        with pytest.raises(CommandFailed, match=re.escape(text)) as failed:
            run_replay(options)
        assert failed.value.status == UNUSABLE
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 21
    assert said[0] == "yunishard replay: skipped line 1: 1 columns, expected 18: rubbish"
    assert said[20] == "yunishard replay: skipped 10 more malformed lines"


OWN_QUEUES = """
partitions:
  - name: default
    queues:
      - {name: root, submitacl: "*", queues: [{name: g1, resources: {max: {vcore: 2}}}, {name: rest}]}
"""


@pytest.mark.processes
def test_a_real_system_runs_gangs_in_queues_of_the_users_own(tmp_path: Path) -> None:
    log, queues, jobs = tmp_path / "a.swf", tmp_path / "queues.yaml", tmp_path / "jobs.csv"
    queues.write_text(OWN_QUEUES)
    lines = [swf_line(n, submit=n, run=100, processors=1 + n % 2, group=n % 4) for n in range(1, 21)]
    log.write_text("\n".join(lines))
    words = ["replay", str(log), "--local", "--config", str(queues), "--gang", "--jobs-csv", str(jobs), "--speed=500"]
    assert main(words) == 0
    with jobs.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["state"] for row in rows] == 20 * ["completed"]
    assert {(row["group"], row["queue"]) for row in rows} == {
        *(("g0", "root.g1"), ("g1", "root.g1"), ("g2", "root.g1"), ("g3", "root.rest")),
    }
    assert {row["tasks"] for row in rows} == {"1", "2"}
    assert all(float(row["end"]) >= float(row["start"]) + 100 for row in rows)
