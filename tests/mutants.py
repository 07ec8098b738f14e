"""Mutation runs: plant one small fault at a time in the engine, and report which faults no test finds.

`python -m tests.mutants --mutants 200 --seed 1`

No file is changed. pytest collects the tests once; each mutant is a fork of that process, in which the code of one
function is replaced. A first fork records which tests call which functions, so a mutant runs only the tests that reach
it: those of its module first, then those of the engine, then whole sessions, each the fastest first, until one fails.
"""

import argparse
import ast
import gc
import hashlib
import json
import os
import random
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Final

import pytest
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from yunishard.partition_worker import engine

ENGINE: Final = Path(engine.__file__).parent
ROOT: Final = Path(__file__).parents[1]

PROPERTIES: Final = (
    *("engine", "order", "planning", "predicates", "preemption", "quota_enforcement", "reconfiguration", "recovery"),
    *("remedies", "reopening", "turns", "waiting_searches", "waits"),
)
TESTS: Final = (
    "tests/partition_worker/engine",
    *map(str, sorted(Path("tests/partition_worker").glob("test_*.py"))),
    "tests/conformance/test_traces.py",
    "tests/stories",
    *(f"tests/properties/test_{name}.py" for name in PROPERTIES),
)
"""Those of real processes are left out, and the properties that are about something else or take long."""

STAGES: Final = ("module", "engine", "sessions")
"""A mutant passes the tests of the module of the same name first, then those of the engine, then all others."""

SLOWER: Final = 5
"""A test that takes so many times as long as without a fault, and SECONDS_MIN, has found an endless loop."""

SECONDS_MIN: Final = 5.0
"""Of processor time."""

BYTES_MAX: Final = 4 << 30
"""Memory of a mutant; an endless loop may allocate."""

COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """A fault: a piece of the source of a function, and what takes its place."""

    path: str
    line: int
    function: str
    first_line: int
    """Of the function, with its decorators; code objects have it, too."""
    before: str
    after: str
    start: int
    """Bytes of the source before the piece."""
    number: int = 0
    """In the order of the run."""

    @property
    def place(self) -> str:
        return f"{Path(self.path).relative_to(ENGINE)}:{self.line} {self.function}"

    @property
    def change(self) -> str:
        return f"{' '.join(self.before.split())} → {self.after}"


# Faults ---------------------------------------------------------------------------------------------------------------


