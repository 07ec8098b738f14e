"""`yunishard queue limit|stop|start`, `node cordon|drain|uncordon` and `rm end` against a fake web service."""

import json
from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands import changes
from yunishard.cli.main import main

LIMIT = "partition/default/queue/root.a/limit"
LIMITED = {
    "checksum": "B", "version": 0, "partitions": [], "file": False, "followers": [], "queue": "root.a", "base": "A",
    "dryRun": True, "diff": "--- in force\n+++ changed\n@@ -1 +1 @@\n-vcore: 1\n+vcore: 2\n",
}  # fmt: skip


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        builds = [{"rmId": "rm-1"}]
        fake.says("GET clusters", [{"partition": "default", "rmBuildInformation": builds}])
        fake.says("GET partition/default/queue/root.a", {"queuename": "root.a"})
        fake.says("GET partition/default/node/n1", {"nodeID": "n1", "allocations": [{}, {}]})
        fake.says(f"POST {LIMIT}?dryRun=true", LIMITED)
        fake.says(f"POST {LIMIT}", {**LIMITED, "version": 7, "partitions": ["default"], "dryRun": False})
        yield fake


def yunishard(fake: FakeWeb, *words: str) -> int:
    return main([*words[:2], "--rest", fake.url, *words[2:]])


class Terminal:
    """Standard input on a terminal."""

    def __init__(self, line: str) -> None:
        self._line = line

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self._line


def limit(fake: FakeWeb, *words: str) -> int:
    return yunishard(fake, "queue", "limit", "root.a", "--max", "vcore=2,memory=none", *words)


def test_a_limit_is_shown_confirmed_and_changed(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert limit(fake, "--max", "gpu=1", "--max-applications", "0", "--yes") == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["+vcore: 2", "version 7 is in force, partitions: default"]
    (what, headers, body), (last, precise, again) = fake.heard[-2:]
    assert (what, last) == (f"POST /ws/v1/{LIMIT}?dryRun=true", f"POST /ws/v1/{LIMIT}")
    assert json.loads(body) == {"max": {"vcore": "2", "memory": None, "gpu": "1"}, "maxApplications": 0}
    assert (again, precise["If-Match"], "If-Match" in headers) == (body, '"A"', False)


def test_without_a_terminal_and_yes_nothing_changes(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert limit(fake) == 1
    assert "nothing was changed: confirm with --yes" in capsys.readouterr().err
    assert fake.asked[-1].endswith("dryRun=true")


@pytest.mark.parametrize(("line", "changed"), [("y\n", True), ("yes\n", True), ("\n", False), ("n\n", False)])
def test_on_a_terminal_it_asks(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, changed: bool
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(line))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert limit(fake) == (0 if changed else 1)
    assert "change the configuration of partition default like this? [y/N] " in capsys.readouterr().out
    assert (fake.asked[-1] == f"POST {LIMIT}") is changed


def test_a_dry_run_changes_nothing(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert limit(fake, "--dry-run") == 0
    assert capsys.readouterr().out == LIMITED["diff"]
    assert limit(fake, "--dry-run", "--json") == 0
    assert json.loads(capsys.readouterr().out) == LIMITED


def test_problems_of_the_changed_configuration_are_listed(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    problems = [{"line": 3, "path": "x", "message": "no", "kind": "load", "hint": ""}]
    fake.refuses(f"POST {LIMIT}?dryRun=true", 400, "no", problems=problems)
    assert limit(fake, "--yes") == 1
    assert capsys.readouterr().err == (
        "the changed configuration:3: x: no\nyunishard queue limit: root.a: the configuration would not be valid\n"
    )


@pytest.mark.parametrize("words", [["--max", "vcore"], ["--max", "=4"], ["--max-applications", "-1"]])
def test_wrong_amounts_are_wrong_usage(fake: FakeWeb, words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        yunishard(fake, "queue", "limit", "root.a", *words)
    assert caught.value.code == 2
    assert yunishard(fake, "queue", "limit", "root.a") == 2


def test_a_queue_is_stopped_and_started(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    path = "POST partition/default/queue/root.a"
    fake.says(f"{path}/stop?reason=new+disks", {"outcome": "root.a in partition default is stopped"})
    fake.says(f"{path}/start", {"queue": "root.a"})  # of an older release
    assert yunishard(fake, "queue", "stop", "root.a", "--reason", "new disks") == 0
    assert yunishard(fake, "queue", "start", "root.a") == 0
    assert capsys.readouterr().out.splitlines() == [
        "root.a in partition default is stopped",
        "done",
    ]


def test_a_drain_waits_until_only_what_stays_is_left(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drain = "POST partition/default/node/n1/drain"
    fake.says(drain, {"required": 1, "leaving": 1, "outcome": "one leaves"})
    assert yunishard(fake, "node", "drain", "n1") == 0

    def pass_time(_: float) -> None:
        fake.says("GET partition/default/node/n1", {"nodeID": "n1", "allocations": [{}]})

    monkeypatch.setattr(changes.time, "sleep", pass_time)
    assert yunishard(fake, "node", "drain", "n1", "--wait") == 0
    has_left = "n1 in partition default: everything that had to leave has left"
    assert capsys.readouterr().out.splitlines() == ["one leaves", "1 allocation of n1 left", has_left]
    assert fake.asked.count(drain) == 2, "one for each command"


def test_the_rm_may_remove_a_node_while_it_is_drained(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.says("POST partition/default/node/n1/drain", {"leaving": 2, "outcome": "two leave"})
    gone = lambda _: fake.refuses("GET partition/default/node/n1", 404, "Node not found")  # noqa: E731
    monkeypatch.setattr(changes.time, "sleep", gone)
    assert yunishard(fake, "node", "drain", "n1", "--wait", "--json") == 0
    assert json.loads(capsys.readouterr().out)["leaving"] == 0


def test_a_drain_of_a_node_that_nothing_has_to_leave_ends_at_once(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("POST partition/default/node/n1/drain", {"required": 2, "outcome": "two stay"})
    assert yunishard(fake, "node", "drain", "n1", "--wait") == 0
    assert capsys.readouterr().out == "two stay\n"


def test_a_drain_that_takes_too_long_fails(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    state = {"nodeID": "n1", "partition": "default", "state": "cordoned", "leaving": 2}
    fake.says("POST partition/default/node/n1/drain", state)
    assert yunishard(fake, "node", "drain", "n1", "--wait", "--timeout", "1ns") == 1
    assert "not done in time: 2 allocations of n1 left" in capsys.readouterr().err


def test_a_manager_is_ended_after_confirmation(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("POST rm/rm-1/end?force=true", {"rm": "rm-1", "partitions": ["rm-1_default"]})
    assert yunishard(fake, "rm", "end", "rm-1") == 1
    assert fake.asked[-1] == "GET clusters"
    assert yunishard(fake, "rm", "end", "rm-1", "--yes", "--force") == 0
    assert yunishard(fake, "rm", "end", "rm-2", "--yes") == 1
    out, err = capsys.readouterr()
    assert out == "rm-1 is ended, with its partitions: rm-1_default\n"
    assert "RM rm-2 is not registered (registered: rm-1)" in err
