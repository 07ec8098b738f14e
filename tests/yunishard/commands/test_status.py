"""`yunishard status` against a fake web service, in good times and bad ones."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.webservice.fakes import HOST
from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.main import main

HEALTHY = {"Healthy": True, "HealthChecks": [{"Name": "Audit", "Succeeded": True, "DiagnosisMessage": "Sums: []"}]}
FAILED = {
    "Name": "Disk space",
    "Succeeded": False,
    "DiagnosisMessage": 'File systems without room: ["/var"]',
    "NextStep": "Delete something.",
}
CLUSTER = {"partition": "default", "rmId": "rm-1", "startTime": 1, "rmBuildInformation": [{"rmId": "rm-1"}]}
PARTITION = {
    "name": "default",
    "clusterId": "rm-1",
    "capacity": {"capacity": {"vcore": 8000, "memory": 1 << 30, "gpu": 4}, "usedCapacity": {"vcore": 2000}},
    "totalNodes": 5,
    "totalContainers": 7,
    "applications": {"Accepted": 3, "New": 1, "Running": 2, "Completing": 1, "Completed": 9, "total": 16},
    "state": "Active",
}


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", [CLUSTER])
        fake.says("GET partitions", [PARTITION])
        fake.says("GET scheduler/healthcheck", HEALTHY)
        fake.says("GET hosts", {"hosts": [HOST], "rebalancing": False})
        yield fake


def run(fake: FakeWeb, *words: str) -> int:
    return main(["status", "--rest", fake.url, *words])


def attention(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    assert run(fake, "--json") == 1
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)["attention"]
    return found


def test_a_healthy_system_is_status_0_and_fits_on_one_screen(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fake) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"yunishard 1.0 · {fake.url} · up ")
    assert lines[0].endswith("1 of 1 health check passed")
    assert lines[1] == "Nothing needs attention."
    table = lines[lines.index("") + 1 :]
    assert re.split(r"  +", table[0])[2:] == ["NODES", "RUNNING", "WAITING", "ALLOCS", "VCORE", "MEMORY"]
    assert table[1].split()[:6] == ["default", "active", "5", "3", "4", "7"]
    assert "25 % 2 of 8" in table[1]
    assert len(lines) < 24


def test_what_needs_attention_comes_first_with_the_next_step(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{**CLUSTER, "awaySince": 10**18}])
    fake.says("GET scheduler/healthcheck", {"Healthy": False, "HealthChecks": [FAILED]})
    assert run(fake) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:5] == [
        "2 problems need attention:",
        '  ! Disk space: File systems without room: ["/var"]',
        "    next: Delete something.",
        lines[4],
    ]
    assert lines[4].startswith("  ! RM rm-1 is away since ")


def test_a_silent_partition_and_a_lost_host_need_attention(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    silent = {"name": "gpu", "clusterId": "rm-1", "state": "Silent", "applications": {"total": 0}}
    failed = {"Name": "Partitions", "Succeeded": False, "DiagnosisMessage": 'Partitions that do not answer: ["gpu"]'}
    fake.says("GET partitions", [PARTITION, silent])
    fake.says("GET scheduler/healthcheck", {"Healthy": False, "HealthChecks": [failed]})
    fake.says("GET hosts", {"hosts": [HOST, {**HOST, "name": "b", "state": "lost"}], "rebalancing": False})
    texts = [one["what"] for one in attention(fake, capsys)]
    assert len(texts) == 2
    assert texts[0] == "partition gpu does not answer: nothing is placed in it"
    assert texts[1].startswith("host b is lost, last seen ")
    assert run(fake) == 1
    lines = capsys.readouterr().out.splitlines()
    assert next(line for line in lines if line.startswith("gpu")).split()[:2] == ["gpu", "silent"]
    assert any(line.startswith("b  ") for line in lines)


def test_a_broker_that_does_not_answer_needs_attention(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("clusters", "scheduler/healthcheck", "hosts"):
        fake.refuses(f"GET {what}", 503, "the broker does not answer")
    assert [one["what"] for one in attention(fake, capsys)] == [
        f"{what} cannot be read: the broker does not answer" for what in ("clusters", "health", "hosts")
    ]


def test_what_the_caller_may_not_see_is_named(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.refuses("GET hosts", 403, "not permitted")
    fake.refuses("GET metrics", 403, "not permitted")
    assert run(fake, "--processes") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Only scheduler administrators see: hosts, processes"


def test_processes_are_shown_on_request(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET metrics", 'yunishard_process_up{process="broker"} 1\n')
    assert run(fake, "--processes") == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:3] == ["broker", "-", "up"]


def test_without_resource_managers_the_next_step_is_shown(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [])
    assert run(fake) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("No resource manager has registered a partition yet")


def test_no_answer_and_no_permission_are_status_2(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--rest", "http://127.0.0.1:1"]) == 2
    assert "connection refused" in capsys.readouterr().err
    fake.refuses("GET clusters", 401, "Unauthorized. Authenticate")
    assert run(fake) == 2
    assert "--token-file FILE" in capsys.readouterr().err


def test_many_partitions_are_cut_and_those_that_are_silent_come_first(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = {"name": "last", "clusterId": "rm-1", "state": "Silent"}
    fake.says("GET partitions", [*({**PARTITION, "name": f"p{number}"} for number in range(30)), silent])
    assert run(fake) == 1
    out = capsys.readouterr().out
    assert out.index("last  ") < out.index("p0  ")
    assert "and 11 partitions more; --json has all" in out
