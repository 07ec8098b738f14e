"""Runs the command lines of the documentation and of the help texts against one running system, with a resource manager
that has what they name. Each line has to end with the exit status that users would see.

`NOT_RUN` has the reasons why some lines cannot run here. The parser accepts their commands of yunishard, and they have
the syntax of a shell.
"""

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests import postgres
from tests.deploy.system import FREE_PORTS, up
from yunishard.cli import main as command_line
from yunishard.cli.main import COMMANDS, build_parser, main, parse_words
from yunishard.common.messages.rm_messages import AllocationRelease
from yunishard.sdk.api import Callbacks
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node

pytestmark = pytest.mark.processes

ROOT: Final = Path(__file__).parents[1]
BIN: Final = Path(sys.executable).parent
DOCS: Final = ("getting-started", "security", "kubernetes", "from-yunikorn", "writing-an-rm")
OPERATING: Final = ("backup", "storage", "upgrade", "deployment", "postgresql", "cluster", "commands")
PAGES: Final = ["README.md", *(f"docs/{one}.md" for one in DOCS), *(f"docs/operating/{one}.md" for one in OPERATING)]

NOT_RUN: Final = {
    r"^(kubectl|helm|docker) ": "needs a cluster or a container runtime",
    r"^(systemctl|journalctl|systemd-sysusers|install)\b|^(mv|cp) .*/var/lib|/opt/|^pip ": "changes the machine",
    r"^make ": "sets up a checkout, which continuous integration does",
    r"^(ssh|scp) ": "needs another host",
    r"\byunishard up\b": "starts another system, as tests/deploy does",
    r"^yunishard k8s-": "needs an API server of Kubernetes",
    r"^yunishard hosts ": "needs several hosts, as in tests/cluster",
    r"^yunishard replay": "takes minutes: `make run` does it",
    r"^yunishard top": "needs a terminal, as in tests/yunishard/top",
    r"^yunishard schedule": "needs a system with --manual",
    r"^(pg_basebackup|createdb|pg_restore) |store check .*_restored": "tests/store/test_database_backup.py runs them",
    r"https://core": "needs TLS: tests/deploy/test_rest_authentication.py",
    r"^yunishard store copy postgresql": "the other direction fills the database, in tests/store/test_cli.py",
    r"completion (zsh|fish)": "another shell: tests/yunishard/test_completion.py",
    r"my_rm\.py": "the page has its text: tests/processes/test_simulated_nodes.py",
    r"^yunishard journal .*(damaged|poison)": "needs a journal that was put aside, or a message",
}
"""Patterns of lines that cannot run here, with the reason."""

LASTING: Final = re.compile(r"--watch|--follow|event follow|^yunishard fake-rm")
"""Lines that last until Ctrl-C."""

LASTS_S: Final = 0.5
"""Seconds after which Ctrl-C ends them."""

STATUSES: Final = {
    r"^yunishard rm end": 1,  # it is connected
    r"^yunishard history queue": 1,  # the first sample of usage is a minute away
    r"^yunishard config diff(?! current)": 1,  # as `diff`, there are differences
}
"""Lines that end with another exit status than 0 here."""

LATE: Final = (
    re.compile(r"node (cordon|drain)|queue (stop|limit)|app move|rollback|keys revoke"),
    re.compile(r"app kill|rm end"),
    re.compile(r"fake-rm|minimal_rm"),
)
"""Lines that run after all others, in this order: they change what others name, or connect another resource manager."""

QUEUES: Final = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - {name: research, resources: {max: {vcore: 40, memory: 400Gi}}}
          - {name: ml, resources: {guaranteed: {vcore: 1}}}
          - {name: batch, resources: {max: {vcore: 4}}}
          - {name: web}
          - {name: old}
          - {name: new}
          - {name: production}
