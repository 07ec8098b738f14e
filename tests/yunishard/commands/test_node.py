"""`yunishard node` against a fake web service."""

import re
from collections.abc import Iterator

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands.display import Screen
from yunishard.cli.main import main

GIB = 1 << 30


def node_row(name: str, used: int, **more: object) -> dict[str, object]:
    return {
        "node": name, "state": "schedulable", "host": f"host-{name}", "rack": "r1", "instanceType": "",
        "partition": "default", "capacity": {"vcore": 4000, "memory": 8 * GIB, "pods": 110},
        "used": {"vcore": used}, "foreign": {"vcore": 500}, "available": {"vcore": 3500 - used},
        "allocations": 3, "reserved": False, "utilization": 37.5, **more,
    }  # fmt: skip


NODES = [node_row("n1", 1000), node_row("n2", 0, state="unschedulable", reserved=True)]


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [{"partition": "default"}])
        yield fake


def node(fake: FakeWeb, *words: str) -> int:
    return main(["node", words[0], "--rest", fake.url, *words[1:]])


def test_nodes_are_listed_with_their_usage(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says_table("nodes", NODES)
    assert node(fake, "list") == 0
    head, first, second = capsys.readouterr().out.splitlines()
    assert head.split() == ["NODE", "STATE", "CAPACITY", "USED", "FOREIGN", "AVAILABLE", "ALLOCS", "USED%"]
    assert first.startswith("n1    schedulable              4 vcore, 8 GiB, 110 pods  1 vcore  0.5 vcore  2.5 vcore")
    assert second.startswith("n2    unschedulable, reserved  4 vcore, ")


def test_a_terminal_gets_bars_with_the_foreign_part(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Screen, "detect", lambda: Screen(is_terminal=True, width=200, height=50))
    fake.says_table("nodes", NODES, query="limit=1000")
    assert node(fake, "list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:7] == ["n1", "schedulable", "####......", "1.5", "/", "4", ".........."]


def test_filters_are_requested(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    query = "text=n&state=reserved&attribute=rack%3Dr1&sort=-available.memory&limit=5"
    fake.says_table("nodes", NODES[1:], query=query)
    words = "n --state reserved --attribute rack=r1 --sort -available.memory --limit 5 -o name"
    assert node(fake, "list", *words.split()) == 0
    assert capsys.readouterr().out == "n2\n"


def test_a_node_is_shown_with_its_allocations(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {
        "nodeID": "n1", "hostName": "host-1", "rackName": "r1", "attributes": {"zone": "z1", "si/io": "x"},
        "capacity": {"vcore": 4000}, "allocated": {"vcore": 1000}, "available": {"vcore": 3000}, "schedulable": True,
        "allocations": [{"allocationKey": "a1", "applicationId": "app-1", "resource": {"vcore": 1000}, "priority": "0",
                         "allocationTime": 1}],
        "foreignAllocations": [{"allocationKey": "f1", "resource": {"vcore": 1}, "priority": "0"}],
        "reservations": ["app-2/ask-1"],
    }  # fmt: skip
    fake.says("GET partition/default/node/n1", shown)
    fake.says_table("nodes", NODES[:1], query="node=n1&limit=10000")
    assert node(fake, "show", "n1") == 0
    out = capsys.readouterr().out
    assert "zone          z1\n" in out
    assert "si/io" not in out
    assert "reserved for  app-2/ask-1\n" in out
    assert "RESOURCE  CAPACITY  USED  FOREIGN  AVAILABLE\nvcore            4     1      0.5        2.5\n" in out
    assert "Allocations (1)\n" in out
    assert "Allocations of other schedulers (1)\n" in out


def test_a_cordoned_node_is_shown_with_who_cordoned_it(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {"nodeID": "n1", "schedulable": True, "cordoned": {"time": 1, "reason": "disk"}}
    fake.says("GET partition/default/node/n1", shown)
    fake.says_table("nodes", [node_row("n1", 0, state="cordoned")], query="node=n1&limit=10000")
    assert node(fake, "show", "n1") == 0
    out = capsys.readouterr().out
    assert "state        cordoned\n" in out
    assert re.search(r"^cordoned +\d+ d ago: disk$", out, re.MULTILINE)


def test_a_missing_node_is_reported_with_the_nearest_one(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("GET partition/default/node/worker1", 404, "Node not found")
    fake.says_table("nodes", [node_row("worker-1", 0)], query="limit=2000")
    assert node(fake, "show", "worker1") == 1
    assert capsys.readouterr().err == "yunishard node show: Node not found: did you mean 'worker-1'?\n"
