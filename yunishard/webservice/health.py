"""The health check: YuniKorn's nine checks and our own, from the workers' audits, the broker and this machine's disk.

Workers audit their partitions; `cluster_routes.py` collects the results. This process checks what it can see of the
disk: free space, and whether the audit log and the history are written. Each process reports slow writes, jumps of its
clock and its memory (`common/process/health.py`). A failed check has a next step for the operator.
"""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import Struct

from yunishard.common.messages.query_messages import Answer, ManagerEntry, PartitionList, ProcessHealth, WorkerHealth
from yunishard.common.names import BROKER, WEBSERVICE
from yunishard.webservice.broker_client import decode_answer
from yunishard.webservice.calls import Services

SPACE_BYTES_MIN: Final = 64 << 20
"""Free bytes below which the health check `Disk space` fails: two new partitions need about as much for their journals.
Nothing else depends on this bound.
"""

FILES_MIN: Final = 256
"""Free inodes below which the check fails. File systems without a bound report 0 in total."""

PROCESSES_MAX: Final = 20
"""Processes that a check names; the others are counted: all workers of a host have the same clock and memory."""

NONE_REGISTERED: Final = PartitionList(partitions=[], build_information={}, started_ns=0)


async def find_storage_problems(services: Services) -> "SystemProblems":
    """All problems of the disk at this moment."""
    state, audit, history = services.settings.state, services.audit, services.history
    writes = {} if audit is None else {"audit log": audit.writes}
    writes |= {} if history is None else {"history": history.recorder.writes}
    return SystemProblems(
        space=_find_shortages(state) if state is not None else (),
        audit=await audit.problem() if audit is not None else "",
        history=history.recorder.failure if history is not None else "",
        slow_writes=tuple(f"{name}: {text}" for name, one in writes.items() if (text := one.describe_problem())),
        process=services.report_health(),
    )


def _find_shortages(state: Path) -> tuple[str, ...]:
    """The file systems of the state directory, and of its subdirectories, with too little space."""
    try:
        folders = [state, *sorted(path for path in state.iterdir() if path.is_dir())]
        by_device = {folder.stat().st_dev: folder for folder in reversed(folders)}
        return tuple(problem for folder in reversed(by_device.values()) if (problem := _describe_shortage(folder)))
    except OSError as error:
        return (f"{state}: {error.strerror or error}",)


def _describe_shortage(folder: Path) -> str:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if free < SPACE_BYTES_MIN:
        return f"{folder}: {free / (1 << 20):.1f} MiB free, {SPACE_BYTES_MIN >> 20} MiB are needed"
    if found.f_files and found.f_favail < FILES_MIN:
        return f"{folder}: {found.f_favail} more files can be created, {FILES_MIN} are needed"
    return ""


class SystemProblems(Struct, frozen=True, kw_only=True):
    """Problems at this moment beyond the workers' reports."""

    silent: Sequence[str] = ()
    """Partitions that do not answer."""
    known: PartitionList = NONE_REGISTERED
    """Also the problems that the broker reports: its own, and those of resource managers and workers."""
    space: Sequence[str] = ()
    """Directories with too little space."""
    audit: str = ""
    """Why the audit log cannot be written; empty if it can."""
    history: str = ""
    """Why no history is recorded; empty if it is."""
    slow_writes: Sequence[str] = ()
    """To the audit log and the history."""
    process: ProcessHealth = ProcessHealth()
    """Of this web service."""


