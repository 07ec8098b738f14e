"""Each alert fires when it should and not before, as `promtool` computes it, and the page of a busy system passes its
checks. Without `promtool` (Debian's package `prometheus`), only that every alert has a case is checked.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from tests.metrics.test_dashboard import GRAFANA, rules

ALERTS: Final = GRAFANA / "alerts.yaml"
PROMTOOL: Final = shutil.which("promtool")
needs_promtool: Final = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")

LINT_OF_YUNIKORN: Final = (
    'counter metrics should have "_total" suffix',
    'non-counter metrics should not have "_total" suffix',
    'use base unit "seconds" instead of "milliseconds"',
)
"""What promtool objects to in YuniKorn's names, which stay as they are."""


class Case(NamedTuple):
    """Values of a series, one a minute, until the alert fires."""

    series: str
    good: str
    """Values with which it never fires, in promtool's notation."""
    bad: str
    """Values that are wrong from the 20th minute on."""
    quiet: str
    """The last time at which it does not fire yet."""
    fires: str
    labels: dict[str, str]
    summary: str


def rising(good: str, bad: str, *, fires: str = "20m", quiet: str = "19m") -> tuple[str, str, str, str]:
    """The good value for 20 minutes, then the bad one."""
    return f"{good}x90", f"{good}x19 {bad}x70", quiet, fires


WORKER: Final = {"process": "partition_worker", "partition": "rm-1_default"}
LABELS: Final = '{process="partition_worker",partition="rm-1_default"}'
PARTITION: Final = {"partition": "rm-1_default"}
IN_PARTITION: Final = '{partition="rm-1_default"}'

CASES: Final = {
    "YunishardProcessDown": Case(
        f"yunishard_process_up{LABELS}",
        *rising("1+0", "0+0", quiet="20m", fires="21m"),
        WORKER,
        "partition_worker rm-1_default does not answer",
    ),
    "YunishardPartitionDown": Case(
        'yunishard_partition_up{partition="rm-1_default",rm="rm-1"}',
        *rising("1+0", "0+0", quiet="20m", fires="21m"),
        {**PARTITION, "rm": "rm-1"},
        "Partition rm-1_default does not answer, so nothing is placed in it",
    ),
    "YunishardJournalStuck": Case(
        f"yunishard_journal_stuck{IN_PARTITION}",
        *rising("0+0", "1+0", quiet="20m", fires="21m"),
        PARTITION,
        "The journal of partition rm-1_default cannot be written, so no result is sent",
    ),
    "YunishardPoisonMessage": Case(
        f"yunishard_poison_messages_total{IN_PARTITION}",
        *rising("0+0", "1+0"),
        PARTITION,
        "A message ended the worker of partition rm-1_default twice and was set aside",
    ),
    "YunishardWritesSlow": Case(
        'yunishard_write_slowest_seconds{what="record"}',
        *rising("0.9+0", "2+0", quiet="29m", fires="30m"),
        {"what": "record"},
        "A write of the record  takes up to 2s",
    ),
    "YunishardRecordRefused": Case(
        'yunishard_broker_record_writes_total{outcome="refused"}',
        *rising("3+0", "4+0"),
        {"outcome": "refused"},
        "The broker cannot write its record",
    ),
    "YunishardRmAway": Case(
        'yunishard_rm_away_seconds{rm="rm-1"}',
        *rising("0+0", "90+0"),
        {"rm": "rm-1"},
        "Resource manager rm-1 has been away for 1m 30s",
    ),
    "YunishardNodesForNoPartition": Case(
        'yunishard_rm_failed_nodes_total{rm="rm-1"}',
        *rising("0+0", "1+0"),
        {"rm": "rm-1"},
        "Resource manager rm-1 registers nodes for a partition that it does not have",
    ),
    "YunishardSumsDrifted": Case(
        f"yunishard_audit_drift_total{IN_PARTITION}",
        *rising("0+0", "1+0"),
        PARTITION,
        "A sum in partition rm-1_default is not that of its allocations",
    ),
    "YunishardRestarts": Case(
        'yunishard_supervisor_restarts_total{role="worker",cause="ended"}',
        *rising("0+0", "15+0", quiet="19m", fires="20m"),
        {"role": "worker", "cause": "ended"},
        "worker restarted 15 times in 15 minutes (ended)",
    ),
    "YunishardWorkerHung": Case(
        "yunishard_broker_leases_renewed_total",
        *rising("0+0", "1+0"),
        {},
        "A worker was silent for longer than its lease and was replaced",
    ),
    "YunishardPartitionLost": Case(
        'yunishard_broker_recoveries_total{found="lost"}',
        *rising("0+0", "1+0"),
        {"found": "lost"},
        "A partition lost its state, and its resource manager reports everything again",
    ),
    "YunishardLoopLag": Case(
        f"yunishard_process_loop_lag_max_seconds{LABELS}",
        *rising("0.1+0", "3+0", quiet="24m", fires="25m"),
        WORKER,
        "partition_worker rm-1_default is late by up to 3s",
    ),
    "YunishardMemoryNearBound": Case(
        f"yunishard_process_memory_bound_ratio{LABELS}",
        *rising("0.5+0", "0.95+0", quiet="24m", fires="25m"),
        WORKER,
        "partition_worker rm-1_default uses 95% of its tightest memory bound",
    ),
    "YunishardClockJumped": Case(
        'yunishard_process_clock_jumps_total{process="webservice"}',
        *rising("0+0", "1+0"),
        {"process": "webservice"},
        "The clock of the machine jumped",
    ),
    "YunishardRmDoesNotAcknowledge": Case(
        f"yunishard_outbox_messages{IN_PARTITION}",
        *rising("1023+0", "1024+0", quiet="20m", fires="21m"),
        PARTITION,
        "Partition rm-1_default places nothing, as its resource manager acknowledges no results",
    ),
    "YunishardReadersCutOff": Case(
        "yunishard_event_readers_cut_off_total",
        *rising("0+0", "1+0"),
        {},
        "A client read an event stream too slowly and was disconnected",
    ),
    "YunishardHistoryBehind": Case(
        "yunishard_history_lag_seconds",
        *rising("1+0", "180+0"),
        {},
        "Nothing was recorded in the history for 3m 0s",
    ),
    "YunishardHostLost": Case(
        'yunishard_hosts{state="lost"}',
        *rising("0+0", "2+0", quiet="20m", fires="21m"),
        {"state": "lost"},
        "2 of the hosts are silent or have stopped",
    ),
    "YunishardLeaderChanges": Case(
        "yunishard_broker_incarnation",
        "7+0x90",
        "7+0x19 8 9 10 10+0x60",
        "21m",
        "22m",
        {},
        "The leading broker changed 3 times in 15 minutes",
    ),
}
"""The alerts about one series."""

