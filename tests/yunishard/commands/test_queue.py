"""`yunishard queue` against a fake web service."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands.display import Screen
from yunishard.cli.main import main

GIB = 1 << 30


def queue_row(path: str, used: int | None, maximum: int | None, **more: object) -> dict[str, object]:
    return {
        "queue": path,
        "state": "active",
        "leaf": True,
        "managed": True,
        "used": None if used is None else {"vcore": used, "memory": used * GIB // 1000},
        "guaranteed": None,
        "maximum": None if maximum is None else {"vcore": maximum},
        "pending": {},
        "headroom": None,
        "runningApplications": 2,
        "maxApplications": None,
        "applications": 3,
        "priority": None,
        **more,
    }


QUEUES = [
    queue_row("root", 30_000, 40_000, pending={"vcore": 20_000}),
    queue_row("root.a", 30_000, 30_000, guaranteed={"vcore": 10_000}, maxApplications=10),
    queue_row("root.a.x", 30_000, None, pending={"vcore": 20_000}),
    queue_row("root.hidden", None, None, pending=None, runningApplications=None),
]


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


def queue(fake: FakeWeb, *words: str) -> int:
    return main(["queue", words[0], "--rest", fake.url, *words[1:]])


def test_a_pipe_gets_full_paths_and_amounts(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table("queues", QUEUES)
    assert queue(fake, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["QUEUE", "STATE", "USED", "GUARANTEED", "MAXIMUM", "PENDING", "RUNNING"]
    assert lines[2].split("  ")[0] == "root.a"
    assert "30 vcore, 30 GiB  10 vcore    30 vcore  0          2 / 10" in lines[2]
    assert lines[4].split() == ["root.hidden", "active", "-", "-", "-", "-", "-"]


def test_a_terminal_gets_a_tree_with_bars(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen(is_terminal=True, has_blocks=True, width=200, height=50)
    monkeypatch.setattr(Screen, "detect", lambda: screen)
    fake.says_table("queues", QUEUES, query="limit=1000")
    assert queue(fake, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["QUEUE", "STATE", "VCORE", "MEMORY", "GUARANTEED", "PENDING", "RUNNING"]
    assert lines[1].startswith("root      active  ████████▒▒ 30 / 40  ██████████ 30 GiB")
    assert lines[2].startswith("  a       active  ███│██████ 30 / 30  ")
    assert lines[3].startswith("    x     active  ██████████ 30  ")  # the scale is the maximum of root.a
    assert lines[4].split() == ["hidden", "active", "-", "-", "-", "-", "-"]


def test_a_sorted_list_is_no_tree(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Screen, "detect", lambda: Screen(is_terminal=True, width=200, height=50))
    fake.says_table("queues", QUEUES, query="sort=-used&limit=1000")
    assert queue(fake, "list", "--sort", "-used") == 0
    assert "\nroot.a.x  " in capsys.readouterr().out


def test_a_part_of_the_tree_is_requested(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table("queues", QUEUES[1:3], query="queue=root.a&subtree=true&limit=10000")
    assert queue(fake, "list", "root.a", "-o", "name") == 0
    assert capsys.readouterr().out == "root.a\nroot.a.x\n"


def test_csv_has_amounts_in_base_units(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table("queues", QUEUES[:1])
    assert queue(fake, "list", "--csv") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.startswith("queue,state,leaf,managed,used.vcore,used.memory,guaranteed.vcore,")
    assert row.startswith(f"root,active,true,true,30000,{30 * GIB},,,40000,,20000,,,,2,")


QUEUE = {
    "queuename": "root.a",
    "status": "Active",
    "isLeaf": False,
    "isManaged": True,
    "allocatedResource": {"vcore": 30_000},
    "maxResource": {"vcore": 30_000},
    "runningApps": 2,
    "maxRunningApps": 10,
    "sortingPolicy": "fifo",
    "preemptionEnabled": True,
    "preemptionDelay": "30s",
    "properties": {"application.sort.policy": "fifo"},
}


def test_a_queue_is_shown_with_the_queues_below(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET partition/default/queue/root.a", QUEUE)
    fake.says_table("queues", QUEUES[1:2], query="queue=root.a&limit=10000")
    fake.says_table("queues", QUEUES[1:3], query="queue=root.a&subtree=true&limit=10000")
    fake.says_table("applications", [], query="queue=root.a&subtree=true&sort=-pending&limit=10")
    assert queue(fake, "show", "root.a") == 0
    out = capsys.readouterr().out
    assert "running applications     2 / 10\n" in out
    assert "preemption               after 30s\n" in out
    assert "RESOURCE    USED  GUARANTEED  MAXIMUM  PENDING\nvcore         30          10       30        -\n" in out
    assert "Queues below (1)\n" in out
    assert "\nroot.a.x  " in out
    assert queue(fake, "show", "root.a", "--json") == 0
    assert json.loads(capsys.readouterr().out) == QUEUE


def test_a_stopped_queue_is_shown_with_who_stopped_it(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    mark = {"user": "alice", "time": 1, "reason": "maintenance"}
    fake.says("GET partition/default/queue/root.a", {**QUEUE, "isLeaf": True, "stopped": mark, "drainingSince": 1})
    fake.says_table("queues", [queue_row("root.a", 1, 2, state="stopped")], query="queue=root.a&limit=10000")
    fake.says_table("applications", [], query="queue=root.a&subtree=true&sort=-pending&limit=10")
    assert queue(fake, "show", "root.a") == 0
    out = capsys.readouterr().out
    assert re.search(r"^state +stopped$", out, re.MULTILINE)
    assert re.search(r"^stopped +\d+ d ago by alice: maintenance$", out, re.MULTILINE)
    assert re.search(r"^draining +\d+ d ago$", out, re.MULTILINE)


def test_a_missing_queue_is_reported_with_the_nearest_one(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("GET partition/default/queue/root.hiden", 404, "Queue not found")
    fake.says_table("queues", QUEUES, query="limit=2000")
    assert queue(fake, "show", "root.hiden") == 1
    assert capsys.readouterr().err == "yunishard queue show: Queue not found: did you mean 'root.hidden'?\n"


def test_a_missing_partition_is_reported_with_the_nearest_one(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.refuses("GET partition/defalt/table/queues?limit=10000", 404, "Partition not found")
    assert queue(fake, "list", "--partition", "defalt") == 1
    told = capsys.readouterr().err
    assert told.endswith("Partition not found: defalt (partitions: default); did you mean 'default'?\n")
