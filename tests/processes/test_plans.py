"""A plan of a running system: the worker continues, and what was planned then happens."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import pytest

from tests.deploy.system import FREE_PORTS, eventually, up
from yunishard import BlockingResourceManager, application, ask, node
from yunishard.cli.commands.rest import Rest
from yunishard.cli.main import main
from yunishard.common.rest.plan import PlanView

pytestmark = pytest.mark.processes

QUEUES: Final = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: a}, {name: b}]
"""
CORE: Final = {"vcore": "1", "memory": "1Gi"}
RUNNING: Final = 4


class Running(NamedTuple):
    """A system with two nodes of two cores, which are full, and an ask that waits."""

    rest: str
    rm: BlockingResourceManager


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path_factory.mktemp("system")) as system:
        endpoints = system.announced()
        with BlockingResourceManager(endpoints["native"], rm_id="rm-1", config=QUEUES) as rm:
            rm.update_nodes([node(name, {"vcore": "2", "memory": "8Gi"}) for name in ("n1", "n2")])
            tags = {"yunishard/runTime": "1h"}
            rm.update_applications(
                new=[
                    application("runs", "root.a", user="alice", groups=["staff"], tags=tags),
                    application("waits", "root.b", user="bob", groups=["staff"]),
                ]
            )
            rm.update_allocations(allocations=[ask(f"runs-{one}", "runs", CORE) for one in range(RUNNING)])
            eventually(lambda: count_allocations(endpoints["rest"]) == RUNNING)
            rm.update_allocations(allocations=[ask("waits-1", "waits", CORE)])
            yield Running(endpoints["rest"], rm)
        assert system.stop() == 0


def count_allocations(rest: str) -> int:
    found = Rest(rest).get("partitions").decode(list[dict[str, object]])
    return sum(int(str(one.get("totalContainers", 0))) for one in found)


def plan(running: Running, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> PlanView:
    assert main(["plan", *words, "--rest", running.rest, "--json"]) == status
    return msgspec.json.decode(capsys.readouterr().out, type=PlanView)


def test_a_job_fits_once_allocations_with_an_estimate_have_ended(
    running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    job = ("submit", "--queue", "root.b", "--user", "carol", "--resources", "vcore=1,memory=1Gi", "--run-time", "5m")
    never = plan(running, capsys, *job, "--horizon", "30m", status=3)
    assert [(one.verdict, one.queue) for one in never.jobs] == [("never", "root.b")]
    assert never.jobs[0].explanation is not None
    later = plan(running, capsys, *job, "--horizon", "2h")
    assert later.jobs[0].verdict == "later"
    assert [one.application for one in later.jobs[0].after if one.at == later.jobs[0].first_start][:1] == ["runs"]
    assert 3000 <= (later.jobs[0].first_start - later.at) / 1e9 <= 3600
    assert count_allocations(running.rest) == RUNNING


def test_a_refused_change_has_its_reason(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "remove", "n9", "--partition", "default", "--rest", running.rest]) == 1
    assert "n9" in capsys.readouterr().err
    job = ("submit", "--queue", "root.nowhere", "--user", "carol", "--resources", "vcore=1")
    assert [one.verdict for one in plan(running, capsys, *job, status=3).jobs] == ["rejected"]


def test_what_more_nodes_would_start_then_starts(running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    drained = plan(running, capsys, "drain", "n1")
    assert len(drained.evictions) == 2
    assert {(one.user, one.node) for one in drained.evictions} == {("alice", "n1")}
    lowered = plan(running, capsys, "limit", "root.a", "--max", "vcore=3")
    assert [(one.queue, one.resource, one.used, one.maximum) for one in lowered.excesses] == [
        ("root.a", "vcore", 4000, 3000)
    ]
    grown = plan(running, capsys, "add-nodes", "1", "--resources", "vcore=2,memory=8Gi")
    assert [(one.ask, one.at == grown.at, one.at_baseline > 0) for one in grown.asks] == [
        ("waits-1", True, False)
    ] or grown.asks[0].at < grown.asks[0].at_baseline
    assert count_allocations(running.rest) == RUNNING
    running.rm.update_nodes([node("n3", {"vcore": "2", "memory": "8Gi"})])
    eventually(lambda: count_allocations(running.rest) == RUNNING + 1)
