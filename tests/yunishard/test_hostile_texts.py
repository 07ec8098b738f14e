"""No text from outside acts on the terminal of an operator: in any column of any list, in `top`, on any stream."""

import importlib
import pkgutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.yunishard.commands.fake_web import web
from tests.yunishard.hostile import HOSTILE, find_effects, find_invisible
from tests.yunishard.terminal import Terminal
from yunishard.cli import commands
from yunishard.cli.commands.display import Cell, Screen, draw_amounts, draw_facts, draw_heading, draw_table
from yunishard.cli.commands.listing import Column, Frame, Row, draw_rows
from yunishard.cli.top import views
from yunishard.cli.top.app import to_rich

TERMINAL = Screen(is_terminal=True, has_colours=True, has_blocks=True, width=160, height=50)
VALUES: list[Callable[[], object]] = [
    lambda: HOSTILE,
    lambda: {HOSTILE: 5, "vcore": 7},
    lambda: [HOSTILE, HOSTILE],
    lambda: {"user": HOSTILE, "reason": HOSTILE, "time": 1},
    lambda: 5,
]


class HostileRow(dict[str, object]):
    """A row that has this value in each column, whatever its name."""

    def __init__(self, value: object) -> None:
        super().__init__()
        self._value = value

    def get(self, _name: str, _default: object = None) -> object:
        return self._value

    __getitem__ = get


def list_columns() -> list[Column]:
    """Return the columns of all lists of all commands."""
    found: dict[int, Column] = {}
    for module in pkgutil.iter_modules(commands.__path__, f"{commands.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            for one in value if isinstance(value, tuple) else ():
                if isinstance(one, Column):
                    found[id(one)] = one
    return list(found.values())


@pytest.mark.parametrize("screen", [TERMINAL, Screen()], ids=["terminal", "pipe"])
def test_no_column_of_a_list_acts_on_a_terminal(screen: Screen) -> None:
    columns = list_columns()
    assert len(columns) > 50
    drawn = 0
    for column in columns:
        for value in VALUES:
            try:
                lines = draw_rows([column], [HostileRow(value())], Frame(screen, time.time_ns(), [HOSTILE]))
            except (TypeError, ValueError, AttributeError):
                continue  # no value of this column
            drawn += 1
            assert not find_effects("\n".join(lines)), column.name
    assert drawn > 2 * len(columns)


@pytest.mark.parametrize("width", [80, 160])
def test_no_column_of_top_acts_on_a_terminal(width: int) -> None:
    screen = Screen(is_terminal=True, has_colours=True, has_blocks=True, width=width, height=50)
    frame, drawn = Frame(screen, time.time_ns(), [HOSTILE]), 0
    for spec in views.TABLES:
        for value in VALUES:
            row = HostileRow(value())
            for column in spec.columns(views.Listing([], 0, []), frame, ""):
                assert not find_effects(to_rich(column.title).plain)
                try:
                    text = to_rich(column.show([row], frame)[0])
                except (TypeError, ValueError):
                    continue  # no value of this column
                drawn += 1
                assert not find_effects(text.plain), column.title
    assert drawn > 40


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_table(TERMINAL, [HOSTILE], [[HOSTILE], [Cell(HOSTILE, "31")]]),
        lambda: draw_facts(TERMINAL, [(HOSTILE, HOSTILE), (HOSTILE, Cell(HOSTILE, "31"))]),
        lambda: draw_amounts(TERMINAL, [(HOSTILE, {HOSTILE: 1})]),
        lambda: draw_heading(TERMINAL, HOSTILE),
    ],
)
def test_no_part_of_a_view_acts_on_a_terminal(draw: Callable[[], list[str]]) -> None:
    assert not find_effects("\n".join(draw()))


RUN = "import sys; from yunishard.cli.main import main; sys.exit(main())"
ROWS: list[Row] = [{"name": HOSTILE, "queue": HOSTILE, "applications": [HOSTILE], "used": {HOSTILE: 5}}]


@pytest.mark.parametrize("words", ["", "-o wide", "-o csv", "-o name", "--json", "--partition refused"])
def test_no_answer_or_error_acts_on_a_terminal(tmp_path: Path, words: str) -> None:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        for limit in (1000, 10000):
            fake.says_table("groups", ROWS, query=f"limit={limit}")
            fake.refuses(f"GET partition/refused/table/groups?limit={limit}", 400, HOSTILE)
        command = [sys.executable, "-P", "-c", RUN, "group", "list", "--rest", fake.url, *words.split()]
        with Terminal(*command, folder=tmp_path) as terminal:
            terminal.ends()
            seen = terminal.seen.replace("\r\n", "\n")
    assert "title" in seen
    assert not find_invisible(seen)
