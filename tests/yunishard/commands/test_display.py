"""Tables, facts, amounts and bars, on a terminal and in a pipe."""

import doctest

import pytest

from yunishard.cli.commands import display
from yunishard.cli.commands.display import (
    BAD,
    GOOD,
    WARNING,
    Cell,
    Screen,
    draw_amounts,
    draw_bar,
    draw_facts,
    draw_table,
)

PIPE = Screen()
TERMINAL = Screen(is_terminal=True, has_colours=True, has_blocks=True, width=40, height=24)
PLAIN_TERMINAL = Screen(is_terminal=True, width=30, height=24)


def test_the_examples_are_right() -> None:
    assert doctest.testmod(display).failed == 0


def test_a_pipe_gets_plain_columns() -> None:
    lines = draw_table(PIPE, ("NAME", "N"), [["a", Cell("1", GOOD)], ["long-name", "20"]], right=[1])
    assert lines == ["NAME        N", "a           1", "long-name  20"]


def test_a_pipe_gets_the_headings_even_without_rows() -> None:
    assert draw_table(PIPE, ("NAME", "N"), []) == ["NAME  N"]
    assert draw_table(TERMINAL, ("NAME", "N"), []) == []


def test_a_terminal_gets_colours_that_take_no_room() -> None:
    lines = draw_table(TERMINAL, ("NAME", "STATE"), [[Cell("a", GOOD), "x"], ["bb", Cell("y", BAD)]])
    assert lines[1:] == ["\x1b[32ma\x1b[0m     x", "bb    \x1b[31my\x1b[0m"]


def test_columns_that_are_too_wide_for_the_terminal_are_cut_in_the_middle() -> None:
    lines = draw_table(PLAIN_TERMINAL, ("NAME", "OTHER", "N"), [["a" * 20 + "z", "b" * 30, "1"]])
    assert lines[1] == "aaaaaa…aaaaz  bbbbbb…bbbbbb  1"


def test_control_characters_never_reach_the_terminal() -> None:
    lines = draw_table(TERMINAL, ("NAME",), [["\x1b[2Jx\n"]])
    assert lines[1] == "\\x1b[2Jx\\x0a"
    assert draw_facts(PIPE, [("user", "a\rb")]) == ["user  a\\x0db"]


def test_wide_characters_take_two_cells() -> None:
    assert draw_table(PIPE, ("A", "B"), [["日本", "x"], ["abc", "y"]]) == ["A     B", "日本  x", "abc   y"]


def test_facts_without_a_value_are_left_out() -> None:
    assert draw_facts(PIPE, [("state", Cell("active", GOOD)), ("reason", ""), ("a", "b")]) == [
        "state  active",
        "a      b",
    ]


def test_amounts_have_a_line_for_each_type() -> None:
    lines = draw_amounts(PIPE, [("used", {"memory": 1 << 30}), ("maximum", {"vcore": 4000}), ("gone", None)])
    assert lines == ["RESOURCE   USED  MAXIMUM", "vcore         -        4", "memory    1 GiB        -"]


@pytest.mark.parametrize(
    ("used", "total", "pending", "bar"),
    [
        (0, 10, 0, Cell("..........", GOOD)),
        (0.1, 10, 0, Cell("#.........", GOOD)),
        (10, 10, 5, Cell("##########", WARNING)),
        (12, 10, 0, Cell("##########", BAD)),
        (5, 10, 100, Cell("#####=====", GOOD)),
        (0, 0, 0, Cell("..........", GOOD)),
    ],
)
def test_a_bar_shows_the_share_that_is_used(used: float, total: float, pending: float, bar: Cell) -> None:
    assert draw_bar(PIPE, used, total, pending=pending) == bar


def test_a_bar_marks_the_guaranteed_amount() -> None:
    assert draw_bar(TERMINAL, 2, 10, guaranteed=5).text == "██···│····"
    assert draw_bar(TERMINAL, 2, 10, guaranteed=50).text == "██·······│"


def test_no_color_turns_colours_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Screen.detect().has_colours
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Screen.detect().has_colours
