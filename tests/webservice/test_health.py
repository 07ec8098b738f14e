"""The health of all partitions together, compared with YuniKorn's answers."""

import asyncio
import json
import os
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from tests.full_disk import full_disk
from tests.webservice.fakes import FakeLink, partition, request
from yunishard.common.messages.query_messages import (
    Answer,
    ConfigRefusals,
    ManagerEntry,
    ProcessHealth,
    Query,
    RefusedChange,
)
from yunishard.common.process.health import WriteTimes
from yunishard.common.settings import Settings
from yunishard.webservice import audit, health
from yunishard.webservice.audit import PROBE_S, AuditFile, AuditLog
from yunishard.webservice.calls import Services
from yunishard.webservice.health import (
    NONE_REGISTERED,
    PROCESSES_MAX,
    SystemProblems,
    find_storage_problems,
    health_view,
)
from yunishard.webservice.history.queries import HistoryReader
from yunishard.webservice.views import RequestError

SOUND: Final[dict[str, object]] = {
    "rm_errors": {},
    "negative": 0,
    "inconsistent": False,
    "nodes": 4,
    "reservations": 3,
    "negative_nodes": [],
    "inconsistent_nodes": [],
    "orphans_on_nodes": [],
    "orphans_of_applications": [],
    "drift": [],
}


def answer(**more: object) -> Answer:
    return Answer(status=200, body=json.dumps({**SOUND, **more}).encode())


def diagnoses(*answers: tuple[str, Answer]) -> list[str]:
    return [check.DiagnosisMessage for check in health_view(answers).HealthChecks]


def failed(**more: object) -> list[str]:
    shown = health_view([("rm-1_default", answer(**more))])
    wrong = [check.DiagnosisMessage for check in shown.HealthChecks if not check.Succeeded]
    assert shown.Healthy == (not wrong)
    return wrong


def reported(**known: object) -> SystemProblems:
    """The problems that the broker reports."""
    return SystemProblems(known=replace(NONE_REGISTERED, **known))


def test_names_are_hidden_from_limited_viewers() -> None:
    wrong: dict[str, object] = {
        "orphans_on_nodes": ["ask-of-bert"],
        "orphans_of_applications": ["ask-of-bert", "ask-of-adam"],
        "drift": ["root.secret: 1 instead of 2"],
        "journal_problem": "/var/lib/secret: no space left",
    }
    shown = health_view([("rm-1_default", answer(**wrong))], whole=False)
    assert [check.DiagnosisMessage for check in shown.HealthChecks if not check.Succeeded] == [
        "Orphan allocations: [(hidden)]",
        "OrphanAllocations: [(hidden) (hidden)]",
        'Sums that drifted: ["rm-1_default: (hidden)"]',
        'Journals that take nothing: ["rm-1_default: (hidden)"]',
    ]
    assert not shown.Healthy


def test_paths_are_hidden_from_limited_viewers() -> None:
    problems = SystemProblems(
        known=replace(NONE_REGISTERED, partitions=[partition(problem="/var: full")], record_problem="/var: full"),
        space=("/var: full",),
        audit="/var/audit.log: full",
        history="/var/history: full",
    )
    shown = health_view([("rm-1_default", answer())], problems, whole=False)
    assert [check.DiagnosisMessage for check in shown.HealthChecks if not check.Succeeded] == [
        'Workers that cannot start: ["rm-1_default: (hidden)"]',
        'File systems without room: ["(hidden)"]',
        'Writes of the record that failed: ["(hidden)"]',
        'Writes of the audit log that failed: ["(hidden)"]',
        'Problems of the history: ["(hidden)"]',
    ]


