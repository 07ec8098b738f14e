"""The lifeline, with real processes: what they say when they start, and that they end when their other end closes."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.deploy.system import eventually
from yunishard.common.process.main import lock_name, make_parser, parse_arguments, write_line
from yunishard.common.settings import Settings, SettingsError, encode_settings, read_settings, replace_settings

PATIENCE_S = 20.0

CHILD = """
import asyncio, sys, time
from yunishard.common.process.main import Lease, main

async def serve(arguments, life):
    if arguments.broker.address == "fail":
        raise OSError("cannot listen on tcp://127.0.0.1:1: taken")
    if arguments.broker.address == "defect":
        raise KeyError("a defect")
    if arguments.broker.address == "blocked":
        time.sleep(3600)
    if arguments.broker.address == "large":
        class Told:
            def __del__(self):
                sys.stderr.write("somebody looks for it\\n")
        one = Told()
        one.itself = one
        return
    woken = asyncio.Event()
    life.on_stop(woken.set)
    life.on_leader(life.leads)
    if arguments.broker.address == "granted":
        life.granted(Lease("rm_a", 7))
        life.ready()
    else:
        life.ready(native="tcp://127.0.0.1:9090")
    await woken.wait()
    assert life.stopping.is_set()

sys.exit(main("child", "for tests", serve))
"""


class Child:
    def __init__(self, process: subprocess.Popen[bytes], lifeline: socket.socket) -> None:
        self.process = process
        self.lifeline = lifeline

    def line(self) -> object:
        """What it says; empty when it closed its end."""
        text = b""
        while not text.endswith(b"\n"):
            piece = self.lifeline.recv(1)  # not a byte of the next line
            if not piece:
                break
            text += piece
        return json.loads(text) if text else None

    def busy(self) -> float:
        """Seconds of processor time that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ends(self) -> int:
        return self.process.wait(timeout=PATIENCE_S)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


@contextmanager
def child(story: str = "serve", *, heartbeat_s: float = PATIENCE_S) -> Iterator[Child]:
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE_S)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least there is, which are a few lines
    with ours, tempfile.NamedTemporaryFile() as file:
        file.write(encode_settings(replace_settings(Settings(), {"heartbeat_s": heartbeat_s})))
        file.flush()
        words = (f"--broker={story}", f"--lifeline={theirs.fileno()}", f"--settings={file.name}")
        command = [sys.executable, "-P", "-c", CHILD, *words]
        with subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE) as process:
            theirs.close()
            try:
                yield Child(process, ours)
            finally:
                process.kill()


@pytest.mark.processes
def test_it_follows_each_leader_of_which_the_supervisor_tells() -> None:
    with child() as one:
        one.line()
        for leader in ({"address": "tcp://10.0.0.2:9094", "key": "k"}, {"address": "ipc://b", "key": ""}):
            one.lifeline.sendall(json.dumps({"leader": leader}).encode() + b"\n")
            assert one.line() == {"leader": leader}
        one.lifeline.close()
        assert one.ends() == 0


@pytest.mark.processes
def test_a_process_says_that_it_is_ready_and_ends_when_its_supervisor_is_gone() -> None:
    with child() as one:
        assert one.line() == {"ready": {"native": "tcp://127.0.0.1:9090"}}
        one.lifeline.close()
        assert one.ends() == 0
        assert one.errors() == ""


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(number: signal.Signals) -> None:
    with child() as one:
        one.line()
        one.process.send_signal(number)
        assert one.ends() == 0
        assert one.errors() == ""


@pytest.mark.processes
def test_at_its_end_nobody_looks_for_what_it_has_in_memory() -> None:
    with child("large") as one:
        assert one.ends() == 0
        assert one.errors() == ""


@pytest.mark.processes
def test_it_says_all_the_time_that_it_is_alive_but_not_while_its_loop_stands_still() -> None:
    with child(heartbeat_s=0.05) as one:
        assert [one.line() for _ in range(3)][1:] == [{"alive": 1}, {"alive": 2}]
    with child("blocked", heartbeat_s=0.05) as one:
        one.lifeline.settimeout(1)
        with pytest.raises(TimeoutError):
            one.line()


