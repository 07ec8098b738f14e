"""`yunishard schedule`: decisions step by step."""

import json
from collections.abc import Iterator

import pytest

from tests.yunishard.fake_web import FakeWeb, web
from yunishard.cli import main

ALLOCATED = {"kind": "allocate", "applicationID": "app-1", "allocationKey": "a1", "nodeID": "n1"}
PREEMPTED = {"kind": "preempt", "applicationID": "app-2", "releases": ["b1", "b2"]}


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        yield fake


def schedule(fake: FakeWeb, *words: str) -> int:
    return main(["schedule", "--rest", fake.url, *words])


def test_each_decision_is_a_line(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("POST partition/gpu/schedule?steps=5", {"made": 2, "decisions": [ALLOCATED, PREEMPTED], "idle": True})
    assert schedule(fake, "gpu", "--steps", "5") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["DECISION", "APPLICATION", "ASK", "NODE", "RELEASES"],
        ["allocate", "app-1", "a1", "n1", "-"],
        ["preempt", "app-2", "-", "-", "b1,", "b2"],
    ]


def test_one_step_is_what_nothing_else_was_said_of(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"made": 0, "decisions": [], "idle": True}
    fake.says("POST partition/default/schedule?steps=1", answer)
    assert schedule(fake, "default") == 0
    assert capsys.readouterr().out == "nothing to decide\n"
    assert schedule(fake, "default", "--json") == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_a_refusal_is_told_in_the_systems_words(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("POST partition/default/schedule?steps=1", 409, "partition default decides by itself")
    assert schedule(fake, "default") == 1
    assert capsys.readouterr().err == "yunishard schedule: partition default decides by itself\n"


def test_a_partition_that_is_not_there_is_told_with_those_there_are(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses("POST partition/nope/schedule?steps=1", 404, "Partition not found")
    fake.says("GET clusters", [{"partition": "rm-1_gpu"}, {"partition": "default"}])
    assert schedule(fake, "nope") == 1
    assert capsys.readouterr().err == "yunishard schedule: Partition not found: nope (there are rm-1_gpu, default)\n"


@pytest.mark.parametrize("steps", ["many", "0", "-1", "1.5", "", "1001", "9" * 5000])
def test_a_number_that_cannot_be_is_wrong_usage(steps: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["schedule", "default", f"--steps={steps}"])
    assert ended.value.code == 2
    assert "--steps: expected a whole number from 1 to 1000" in capsys.readouterr().err