@pytest.mark.parametrize(
    ("problems", "name", "diagnosis"),
    [
        (
            reported(
                partitions=[partition("rm-1", "b", problem="disk full"), partition("rm-2", "b", problem="locked")]
            ),
            "Workers",
            'Workers that cannot start: ["rm-1_b: disk full" "rm-2_b: locked"]',
        ),
        (
            reported(partitions=[replace(partition("rm-1", "b"), ending="SIGKILL")]),
            "Workers",
            'Workers that cannot start: ["rm-1_b: its last worker ended before it was ready: SIGKILL"]',
        ),
        (
            SystemProblems(space=("/s: 1.0 MiB free",)),
            "Disk space",
            'File systems without room: ["/s: 1.0 MiB free"]',
        ),
        (reported(record_problem="disk full"), "Broker record", 'Writes of the record that failed: ["disk full"]'),
        (
            reported(refused={"a": "vm-2 (10.0.0.9), 2 times, last at 2026-11-29T19:20:00Z"}),
            "Hosts",
            'Machines that were refused: ["a: vm-2 (10.0.0.9), 2 times, last at 2026-11-29T19:20:00Z"]',
        ),
        (
            SystemProblems(audit="/s/audit.log: disk full"),
            "Audit log",
            'Writes of the audit log that failed: ["/s/audit.log: disk full"]',
        ),
        (
            SystemProblems(history="disk full"),
            "History",
            'Problems of the history: ["disk full"]',
        ),
    ],
)
def test_what_all_processes_need_is_checked_too(problems: SystemProblems, name: str, diagnosis: str) -> None:
    shown = health_view([("rm-1_default", answer())], problems)
    [wrong] = [check for check in shown.HealthChecks if not check.Succeeded]
    assert (shown.Healthy, wrong.Name, wrong.DiagnosisMessage) == (False, name, diagnosis)


def test_each_process_reports_slow_writes_its_clock_and_its_memory() -> None:
    known = replace(NONE_REGISTERED, process=ProcessHealth(slow_writes="a write has been under way for 9 s"))
    problems = SystemProblems(known=known, slow_writes=("history: slow",), process=ProcessHealth(clock="set back"))
    worker = {"process": {"memory": "the host: 95 of 100 MiB are in use", "clock": "set forward"}}
    shown = health_view([("rm-1_default", answer(**worker))], problems)
    assert [(check.Name, check.DiagnosisMessage) for check in shown.HealthChecks if not check.Succeeded] == [
        ("Disk speed", 'Slow writes: ["history: slow" "broker: a write has been under way for 9 s"]'),
        ("Clock", 'Clocks that jumped: ["webservice: set back" "rm-1_default: set forward"]'),
        ("Memory", 'Memory near its bound: ["rm-1_default: the host: 95 of 100 MiB are in use"]'),
    ]


def test_many_processes_with_the_same_problem_are_counted() -> None:
    answers = [(f"rm-1_{number}", answer(process={"clock": "set back"})) for number in range(PROCESSES_MAX + 3)]
    [wrong] = [check for check in health_view(answers).HealthChecks if not check.Succeeded]
    assert wrong.DiagnosisMessage.count("set back") == PROCESSES_MAX
    assert wrong.DiagnosisMessage.endswith(' "and 3 more processes"]')


REFUSED: Final = RefusedChange(
    rm_id="rm-1", origin="api", author="alice", reason="no root", at_ns=1_700_000_000 * 10**9
)


def test_an_edit_of_the_watched_file_that_is_not_in_force_is_a_failure() -> None:
    refusals = ConfigRefusals(file="/q.yaml: line 3", keeping={"rm-1": "a is in use"}, latest=REFUSED)
    shown = health_view([("rm-1_default", answer())], reported(refusals=refusals))
    [wrong] = [check for check in shown.HealthChecks if not check.Succeeded]
    assert wrong.Name == "Configuration"
    assert wrong.DiagnosisMessage == (
        'Texts of the watched file that are not in force: ["/q.yaml: line 3" "rm-1: a is in use"],'
        " latest refused change: api of rm-1 at 2023-11-14T22:13:20Z: no root"
    )
    hidden = health_view([], reported(refusals=refusals), whole=False).HealthChecks[20].DiagnosisMessage
    assert not {"/q.yaml", "a is in use", "no root"} & set(hidden.split())


