"""`yunishard app`: kill and move."""

import json
from collections.abc import Iterator

import pytest

from tests.yunishard.fake_web import FakeWeb, web
from yunishard.cli import main


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


def app(fake: FakeWeb, *words: str) -> int:
    return main(["app", words[0], "--rest", fake.url, *words[1:]])


def test_kill_says_what_became_of_it(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("POST partition/default/application/app-1/kill", {"applicationID": "app-1", "state": "Failing"})
    assert app(fake, "kill", "app-1") == 0
    assert capsys.readouterr().out == "app-1 in partition default is Failing\n"


def test_move_names_the_queue(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    answer = {"applicationID": "app-1", "partition": "gpu", "queue": "root.b"}
    fake.says("POST partition/gpu/application/app-1/move?queue=root.b", answer)
    assert app(fake, "move", "app-1", "root.b", "--partition", "gpu") == 0
    assert capsys.readouterr().out == "app-1 in partition gpu is in root.b\n"
    assert app(fake, "move", "app-1", "root.b", "--partition", "gpu", "--json") == 0
    assert json.loads(capsys.readouterr().out) == answer


def test_names_are_written_into_the_path_so_that_they_stay_names(fake: FakeWeb) -> None:
    fake.says("POST partition/default/application/a%2F..%2Fb%3Fc/kill", {"state": "Failing"})
    assert app(fake, "kill", "a/../b?c") == 0


def test_the_partition_that_has_it_is_found(fake: FakeWeb) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    fake.says("GET partition/gpu/application/app-1", {})
    fake.says("POST partition/gpu/application/app-1/kill", {"state": "Failing"})
    assert app(fake, "kill", "app-1") == 0


def test_an_application_that_nobody_has_is_status_1(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    assert app(fake, "kill", "app-1") == 1
    assert capsys.readouterr().err.endswith("no partition has an active application app-1 (there are default, gpu)\n")


def test_a_partition_that_is_not_there_is_told_with_those_there_are(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses("POST partition/nope/application/app-1/kill", 404, "Partition not found")
    assert app(fake, "kill", "app-1", "--partition", "nope") == 1
    assert capsys.readouterr().err == "yunishard app kill: Partition not found: nope (there are default)\n"


@pytest.mark.parametrize(
    ("message", "listed"), [("queue root.b does not exist", "queues"), ("application x ...", "applications/active")]
)
def test_what_is_not_there_is_told_with_where_to_look(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], message: str, listed: str
) -> None:
    fake.refuses("POST partition/default/application/app-1/move?queue=root.b", 404, message)
    assert app(fake, "move", "app-1", "root.b") == 1
    told = capsys.readouterr().err
    assert (
        told
        == f"yunishard app move: {message}: GET {fake.url}/ws/v1/partition/default/{listed} lists those there are\n"
    )


def test_one_that_several_have_needs_the_partition(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    for partition in ("default", "gpu"):
        fake.says(f"GET partition/{partition}/application/app-1", {})
    assert app(fake, "kill", "app-1") == 1
    assert "--partition default, gpu" in capsys.readouterr().err


def test_a_partition_that_does_not_answer_is_not_passed_over(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "default"}, {"partition": "gpu"}])
    fake.refuses("GET partition/default/application/app-1", 503, "Partition default did not answer")
    fake.says("GET partition/gpu/application/app-1", {})
    assert app(fake, "kill", "app-1") == 1
    assert capsys.readouterr().err == "yunishard app kill: Partition default did not answer\n"


def test_a_refusal_is_told_in_the_systems_words(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("POST partition/default/application/app-1/kill", 403, "you may not")
    assert app(fake, "kill", "app-1") == 1
    assert capsys.readouterr().err == "yunishard app kill: you may not\n"
