"""`yunishard complete` against a fake web service."""

from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands.names import parse_options
from yunishard.cli.main import main


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default", "rmBuildInformation": [{"rmId": "rm-1"}]}])
        yield fake


def complete(fake: FakeWeb, capsys: pytest.CaptureFixture[str], kind: str, prefix: str, *words: str) -> list[str]:
    assert main(["complete", kind, prefix, "--", "yunishard", "--rest", fake.url, *words]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out.splitlines()


@pytest.mark.parametrize(
    ("kind", "table", "column"),
    [
        ("application", "applications", "application"),
        ("ask", "asks", "key"),
        ("node", "nodes", "node"),
        ("user", "users", "name"),
        ("group", "groups", "name"),
    ],
)
def test_names_of_tables(kind: str, table: str, column: str, fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, object]] = [{column: "b-1"}, {column: "x-b-1"}, {column: "b-0"}, {column: "b-1"}]
    fake.says_table(table, rows, query="text=b-&limit=2000")
    assert complete(fake, capsys, kind, "b-") == ["b-0", "b-1"]


def test_queues_are_completed_level_by_level(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["root", "root.a", "root.a.x", "root.a.y", "root.b"]
    rows: list[dict[str, object]] = [{"queue": path} for path in paths]
    fake.says_table("queues", rows, query="limit=2000")
    assert complete(fake, capsys, "queue", "") == ["root"]
    fake.says_table("queues", rows, query="text=root.&limit=2000")
    assert complete(fake, capsys, "queue", "root.") == ["root.a", "root.b"]
    fake.says_table("queues", rows[2:4], query="text=root.a.&limit=2000")
    assert complete(fake, capsys, "queue", "root.a.") == ["root.a.x", "root.a.y"]


def test_partitions_and_resource_managers(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert complete(fake, capsys, "partition", "d") == ["default"]
    assert complete(fake, capsys, "rm", "") == ["rm-1"]


def test_the_named_partition_is_used(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table("nodes", [{"node": "n1"}], partition="gpu", query="limit=2000")
    assert complete(fake, capsys, "node", "", "--partition=gpu") == ["n1"]


def test_the_address_may_come_from_the_environment(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YUNISHARD_URL", fake.url)
    assert main(["complete", "partition", ""]) == 0
    assert capsys.readouterr().out == "default\n"


@pytest.mark.parametrize("words", [["nonsense"], ["queue", "root"], ["queue", "root", "--", "--rest", "bad"]])
def test_failures_are_silent(words: list[str], fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["complete", *words, *([] if "--" in words else ["--", "x", "--rest", fake.url])]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "")


def test_the_help_does_not_list_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "\n    complete " not in capsys.readouterr().out


def test_options_of_the_line_are_found() -> None:
    words = ["yunishard", "app", "show", "--rest", "http://a", "--partition=gpu", "--ca"]
    assert parse_options(words) == {"--rest": "http://a", "--partition": "gpu", "--ca": ""}
