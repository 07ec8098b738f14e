"""What type checkers find out about a program that uses the SDK, with the wheel alone in an environment."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from inspect import isclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

import pytest
from msgspec import Struct, structs

import yunishard

STRUCTS: Final = {
    name: kind for name in yunishard.__all__ if isclass(kind := getattr(yunishard, name)) and issubclass(kind, Struct)
}
"""The items of updates, and everything that a result holds."""

REVEALED: Final = """
async def connected() -> None:
    async with connect("tcp://core:9090", rm_id="rm-1") as rm:
        reveal_type(rm)  # ResourceManager
        reveal_type(rm.partitions)  # tuple[str, ...]
        reveal_type(await rm.update_configuration(""))  # ConfigurationUpdated
        async for result in rm.results():
            reveal_type(result.partition)  # str
            reveal_type(result.news)  # UPDATE
        async with rm.resync() as sync:
            reveal_type(sync)  # Sync
    reveal_type(await connect("tcp://core:9090", rm_id="rm-1"))  # ResourceManager

def blocking(rm: BlockingResourceManager) -> None:
    reveal_type(rm.partitions)  # tuple[str, ...]
    reveal_type(rm.update_configuration(""))  # ConfigurationUpdated
    with rm.resync() as sync:
        reveal_type(sync)  # Sync

reveal_type(node("n1"))  # NodeInfo
reveal_type(application("app-1", user="ada"))  # AddApplicationRequest
reveal_type(removal("app-1"))  # RemoveApplicationRequest
reveal_type(ask("a", "app-1", {"vcore": "1"}))  # Allocation
reveal_type(release("app-1", "a"))  # AllocationRelease
reveal_type(amounts({"vcore": "1"}))  # dict[str, int]
"""

MISTAKES: Final = """
from yunishard import conect  # wrong

def started(one: Allocation) -> None: ...
async def ended(one: AllocationRelease) -> None: ...
def may_run(key: str, node_id: str, allocate: bool) -> str | None: return None
def may_preempt(key: str, node_id: str, victims: Sequence[str], start: int) -> int | str: return start

Callbacks(allocated=started, released=ended)
Callbacks(allocated=ended)  # wrong
Callbacks(released=started)  # wrong
Callbacks(partition_restarted=started)  # wrong
Callbacks(alocated=started)  # wrong
BlockingResourceManager("", rm_id="rm-1", predicate=may_run, preemption_predicate=may_preempt)
BlockingResourceManager("", rm_id="rm-1", predicate=may_preempt)  # wrong
BlockingResourceManager("", rm_id="rm-1", preemption_predicate=may_run)  # wrong
BlockingResourceManager("", rm_id="rm-1", state_dump=may_run)  # wrong
BlockingResourceManager("", rm="rm-1")  # wrong

one = Allocation(allocation_key="a", priority=1)
print(one.allocation_key, one.allocation_kye)  # wrong
one.priority = 2  # wrong
Allocation(allocation_kye="a")  # wrong
Allocation(priority="high")  # wrong
ask("a", "app-1", ["vcore"])  # wrong
application("app-1")  # wrong

async def send(rm: ResourceManager) -> None:
    await rm.update_allocations(allocations=[ask("a", "app-1", {})])
    await rm.update_allocations(allocations=[release("app-1")])  # wrong
    async for partition, news in rm.results():
        print(news.new)  # wrong
        if isinstance(news, AllocationResponse):
            print(news.new[0].node_id, partition)
            print(news.new[0].nodes)  # wrong
"""


class Finding(NamedTuple):
    """A remark of a type checker about a line of a program."""

    program: str
    line: int
    is_error: bool
    text: str


def name(annotation: Any) -> str:
    """A type as type checkers write it, without modules and brackets around functions."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return name(parts[0])
    if isinstance(annotation, UnionType):
        return " | ".join(map(name, parts))
    if isinstance(parts[0] if parts else None, list):
        return f"{', '.join(map(name, parts[0]))} -> {name(parts[1])}"
    if isclass(origin) and parts:
        return f"{origin.__name__}[{', '.join(map(name, parts))}]"
    return "None" if annotation in (None, NoneType) else str(annotation.__name__)


