"""Hints where a text is not YAML: the tab, the value that must be quoted, the indentation."""

import pytest
import yaml

from common.config.problems import ConfigError
from common.config.yaml_nodes import Reader, compose, special

TAB, COLUMN, COLON = "a tab is used for indentation", "wrong indentation?", "wrong indentation, or a value"

# PyYAML's own reader tells the same slips in other words.
READERS: list[Reader] = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


def hint(text: str, reader: Reader) -> str:
    with pytest.raises(ConfigError) as refused:
        compose(text, reader=reader)
    (problem,) = refused.value.problems
    assert problem.kind == "parse"
    return problem.hint


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("partitions:\n\t- name: a\n", TAB),
        ("partitions:\n  - name: a\n\tqueues: []\n", TAB),
        ("partitions:\n  - name: a\n  \tqueues: []\n", TAB),
        ("submitacl: *\n", "a value that begins with * must be quoted: without quotes it is an alias"),
        ("submitacl: *,bob\n", "a value that begins with * must be quoted"),
        ("users: [*]\n", "a value that begins with * must be quoted"),
        ("users:\n- *", "a value that begins with * must be quoted"),
        ("submitacl: *bob\n", "a value that begins with * must be quoted"),
        ("submitacl: @ops\n", "a value that begins with @ must be quoted"),
        ("submitacl: `ops`\n", "a value that begins with ` must be quoted"),
        ("submitacl: %ops\n", "a value that begins with % must be quoted"),
        ("submitacl: & ops\n", "a value that begins with & must be quoted"),
        ("partitions:\n  - name: a\n   queues: []\n", COLUMN),
        ("- queues:\n  - name: root\n - name: b\n", COLUMN),
        ("a:\n   b: 1\n  c: 2\n", COLUMN),
        ("a: 1\n b: 2\n", COLON),
        ("limit: one: two\n", COLON),
        ("a: 1\nb\nc: 2\n", "a key without `:`"),
        ("a: 'x\nb: 1\n", "a quote that was opened"),
        ("a: [1, 2\nb: 1\n", "a `]`, `}` or `,` is missing"),
        ("submitacl: 'ann' dev\n", "a value that begins with a quote ends"),
    ],
)
def test_a_slip_is_named(text: str, begins: str, reader: Reader) -> None:
    assert hint(text, reader).startswith(begins)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", ["a: !x!y z\n", 'a: "\\q"\n', "a: ]\n"])
def test_where_nothing_comes_to_mind_nothing_is_said(text: str, reader: Reader) -> None:
    assert hint(text, reader) == ""


def test_what_may_begin_a_value_is_not_special() -> None:
    assert special("a") == ""
    assert special("") == ""
