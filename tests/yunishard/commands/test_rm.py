"""`yunishard rm` against a fake web service."""

import json
from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.main import main

BUILDS = [{"rmId": "a", "version": "2"}, {"rmId": "idle"}]


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        yield fake


def run(fake: FakeWeb, *words: str) -> int:
    return main(["rm", "list", "--rest", fake.url, *words])


def test_each_resource_manager_has_a_line_also_without_partitions(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = [
        {"partition": "b_gpu", "rmId": "b", "awaySince": 10**18, "rmBuildInformation": BUILDS},
        {"partition": "default", "rmId": "a", "rmBuildInformation": BUILDS},
        {"partition": "gpu", "rmId": "a", "rmBuildInformation": BUILDS},
    ]
    fake.says("GET clusters", entries)
    assert run(fake, "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"rm": "a", "state": "connected", "awaySince": 0, "partitions": ["default", "gpu"], "build": {"version": "2"}},
        {"rm": "b", "state": "away", "awaySince": 10**18, "partitions": ["b_gpu"], "build": {}},
        {"rm": "idle", "state": "connected", "awaySince": 0, "partitions": [], "build": {}},
    ]
    assert run(fake) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["a", "connected", "-", "default,", "gpu", "version=2"]
    assert lines[2].split()[:2] == ["b", "away"]
    assert " d ago " in lines[2]


def test_without_resource_managers_only_the_headings_remain(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [])
    assert run(fake) == 0
    assert capsys.readouterr().out.splitlines() == ["RM  STATE  AWAY SINCE  PARTITIONS  BUILD"]
