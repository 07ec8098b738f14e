"""Lists: their options, formats and order, and output again and again."""

import argparse
import json
import sys
from pathlib import Path

import pytest

from tests.yunishard.commands.fake_web import web
from tests.yunishard.terminal import Terminal
from yunishard.cli.commands.listing import (
    AGE,
    AMOUNTS,
    LIMITS,
    LIST,
    NUMBER,
    PERCENT,
    STATE,
    Column,
    Row,
    Rows,
    Wanted,
    add_list_options,
    show_list,
)
from yunishard.cli.main import CommandFailed, CommandUnusable

COLUMNS = (
    Column("name"),
    Column("state", STATE),
    Column("used", AMOUNTS),
    Column("maximum", LIMITS),
    Column("count", NUMBER),
    Column("share", PERCENT, is_wide=True),
    Column("groups", LIST, is_wide=True),
    Column("since", AGE),
)
ROWS: list[Row] = [
    {"name": "b", "state": "Running", "used": {"vcore": 500}, "maximum": {"gpu": 0}, "count": 1200, "since": 0},
    {"name": "a", "state": "failed", "used": {"vcore": 1500, "memory": 1 << 30}, "maximum": None, "count": None,
     "groups": ["x", "y"], "share": 50, "since": 1_700_000_000 * 10**9},
]  # fmt: skip


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    add_list_options(parser, COLUMNS)
    return parser.parse_args(words)


def show(*words: str, total: int = 0) -> None:
    rows = [dict(row) for row in ROWS]
    assert show_list(options(*words), "thing", COLUMNS, lambda _: Rows(rows, total, ["memory", "vcore"])) == 0


def test_a_list_is_plain_columns_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "STATE", "USED", "MAXIMUM", "COUNT", "SINCE"]
    assert lines[1] == "b     running  0.5 vcore         0 gpu    1,200  -"
    assert lines[2].startswith("a     failed   1.5 vcore, 1 GiB  -            -  ")


def test_wide_shows_more_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show("-o", "wide")
    assert "  50 %  x, y  " in capsys.readouterr().out


def test_json_has_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    show("--json")
    assert json.loads(capsys.readouterr().out) == ROWS
    show("-o", "json")
    assert json.loads(capsys.readouterr().out) == ROWS


def test_csv_has_a_column_for_each_resource_type(capsys: pytest.CaptureFixture[str]) -> None:
    show("--csv")
    head = "name,state,used.vcore,used.memory,maximum.vcore,maximum.memory,count,share,groups,since"
    assert capsys.readouterr().out.splitlines() == [
        head,
        "b,Running,500,,,,1200,,,",
        "a,failed,1500,1073741824,,,,50,x y,2023-11-14T22:13:20Z",
    ]


def test_name_prints_only_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    show("-o", "name")
    assert capsys.readouterr().out == "b\na\n"


@pytest.mark.parametrize(
    ("sort", "names"),
    [("name", "a b"), ("-name", "b a"), ("used", "b a"), ("-used.memory", "a b"), ("count", "a b"), ("since", "b a")],
)
def test_rows_are_sorted_by_any_column(sort: str, names: str, capsys: pytest.CaptureFixture[str]) -> None:
    show("-o", "name", f"--sort={sort}")
    assert capsys.readouterr().out.split() == names.split()


def test_a_wrong_column_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(CommandUnusable, match=r"--sort: unknown column 'usd': did you mean 'used'\?"):
        show("--sort", "usd")
    with pytest.raises(CommandUnusable, match="--sort: unknown column 'x': there are name, state"):
        show("--sort", "x")


def test_formats_exclude_each_other() -> None:
    with pytest.raises(CommandUnusable, match="csv and json exclude each other"):
        show("--csv", "--json")


@pytest.mark.parametrize("words", [["-o", "wid"], ["--limit", "0"], ["--watch", "root.a"], ["--watch", "0"]])
def test_wrong_options_are_wrong_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options(*words)
    assert ended.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_the_limit_and_the_order_are_requested() -> None:
    wanted: list[Wanted] = []

    def fetch(one: Wanted) -> Rows:
        wanted.append(one)
        return Rows(ROWS[:], 2)

    show_list(options("--limit", "1", "--sort=-used"), "thing", COLUMNS, fetch)
    show_list(options(), "thing", COLUMNS, fetch)
    assert wanted == [Wanted("-used", 1), Wanted("", 0)]


def test_rows_beyond_the_limit_are_counted_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    show("--limit", "1", total=20_000)
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert told.err == "yunishard: 1 of 20,000 things; --limit 20000 shows all\n"


def test_watching_survives_failures_but_not_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[list[Row] | Exception] = [ROWS, CommandFailed("away"), ROWS[:1], KeyboardInterrupt()]  # type: ignore[list-item]

    def fetch(_: Wanted) -> Rows:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return Rows(list(answer))

    with pytest.raises(KeyboardInterrupt):
        show_list(options("--watch", "0.1", "-o", "name"), "thing", COLUMNS, fetch)
    told = capsys.readouterr()
    assert (told.out, told.err) == ("b\na\nb\n", "yunishard: away\n")
    answers.append(CommandFailed("away"))
    with pytest.raises(CommandFailed):
        show_list(options("--watch"), "thing", COLUMNS, fetch)


def test_watching_json_prints_a_line_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    answers = [ROWS, ROWS]

    def fetch(_: Wanted) -> Rows:
        if not answers:
            raise KeyboardInterrupt
        return Rows(list(answers.pop()))

    with pytest.raises(KeyboardInterrupt):
        show_list(options("--watch", "0.1", "--json"), "thing", COLUMNS, fetch)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line) for line in lines] == [ROWS, ROWS]


def test_a_terminal_is_redrawn_in_place_until_ctrl_c(tmp_path: Path) -> None:
    script = "import sys; from yunishard.cli.main import main; sys.exit(main())"
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        fake.says_table("groups", [{"name": "ops", "queue": "root"}], query="limit=1000")
        words = ["group", "list", "--rest", fake.url, "--watch", "0.1"]
        with Terminal(sys.executable, "-P", "-c", script, *words, folder=tmp_path) as terminal:
            terminal.waits_for("\x1b[2J")
            terminal.waits_for("every 0.1 s: ")
            terminal.waits_for("ops")
            fake.says_table("groups", [{"name": "dev", "queue": "root"}], query="limit=1000")
            terminal.waits_for("dev")
            fake.refuses("GET partition/default/table/groups?limit=1000", 503, "the partition restarts")
            terminal.waits_for("the partition restarts")
            terminal.waits_for("dev")
            terminal.types("\x03")
            terminal.waits_for("\x1b[?25h")
            assert terminal.ends() == 130