@pytest.mark.processes
def test_a_process_whose_signs_of_life_nobody_reads_goes_on() -> None:
    with child(heartbeat_s=0.0001) as one:
        one.line()
        before = one.busy()
        eventually(lambda: one.busy() > before + 0.1)  # it has said more than the lifeline holds
        one.process.send_signal(signal.SIGTERM)
        assert one.ends() == 0


@pytest.mark.processes
def test_a_worker_says_which_lease_it_has_and_shows_it_in_its_title() -> None:
    with child("granted") as one:
        assert one.line() == {"granted": {"partition": "rm_a", "epoch": 7}}
        assert one.line() == {"ready": {}}
        title = Path(f"/proc/{one.process.pid}/cmdline").read_bytes()
        assert title.rstrip(b"\0") == b"partition_worker rm_a#7"
        one.process.send_signal(signal.SIGTERM)
        assert one.ends() == 0


@pytest.mark.processes
def test_what_cannot_be_opened_is_said_in_one_line_and_only_to_the_supervisor() -> None:
    with child("fail") as one:
        assert one.line() == {"failed": "cannot listen on tcp://127.0.0.1:1: taken"}
        assert one.ends() == 2
        assert one.errors() == ""


@pytest.mark.processes
def test_started_by_hand_it_says_so_to_whoever_started_it() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, "--broker=fail"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "child: cannot listen on tcp://127.0.0.1:1: taken\n")


@pytest.mark.processes
def test_a_defect_is_loud() -> None:
    with child("defect") as one:
        assert one.ends() == 1
        assert "KeyError: 'a defect'" in one.errors()
        assert one.line() is None


def test_nobody_is_told_without_a_lifeline_or_with_a_broken_one() -> None:
    write_line(None, {"ready": {}})
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        write_line(ours.fileno(), {"ready": {}})
    read, write = os.pipe()
    write_line(write, {"ready": {"rest": "http://127.0.0.1:9080"}})
    assert os.read(read, 4096) == b'{"ready":{"rest":"http://127.0.0.1:9080"}}\n'
    os.close(read)
    os.close(write)


def test_a_process_takes_the_settings_of_its_file_and_options_override_them(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_bytes(encode_settings(replace_settings(Settings(), {"silence_s": 5.0, "state": Path("/s")})))
    words = ["--broker", "ipc://b", "--settings", str(file), "--log-level", "debug", "--native", "off"]
    arguments = parse_arguments(make_parser("rmproxy", "").parse_args(words))
    settings = arguments.settings
    assert arguments.broker.address == "ipc://b"
    assert (settings.silence_s, settings.state, settings.log_level, settings.native) == (
        5.0,
        Path("/s"),
        "debug",
        "off",
    )
    assert settings.journals == Path("/s/journals")


def test_a_process_has_the_instance_that_is_given_or_one_of_its_own() -> None:
    parser = make_parser("rmproxy", "")
    assert parse_arguments(parser.parse_args(["--broker", "b", "--instance", "b-2"])).instance == "b-2"
    random = {parse_arguments(parser.parse_args(["--broker", "b"])).instance for _ in range(3)}
    assert len(random) == 3


def test_a_name_is_locked_while_a_process_with_it_runs(tmp_path: Path) -> None:
    broker = f"ipc://{tmp_path}/broker.sock"
    lock = f"from yunishard.common.process.main import lock_name; lock_name({broker!r}, 'rmproxy/b')"
    code = f"{lock}; print('locked'); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(OSError, match=r"^another process at this broker is rmproxy/b: choose another --instance$"):
            lock_name(broker, "rmproxy/b")
        other.kill()
    lock_name(broker, "rmproxy/b")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--instance", "a/b"], "--instance: expected up to 96 letters, digits and '_', '.', '-', got 'a/b'"),
        (["--log-level", "loud"], "--log-level: expected one of debug, info, warning, error, got 'loud'"),
        (["--settings", "/nowhere"], "the settings in /nowhere cannot be read: [Errno 2] No such file or directory"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(words: list[str], reason: str) -> None:
    with pytest.raises(SettingsError, match=f"^{re.escape(reason)}"):
        parse_arguments(make_parser("broker", "").parse_args(["--broker", "b", *words]))


def test_a_file_of_settings_that_is_damaged_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    for content in (b"", b"[]", b'{"silence_s": "long"}', b"\xff"):
        file.write_bytes(content)
        with pytest.raises(SettingsError, match="cannot be read"):
            read_settings(file)
