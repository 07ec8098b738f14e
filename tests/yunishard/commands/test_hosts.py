"""`yunishard hosts` against a fake web service."""

import json
from collections.abc import Iterator

import pytest

from tests.webservice.fakes import HOST, HOSTS
from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands import hosts as command
from yunishard.cli.main import main


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        yield fake


def run(fake: FakeWeb, *words: str) -> int:
    return main(["hosts", words[0], "--rest", fake.url, *words[1:]])


def draining(partitions: int, *, is_draining: bool = True) -> dict[str, object]:
    """Host a, with so many partitions left."""
    state = "draining" if partitions else "drained"
    return {
        "hosts": [{**HOST, "state": state, "draining": is_draining, "partitions": partitions}],
        "rebalancing": False,
    }


def test_hosts_are_listed_in_columns_or_as_json(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET hosts", HOSTS)
    assert run(fake, "list") == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["HOST", "STATE", "LEADER", "PARTITIONS", "LEAVING", "CORES", "MEMORY", "RELEASE", "ADDRESS"],
        ["a", "ready", "yes", "3", "0", "4", "8", "GiB", "1.0", "tcp://10.0.0.1:9094"],
    ]
    assert run(fake, "list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == HOSTS


@pytest.mark.parametrize("words", [("drain", "a"), ("undrain", "a"), ("rebalance",)])
def test_an_action_shows_the_hosts_afterwards(fake: FakeWeb, words: tuple[str, ...]) -> None:
    path = "/".join(reversed(words))
    fake.says(f"POST hosts/{path}", HOSTS)
    assert run(fake, *words) == 0
    assert fake.asked == [f"POST hosts/{path}"]


def test_waiting_shows_each_change_until_the_host_is_empty(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.says("POST hosts/a/drain", draining(2))
    fake.says("GET hosts", draining(2))
    left = iter([2, 1, 0])

    def pass_time(_: float) -> None:
        fake.says("GET hosts", draining(next(left)))

    monkeypatch.setattr(command.time, "sleep", pass_time)
    assert run(fake, "drain", "a", "--wait") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["host a has 2 partitions", "host a has 1 partition"]
    assert lines[-1].split()[:2] == ["a", "drained"]


def test_waiting_survives_a_change_of_leader_and_ends_in_time(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.says("POST hosts/rebalance", HOSTS)
    fake.refuses("GET hosts", 503, "The broker did not answer")
    monkeypatch.setattr(command.time, "sleep", lambda _: fake.says("GET hosts", {**HOSTS, "rebalancing": True}))
    assert run(fake, "rebalance", "--wait", "--timeout", "100ms") == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["The broker did not answer", "0 partitions in motion"]
    assert "not done in time: 0 partitions in motion" in captured.err


def test_a_host_that_is_undrained_meanwhile_is_not_waited_for(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("POST hosts/a/drain", draining(2))
    fake.says("GET hosts", draining(2, is_draining=False))
    assert run(fake, "drain", "a", "--wait") == 1
    assert "host a is not draining any more" in capsys.readouterr().err


def test_a_refusal_is_status_1_and_wrong_usage_status_2(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("POST hosts/a/drain", 409, "no other host can take the partitions of host a")
    assert run(fake, "drain", "a") == 1
    assert capsys.readouterr().err == "yunishard hosts drain: no other host can take the partitions of host a\n"
    with pytest.raises(SystemExit, match="2"):
        run(fake, "drain", "a", "--wait", "--timeout", "soon")