def test_a_refused_change_alone_is_shown_and_is_no_failure() -> None:
    shown = health_view([("rm-1_default", answer())], reported(refusals=ConfigRefusals(latest=REFUSED)))
    assert shown.Healthy
    assert shown.HealthChecks[20].DiagnosisMessage.endswith("api of rm-1 at 2023-11-14T22:13:20Z: no root")


def test_a_failed_check_has_a_next_step_and_a_good_one_has_none() -> None:
    link = FakeLink(partition(), worker=lambda _: answer(journal_problem="disk full"))
    checks = request(link, "/ws/v1/scheduler/healthcheck").json()["HealthChecks"]
    steps = {check["Name"]: check["NextStep"] for check in checks if "NextStep" in check}
    assert steps == {
        "Journals": "Free room on the disk, or correct what the message names; the partition continues within a second"
    }


def test_why_a_worker_cannot_start_and_the_record_not_be_written_comes_from_the_broker() -> None:
    link = FakeLink(
        partition(problem="disk full"),
        worker=lambda _: Answer(status=503, body=b"not there"),
        record_problem="disk is full",
    )
    response = request(link, "/ws/v1/scheduler/healthcheck")
    wrong = [check["DiagnosisMessage"] for check in response.json()["HealthChecks"] if not check["Succeeded"]]
    assert (response.status_code, wrong) == (
        200,
        [
            'Partitions that do not answer: ["rm-1_default"]',
            'Workers that cannot start: ["rm-1_default: disk full"]',
            'Writes of the record that failed: ["disk is full"]',
        ],
    )


def test_a_sound_system_shows_the_nine_checks_of_yunikorn_and_fifteen_more() -> None:
    shown = health_view([("rm-1_default", answer())])
    assert shown.Healthy
    assert [(check.Name, check.DiagnosisMessage) for check in shown.HealthChecks] == [
        ("Scheduling errors", "There were 0 scheduling errors logged in the metrics"),
        ("Failed nodes", "There were 0 failed nodes logged in the metrics"),
        ("Negative resources", "Partitions with negative resources: []"),
        ("Negative resources", "Nodes with negative resources: []"),
        ("Consistency of data", "Partitions with inconsistent data: []"),
        ("Consistency of data", "Nodes with inconsistent data: []"),
        ("Reservation check", "Reservation/node nr ratio: [0.750000]"),
        ("Orphan allocation on node check", "Orphan allocations: []"),
        ("Orphan allocation on app check", "OrphanAllocations: []"),
        ("Audit", "Sums that drifted: []"),
        ("Partitions", "Partitions that do not answer: []"),
        ("Journals", "Journals that take nothing: []"),
        ("Resource managers", "Away: [], partitions that resume: []"),
        ("Workers", "Workers that cannot start: []"),
        ("Disk space", "File systems without room: []"),
        ("Broker record", "Writes of the record that failed: []"),
        ("Audit log", "Writes of the audit log that failed: []"),
        ("History", "Problems of the history: []"),
        ("Poison messages", "Messages that were quarantined: []"),
        ("Disk speed", "Slow writes: []"),
        ("Configuration", "Texts of the watched file that are not in force: []"),
        ("Clock", "Clocks that jumped: []"),
        ("Memory", "Memory near its bound: []"),
        ("Hosts", "Machines that were refused: []"),
    ]


@pytest.mark.parametrize(
    ("more", "diagnosis"),
    [
        ({"negative": 2}, 'Partitions with negative resources: ["rm-1_default" "rm-1_default"]'),
        ({"negative_nodes": ["n1", "n2"]}, 'Nodes with negative resources: ["n1" "n2"]'),
        ({"inconsistent": True}, 'Partitions with inconsistent data: ["rm-1_default"]'),
        ({"inconsistent_nodes": ["n1"]}, 'Nodes with inconsistent data: ["n1"]'),
        ({"orphans_on_nodes": ["one", "two"]}, "Orphan allocations: [one two]"),
        ({"orphans_of_applications": ["one"]}, "OrphanAllocations: [one]"),
        ({"journal_problem": "no room"}, 'Journals that take nothing: ["rm-1_default: no room"]'),
        ({"poison": "NodeRequest ..."}, 'Messages that were quarantined: ["rm-1_default: NodeRequest ..."]'),
        ({"drift": ["queue root: ..."]}, 'Sums that drifted: ["rm-1_default: queue root: ..."]'),
    ],
)
def test_each_check_can_fail_with_its_diagnosis(more: dict[str, object], diagnosis: str) -> None:
    assert failed(**more) == [diagnosis]


