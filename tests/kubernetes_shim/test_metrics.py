"""The metrics of the Kubernetes processes: what is counted, the port, and that the documentation lists them."""

import asyncio
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from yunishard.common.process.metrics import Family
from yunishard.kubernetes_shim.metrics import AdmissionMetrics, ApiMetrics, ListenFailed, ShimMetrics, serve_metrics

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "deploy" / "grafana" / "alerts-kubernetes.yaml"
PROMTOOL = shutil.which("promtool")

FORBIDDEN = 'requests_total{method="GET",status="403"}'
ENDS = 'certificate_end_time_seconds{certificate="server"}'
UNVALIDATED = "admission_unvalidated_total"


def read_samples(families: Iterable[Family]) -> dict[str, dict[tuple[str, ...], float]]:
    return {family.name: dict(family.samples) for family in families if family.samples}


def count_something() -> tuple[ApiMetrics, ShimMetrics, AdmissionMetrics]:
    api, shim, admission = ApiMetrics(), ShimMetrics(), AdmissionMetrics()
    api.record("GET", 200, 0.02)
    api.record("POST", 0, 0.0)
    api.lists["pods"] += 2
    shim.has_lease = True
    shim.binds["bound"] += 1
    shim.count_waiting = lambda: {"writes": 7}
    shim.count_pods = lambda: {"Scheduling": 5}
    admission.record("mutate", "changed", 0.001)
    admission.ends_at = {"server": 1_800_000_000.0}
    return api, shim, admission


def test_requests_are_counted_by_method_and_status_and_timed_if_answered() -> None:
    api, _, _ = count_something()
    families = list(api.families())
    assert read_samples(families) == {
        "yunishard_k8s_requests_total": {("GET", "200"): 1, ("POST", "none"): 1},
        "yunishard_k8s_lists_total": {("pods",): 2},
    }
    (durations,) = [one.distributions for one in families if one.distributions]
    assert [(labels, sum(counts)) for labels, counts, _ in durations] == [(("GET",), 1)]


def test_the_state_of_the_shim_is_shown() -> None:
    _, shim, _ = count_something()
    assert read_samples(shim.families()) == {
        "yunishard_k8s_shim_active": {(): 1},
        "yunishard_k8s_shim_registered": {(): 0},
        "yunishard_k8s_binds_total": {("bound",): 1},
        "yunishard_k8s_waiting": {("writes",): 7},
        "yunishard_k8s_pods": {("Scheduling",): 5},
    }


def test_the_port_serves_what_the_client_library_reads_and_health() -> None:
    async def main() -> str:
        port = find_free_port()
        sources = [one.families for one in count_something()]
        async with serve_metrics(f"127.0.0.1:{port}", "k8s-shim", sources), aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/health") as answer:
                assert (answer.status, await answer.text()) == (200, "OK")
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return await answer.text()

    read = {family.name: family for family in text_string_to_metric_families(asyncio.run(main()))}
    assert read["yunishard_process_up"].samples[0].labels == {"process": "k8s-shim"}
    assert read["yunishard_k8s_admission_reviews"].samples[0].labels == {"webhook": "mutate", "outcome": "changed"}


def test_without_an_address_there_is_no_port() -> None:
    async def main() -> None:
        async with serve_metrics("", "k8s-shim", []):
            pass

    asyncio.run(main())


def test_a_port_that_is_in_use_is_named_with_its_option() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(ListenFailed, match=f"{address} cannot be opened: address already in use; --metrics"):
                async with serve_metrics(address, "k8s-shim", []):
                    pass

    asyncio.run(main())


def test_the_documentation_lists_every_metric() -> None:
    families = [family for one in count_something() for family in one.families()]
    rows = re.findall(r"^\| `(yunishard_k8s_\w+)` .*$", DOCUMENT.read_text(), re.MULTILINE)
    assert rows == sorted(family.name for family in families)
    for family in families:
        labels = ", ".join(sorted(family.labels))
        assert f"| `{family.name}` | {family.kind} | {labels} | {family.help} |" in DOCUMENT.read_text()


def list_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def test_alerts_ask_for_metrics_and_labels_that_there_are() -> None:
    labels = {family.name: set(family.labels) for one in count_something() for family in one.families()}
    for rule in list_rules():
        asked = re.findall(r"yunishard_k8s_\w+", rule["expr"])
        assert asked
        assert set(asked) <= set(labels)
        shown = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
        assert shown <= {label for name in asked for label in labels[name]}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("alert", "good", "bad"),
    [
        (
            "YunishardShimUnregistered",
            {"shim_active": "1+0x60", "shim_registered": "1+0x60"},
            {"shim_registered": "0+0x60"},
        ),
        ("YunishardShimMissing", {"shim_active": "1+0x60"}, {"shim_active": "0+0x60"}),
        ("YunishardApiServerRefuses", {FORBIDDEN: "0+1x60"}, {FORBIDDEN: "0+60x60"}),
        ("YunishardCertificateEnds", {ENDS: "2000000+0x60"}, {ENDS: "1000000+0x60"}),
        ("YunishardQueuesNotValidated", {UNVALIDATED: "1+0x60"}, {UNVALIDATED: "0+0x5 1+0x60"}),
    ],
)
def test_alerts_fire_when_they_should(alert: str, good: dict[str, str], bad: dict[str, str], tmp_path: Path) -> None:
    def test(values: dict[str, str], *, fires: bool) -> dict[str, Any]:
        series = [{"series": f"yunishard_k8s_{name}", "values": text} for name, text in values.items()]
        at = {"expr": f"count(ALERTS{{alertname='{alert}',alertstate='firing'}}) or vector(0)", "eval_time": "16m"}
        expected = {**at, "exp_samples": [{"labels": "{}", "value": int(fires)}]}
        return {"interval": "1m", "input_series": series, "promql_expr_test": [expected]}

    assert alert in [rule["alert"] for rule in list_rules()]
    file = tmp_path / "tests.yaml"
    tests = [test(good, fires=False), test({**good, **bad}, fires=True)]
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