class CheckView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One check."""

    Name: str
    Succeeded: bool
    Description: str
    DiagnosisMessage: str
    NextStep: str = ""
    """The advice to the operator, in one sentence; missing if the check succeeded. Not in YuniKorn."""


class HealthView(Struct, frozen=True, kw_only=True):
    """All checks, and whether they all succeeded."""

    Healthy: bool
    HealthChecks: list[CheckView]


HIDDEN: Final = "(hidden)"
"""Replaces names and paths for callers who may not see everything."""


class _Check(NamedTuple):
    """A check, in words."""

    name: str
    description: str
    next_step: str
    """The advice to the operator when it fails."""


_REPORT: Final = (
    "This is a defect: save /debug/fullstatedump and report it; a worker that restarts computes its sums again"
)

_CHECKS: Final = (
    _Check(
        "Scheduling errors",
        "Check for scheduling error entries in metrics",
        "Read the reasons of the rejections in the log of the resource manager",
    ),
    _Check(
        "Failed nodes",
        "Check for failed nodes entries in metrics",
        "Correct the attribute si/node-partition of the nodes, or add the partition to the RM's configuration",
    ),
    _Check("Negative resources", "Check for negative resources in the partitions", _REPORT),
    _Check("Negative resources", "Check for negative resources in the nodes", _REPORT),
    _Check(
        "Consistency of data",
        "Check if total partition resource == sum of the node resources from the partition",
        _REPORT,
    ),
    _Check(
        "Consistency of data",
        "Check if node total resource = allocated resource + occupied resource + available resource",
        _REPORT,
    ),
    _Check("Reservation check", "Check the reservation nr compared to the number of nodes", _REPORT),
    _Check("Orphan allocation on node check", "Check if there are orphan allocations on the nodes", _REPORT),
    _Check("Orphan allocation on app check", "Check if there are orphan allocations on the applications", _REPORT),
    _Check("Audit", "Check if every sum is that of the allocations", _REPORT),
    _Check(
        "Partitions",
        "Check if every partition answers",
        "Look at the check Workers; if it succeeds, read the log of the partition's worker and wait for its restart",
    ),
    _Check(
        "Journals",
        "Check if the journals of the partitions can be written",
        "Free room on the disk, or correct what the message names; the partition continues within a second",
    ),
    _Check(
        "Resource managers",
        "Show which are away, and which resume; nothing is placed for them",
        "Start the resource managers again, or check the network between them and this system",
    ),
    _Check(
        "Workers",
        "Check if the worker of every partition can start",
        "Correct the reason; the worker starts again by itself within 30 s",
    ),
    _Check(
        "Disk space",
        "Check if the file systems of the state directory have room",
        "Free room, enlarge the file system, or lower journal-max and history-max",
    ),
    _Check(
        "Broker record",
        "Check if the broker's record of resource managers and configurations can be written",
        "Correct the reason; until then registrations and configuration changes are refused",
    ),
    _Check(
        "Audit log",
        "Check if the audit log can be written; without it nothing is changed over REST",
        "Correct the reason; until then changes over REST are refused",
    ),
    _Check(
        "History",
        "Check if the history is recorded",
        "Correct the reason; scheduling is not affected, and recording continues by itself",
    ),
    _Check(
        "Poison messages",
        "Check if no message was quarantined within the last hour because it crashed its worker twice",
        "Run `yunishard journal poison PARTITION` and report the message; its sender has the refusal",
    ),
    _Check(
        "Disk speed",
        "Check if journals, record, audit log and history are written fast",
        "Find what else uses the disk, or move the state directory to a faster one; results wait for each write",
    ),
    _Check(
        "Configuration",
        "Check if the text of the watched file is in force; show the latest refused change",
        "Correct the file, it is read again by itself; `yunishard validate FILE` lists all problems",
    ),
    _Check(
        "Clock",
        "Check if the wall clock has not jumped within the last hour",
        "Run a time service (chrony, systemd-timesyncd); times of events and history around the jump are wrong",
    ),
    _Check(
        "Memory",
        "Check if no process, container or host is near a bound on its memory",
        "Raise the limit, or move partitions to another host: at the bound processes end and restart",
    ),
    _Check(
        "Hosts",
        "Check if no other machine was refused as one of the hosts within the last hour",
        "Stop that machine, or make it another host: it has the name of a host that runs, and may be a copy of it",
    ),
)
"""YuniKorn's checks, in its order, then our own."""


def health_view(
    answers: Sequence[tuple[str, Answer]], problems: SystemProblems | None = None, *, whole: bool = True
) -> HealthView:
    """The health of the system: `answers` are the workers' by full name of the partition. Names and paths are hidden
    unless `whole` is set.

    Raises:
        RequestError: an answer of a worker is malformed.
    """
    found = [(name, decode_answer(answer, WorkerHealth, f"Partition {name}")) for name, answer in answers]

    def show(text: str) -> str:
        """A name or path: it may belong to any user's queues and applications."""
        return text if whole or not text else HIDDEN

    diagnoses = _diagnose(found, problems or SystemProblems(), show)
    checks = [
        CheckView(
            Name=check.name,
            Succeeded=not failed,
            Description=check.description,
            DiagnosisMessage=diagnosis,
            NextStep=check.next_step if failed else "",
        )
        for check, (diagnosis, failed) in zip(_CHECKS, diagnoses, strict=True)
    ]
    return HealthView(Healthy=all(check.Succeeded for check in checks), HealthChecks=checks)


