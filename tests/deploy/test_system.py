"""The supervisor with real processes, which are fakes: what it starts, how it stops, what it leaves behind."""

import errno
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

import yunishard.deploy.up
from tests.deploy.system import FREE_PORTS, WAIT_MAX_S, Up, eventually, gone, up
from yunishard.common.process.main import make_parser, parse_arguments
from yunishard.common.settings import EffectiveSetting
from yunishard.deploy.up import remove_journal

pytestmark = pytest.mark.processes

FAKES = "tests.deploy.fake_up"


class Start(msgspec.Struct):
    """What a fake says of itself."""

    role: str
    pid: int
    arguments: list[str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    wanted(tmp_path, "rm_a")
    return tmp_path


def wanted(folder: Path, *partitions: str, **dismissed: str) -> None:
    """Let the fake broker want workers for these partitions; `dismissed` have lost theirs, by instance."""
    lost = {f"worker/{instance}": partition for instance, partition in dismissed.items()}
    (folder / "wanted.new").write_text(json.dumps({"partitions": partitions, "dismissed": lost}))
    (folder / "wanted.new").rename(folder / "wanted.json")


def starts(folder: Path) -> list[Start]:
    """Every fake that came to life, in order."""
    file = folder / "started"
    return [msgspec.json.decode(line, type=Start) for line in file.read_text().splitlines()] if file.exists() else []


def started(folder: Path, role: str) -> list[list[str]]:
    """The arguments of each start of a role."""
    return [start.arguments for start in starts(folder) if start.role == role]


def whole(system: Up, folder: Path, workers: int = 1) -> bool:
    """Whether all that should run came to life."""
    children = system.children.keys()
    return len(children) == 3 + workers and children <= {start.pid for start in starts(folder)}


def test_it_says_what_is_ready_and_stops_in_order(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        assert system.announced() == {
            "native": "tcp://127.0.0.1:4711",
            "grpc": "127.0.0.1:4711",
            "rest": "http://127.0.0.1:4711",
        }
        system.until(lambda: whole(system, folder))
        children = system.children
        assert system.stop() == 0
        assert (folder / "stopped").read_text().split() == ["webservice", "rmproxy", "partition_worker", "broker"]
        assert all(map(gone, children))


def test_children_are_in_sessions_of_their_own_and_die_with_the_supervisor(folder: Path) -> None:
    with up(*FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        children = system.children
        assert all(os.getsid(number) == number for number in children)
        assert system.stop(signal.SIGKILL) == -signal.SIGKILL
        eventually(lambda: all(map(gone, children)))


def test_what_dies_starts_again_and_ports_stay(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: len(started(folder, "partition_worker")) == 1)
        system.until(lambda: whole(system, folder))
        os.kill(system.child(" partition_worker "), signal.SIGKILL)
        os.kill(system.child(" rmproxy "), signal.SIGSEGV)
        system.until(lambda: len(started(folder, "partition_worker")) == 2 and len(started(folder, "rmproxy")) == 2)
        first, second = started(folder, "partition_worker")
        assert len({one[one.index("--instance") + 1] for one in (first, second)}) == 2
        assert "tcp://127.0.0.1:4711" in started(folder, "rmproxy")[1]
        assert system.says(" s: SIGKILL\n")
        assert system.says(" s: SIGSEGV\n")
        assert system.stop() == 0


def test_workers_follow_what_the_broker_wants(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        [first] = started(folder, "partition_worker")
        wanted(folder, "rm_a", "rm_b", **{first[first.index("--instance") + 1]: "rm_a"})
        system.until(lambda: whole(system, folder, workers=2) and len(started(folder, "partition_worker")) == 3)
        wanted(folder)
        system.until(lambda: whole(system, folder, workers=0))
        assert system.stop() == 0


def test_many_partitions_do_not_hold_up_a_stop(folder: Path) -> None:
    many = [f"big_{number}" for number in range(60)]
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        wanted(folder, *many)
        system.until(lambda: len(started(folder, "partition_worker")) > 1)
        assert system.stop() == 0
        assert len(started(folder, "partition_worker")) < len(many), "the stop did not wait for them"


def test_when_the_broker_dies_the_others_stay(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        broker, before = system.child(" broker "), system.children
        os.kill(broker, signal.SIGKILL)
        system.until(lambda: broker not in system.children and whole(system, folder))
        assert len(before.keys() & system.children.keys()) == 3
        first, second = started(folder, "broker")
        assert first[:2] == second[:2], "where it listens"
        wanted(folder, "rm_a", "rm_b")
        system.until(lambda: whole(system, folder, workers=2))
        assert system.stop() == 0


def test_a_worker_that_is_stopped_makes_room_for_the_next_lease(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        stopped = system.child(" partition_worker ")
        os.kill(stopped, signal.SIGSTOP)
        [first] = started(folder, "partition_worker")
        wanted(folder, "rm_a", **{first[first.index("--instance") + 1]: "rm_a"})
        system.until(lambda: whole(system, folder) and gone(stopped))
        assert system.stop() == 0


def test_a_supervisor_without_free_descriptors_starts_processes_once_it_has_some(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        number = system.process.pid
        before = resource.prlimit(number, resource.RLIMIT_NOFILE)
        taken = set(map(int, os.listdir(f"/proc/{number}/fd")))
        lowest_free = next(one for one in count() if one not in taken)
        resource.prlimit(number, resource.RLIMIT_NOFILE, (lowest_free, before[1]))
        wanted(folder, "rm_a", "rm_b")
        system.until(lambda: system.says("never started (the operating system does not start it: [Errno 24] Too many"))
        assert system.says("; raise the limit (`ulimit -n`, ")
        resource.prlimit(number, resource.RLIMIT_NOFILE, before)
        system.until(lambda: whole(system, folder, workers=2))
        assert "Traceback" not in system.errors
        assert system.stop() == 0


def test_the_processes_have_the_limit_on_descriptors_raised_as_far_as_possible(folder: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
            system.announced()
            for number in (system.process.pid, *system.children):
                assert resource.prlimit(number, resource.RLIMIT_NOFILE) == (hard, hard)
            assert system.stop() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


SHORT = ("--heartbeat", "100ms", "--silence", "300ms")


def test_a_process_that_is_stopped_is_replaced(folder: Path) -> None:
    with up("--ephemeral", *SHORT, *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        for role in (" broker ", " rmproxy ", " webservice "):
            stopped = system.child(role)
            os.kill(stopped, signal.SIGSTOP)
            system.until(lambda stopped=stopped: gone(stopped) and whole(system, folder))
        assert system.says(": SIGKILL (silent for 1.5 s)")
        assert system.stop() == 0


def test_a_supervisor_that_was_stopped_kills_nobody(folder: Path) -> None:
    with up("--ephemeral", *SHORT, *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        before = system.children
        system.process.send_signal(signal.SIGSTOP)
        with pytest.raises(subprocess.TimeoutExpired):
            system.process.wait(timeout=3)
        system.process.send_signal(signal.SIGCONT)
        system.until(lambda: system.says("the supervisor itself did not run for "))
        wanted(folder, "rm_a", "rm_b")
        system.until(lambda: whole(system, folder, workers=2))
        assert before.keys() <= system.children.keys()
        assert system.stop() == 0


@pytest.mark.parametrize("nonsense", [b"I feel fine", b'{"failed":"\xff"}', b'{"x":' + b"[" * 5_000], ids=range(3))
def test_one_whose_lifeline_says_nonsense_is_ended(folder: Path, nonsense: bytes) -> None:
    (folder / "garbled.partition_worker").write_bytes(nonsense)
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: system.says(f": SIGKILL (it sent an invalid line: {nonsense[:100]!r})"))
        (folder / "garbled.partition_worker").unlink()
        system.until(lambda: whole(system, folder))
        assert system.stop() == 0


@pytest.mark.parametrize("role", ["broker", "rmproxy", "webservice"])
def test_one_that_cannot_start_stops_all_with_one_line_and_status_2(folder: Path, role: str) -> None:
    (folder / f"fails.{role}").touch()
    with up("--ephemeral", "--log-level", "error", *FREE_PORTS, folder=folder, module=FAKES) as system:
        assert system.process.wait(timeout=30) == 2
        assert system.errors == f"yunishard up: {role} cannot start: its knee hurts\n"
        assert system.process.stdout is not None
        assert system.process.stdout.read() == ""


def test_a_second_signal_hastens(folder: Path) -> None:
    (folder / "stubborn.webservice").touch()
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        children = system.children
        system.process.send_signal(signal.SIGINT)
        system.until(lambda: system.says("stopping"))
        assert system.stop(signal.SIGINT) == 130
        assert all(map(gone, children))


def test_a_terminal_that_is_closed_stops_all_in_order(folder: Path) -> None:
    master, terminal = pty.openpty()
    with up(
        "--ephemeral", *FREE_PORTS, folder=folder, module=FAKES, prefix=("setsid", "--ctty"), stdin=terminal
    ) as system:
        os.close(terminal)
        system.announced()
        system.until(lambda: whole(system, folder))
        children = system.children
        os.close(master)
        assert system.process.wait(timeout=WAIT_MAX_S) == 0
        assert (folder / "stopped").read_text().split() == ["webservice", "rmproxy", "partition_worker", "broker"]
        assert all(map(gone, children))
        assert system.says("SIGHUP: the terminal was closed, so the system stops; ")


def test_under_nohup_a_terminal_that_is_closed_is_no_reason_to_stop(folder: Path) -> None:
    master, terminal = pty.openpty()
    prefix = ("setsid", "--ctty", "nohup")
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES, prefix=prefix, stdin=terminal) as system:
        os.close(terminal)
        system.announced()
        system.until(lambda: whole(system, folder))
        os.close(master)
        number = system.process.pid
        system.until(lambda: Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[4] == "0")
        wanted(folder, "rm_a", "rm_b")
        system.until(lambda: whole(system, folder, workers=2))
        assert not system.says("SIGHUP")
        assert system.stop() == 0


def test_leaving_before_all_is_ready_is_an_ordered_stop_too(folder: Path) -> None:
    (folder / "mute.rmproxy").touch()
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.until(lambda: len(started(folder, "rmproxy")) == 1)
        assert system.stop() == 0


def test_losing_its_reader_is_no_reason_to_stop(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        assert system.process.stdout is not None
        system.process.stdout.close()
        system.until(lambda: whole(system, folder))
        assert system.stop() == 0


def test_what_it_says_goes_nowhere_when_standard_output_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    yunishard.deploy.up._print("ready")


def test_a_full_disk_behind_standard_output_is_no_reason_to_stop() -> None:
    program = "from yunishard.deploy.up import _print; _print('ready'); _print('again')"
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run([sys.executable, "-P", "-c", program], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_every_role_gets_the_settings(folder: Path) -> None:
    options = ("--allowed-rms", "rm-1,rm-2", "--preemption-threshold", "50", "--scheduler-admins", "ann", "--manual")
    with up("--state", str(folder / "s"), *FREE_PORTS, *options, folder=folder, module=FAKES) as system:
        system.announced()
        system.until(lambda: whole(system, folder))
        for role in ("broker", "rmproxy", "webservice", "partition_worker"):
            [words] = started(folder, role)
            settings = parse_arguments(make_parser(role, "").parse_args(words)).settings
            assert settings.allowed_rms == ("rm-1", "rm-2")
            assert (settings.preemption_threshold_percent, settings.manual) == (50, True)
            assert (settings.scheduler_admins, settings.heartbeat_s) == ("ann", 1.0)
            assert settings.journals == folder / "s" / "journals"
            assert settings.history_file == folder / "s" / "history" / "history.sqlite"
        assert EffectiveSetting("allowed-rms", "rm-1,rm-2", "--allowed-rms", "--allowed-rms") in settings.effective
        assert system.stop() == 0


def test_an_ephemeral_system_has_its_own_state_directory(folder: Path) -> None:
    with up("--ephemeral", *FREE_PORTS, folder=folder, module=FAKES) as system:
        system.announced()
        [words] = started(folder, "broker")
        settings = parse_arguments(make_parser("broker", "").parse_args(words)).settings
        assert settings.state is not None
        assert settings.state.is_dir()
        assert system.stop() == 0
        assert not settings.state.exists()


def test_who_starts_a_system_that_tells_everybody_everything_is_warned(folder: Path) -> None:
    ports = (*FREE_PORTS[:4], "--rest", "0.0.0.0:0", "--insecure")
    with up("--ephemeral", *ports, folder=folder, module=FAKES) as system:
        system.announced()
        assert "--rest: 0.0.0.0:0: any client that reaches this port may read all of it" in system.errors
        assert system.stop() == 0


# Journals of partitions that have ended

OURS = (
    "rm_a.sqlite",
    "rm_a.sqlite-wal",
    "rm_a.sqlite-shm",
    "rm_a.snapshot-12",
    "rm_a.snapshot-9.tmp-77",
    "rm_a.attempts",
    "rm_a.poison-0a1b",
)
OTHERS = ("rm_a.b.sqlite", "rm_ab.sqlite", "rm_a.b.snapshot-1", "rm_a.snapshot-1.sqlite", "rm.sqlite", "rm_a.txt")


def test_only_its_own_files_go(tmp_path: Path) -> None:
    for name in (*OURS, *OTHERS):
        (tmp_path / name).write_text("x")
    (tmp_path / "rm_a.damaged").mkdir()
    (tmp_path / "rm_a.damaged" / "rm_a.sqlite").write_text("x")
    remove_journal(tmp_path, "rm_a")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(OTHERS)


def test_what_cannot_be_removed_is_complained_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rm_a.damaged").mkdir()
    (tmp_path / "rm_a.sqlite").write_text("x")
    monkeypatch.setattr(shutil, "rmtree", Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    remove_journal(tmp_path, "rm_a")
    assert "rm_a.damaged: cannot be removed" in caplog.text
    assert not (tmp_path / "rm_a.sqlite").exists()


def test_a_folder_that_cannot_be_read_is_complained_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    remove_journal(tmp_path / "journals", "rm_a")
    assert "the journal of rm_a in " in caplog.text
    assert "cannot be removed: No such file or directory" in caplog.text