SEVERAL: Final = ("YunishardSilent", "YunishardJournalSlow", "YunishardLoopStalled")
"""The alerts whose values depend on each other: `build_special_tests`."""

Document = dict[str, object]


def expect(alert: str, time: str, labels: dict[str, str], summary: str) -> Document:
    """An alert that fires at a time; without a summary, none does."""
    [rule] = [rule for rule in rules() if rule["alert"] == alert]
    texts = {**rule["annotations"], "summary": summary}
    fired = [{"exp_labels": {**rule["labels"], **labels}, "exp_annotations": texts}] if summary else []
    return {"eval_time": time, "alertname": alert, "exp_alerts": fired}


def build_tests(alert: str, case: Case) -> list[Document]:
    good = {
        "input_series": [{"series": case.series, "values": case.good}],
        "alert_rule_test": [expect(alert, "90m", {}, "")],
    }
    bad = {
        "input_series": [{"series": case.series, "values": case.bad}],
        "alert_rule_test": [expect(alert, case.quiet, {}, ""), expect(alert, case.fires, case.labels, case.summary)],
    }
    return [{"interval": "1m", **good}, {"interval": "1m", **bad}]


def build_special_tests() -> list[Document]:
    """Those of an alert about missing series, a quotient and a rate."""
    silent, slow, stalled = SEVERAL
    up = {"series": 'yunishard_process_up{process="broker"}', "values": "1+0x10 _x60"}
    absent = [expect(silent, "10m", {}, ""), expect(silent, "20m", {}, "Prometheus has no metrics of yunishard")]
    sums = {"series": f"yunishard_journal_commit_seconds_sum{IN_PARTITION}", "values": "0+0.6x20 12.6+15x60"}
    counts = {"series": f"yunishard_journal_commit_seconds_count{IN_PARTITION}", "values": "0+60x80"}
    late = "The disk takes 250ms for a transaction of partition rm-1_default"
    checks = {"series": f"yunishard_process_loop_checks_total{LABELS}", "values": "0+120x20 2430+30x60"}
    rare = "The event loop of partition_worker rm-1_default runs only 500m checks a second"
    return [
        {"interval": "1m", "input_series": [up], "alert_rule_test": absent},
        {
            "interval": "1m",
            "input_series": [sums, counts],
            "alert_rule_test": [expect(slow, "20m", {}, ""), expect(slow, "50m", PARTITION, late)],
        },
        {
            "interval": "1m",
            "input_series": [checks],
            "alert_rule_test": [expect(stalled, "20m", {}, ""), expect(stalled, "40m", WORKER, rare)],
        },
    ]


def run_promtool(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, *words], input=text, capture_output=True, text=True, check=False, timeout=60)


def test_every_alert_has_a_case() -> None:
    assert {*CASES, *SEVERAL} == {rule["alert"] for rule in rules()}


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    done = run_promtool("check", "rules", str(ALERTS))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    tests = [test for alert, case in CASES.items() for test in build_tests(alert, case)]
    file = tmp_path / "tests.yaml"
    document = {"rule_files": [str(ALERTS.resolve())], "tests": [*tests, *build_special_tests()]}
    file.write_text(yaml.safe_dump(document))
    done = run_promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.processes
def test_promtool_accepts_the_page_of_a_busy_system_but_for_names_of_yunikorn(text: str) -> None:
    done = run_promtool("check", "metrics", text=text)
    assert done.returncode in (0, 3), done.stderr
    found = [line.split(" ", 1) for line in (done.stdout + done.stderr).splitlines()]
    assert [line for line in found if not line[0].startswith("yunikorn_") or line[1] not in LINT_OF_YUNIKORN] == []