def list_mutants(path: Path) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines."""
    source = path.read_bytes()
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    found = []
    for name, function in _list_functions(ast.parse(source).body, ""):
        first_line = min([function.lineno, *(one.lineno for one in function.decorator_list)])
        for node, after in _list_changes(function):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = starts[node.lineno - 1] + node.col_offset
            before = source[start : starts[node.end_lineno - 1] + node.end_col_offset].decode()
            found.append(Mutant(str(path), node.lineno, name, first_line, before, after, start))
    return found


def _list_functions(body: Iterable[ast.stmt], prefix: str) -> Iterator[tuple[str, Function]]:
    for node in body:
        if isinstance(node, Function):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _list_functions(node.body, f"{prefix}{node.name}.")


def _list_changes(function: Function) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    """Yield nodes of a function, and the text that takes their place in a mutant."""
    pending: list[ast.AST] = list(reversed(function.body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Assert | ast.Raise | ast.JoinedStr | ast.arguments):
            continue
        if isinstance(node, ast.stmt):
            yield from ((node, text) for text in _change_statement(node, is_init=function.name == "__init__"))
        elif isinstance(node, ast.expr):
            yield from ((node, f"({ast.unparse(one)})") for one in _change_expression(node))
        tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else getattr(node, "ifs", [])
        for test in tests:
            if isinstance(test, ast.Name | ast.Attribute | ast.Call):
                yield test, f"(not {ast.unparse(test)})"
        pending += reversed(list(ast.iter_child_nodes(node)))


def _change_statement(node: ast.stmt, *, is_init: bool) -> Iterator[str]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.Delete() | ast.Continue() | ast.Break() | ast.Return(value=None):
            yield "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]) if not is_init:
            yield "pass"
        case ast.AugAssign(op=op):
            yield "pass"
            if type(op) in OPERATORS:
                yield ast.unparse(ast.AugAssign(node.target, OPERATORS[type(op)](), node.value))
        case ast.Return(value=ast.Constant(value=bool(value))):
            yield f"return {not value}"
        case ast.Return(value=value) if not isinstance(value, ast.Constant):
            yield "return None"


def _change_expression(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            for other in COMPARISONS[type(op)]:
                yield ast.Compare(left, [other()], [right])
            if isinstance(right, ast.Constant) and isinstance(right.value, int | float):
                yield ast.Compare(left, [op], [ast.Constant(right.value + 1)])
        case ast.BoolOp(op=op, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values)
            for one in values:
                others = [other for other in values if other is not one]
                yield ast.BoolOp(op, others) if len(others) > 1 else others[0]
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.Call(keywords=keywords):
            for at, one in enumerate(keywords):
                if isinstance(one.value, ast.Constant) and isinstance(one.value.value, bool):
                    changed = ast.keyword(one.arg, ast.Constant(not one.value.value))
                    yield ast.Call(node.func, node.args, [*keywords[:at], changed, *keywords[at + 1 :]])


def plant(mutant: Mutant) -> int:
    """Replace the code of a function in this process; return the number of function objects that had it."""
    source = Path(mutant.path).read_bytes()
    end = mutant.start + len(mutant.before.encode())
    changed = compile(source[: mutant.start] + mutant.after.encode() + source[end:], mutant.path, "exec")
    (new,) = [one for one in _list_code(changed) if _is_code_of(mutant, one)]
    functions = [one for one in gc.get_objects() if type(one) is FunctionType and _is_code_of(mutant, one.__code__)]
    for function in functions:
        function.__code__ = new
    return len(functions)


def _list_code(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _list_code(one)


def _is_code_of(mutant: Mutant, code: CodeType) -> bool:
    place = code.co_firstlineno, code.co_qualname, code.co_filename  # a property and its setter have one name
    return place == (mutant.first_line, mutant.function, mutant.path)


# The run --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    stage: str
    """Whose test failed; empty if the mutant survived."""
    test: str
    """The first test that failed, or why there is none."""
    seconds: float


class Run:
    """A plugin of pytest that runs the collected tests once for each mutant, instead of once."""

    def __init__(self, mutants: Sequence[Mutant], stage_seconds: float = inf) -> None:
        self.mutants = mutants
        self.stage_seconds = stage_seconds
        self.outcomes: list[Outcome] = []
        self.failed = ""
        """The first test of this process that has failed."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed = self.failed or (report.nodeid if report.failed else "")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("some tests cannot be collected")
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("recording the tests", total=len(self.mutants))
            seconds, reached = self._load_calls(session)
            for mutant in self.mutants:
                self.outcomes.append(self._try(session, mutant, seconds, reached))
                if not self.outcomes[-1].stage:
                    progress.console.print(f"{mutant.number} survived: {mutant.place}: {mutant.change}", markup=False)
                survived = sum(not one.stage for one in self.outcomes)
                progress.update(
                    bar, advance=1, description=f"{len(self.outcomes) - survived} killed, {survived} survived"
                )
        return True

    def _load_calls(self, session: pytest.Session) -> tuple[list[float], dict[str, list[int]]]:
        """Return the seconds of each test, and by the place of a function, the numbers of the tests that call it. They
        are stored in the cache of pytest, and recorded again after a change of the engine or the tests.
        """
        digest = hashlib.sha256(" ".join(item.nodeid for item in session.items).encode())
        for path in sorted([*ENGINE.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]):
            digest.update(path.read_bytes())
        key = f"mutants/{digest.hexdigest()}"
        if session.config.cache.get(key, None) is None:
            answer = self._fork(lambda tell: tell(json.dumps(self._record_calls(session))))
            calls = json.loads(answer)
            if isinstance(calls, str):
                raise session.Interrupted(f"without a fault, this test fails: {calls}")
            session.config.cache.set(key, calls)
        seconds, reached = session.config.cache.get(key, None)
        return seconds, reached

    def _record_calls(self, session: pytest.Session) -> tuple[list[float], dict[str, list[int]]] | str:
        seconds: list[float] = []
        reached: dict[str, list[int]] = {}
        seen: set[CodeType] = set()

        def note(frame: FrameType, event: str, _: object) -> None:
            seen.add(frame.f_code)

        for number, (item, following) in enumerate(pairwise([*session.items, None])):
            seen.clear()
            begin = time.perf_counter()
            sys.settrace(note)  # calls only: it returns no function for lines, and is cheaper than a profiler
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            seconds.append(time.perf_counter() - begin)
            if self.failed:
                return self.failed
            for code in seen:
                if code.co_filename.startswith(str(ENGINE)):
                    reached.setdefault(f"{code.co_filename}:{code.co_firstlineno}", []).append(number)
        return seconds, reached

    def _try(
        self, session: pytest.Session, mutant: Mutant, seconds: Sequence[float], reached: dict[str, list[int]]
    ) -> Outcome:
        begin = time.perf_counter()
        module = f"test_{Path(mutant.path).stem}.py"

        def stage_of(item: pytest.Item) -> int:
            return 0 if item.path.name == module else 1 if "engine" in item.path.parts else 2

        numbers = reached.get(f"{mutant.path}:{mutant.first_line}", [])
        numbers = sorted(numbers, key=lambda number: (stage_of(session.items[number]), seconds[number]))

        def run_tests(tell: Callable[[str], None]) -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (BYTES_MAX, BYTES_MAX))
            gc.unfreeze()  # frozen objects are not listed
            if not plant(mutant):
                raise RuntimeError(f"no function has the code of {mutant}")
            began: dict[int, float] = {}
            for number in numbers:
                item = session.items[number]
                now = time.monotonic()
                if now - began.setdefault(stage_of(item), now) < self.stage_seconds:
                    limit = time.process_time() + SECONDS_MIN + SLOWER * seconds[number]
                    resource.setrlimit(resource.RLIMIT_CPU, (int(limit), resource.RLIM_INFINITY))
                    tell(str(number))
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
                    if self.failed:
                        return
            tell("")

        told = self._fork(run_tests).split("\n")[:-1]
        if told[-1]:
            item = session.items[int(told[-1])]
            stage, test = STAGES[stage_of(item)], item.nodeid
        else:
            stage, test = "", f"none of {len(told) - 1} tests, of {len(numbers)} that call the function"
        return Outcome(mutant=mutant, stage=stage, test=test, seconds=time.perf_counter() - begin)

    def _fork(self, body: Callable[[Callable[[str], None]], None]) -> str:
        """Run this in a child process; return the lines that it sends, without its other output."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.close(reader)
                errors, nothing = os.fdopen(os.dup(2), "w"), os.open(os.devnull, os.O_WRONLY)
                os.dup2(nothing, 1)
                os.dup2(nothing, 2)
                with os.fdopen(writer, "w") as pipe:
                    body(lambda text: print(text, file=pipe, flush=True))
            except BaseException:
                traceback.print_exc(file=errors)
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--mutants", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones, and their order (default: %(default)s)")
    parser.add_argument("--replay", type=int, nargs="+", metavar="NUMBER", help="only these mutants of the seed")
    parser.add_argument("--modules", default="", metavar="TEXT", help="only modules with this text in their path")
    parser.add_argument("--tests", nargs="+", default=TESTS, metavar="PATH", help="run these tests only")
    parser.add_argument("--seconds", type=float, default=inf, help="of each stage; then the next one begins")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes to a file as well")
    arguments = parser.parse_args()
    paths = [one for one in sorted(ENGINE.rglob("*.py")) if arguments.modules in str(one.relative_to(ENGINE))]
    mutants = [mutant for path in paths for mutant in list_mutants(path)]
    total = len(mutants)
    random.Random(arguments.seed).shuffle(mutants)
    mutants = [replace(one, number=number) for number, one in enumerate(mutants, 1)]
    if arguments.replay:
        mutants = [one for one in mutants if one.number in arguments.replay]
    run = Run(mutants[: arguments.mutants], arguments.seconds)
    options = ["-qq", "-s", "-n0", "-m", "not processes"]
    status = pytest.main([*options, *arguments.tests], plugins=[run])
    report(run.outcomes, total)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(one) for one in run.outcomes], indent=1))
    return int(status)


def report(outcomes: Sequence[Outcome], total: int) -> None:
    """Print a table of the outcomes, survivors last, and a line that counts them."""
    table = Table("number", "place", "change", "stage", "first test that fails", "s")
    for one in sorted(outcomes, key=lambda one: not one.stage):
        mutant = one.mutant
        stage = one.stage or "survived"
        cells = (str(mutant.number), mutant.place, mutant.change, stage, one.test, f"{one.seconds:.1f}")
        table.add_row(*map(escape, cells), style=None if one.stage else "bold red")
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(table)
    killed = Counter(one.stage for one in outcomes if one.stage)
    stages = ", ".join(f"{killed[stage]} by {stage}" for stage in STAGES)
    console.print(
        f"{len(outcomes)} of {total} mutants: {killed.total()} killed ({stages}), "
        f"{len(outcomes) - killed.total()} survived"
    )


if __name__ == "__main__":
    sys.exit(main())
