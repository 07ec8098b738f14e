"""What is written as YAML is read as what it was, by us and by others."""

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from common.config.nodes import Mapping, Scalar, compose
from webservice.yaml_text import scalar, yaml_text


def test_lists_stand_right_of_their_key_and_maps_at_every_fourth_column() -> None:
    text = yaml_text({"a": [{"b": {"c": {"d": "x"}}, "e": ["f"]}], "g": 1.5, "h": True, "i": [], "j": {}})
    assert text.splitlines() == [
        "a:",
        "    - b:",
        "        c:",
        "            d: x",
        "      e:",
        "        - f",
        "g: 1.5",
        "h: true",
        "i: []",
        "j: {}",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("10", '"10"'),
        ("1e3", '"1e3"'),
        ("0o17", '"0o17"'),
        ("-7", '"-7"'),
        (".5", '".5"'),
        ("1:30", '"1:30"'),
        ("2025-01-01", '"2025-01-01"'),
        ("", '""'),
        ("null", '"null"'),
        ("Yes", '"Yes"'),
        ("n", '"n"'),
        ("a\nb", '"a\\nb"'),
        ("a\x85\u2028\U000e0001", '"a\\u0085\\u2028\\U000E0001"'),
        ("*", "'*'"),
        ("it's: so", "'it''s: so'"),
        ("a #b", "'a #b'"),
        ("a ", "'a '"),
        ("- a", "'- a'"),
        ("---", "'---'"),
        ("10G", "10G"),
        ("1h", "1h"),
        ("9E", "9E"),
        ("0B9B", "0B9B"),
        ("0B10", '"0B10"'),
        ("a_b:c#d/e@f-g", "a_b:c#d/e@f-g"),
        ("a:", "'a:'"),
        ("a: b", "'a: b'"),
        ("^vip-.*", "^vip-.*"),
        ("victor,vera vip-gold", "victor,vera vip-gold"),
        ("root.@recovery@", "root.@recovery@"),
    ],
)
def test_a_text_has_quotes_only_where_it_needs_them(text: str, written: str) -> None:
    assert scalar(text) == written


@pytest.mark.parametrize(("number", "text"), [(1.0, "1"), (2.5, "2.5"), (math.inf, ".inf"), (-math.inf, "-.inf")])
def test_numbers_are_written_short(number: float, text: str) -> None:
    assert yaml_text({"a": number}) == f"a: {text}\n"


def test_what_is_no_number_is_written_too() -> None:
    assert yaml_text({"a": math.nan}) == "a: .nan\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_every_text_comes_back(text: str) -> None:
    written = yaml_text({"key": text, text + "x": [text]})
    assert yaml.safe_load(written) == {"key": text, text + "x": [text]}
    root = compose(written)
    assert isinstance(root, Mapping)
    value = root.entries[0][1]
    assert isinstance(value, Scalar)
    assert value.text == text
