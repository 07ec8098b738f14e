"""Code size, import circles, limits on files and functions: `python -m tests.size`; `make check` adds `--check`.

Without `--check` it also prints the files that an ask passes, recorded on a real system (`ask_path.py`). A code line is
a line with a token that is neither comment nor docstring. Generated code and `hatch_build.py` do not count.
"""

import argparse
import ast
import io
import sys
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from tests import ask_path

ROOT: Final = Path(__file__).parents[1]
LINKED: Final = ("broker", "common", "deploy", "partition_worker", "rmproxy")
"""Packages of `yunishard` that are folders of their own, and links there."""

SHIPPED: Final = (*LINKED, "yunishard")
PACKAGES: Final = ("benchmarks", *SHIPPED)
GENERATED: Final = ("_pb2.py", "_pb2_grpc.py")

FILES_MAX: Final = 388
CODE_LINES_MAX: Final = 61_059
"""Of all shipped packages together. Each change that makes them smaller lowers both: they only go down."""
FILE_LINES_MAX: Final = 700
FUNCTION_LINES_MAX: Final = 60
"""Of one that does something: an `__init__` that only says what its fields are may be longer."""
FRAGMENT_LINES: Final = 40
"""A file with less code than this is counted as a fragment."""

CIRCLES_ALLOWED: Final[tuple[str, ...]] = ()
"""Packages whose modules may still import each other in a circle; to become empty."""

_NOT_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """A Python file of the project, read and parsed once."""

    path: Path

    @cached_property
    def name(self) -> str:
        """The path from the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def module(self) -> str:
        parts = list(self.path.relative_to(ROOT).with_suffix("").parts)
        if parts[0] in LINKED:
            parts.insert(0, "yunishard")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree, in the order of `ast.walk`, which takes as long as parsing."""
        return list(ast.walk(self.tree))

    @cached_property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @cached_property
    def code_lines(self) -> int:
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in _NOT_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in self.nodes:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return len(lines)

    @cached_property
    def functions(self) -> list[tuple[str, int]]:
        """Each function as `file:line name` with its number of lines."""
        return [
            (f"{self.name}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in self.nodes
            if isinstance(node, Function) and not _only_has_fields(node)
        ]

    def imports(self, modules: Mapping[str, object]) -> set[str]:
        """The project's modules that this one imports, also inside functions and under TYPE_CHECKING."""
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = (f"{node.module}.{alias.name}" for alias in node.names)
                found.update(name if name in modules else node.module for name in names)
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
        return {name for name in found if name in modules and name != self.module}


@cache
def source_files(*folders: str) -> list[SourceFile]:
    """The Python files below these folders, without generated ones."""
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [SourceFile(path) for path in paths if not path.name.endswith(GENERATED)]


def find_circles(imports: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (strongly connected components)."""
    reached = {module: _reachable(module, imports) for module in imports}
    circles = {
        tuple(sorted(other for other in reached[module] if module in reached[other]))
        for module in imports
        if module in reached[module]
    }
    return [list(circle) for circle in sorted(circles)]


def _reachable(start: str, imports: Mapping[str, Iterable[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = set(imports[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def _only_has_fields(function: Function) -> bool:
    """Whether an `__init__` does nothing but say what its fields are."""
    fields = (ast.Assign, ast.AnnAssign, ast.Expr)
    return function.name == "__init__" and all(isinstance(statement, fields) for statement in function.body)


def circles_of(files: Iterable[SourceFile]) -> list[list[str]]:
    """The import circles among these files, except those inside a package of `CIRCLES_ALLOWED`."""
    modules = {file.module: file for file in files}
    circles = find_circles({module: file.imports(modules) for module, file in modules.items()})
    return [
        circle
        for circle in circles
        if not any(all(module.startswith(f"{package}.") for module in circle) for package in CIRCLES_ALLOWED)
    ]


def problems(files: Iterable[SourceFile]) -> list[str]:
    """What exceeds a limit, a sentence each."""
    files = list(files)
    found = [
        f"{file.name}: {file.lines} lines, at most {FILE_LINES_MAX}" for file in files if file.lines > FILE_LINES_MAX
    ]
    found += [
        f"{name}: {lines} lines, at most {FUNCTION_LINES_MAX}"
        for file in files
        for name, lines in file.functions
        if lines > FUNCTION_LINES_MAX
    ]
    shipped = [file for file in files if file.name.split("/")[0] in SHIPPED]
    code_lines = sum(file.code_lines for file in shipped)
    if len(shipped) > FILES_MAX or code_lines > CODE_LINES_MAX:
        found.append(
            f"shipped: {len(shipped)} files with {code_lines} code lines, at most {FILES_MAX} and {CODE_LINES_MAX}: "
            "make something else smaller, or raise the limits of tests/size.py and say why"
        )
    found += [f"import circle: {', '.join(circle)}" for circle in circles_of(files)]
    return found


def report(files: list[SourceFile]) -> str:
    """Figures per package, the largest files and functions, and the limits."""
    lines = [f"{'package':<18}{'files':>7}{'code lines':>12}{f'under {FRAGMENT_LINES}':>10}"]
    for title, packages in (*((name, (name,)) for name in PACKAGES), ("shipped", SHIPPED)):
        mine = [file for file in files if file.name.split("/")[0] in packages]
        fragments = sum(file.code_lines < FRAGMENT_LINES for file in mine)
        lines.append(f"{title:<18}{len(mine):>7}{sum(file.code_lines for file in mine):>12}{fragments:>10}")
    lines.append(f"{'at most':<18}{FILES_MAX:>7}{CODE_LINES_MAX:>12}")
    largest = sorted(files, key=lambda file: -file.lines)[:5]
    longest = sorted((one for file in files for one in file.functions), key=lambda one: -one[1])[:5]
    lines += ["", f"largest files (lines, at most {FILE_LINES_MAX})"]
    lines += [f"{file.lines:>6}  {file.name}" for file in largest]
    lines += ["", f"longest functions (lines, at most {FUNCTION_LINES_MAX})"]
    lines += [f"{count:>6}  {name}" for name, count in longest]
    return "\n".join(lines)


def main() -> int:
    """Print the figures; with `--check` only what exceeds a limit."""
    parser = argparse.ArgumentParser(prog="python -m tests.size", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="print only what exceeds a limit, and fail if there is any"
    )
    if not parser.parse_args().check:
        sys.stdout.write(f"{report(source_files(*PACKAGES))}\n\n")
        ask_path.main()
    found = problems(source_files(*PACKAGES, "examples"))
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
