"""Style is a test: what can be counted about the shipped code."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("benchmarks", "broker", "common", "deploy", "partition_worker", "rmproxy", "webservice", "yunishard")
GENERATED = {ROOT / "rmproxy" / "si", ROOT / "rmproxy" / "admin"}
FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
VAGUE = {"utils", "util", "helpers", "misc", "manager", "base"}
MEANT = {"yunishard/manager.py"}
"""The domain's word: a resource manager."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files_of(*folders: str) -> list[Path]:
    found = [file for folder in folders for file in sorted((ROOT / folder).rglob("*.py"))]
    return [file for file in found if not GENERATED & set(file.parents)]


SHIPPED = {
    str(file.relative_to(ROOT)): ast.parse(file.read_text(encoding="utf-8"), str(file))
    for file in files_of(*PACKAGES, "examples")
}


def lines_of(node: ast.AST) -> int:
    """How many lines a function takes."""
    assert isinstance(node, Function)
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_a_file_can_be_read_in_one_go() -> None:
    lines = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in SHIPPED}
    assert {name: count for name, count in lines.items() if count > FILE_LINES_MAX} == {}


def test_a_function_fits_on_a_screen() -> None:
    functions = [
        (name, node) for name, tree in SHIPPED.items() for node in ast.walk(tree) if isinstance(node, Function)
    ]
    assert [(name, node.name) for name, node in functions if lines_of(node) > FUNCTION_LINES_MAX] == []


def test_a_module_says_what_it_is_for() -> None:
    assert [name for name, tree in SHIPPED.items() if not ast.get_docstring(tree)] == []


def test_a_public_class_says_what_it_is_for() -> None:
    classes = [(name, node) for name, tree in SHIPPED.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [(name, node) for name, node in classes if not node.name.startswith("_")]
    assert [(name, node.name) for name, node in public if not ast.get_docstring(node)] == []


def test_a_file_is_named_for_what_is_in_it() -> None:
    assert {name for name in SHIPPED if Path(name).stem in VAGUE} <= MEANT


def test_no_exception_is_caught_without_being_named() -> None:
    handlers = [
        (name, node) for name, tree in SHIPPED.items() for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)
    ]
    assert [(name, node.lineno) for name, node in handlers if node.type is None] == []


def test_there_is_something_to_look_at() -> None:
    assert len(SHIPPED) > 60
    assert {name.partition("/")[0] for name in SHIPPED} >= set(PACKAGES) - {"benchmarks"}