def _diagnose(
    found: Sequence[tuple[str, WorkerHealth]], problems: SystemProblems, show: Callable[[str], str]
) -> list[tuple[str, bool]]:
    """The diagnosis of each check, and whether it failed. A disconnected RM is not a failure."""
    ratios = " ".join(f"{one.reservations / one.nodes:.6f}" if one.nodes else "NaN" for _, one in found)
    on_nodes = _collect_names(found, lambda one: [*map(show, one.orphans_on_nodes)])
    of_applications = _collect_names(found, lambda one: [*map(show, one.orphans_of_applications)])
    known = problems.known
    away = _quote([one.rm_id for one in known.managers if one.away_since_ns])
    syncing = _quote([name for name, one in found if one.syncing])
    drift = [f"{name}: {show(problem)}" for name, one in found for problem in one.drift]
    journals = [f"{name}: {show(one.journal_problem)}" for name, one in found if one.journal_problem]
    unstartable = [f"{one.full_name}: {show(one.problem)}" for one in known.partitions if one.problem]
    unstartable += [
        f"{one.full_name}: its last worker ended before it was ready: {show(one.ending)}"
        for one in known.partitions
        if one.ending and not one.problem
    ]
    poison = [f"{name}: {show(one.poison)}" for name, one in found if one.poison]
    return [
        _diagnose_errors(found),
        _diagnose_failed_nodes(known.managers),
        _report("Partitions with negative resources", [name for name, one in found for _ in range(one.negative)]),
        _report("Nodes with negative resources", _collect_names(found, lambda one: one.negative_nodes)),
        _report("Partitions with inconsistent data", [name for name, one in found if one.inconsistent]),
        _report("Nodes with inconsistent data", _collect_names(found, lambda one: one.inconsistent_nodes)),
        (f"Reservation/node nr ratio: [{ratios}]", False),
        (f"Orphan allocations: [{' '.join(on_nodes)}]", bool(on_nodes)),
        (f"OrphanAllocations: [{' '.join(of_applications)}]", bool(of_applications)),
        _report("Sums that drifted", drift),
        _report("Partitions that do not answer", problems.silent),
        _report("Journals that take nothing", journals),
        (f"Away: {away}, partitions that resume: {syncing}", False),
        _report("Workers that cannot start", unstartable),
        _report("File systems without room", [*map(show, problems.space)]),
        _report("Writes of the record that failed", [show(known.record_problem)]),
        _report("Writes of the audit log that failed", [show(problems.audit)]),
        _report("Problems of the history", [show(problems.history)]),
        _report("Messages that were quarantined", poison),
        *_diagnose_processes(found, problems, show),
    ]


def _diagnose_processes(
    found: Sequence[tuple[str, WorkerHealth]], problems: SystemProblems, show: Callable[[str], str]
) -> list[tuple[str, bool]]:
    """The last five checks: those that each process makes, the configurations that were refused, and the hosts."""
    processes = [(WEBSERVICE, problems.process), (BROKER, problems.known.process)]
    processes += [(name, one.process) for name, one in found]
    slow = [*problems.slow_writes, *(f"{name}: {one.slow_writes}" for name, one in processes if one.slow_writes)]
    refusals, latest = problems.known.refusals, problems.known.refusals.latest
    not_in_force = [show(refusals.file), *(f"{rm}: {show(reason)}" for rm, reason in refusals.keeping.items())]
    configuration, failed = _report("Texts of the watched file that are not in force", not_in_force)
    if latest is not None:
        at = datetime.fromtimestamp(latest.at_ns // 10**9, UTC).isoformat().replace("+00:00", "Z")
        configuration += f", latest refused change: {latest.origin} of {latest.rm_id} at {at}: {show(latest.reason)}"
    return [
        _report("Slow writes", _shorten(slow)),
        (configuration, failed),
        _report("Clocks that jumped", _shorten([f"{name}: {one.clock}" for name, one in processes if one.clock])),
        _report("Memory near its bound", _shorten([f"{name}: {one.memory}" for name, one in processes if one.memory])),
        _report("Machines that were refused", [f"{host}: {show(by)}" for host, by in problems.known.refused.items()]),
    ]


def _shorten(names: Sequence[str]) -> list[str]:
    """The first PROCESSES_MAX names and the number of the others."""
    more = len(names) - PROCESSES_MAX
    return [*names[:PROCESSES_MAX], *([f"and {more} more processes"] if more > 0 else [])]


def _diagnose_errors(found: Sequence[tuple[str, WorkerHealth]]) -> tuple[str, bool]:
    """The errors that resource managers made lately. They are shown, and no failure of the scheduler."""
    total = sum(sum(one.rm_errors.values()) for _, one in found)
    text = f"There were {total} scheduling errors logged in the metrics"
    if not total:
        return text, False
    by = [f"{name}: {number} {cause}" for name, one in found for cause, number in one.rm_errors.items()]
    return f"{text}, by resource managers within the last 10 minutes: {_quote(by)}", False


def _diagnose_failed_nodes(managers: Sequence[ManagerEntry]) -> tuple[str, bool]:
    """With one resource manager the check fails, as in YuniKorn. With several, the errors of one are reported, but do
    not make the core unhealthy for the others.
    """
    total = sum(one.nodes_astray for one in managers)
    text = f"There were {total} failed nodes logged in the metrics"
    if total and len(managers) > 1:
        by = sorted(f"{one.rm_id}: {one.nodes_astray}" for one in managers if one.nodes_astray)
        return f"{text}, registered by {_quote(by)} for partitions that they do not have", False
    return text, total > 0


def _collect_names(found: Sequence[tuple[str, WorkerHealth]], names: Callable[[WorkerHealth], list[str]]) -> list[str]:
    """The names of all reports; with several partitions, each with its partition, as nodes may have equal names."""
    return [f"{name}: {one}" if len(found) > 1 else one for name, each in found for one in names(each)]


def _report(what: str, names: Sequence[str]) -> tuple[str, bool]:
    """A diagnosis that lists the names that are not empty, and fails if there are any."""
    listed = [name for name in names if name]
    return f"{what}: {_quote(listed)}", bool(listed)


def _quote(names: Sequence[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"