def test_partitions_are_counted_together() -> None:
    told = diagnoses(
        ("rm-1_a", answer(rm_errors={"unknown-node": 1})),
        ("rm-1_b", answer(rm_errors={"unknown-application": 2, "no-resources": 1}, nodes=0, reservations=0)),
    )
    assert told[0] == (
        "There were 4 scheduling errors logged in the metrics, by resource managers within the last 10 minutes:"
        ' ["rm-1_a: 1 unknown-node" "rm-1_b: 2 unknown-application" "rm-1_b: 1 no-resources"]'
    )
    assert told[6] == "Reservation/node nr ratio: [0.750000 NaN]"


def test_errors_of_resource_managers_are_no_failure() -> None:
    shown = health_view([("rm-1_default", answer(rm_errors={"negative-resources": 7}))])
    assert shown.Healthy
    assert "7 negative-resources" in shown.HealthChecks[0].DiagnosisMessage


def test_nodes_of_the_same_name_are_shown_with_their_partition() -> None:
    told = diagnoses(("rm-1_a", answer(negative_nodes=["n1"])), ("rm-2_a", answer(negative_nodes=["n1"])))
    assert told[3] == 'Nodes with negative resources: ["rm-1_a: n1" "rm-2_a: n1"]'


def test_disconnected_and_resuming_managers_are_no_failure() -> None:
    shown = health_view(
        [("rm-1_default", answer(syncing=True))], reported(managers=[ManagerEntry("rm-2", away_since_ns=1)])
    )
    assert shown.Healthy
    assert shown.HealthChecks[12].DiagnosisMessage == ('Away: ["rm-2"], partitions that resume: ["rm-1_default"]')


def test_a_silent_partition_is_a_failure_and_hides_no_other() -> None:
    def worker(query: Query) -> Answer:
        return answer() if query.name == "a" else Answer(status=503, body=b"starting")

    two = FakeLink(partition("rm-1", "a"), partition("rm-2", "b"), worker=worker)
    shown = request(two, "/ws/v1/scheduler/healthcheck").json()
    assert [check["DiagnosisMessage"] for check in shown["HealthChecks"] if not check["Succeeded"]] == [
        'Partitions that do not answer: ["rm-2_b"]'
    ]


def test_without_partitions_the_system_is_healthy() -> None:
    body = request(FakeLink(), "/ws/v1/scheduler/healthcheck").json()
    assert body["Healthy"] is True
    assert body["HealthChecks"][6]["DiagnosisMessage"] == "Reservation/node nr ratio: []"


def test_every_partition_is_asked_and_the_status_is_200_for_the_unhealthy_too() -> None:
    link = FakeLink(partition(), partition("rm-2"), worker=lambda _: answer(inconsistent=True))
    response = request(link, "/ws/v1/scheduler/healthcheck")
    assert (response.status_code, response.json()["Healthy"]) == (200, False)
    assert [(to, query.what) for to, query in link.asked] == [("rm-1_default", "health"), ("rm-2_default", "health")]


def test_a_partition_that_does_not_answer_makes_no_health() -> None:
    def worker(query: Query) -> Answer:
        return Answer(status=503, body=b"the partition is starting")

    response = request(FakeLink(partition(), worker=worker), "/ws/v1/scheduler/healthcheck")
    assert (response.status_code, response.json()["Healthy"]) == (200, False)


def test_an_unreadable_answer_is_an_error() -> None:
    with pytest.raises(RequestError, match="rm-1_default answered what cannot be read"):
        health_view([("rm-1_default", Answer(status=200, body=b"[]"))])


