"""Rules about the source that a program can check: docstrings, names of files, exceptions.

Not here: sizes, import circles and prose, which `make check` checks. Of those, only the parts are tested.
"""

import ast
from pathlib import Path

import pytest

from tests import prose, size

VAGUE = {"utils", "util", "helpers", "misc", "manager", "base"}


@pytest.fixture(scope="module")
def shipped() -> dict[str, ast.Module]:
    """Every file of the packages and examples, by name."""
    return {file.name: file.tree for file in size.source_files(*size.PACKAGES, "examples")}


def test_import_circles_are_found() -> None:
    assert size.find_circles({"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"], "e": []}) == [["a", "b", "c"]]
    assert size.find_circles({"a": ["b"], "b": []}) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Whoever connects is answered.", ["Whoever"]),
        ("The RM is\ntold.", ["is told"]),
        ("What was written is read again.", ["What was written is read again."]),
        ("What was written?", []),
        ("The field `whoever` and `{nobody}` are code.", []),
        ("Bookshelves are fine.", []),
    ],
)
def test_banned_words_are_found_in_prose_and_not_in_code(text: str, words: list[str]) -> None:
    assert [finding.words for finding in prose.check_text("file", text)] == words


def test_every_module_has_a_docstring(shipped: dict[str, ast.Module]) -> None:
    assert [name for name, tree in shipped.items() if not ast.get_docstring(tree)] == []


def test_every_public_class_has_a_docstring(shipped: dict[str, ast.Module]) -> None:
    classes = [(name, node) for name, tree in shipped.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [(name, node) for name, node in classes if not node.name.startswith("_")]
    assert [(name, node.name) for name, node in public if not ast.get_docstring(node)] == []


def test_no_file_has_a_vague_name(shipped: dict[str, ast.Module]) -> None:
    assert {name for name in shipped if Path(name).stem in VAGUE} == set()


def test_no_exception_is_caught_without_being_named(shipped: dict[str, ast.Module]) -> None:
    handlers = [
        (name, node) for name, tree in shipped.items() for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)
    ]
    assert [(name, node.lineno) for name, node in handlers if node.type is None] == []


def test_the_rules_see_every_package(shipped: dict[str, ast.Module]) -> None:
    assert len(shipped) > 60
    assert {name.partition("/")[0] for name in shipped} >= set(size.SHIPPED)
