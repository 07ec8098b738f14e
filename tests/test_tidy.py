"""Rules about the source that a program can check: size, import circles, prose, docstrings, names of files."""

import ast
from pathlib import Path

import pytest

from tests import prose, size

VAGUE = {"utils", "util", "helpers", "misc", "manager", "base"}
FILES = size.source_files(*size.PACKAGES, "examples")
SHIPPED = {file.name: file.tree for file in FILES}


def test_no_file_or_function_is_too_long_and_no_modules_import_each_other() -> None:
    assert size.problems(FILES) == []


def test_no_package_has_more_banned_words_than_its_limit() -> None:
    assert prose.all_findings() == []


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


def test_every_module_has_a_docstring() -> None:
    assert [name for name, tree in SHIPPED.items() if not ast.get_docstring(tree)] == []


def test_every_public_class_has_a_docstring() -> None:
    classes = [(name, node) for name, tree in SHIPPED.items() for node in tree.body if isinstance(node, ast.ClassDef)]
    public = [(name, node) for name, node in classes if not node.name.startswith("_")]
    assert [(name, node.name) for name, node in public if not ast.get_docstring(node)] == []


def test_no_file_has_a_vague_name() -> None:
    assert {name for name in SHIPPED if Path(name).stem in VAGUE} == set()


def test_no_exception_is_caught_without_being_named() -> None:
    handlers = [
        (name, node) for name, tree in SHIPPED.items() for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)
    ]
    assert [(name, node.lineno) for name, node in handlers if node.type is None] == []


def test_the_rules_see_every_package() -> None:
    assert len(SHIPPED) > 60
    assert {name.partition("/")[0] for name in SHIPPED} >= set(size.SHIPPED)