def test_nodes_for_a_partition_that_does_not_exist_are_a_failure() -> None:
    shown = health_view([("rm-1_default", answer())], reported(managers=[ManagerEntry("rm-1", nodes_astray=1)]))
    [wrong] = [check for check in shown.HealthChecks if not check.Succeeded]
    assert (shown.Healthy, wrong.Name) == (False, "Failed nodes")
    assert wrong.DiagnosisMessage == "There were 1 failed nodes logged in the metrics"


def test_what_one_rm_did_wrong_does_not_make_the_core_unhealthy_for_others() -> None:
    link = FakeLink(partition("rm-1"), partition("rm-2"), worker=lambda _: answer())
    managers = [ManagerEntry("rm-1"), ManagerEntry("rm-2", nodes_astray=3)]
    link.known = replace(link.known, managers=managers)
    shown = {rm: request(link, f"/ws/v1/scheduler/healthcheck{rm}").json() for rm in ("", "?rm=rm-1", "?rm=rm-2")}
    assert {rm: one["Healthy"] for rm, one in shown.items()} == {"": True, "?rm=rm-1": True, "?rm=rm-2": False}
    [told] = [one for one in shown[""]["HealthChecks"] if one["Name"] == "Failed nodes"]
    assert told["DiagnosisMessage"] == (
        'There were 3 failed nodes logged in the metrics, registered by ["rm-2: 3"]'
        " for partitions that they do not have"
    )
    [told] = [one for one in shown["?rm=rm-2"]["HealthChecks"] if one["Name"] == "Failed nodes"]
    assert told["DiagnosisMessage"] == "There were 3 failed nodes logged in the metrics"


class HistoryRecorder:
    failure = "the disk is full"
    writes = WriteTimes()


def problems(
    state: Path | None = None, audit: AuditLog | None = None, past: HistoryReader | None = None
) -> SystemProblems:
    services = Services(FakeLink(), Settings(state=state), audit)
    services.history = past
    return asyncio.run(find_storage_problems(services))


def test_a_directory_with_room_is_no_problem(tmp_path: Path) -> None:
    assert problems(tmp_path, AuditLog(AuditFile(tmp_path / "audit.log"))) == SystemProblems()


def test_what_is_not_kept_is_no_problem() -> None:
    assert problems() == SystemProblems()


def test_a_file_system_short_of_space_is_named_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "journals").mkdir()
    monkeypatch.setattr(health, "SPACE_BYTES_MIN", 1 << 60)
    [problem] = problems(tmp_path).space
    assert problem.startswith(f"{tmp_path}: ")
    assert problem.endswith(f" MiB free, {1 << 40} MiB are needed")


def test_a_file_system_that_takes_no_more_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not os.statvfs(tmp_path).f_files:
        pytest.skip("this file system has no bound on files")
    monkeypatch.setattr(health, "FILES_MIN", 1 << 62)
    [problem] = problems(tmp_path).space
    assert problem.endswith(f" more files can be created, {1 << 62} are needed")


def test_a_directory_that_is_gone_is_a_problem(tmp_path: Path) -> None:
    assert problems(tmp_path / "gone").space == (f"{tmp_path / 'gone'}: No such file or directory",)


def test_a_history_that_is_not_kept_is_a_problem() -> None:
    assert problems(past=HistoryReader(HistoryRecorder())).history == "the disk is full"


def test_an_unwritable_audit_log_is_a_problem_before_the_first_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "audit.log"
    log = AuditLog(AuditFile(file))

    async def found() -> list[str]:
        with full_disk(0):
            first = await log.problem()
        again = await log.problem()
        monkeypatch.setattr(audit, "PROBE_S", 0.0)
        return [first, again, await log.problem()]

    assert PROBE_S > 1
    assert asyncio.run(found()) == [f"{file}: file too large", f"{file}: file too large", ""]
    assert [path.name for path in tmp_path.iterdir()] == ["audit.log"]
    assert file.read_bytes() == b""


def test_an_audit_log_that_is_a_directory_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "audit.log").mkdir()
    assert "is a directory" in problems(None, AuditLog(AuditFile(tmp_path / "audit.log"))).audit
