"""`yunishard explain` against a fake web service: which object a name means, and what is requested."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.main import main

EXPLANATION = {"kind": "node", "name": "x", "state": "schedulable", "summary": "Everything is explained."}
NO_ROWS: dict[str, object] = {"columns": ["key", "application", "count"], "rows": [], "total": 0, "resources": []}


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        partitions(fake, "default")
        yield fake


def partitions(fake: FakeWeb, *names: str) -> None:
    fake.says("GET clusters", [{"partition": name} for name in names])
    for name in names:
        has_asks(fake, name, "x")


def has_asks(fake: FakeWeb, partition: str, key: str, *applications: str) -> None:
    """The table of asks, as it is searched for this key."""
    rows = [[key, application, 1] for application in applications]
    fake.says(
        f"GET partition/{partition}/table/asks?text={key}&limit=100", {**NO_ROWS, "rows": rows, "total": len(rows)}
    )
    fake.says(f"GET partition/{partition}/table/asks?sort=-count&limit=20", NO_ROWS)


def explains(fake: FakeWeb, path: str, partition: str = "default", **more: str) -> None:
    fake.says(f"GET partition/{partition}/{path}/explain", {**EXPLANATION, **more})


def run(fake: FakeWeb, *words: str) -> int:
    return main(["explain", *words, "--rest", fake.url])


@pytest.mark.parametrize(
    ("words", "path"), [("app x", "application/x"), ("queue root.a", "queue/root.a"), ("node x", "node/x")]
)
def test_an_object_is_explained_as_text_or_json(
    fake: FakeWeb, words: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explains(fake, path)
    assert run(fake, *words.split()) == 0
    assert "Everything is explained." in capsys.readouterr().out.splitlines()
    assert run(fake, *words.split(), "--json") == 0
    assert json.loads(capsys.readouterr().out) == EXPLANATION


@pytest.mark.parametrize("path", ["application/x", "queue/x", "node/x"])
def test_a_name_alone_is_looked_for_among_all_kinds(
    fake: FakeWeb, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    explains(fake, path)
    assert run(fake, "x") == 0
    assert "Everything is explained." in capsys.readouterr().out


def test_an_ask_is_found_by_its_key_or_with_its_application(fake: FakeWeb) -> None:
    has_asks(fake, "default", "x", "app-1")
    explains(fake, "application/app-1/ask/x")
    assert run(fake, "x") == 0
    assert run(fake, "ask", "x") == 0
    explains(fake, "application/app-2/ask/hidden")
    assert run(fake, "ask", "hidden", "--app", "app-2") == 0


def test_a_key_within_a_group_of_equal_asks_is_found(fake: FakeWeb) -> None:
    fake.says(
        "GET partition/default/table/asks?sort=-count&limit=20",
        {**NO_ROWS, "rows": [["first", "app-1", 5]], "total": 1},
    )
    explains(fake, "application/app-1/ask/x")
    assert run(fake, "ask", "x") == 0


def test_of_several_objects_the_caller_chooses(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    partitions(fake, "default", "gpu")
    explains(fake, "application/x")
    explains(fake, "node/x", "gpu")
    has_asks(fake, "gpu", "x", "app-1")
    explains(fake, "application/app-1/ask/x", "gpu")
    assert run(fake, "x") == 1
    assert capsys.readouterr().err == (
        "yunishard explain any: several objects have this name, choose one: explain app x --partition default; "
        "explain ask x --app app-1 --partition gpu; explain node x --partition gpu\n"
    )
    assert run(fake, "node", "x") == 0


def test_a_missing_object_is_status_1_with_the_nearest_name(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    has_asks(fake, "default", "app-11")
    table = {"columns": ["application"], "rows": [["app-1"]], "total": 1}
    fake.says("GET partition/default/table/applications?limit=2000", table)
    assert run(fake, "app-11") == 1
    assert "that you may see: did you mean 'app-1'?" in capsys.readouterr().err
    assert run(fake, "x") == 1
    assert "for an ask that runs, name its application with --app" in capsys.readouterr().err


def test_a_placement_is_explained_with_all_that_a_submission_has(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    tags = quote('{"namespace":"a,b"}', safe="")
    answer = {"kind": "placement", "name": "alice", "state": "accepted", "summary": "It is placed.", "queue": "root.a"}
    query = f"user=alice&groups=dev%2Cops&queue=root.a&tags={tags}"
    fake.says(f"GET partition/default/explain/placement?{query}", answer)
    words = ["placement", "--user", "alice", "--groups", "dev,ops", "--queue", "root.a", "--tag", "namespace=a,b"]
    assert run(fake, *words) == 0
    assert "It is placed." in capsys.readouterr().out
    partitions(fake, "default", "gpu")
    assert run(fake, *words) == 1
    assert "name one with --partition: default, gpu" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["placement", "placement --user alice --tag x", "app", "x y"])
def test_wrong_usage_is_status_2(fake: FakeWeb, words: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(fake, *words.split())


def test_no_answer_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "x", "--rest", "http://127.0.0.1:1"]) == 2
    assert "connection refused" in capsys.readouterr().err
