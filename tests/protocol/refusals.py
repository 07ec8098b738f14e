"""The codes of refusals that an RM on the native port may hear, found in the source: who says which.

Every function with a parameter `code` is looked for, and whatever it is called with. A code that is no literal text is
passed on from such a parameter or attribute, or else nobody can know it: then this raises.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SPEAKERS: Final = {"rmproxy": "proxy", "broker": "broker", "partition_worker": "worker"}
ELSEWHERE: Final = (
    "rmproxy/grpc_",
    "rmproxy/si/",
    "rmproxy/admin/",
    "partition_worker/journal/",
    "partition_worker/engine/",
)
"""Files without refusals: there `code` is a gRPC or exit status, and `refuse` a verdict of a predicate."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def spoken() -> dict[str, set[str]]:
    """Code to who says it."""
    sources = dict(_sources())
    places = {speaker: dict(_with_a_code(speaker, sources)) for speaker in SPEAKERS}
    found: dict[str, set[str]] = {}
    for name, tree in sources.items():
        package = name.partition("/")[0]
        for code in [*_defaults(tree), *_assigned(tree), *_passed(name, tree, places[package])]:
            found.setdefault(code, set()).add(SPEAKERS[package])
    return found


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for package in SPEAKERS:
        for file in sorted((ROOT / package).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if not name.startswith(ELSEWHERE):
                yield name, ast.parse(file.read_text(encoding="utf-8"), name)


def _with_a_code(package: str, sources: dict[str, ast.Module]) -> Iterator[tuple[tuple[str, bool], int]]:
    """Yield the functions of a package that take a code: name, whether it is a method, and the position of the code
    among the arguments of a call.
    """
    yield ("Refused", False), -1
    yield ("Refused", True), -1  # `rm_messages.Refused`
    for name, tree in sources.items():
        for node in ast.walk(tree) if name.startswith(f"{package}/") else ():
            if isinstance(node, Function):
                names = [one.arg for one in node.args.args]
                if "code" in names:
                    method = names[0] == "self"
                    yield (node.name, method), names.index("code") - method


def _defaults(tree: ast.Module) -> Iterator[str]:
    for node in (node for node in ast.walk(tree) if isinstance(node, Function)):
        arguments = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        for argument, default in arguments:
            if argument.arg == "code" and isinstance(default, ast.Constant):
                yield str(default.value)


def _assigned(tree: ast.Module) -> Iterator[str]:
    """`code = "..."`, also beside others."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Assign)):
        pairs = [(target, node.value) for target in node.targets]
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs += zip(target.elts, node.value.elts, strict=True)
        for name, value in pairs:
            if isinstance(name, ast.Name) and name.id == "code":
                choices = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
                yield from (str(one.value) for one in choices if isinstance(one, ast.Constant))


def _passed(name: str, tree: ast.Module, places: dict[tuple[str, bool], int]) -> Iterator[str]:
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        method = isinstance(node.func, ast.Attribute)
        place = places.get((node.func.attr if method else getattr(node.func, "id", ""), method))
        if place is None:
            continue
        given = [one.value for one in node.keywords if one.arg == "code"]
        given += node.args[place:][:1] if place >= 0 else []
        for code in given:
            if isinstance(code, ast.Constant) and isinstance(code.value, str):
                yield code.value
            elif "code" not in (getattr(code, "id", ""), getattr(code, "attr", "")):
                raise LookupError(f"{name}:{node.lineno}: which code is this?")
