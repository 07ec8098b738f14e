"""The metrics of the Kubernetes processes: what is counted, the port, and that the documentation lists them."""

import asyncio
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from yunishard.common.process.metrics import Family
from yunishard.common.process.process_metrics import list_families
from yunishard.kubernetes_shim.metrics import AdmissionMetrics, ApiMetrics, ListenFailed, ShimMetrics, serve_metrics

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "metrics.md"
ALERTS = ROOT / "deploy" / "grafana" / "alerts-kubernetes.yaml"
PROMTOOL = shutil.which("promtool")

FORBIDDEN = 'requests_total{method="GET",status="403"}'
ENDS = 'certificate_end_time_seconds{certificate="server"}'
UNVALIDATED = "admission_unvalidated_total"


def count_something() -> tuple[ApiMetrics, ShimMetrics, AdmissionMetrics]:
    api, shim, admission = ApiMetrics(), ShimMetrics(), AdmissionMetrics()
    api.record("GET", 200, 0.02)
    api.record("POST", 0, 0.0)
    api.lists.labels("pods").inc(2)
    shim.has_lease.set(1)
    shim.binds.labels("bound").inc()
    shim.count_waiting = lambda: {"writes": 7}
    shim.count_pods = lambda: {"Scheduling": 5}
    admission.record("mutate", "changed", 0.001)
    admission.ends_at.labels("server").set(1_800_000_000.0)
    return api, shim, admission


def read_families() -> list[Family]:
    return [family for one in count_something() for family in list_families(one.registry)]


def test_requests_are_counted_by_method_and_status_and_timed_if_answered() -> None:
    api, _, _ = count_something()
    counted = {(one.name, *one.labels.values()): one.value for found in api.registry.collect() for one in found.samples}
    assert counted["yunishard_k8s_requests_total", "GET", "200"] == 1
    assert counted["yunishard_k8s_requests_total", "POST", "none"] == 1
    assert [key for key in counted if key[0] == "yunishard_k8s_request_seconds_count"] == [
        ("yunishard_k8s_request_seconds_count", "GET")
    ]


def test_the_port_serves_what_the_client_library_reads_and_health() -> None:
    async def main() -> str:
        port = find_free_port()
        registries = [one.registry for one in count_something()]
        async with serve_metrics(f"127.0.0.1:{port}", "k8s-shim", *registries), aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/health") as answer:
                assert (answer.status, await answer.text()) == (200, "OK")
            accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
            async with session.get(f"http://127.0.0.1:{port}/metrics", headers=accept) as answer:
                assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
                assert len([*read_openmetrics(await answer.text())]) > 10
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                return await answer.text()

    read = {family.name: family for family in text_string_to_metric_families(asyncio.run(main()))}
    assert read["yunishard_process_up"].samples[0].labels == {"process": "k8s-shim"}
    assert read["yunishard_k8s_admission_reviews"].samples[0].labels == {"webhook": "mutate", "outcome": "changed"}


def test_without_an_address_there_is_no_port() -> None:
    async def main() -> None:
        async with serve_metrics("", "k8s-shim"):
            pass

    asyncio.run(main())


def test_a_port_that_is_in_use_is_named_with_its_option() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            with pytest.raises(ListenFailed, match=f"{address} cannot be opened: address already in use; --metrics"):
                async with serve_metrics(address, "k8s-shim"):
                    pass

    asyncio.run(main())


def test_the_documentation_lists_every_metric() -> None:
    families = read_families()
    rows = re.findall(r"^\| `(yunishard_k8s_\w+)` .*$", DOCUMENT.read_text(), re.MULTILINE)
    assert rows == sorted(family.name for family in families)
    for family in families:
        labels = ", ".join(sorted(family.labels))
        assert f"| `{family.name}` | {family.kind} | {labels} | {family.help} |" in DOCUMENT.read_text()


def list_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def test_alerts_ask_for_metrics_and_labels_that_there_are() -> None:
    labels = {family.name: set(family.labels) for family in read_families()}
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