def revealed() -> Iterator[str]:
    """The lines of a program that reveals types; a comment has the type."""
    update = name(yunishard.Update)
    yield from REVEALED.replace("UPDATE", update).splitlines()
    for struct, kind in STRUCTS.items():
        yield f"def show_{struct}(one: {struct}) -> None:"
        yield f"    reveal_type(one)  # {struct}"
        yield from (f"    reveal_type(one.{one.name})  # {name(one.type)}" for one in structs.fields(kind))
    yield "def show_callbacks(callbacks: Callbacks) -> None:"
    yield from (f"    reveal_type(callbacks.{one.name})  # {name(one.type)}" for one in fields(yunishard.Callbacks))
    for alias in ("Predicate", "PreemptionPredicate", "StateDump"):
        yield f"def show_{alias}(function: {alias}) -> None:"
        yield f"    reveal_type(function)  # {name(getattr(yunishard, alias))}"


HEADER: Final = f"""# pyright: strict, reportUnusedImport=false
from collections.abc import Sequence
from yunishard import {", ".join(name for name in yunishard.__all__)}
"""


def mypy(python: Path, folder: Path) -> Iterator[Finding]:
    options = ("--strict", "--config-file", os.devnull, "--python-executable", str(python), "--output", "json")
    for line in run(folder, "mypy", *options, ".").splitlines():
        one = json.loads(line)
        yield Finding(one["file"], one["line"], one["severity"] == "error", one["message"])


def pyright(python: Path, folder: Path) -> Iterator[Finding]:
    try:
        report = json.loads(run(folder, "pyright", "--pythonpath", str(python), "--outputjson"))
    except (subprocess.TimeoutExpired, ValueError):  # its first start downloads it by npm
        pytest.skip("pyright does not run here: `python -m pyright --version` shows why")
    for one in report["generalDiagnostics"]:
        line = one["range"]["start"]["line"] + 1
        yield Finding(Path(one["file"]).name, line, one["severity"] == "error", one["message"])


def run(folder: Path, checker: str, *options: str) -> str:
    command = [sys.executable, "-m", checker, *options]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=90).stdout


@pytest.fixture(scope="module", params=[mypy, pyright], ids=lambda checker: checker.__name__)
def findings(
    request: pytest.FixtureRequest, client: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[int, list[Finding]]]:
    """What a checker finds in each line of each program."""
    folder = tmp_path_factory.mktemp("programs")
    for program, text in PROGRAMS.items():
        (folder / program).write_text(text)
    found: dict[str, dict[int, list[Finding]]] = {program: defaultdict(list) for program in PROGRAMS}
    for one in request.param(client / "bin" / "python", folder):
        found[one.program][one.line].append(one)
    return found


PROGRAMS: Final = {"revealed.py": HEADER + "\n".join(revealed()), "mistakes.py": HEADER + MISTAKES}


def plain(text: str) -> str:
    """A revealed type without modules, brackets around functions, and what only mypy writes."""
    return re.sub(r"\b(\w+\.)+(?=\w)|\bdef\b|[()]", "", text).strip()


def test_every_type_of_the_sdk_is_exact(findings: dict[str, dict[int, list[Finding]]]) -> None:
    for number, line in enumerate(PROGRAMS["revealed.py"].splitlines(), 1):
        here = findings["revealed.py"][number]
        assert not any(one.is_error for one in here), (line, here)
        if "reveal_type" in line:
            assert [plain(one.text.split('"')[-2]) for one in here] == [plain(line.partition("#")[2])], line


def test_each_mistake_is_an_error(findings: dict[str, dict[int, list[Finding]]]) -> None:
    lines = PROGRAMS["mistakes.py"].splitlines()
    wrong = {
        line for number, line in enumerate(lines, 1) if any(one.is_error for one in findings["mistakes.py"][number])
    }
    assert wrong == {line for line in lines if line.endswith("# wrong")}
