"""`yunishard user` and `yunishard group` against a fake web service."""

from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.main import main

USAGE = [
    {
        "name": "alice", "queue": "root", "used": {"vcore": 4000}, "maximum": None, "utilization": None,
        "runningApplications": 2, "maxApplications": None,
    },
    {
        "name": "alice", "queue": "root.a", "used": {"vcore": 4000}, "maximum": {"vcore": 4000}, "utilization": 100,
        "runningApplications": 2, "maxApplications": 3,
    },
]  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


@pytest.mark.parametrize("noun", ["user", "group"])
def test_usage_is_listed_with_the_limits(noun: str, fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table(f"{noun}s", USAGE)
    assert main([noun, "list", "--rest", fake.url]) == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["alice", "alice"]
    fake.says_table(f"{noun}s", USAGE[1:], query="text=ali&queue=root.a&subtree=true&limited=true&limit=10000")
    assert main([noun, "list", "ali", "--queue", "root.a", "--limited", "--rest", fake.url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{noun.upper():<5}  QUEUE   USED     LIMIT    OF LIMIT  RUNNING",
        "alice  root.a  4 vcore  4 vcore     100 %    2 / 3",
    ]
