"""The wheel with each of its extras: what it installs, and what works with it."""

import json
import shlex
import sys
import tarfile
import tomllib
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.system import FREE_PORTS, up
from tests.packaging.conftest import ROOT, run
from yunishard.cli.main import COMMANDS, EXTRAS, describe_installation

IMPORT_MAX_S: Final = 0.15
"""Seconds of a processor that the SDK takes to be imported."""

MEASURE: Final = "from time import process_time; start = process_time(); from yunishard import connect; print({})"

LIST_USABLE: Final = """
from yunishard.cli.main import COMMANDS, build_parser
build_parser(COMMANDS)
print(*(name for name, command in COMMANDS.items() if not command.find_missing()))
"""
"""Imports the modules of all commands whose extra is installed, and prints those."""

RM: Final = """
import asyncio, sys
from common import QUEUES
from broker import NODE
from store import TASK
from yunishard import AllocationResponse, application, ask, connect, node

async def main() -> None:
    async with connect(sys.argv[1], rm_id="rm-1", config=QUEUES) as rm:
        await rm.update_nodes([node(NODE, {"vcore": "4"})])
        await rm.update_applications(new=[application("app-1", "root.batch", user="alice")])
        await rm.update_allocations(allocations=[ask(TASK, "app-1", {"vcore": "1"})])
        async for _, news in rm.results():
            if isinstance(news, AllocationResponse):
                print(*(f"{one.allocation_key} runs on {one.node_id}" for one in news.new))
                return

asyncio.run(main())
"""
"""An RM with modules of its own that have the names of folders in this repository."""

QUEUES: Final = "{partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]}"


def test_yunishard_is_the_only_top_level_name_of_the_wheel(wheel: Path) -> None:
    names = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith((".data", ".dist-info"))} == {"yunishard"}


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = (sys.executable, "-m", "hatchling", "build", "--directory", tmp_path / "dist", "--target")
    assert run(*build, "sdist", cwd=ROOT).returncode == 0
    (archive,) = (tmp_path / "dist").iterdir()
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    assert run(*build, "wheel", cwd=tmp_path / archive.name.removesuffix(".tar.gz")).returncode == 0
    (built,) = (tmp_path / "dist").glob("*.whl")
    assert ZipFile(built).namelist() == ZipFile(wheel).namelist()


def test_the_sdk_needs_nothing_but_its_two_libraries_and_is_imported_at_once(client: Path) -> None:
    python = client / "bin" / "python"
    (site,) = client.glob("lib/*/site-packages")
    ours = "sorted({name.partition('.')[0] for name, module in sys.modules.items() if 'site-packages' in repr(module)})"
    assert {one.name.partition("-")[0] for one in site.glob("*.dist-info")} == {"msgspec", "pyzmq", "yunishard"}
    done = run(python, "-I", "-c", f"import sys; from yunishard import connect; print(*{ours})")
    assert done.stdout.split() == ["msgspec", "yunishard", "zmq"], done.stderr
    attempts = (float(run(python, "-I", "-c", MEASURE.format("process_time() - start")).stdout) for _ in range(10))
    assert any(seconds <= IMPORT_MAX_S for seconds in attempts)


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_commands_work_with_their_extra_and_name_it_without(extra: str, install: Callable[..., Path]) -> None:
    programs = install(*filter(None, [extra])) / "bin"
    done = run(programs / "python", "-I", "-c", LIST_USABLE)
    usable = {
        name for name, command in COMMANDS.items() if set(EXTRAS.get(command.extra, ())) <= {*EXTRAS.get(extra, ())}
    }
    assert set(done.stdout.split()) == usable, done.stderr
    assert run(programs / "yunishard", "--help").stdout.startswith("usage: yunishard ")
    for name in ("up", "status", "k8s-shim"):
        done = run(programs / "yunishard", name, "--help")
        if name in usable:
            assert (done.returncode, done.stderr) == (0, "")
        else:
            assert done.returncode == 2
            assert done.stderr.startswith(f"yunishard {name}: needs the extra '{COMMANDS[name].extra}' (module ")
            if not extra:  # it names the same extras in the other environments
                _check_installable(done.stderr, programs / "python")


def _check_installable(error: str, python: Path) -> None:
    """Check that pip accepts the command at the end of an error (the environment has no pip of its own)."""
    program, *command = shlex.split(error.partition(" is missing): ")[2])
    assert (program, command[:3]) == (str(python), ["-m", "pip", "install"])
    pip = (sys.executable, "-m", "pip", "--python", python)
    done = run(*pip, "install", "--dry-run", "--no-deps", "--no-index", *command[3:])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (None, "yunishard[cli]"),
        ({"url": "file:///a%20b/yunishard-0.1.0.whl", "archive_info": {}}, "/a b/yunishard-0.1.0.whl[cli]"),
        ({"url": "file:///home/ann/yunishard", "dir_info": {"editable": True}}, "--editable /home/ann/yunishard[cli]"),
        ({"url": "https://host/yunishard.whl", "archive_info": {}}, "yunishard[cli] @ https://host/yunishard.whl"),
    ],
)
def test_a_missing_extra_is_installed_from_where_the_installation_came_from(source: object, wanted: str) -> None:
    command = describe_installation("cli", None if source is None else json.dumps(source))
    assert " ".join(shlex.split(command)) == f"{sys.executable} -m pip install {wanted}"


def test_the_modules_that_commands_look_for_are_those_of_their_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        required = {canonicalize_name(Requirement(one).name) for one in extras[extra]}
        if extra == "server":
            required |= {canonicalize_name(Requirement(one).name) for one in extras["cli"]}
        installing = packages_distributions()
        assert all(required & {canonicalize_name(one) for one in installing[module]} for module in modules)


def test_a_simulation_needs_the_extra_of_the_command_line_only(install: Callable[..., Path], tmp_path: Path) -> None:
    policies = ROOT / "examples" / "policies"
    files = (ROOT / "examples" / "lcg-2005.swf.gz", "--config", policies / "one-queue.yaml", "--nodes")
    words = ("simulate", "run", *files, policies / "nodes.csv", "--until", "20m", "--json")
    done = run(install("cli") / "bin" / "yunishard", *words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)[0]["total"]["jobs"] > 0


@pytest.mark.processes
def test_a_system_and_an_rm_run_beside_modules_of_the_same_names(
    client: Path, install: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "common.py").write_text(f"QUEUES = {QUEUES!r}\n")
    (tmp_path / "broker.py").write_text("NODE = 'node-1'\n")
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__init__.py").write_text("TASK = 'task-1'\n")
    (tmp_path / "rm.py").write_text(RM)
    program = install("server") / "bin" / "yunishard"
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path, program=[str(program), "up"], cwd=tmp_path) as system:
        endpoints = system.announced()
        done = run(client / "bin" / "python", "rm.py", endpoints["native"], cwd=tmp_path)
        assert (done.stdout, done.stderr) == ("task-1 runs on node-1\n", "")
        done = run(program, "rm", "list", "--json", "--rest", endpoints["rest"], cwd=tmp_path)
        assert (json.loads(done.stdout), done.stderr) == ([], "")
        assert system.stop() == 0, system.errors