"""
APPS: Final = {"spark-17": "root.ml", "app-17": "root.ml", "app-1": "root.batch", "app-0117": "root.old"}


class Line(NamedTuple):
    source: str
    text: str

    def find_reason(self) -> str:
        return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, self.text)), "")


# The lines ------------------------------------------------------------------------------------------------------------

_FENCE: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_INDENTED: Final = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_SHELL: Final = ("sh", "bash", "console")
_BEGINS: Final = re.compile(
    r"(\$ )?(\.venv/bin/(yunishard|python) |yunishard (?!up:)[a-z]|curl |make |docker |helm |sqlite3 |source |eval "
    r"|umask |YUNISHARD_\w+=|for )"
)
"""The beginning of a command in a block that is not marked as one of a shell."""


def _join(text: str) -> list[str]:
    """The lines of a block; a command that continues on the next line is one of them."""
    lines: list[str] = []
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if lines and lines[-1].count('"') % 2 and lines[-1].startswith("sqlite3"):
            lines[-1] += f"\n{line}"
        else:
            lines.append(line.strip())
    return lines


def _strip(line: str) -> str:
    """A line without prompt, path and the remark behind it."""
    return re.sub(r"\.venv/bin/", "", re.split(r"(?<=\S) {2,}(?=\S)", line.removeprefix("$ "), maxsplit=1)[0])


def _read_page(page: str) -> Iterator[str]:
    text = (ROOT / page).read_text()
    for _, language, block in _FENCE.findall(text):
        for line in _join(block):
            if (language in _SHELL and line) or (not language and _BEGINS.match(line)):
                yield _strip(line)
    for block in _INDENTED.findall(_FENCE.sub("", text)):
        yield from (_strip(line) for line in _join(block) if _BEGINS.match(line))


def _read_help(name: str) -> Iterator[str]:
    """The examples in the help of a command."""
    parser = build_parser([name])
    [branch] = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    text = branch.choices[name].epilog or ""
    examples = text.partition("examples:\n")[2].partition("\n\n")[0]
    for line in _join(examples):
        if line.startswith(("yunishard ", "ssh ", "scp ")):
            yield _strip(line)


def _read_all() -> list[Line]:
    found = [Line(page, text) for page in PAGES for text in _read_page(page)]
    main_examples = (command_line.__doc__ or "").partition("examples:\n")[2].partition("\n\n")[0]
    found += [Line("yunishard", _strip(line)) for line in _join(main_examples)]
    found += [Line(name, text) for name in COMMANDS if name != "complete" for text in _read_help(name)]
    first: dict[str, Line] = {}
    for line in found:
        first.setdefault(line.text, line)
    return list(first.values())


LINES: Final = _read_all()
RUN: Final = sorted(
    (line for line in LINES if not line.find_reason()),
    key=lambda line: next((n for n, one in enumerate(LATE, start=1) if one.search(line.text)), 0),
)


@pytest.mark.parametrize("line", [line for line in LINES if line.find_reason()], ids=str)
def test_a_line_that_is_not_run_has_valid_syntax(line: Line) -> None:
    done = subprocess.run(["bash", "-n"], input=line.text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for command in re.findall(r"(?:^|-- )yunishard (.*)", line.text):
        words = shlex.split(re.split(r"[|>]|\.\.\.$", command)[0], comments=True)
        _, unknown, _ = parse_words(build_parser(words[:1]), words)
        assert unknown == []


def test_there_are_at_most_20_reasons_and_each_has_a_line() -> None:
    assert len(NOT_RUN) <= 20
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, line.text) for line in LINES)] == []


# The system -----------------------------------------------------------------------------------------------------------


async def _play_rm(native: str, ready: threading.Event, ended: threading.Event) -> None:
    """Have what the lines name, until `ended`."""
    async with await ResourceManager.connect(native, rm_id="rm-1", config=QUEUES) as rm:

        async def confirm(one: AllocationRelease) -> None:
            await rm.update_allocations(releases=[one])

        size: dict[str, int | str] = {"vcore": "64", "memory": "640Gi"}
        rack = {"si/rackname": "r7"}
        await rm.update_nodes([node(name, size, attributes=rack) for name in ("worker-1", "worker-17", "node-7")])
        apps = [application(app, queue, user="alice", groups=["dev"]) for app, queue in APPS.items()]
        await rm.update_applications(new=apps)
        small: dict[str, int | str] = {"vcore": "1", "memory": "1Gi"}
        asks = [ask(f"task-{number}", "spark-17", small) for number in (1, 2)]
        asks += [ask(f"task-{number}", "spark-17", {"vcore": str(100 + number)}) for number in (3, 6, 7)]
        asks += [ask("exec-1", "app-1", small), ask("pod-17", "app-17", small), ask("old-1", "app-0117", small)]
        await rm.update_allocations(allocations=asks)
        for number in range(30):  # steps of the journal
            await rm.update_applications(new=[application(f"more-{number}", "root.web", user="bob")])
        playing = asyncio.create_task(rm.run(Callbacks(released=confirm)))
        ready.set()
        await asyncio.to_thread(ended.wait)
        playing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await playing


class Running(NamedTuple):
    rest: str
    native: str
    store: str
    folder: Path
    """The working directory of the lines."""


def _write_files(folder: Path) -> None:
    """Write the files that lines name."""
    for name in ("queues", "other", "a", "b", "conf/a"):
        file = folder / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(QUEUES)
    for name in ("etc/prometheus", "var/lib", "backup"):
        (folder / name).mkdir(parents=True)
    (folder / "etc" / "yunishard.yaml").write_text("grpc: off\n")
    (folder / "nodes.csv").write_text("name,vcore,memory\nn1,8,64Gi\n")
    job = {"queue": "root.research", "user": "alice", "resources": {"vcore": "1"}, "tasks": 1, "runTime": "1h"}
    (folder / "job.json").write_text(json.dumps(job))
    jobs = [f"{number} {number * 60} 0 600 1 -1 -1 1 600 -1 1 1 1 -1 1 1 -1 -1" for number in range(1, 9)]
    (folder / "LOG.swf.gz").write_bytes(gzip.compress("\n".join(["; MaxProcs: 8", *jobs, ""]).encode()))
    (folder / "examples").symlink_to(ROOT / "examples")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    folder = home / "work"
    folder.mkdir()
    _write_files(folder)
    ready, ended = threading.Event(), threading.Event()
    environment = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "PATH": f"{BIN}:{os.environ['PATH']}"}
    with pytest.MonkeyPatch.context() as patch, up(*FREE_PORTS, folder=home) as system:
        for name in [name for name in os.environ if name.startswith(("YUNISHARD_", "XDG_"))]:
            patch.delenv(name)
        endpoints = system.announced()
        store = postgres.new_store()
        environment |= {"YUNISHARD_URL": endpoints["rest"]}
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        rm = threading.Thread(target=lambda: asyncio.run(_play_rm(endpoints["native"], ready, ended)))
        rm.start()
        try:
            assert ready.wait(20)
            for maximum in (5, 6, 4):
                Path("queues.yaml").write_text(QUEUES.replace("{vcore: 4}", f"{{vcore: {maximum}}}"))
                assert main(["config", "put", "queues.yaml"]) == 0
            assert main(["keys", "new", "ci"]) == 0
            for name in ("backup/once", "var/lib/copy"):
                assert main(["backup", name]) == 0
            Path("var/lib/copy/state").rename("var/lib/yunishard")
            Path("history.sqlite").symlink_to(home / "state" / "yunishard" / "history" / "history.sqlite")
            yield Running(endpoints["rest"], endpoints["native"], store, folder)
        finally:
            ended.set()
            rm.join()


def _adapt(text: str, running: Running) -> str:
    """Put this system into the place of the names in a line."""
    for pattern, replacement in {
        r"http://127\.0\.0\.1:9080": running.rest,
        r"tcp://127\.0\.0\.1:9090": running.native,
        r"^yunishard fake-rm": f"yunishard fake-rm --connect {running.native}",
        r"postgresql://[^' ]*": running.store,
        r"> nodes.csv": "> listed.csv",
        r"--until (10m|1h|90s)": "--until 10ms",  # the journal is young
        r"(^yunishard queue limit(?!.*--dry-run).*)": r"\1 --yes",  # there is no terminal
        r"(?<=[ :])/(etc|var/lib|backup)/": rf"{running.folder}/\1/",
        r"root\.research\.ml": "root.ml",
        r"spark-17 root\.research --partition": "spark-17 root.new --partition",  # it is there already
        r"rm-1_gpu": "rm-1_default",
        r"--config FILE --nodes FILE": "--config queues.yaml --nodes nodes.csv",
        r"^yunishard store check$": f"yunishard store check '{running.store}'",
    }.items():
        text = re.sub(pattern, replacement, text)
    return text


def _call(text: str, *, is_lasting: bool) -> int:
    """Run a command in this process, which takes a twentieth of the time; the exit status."""
    if is_lasting:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
        signal.setitimer(signal.ITIMER_REAL, LASTS_S)
    try:
        return main(shlex.split(text)[1:])
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _run_in_shell(text: str, *, is_lasting: bool) -> int:
    limit = ["timeout", "--signal", "INT", "3"] if is_lasting else []
    done = subprocess.run([*limit, "bash", "-o", "pipefail", "-c", text], check=False, timeout=60)
    return done.returncode


@pytest.mark.parametrize("line", RUN, ids=str)
def test_a_line_ends_with_its_exit_status(line: Line, running: Running, capfd: pytest.CaptureFixture[str]) -> None:
    text = _adapt(line.text, running)
    if text.startswith("yunishard backup"):
        shutil.rmtree("backup/monday", ignore_errors=True)
    is_lasting = bool(LASTING.search(text))
    needs_shell = not text.startswith("yunishard ") or bool(re.search(r"[|><#$*~]", text.partition("postgresql:")[0]))
    if needs_shell and (program := text.split()[0]) in ("sqlite3", "psql", "pg_dump", "curl"):
        text = f"PATH={postgres.binaries()}:$PATH; {text}"
        if shutil.which(program) is None and not (postgres.binaries() / program).exists():
            pytest.skip(f"{program} is not installed")
    status = (_run_in_shell if needs_shell else _call)(text, is_lasting=is_lasting)
    expected = {130, 124, 0} if is_lasting else {next((n for one, n in STATUSES.items() if re.search(one, text)), 0)}
    assert status in expected, capfd.readouterr()
