"""`yunishard status`: the system on one screen, and what needs attention with the next step, over the REST API.

A part that cannot be read, because a process does not answer, needs attention itself. A part that the caller may not
see is left out.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from yunishard.cli.commands.display import (
    BAD,
    GOOD,
    QUIET,
    STRONG,
    Cell,
    Screen,
    Text,
    color_state,
    draw_bar,
    draw_table,
)
from yunishard.cli.commands.explanation import wrap
from yunishard.cli.commands.listing import add_watch, format_json, repeat
from yunishard.cli.commands.process_metrics import ProcessStatus, parse_processes
from yunishard.cli.commands.rest import RequestFailed, Rest, add_rest
from yunishard.cli.commands.rm import ClusterEntry, ResourceManager, read_resource_managers
from yunishard.cli.main import CommandUnusable
from yunishard.common.rest.records import HostsView, HostView
from yunishard.common.text_formats import (
    UNKNOWN,
    format_ago,
    format_bytes,
    format_count,
    format_figure,
    format_percent,
    format_seconds,
    list_kinds,
)

ATTENTION: Final = 1
"""Exit status if something needs attention."""

PARTITIONS_SHOWN: Final = 20
"""Partitions on the screen; the others are counted. Those that need attention come first."""

WIDE_CHARACTERS: Final = 120
"""Characters of a line from which on a terminal shows amounts beside the bars."""

BAR_NARROW: Final = 6
"""Characters of a bar on a narrower one."""

SILENT: Final = "silent"
"""The state of a partition that does not answer."""

_WAITING: Final = ("New", "Accepted", "Resuming")
_ENDED: Final = ("Completed", "Failed", "Rejected", "Expired")
_NS: Final = 10**9
_T = TypeVar("_T")


class Capacity(msgspec.Struct, rename="camel"):
    """Amounts of a partition."""

    capacity: dict[str, int] = {}
    used_capacity: dict[str, int] = {}


class Partition(msgspec.Struct, rename="camel"):
    """The part in use of an entry of `/partitions`."""

    name: str
    cluster_id: str = ""
    """RM id."""
    capacity: Capacity = msgspec.field(default_factory=Capacity)
    total_nodes: int = 0
    total_containers: int = 0
    applications: dict[str, int] = {}
    """Number by state, and `total`."""
    state: str = ""

    @property
    def waiting(self) -> int:
        """Applications without any allocation."""
        return sum(self.applications.get(state, 0) for state in _WAITING)

    @property
    def running(self) -> int:
        """All other applications that have not ended."""
        live = sum(number for state, number in self.applications.items() if state not in ("total", *_ENDED))
        return live - self.waiting


class HealthCheck(msgspec.Struct, rename="pascal"):
    """The part in use of a check of the health check."""

    name: str
    succeeded: bool
    description: str = ""
    diagnosis_message: str = ""
    next_step: str = ""


class Health(msgspec.Struct, rename="pascal"):
    """The health check."""

    healthy: bool
    health_checks: list[HealthCheck] = []


class Concern(msgspec.Struct, omit_defaults=True):
    """Something that needs attention."""

    what: str
    next: str = ""
    """The next step of an operator."""


@dataclass(slots=True)
class Status:
    """All that is shown. None is unknown: it was refused, or could not be read."""

    url: str
    clusters: list[ClusterEntry] | None = None
    partitions: list[Partition] | None = None
    hosts: HostsView | None = None
    health: Health | None = None
    processes: list[ProcessStatus] | None = None
    concerns: list[Concern] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    """Parts that the caller may not see."""

    @property
    def managers(self) -> list[ResourceManager]:
        """The registered resource managers."""
        return read_resource_managers(self.clusters or [])

    @property
    def started_ns(self) -> int:
        """When the system started; 0 if unknown."""
        return min((one.start_time for one in self.clusters or []), default=0)


def add_status_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard status`."""
    parser.add_argument("--processes", action="store_true", help="with a table of all processes")
    add_watch(parser)
    add_rest(parser)


def run_status(args: argparse.Namespace) -> int:
    """Show the system on one screen: what needs attention with the next step,
    partitions with their applications and how full they are, resource managers,
    hosts, and the health checks.

    examples:
      yunishard status
      yunishard status --watch 5
      yunishard status --processes             uptime, memory and processor time
      yunishard status --json | jq .attention

    exit codes:
      0  nothing needs attention
      1  something needs attention
      2  wrong usage, the system does not answer, or it refuses
    """
    rest, statuses = Rest.from_arguments(args), list[Status]()

    def draw(screen: Screen) -> list[str]:
        statuses[:] = [read_status(rest, with_processes=args.processes)]
        if args.json:
            return format_json(to_document(statuses[0]), is_line=args.watch is not None)
        return draw_status(screen, statuses[0], time.time_ns())

    repeat(args, draw)
    return ATTENTION if statuses[0].concerns else 0


# Reading --------------------------------------------------------------------------------------------------------------


def read_status(rest: Rest, *, with_processes: bool = False) -> Status:
    """Read everything, one request after the other.

    Raises:
        CommandUnusable: the system does not answer, or does not permit the caller to read anything.
    """
    status = Status(rest.url)

    def read(what: str, load: Callable[[], _T]) -> _T | None:
        """Return what a request answers; None, with a concern unless the caller may not see it, if it is refused."""
        try:
            return load()
        except RequestFailed as failed:
            if failed.code == HTTPStatus.UNAUTHORIZED:
                raise CommandUnusable(str(failed)) from None
            if failed.code >= HTTPStatus.INTERNAL_SERVER_ERROR:
                status.concerns.append(
                    Concern(f"{what} cannot be read: {failed}", "look into the log of `yunishard up`")
                )
            elif failed.code == HTTPStatus.FORBIDDEN:
                status.hidden.append(what)
            else:
                status.concerns.append(Concern(f"{what}: {failed}"))
        return None

    status.clusters = read("clusters", lambda: rest.get("clusters").decode(list[ClusterEntry]))
    if status.clusters:
        status.partitions = read("partitions", lambda: rest.get("partitions").decode(list[Partition]))
    status.health = read("health", lambda: rest.get("scheduler", "healthcheck").decode(Health))
    status.hosts = read("hosts", lambda: rest.get("hosts").decode(HostsView))
    if with_processes:
        status.processes = read("processes", lambda: parse_processes(rest.get("metrics").text))
    status.url = rest.url
    status.concerns += find_concerns(status, time.time_ns())
    return status


def find_concerns(status: Status, now_ns: int) -> list[Concern]:
    """Find what needs attention, the most severe first."""
    found: list[Concern] = []
    silent = [one.name for one in status.partitions or [] if one.state.lower() == SILENT]
    for name in silent:
        next_step = "its worker restarts within seconds; if not, the log of `yunishard up` has the reason"
        found.append(Concern(f"partition {name} does not answer: nothing is placed in it", next_step))
    for host in status.hosts.hosts if status.hosts else ():
        if host.state == "lost":
            text = f"host {host.name} is lost, last seen {format_ago(host.lastSeen, now_ns)}"
            remedy = "start it again, or `yunishard hosts remove` it: its partitions run on other hosts"
            found.append(Concern(text, remedy))
    found += _find_failed_checks(status.health, silent)
    for one in status.managers:
        if one.away_since:
            text = f"RM {one.rm} is away since {format_ago(one.away_since, now_ns)}: nothing is placed for it"
            found.append(Concern(text, "start it again, or wait for it: its allocations stay until `pause-timeout`"))
    return found


def _find_failed_checks(health: Health | None, silent: Sequence[str]) -> list[Concern]:
    checks = [one for one in (health.health_checks if health else ()) if not one.succeeded]
    if silent:  # named one by one already
        checks = [one for one in checks if one.name != "Partitions"]
    return [Concern(f"{one.name}: {one.diagnosis_message or one.description}", one.next_step) for one in checks]


# Output ---------------------------------------------------------------------------------------------------------------


def to_document(status: Status) -> dict[str, object]:
    """The status as JSON; what is unknown is null."""
    managers = [
        {"rm": one.rm, "state": one.state, "awaySince": one.away_since, "partitions": one.partitions}
        for one in status.managers
    ]
    return {
        "url": status.url,
        "startTime": status.started_ns,
        "attention": msgspec.to_builtins(status.concerns),
        "partitions": msgspec.to_builtins(status.partitions),
        "rms": managers,
        "hosts": msgspec.to_builtins(status.hosts and status.hosts.hosts),
        "health": msgspec.to_builtins(status.health),
        "processes": msgspec.to_builtins(status.processes),
    }


def draw_status(screen: Screen, status: Status, now_ns: int) -> list[str]:
    """Return the lines of the screen."""
    lines = [*_draw_title(screen, status, now_ns), *_draw_concerns(screen, status)]
    if status.partitions:
        lines += ["", *_draw_partitions(screen, status.partitions)]
    elif status.clusters is not None and not status.clusters:
        lines += ["", "No resource manager has registered a partition yet: nothing can run."]
    if status.managers:
        lines += ["", *_draw_managers(screen, status.managers, now_ns)]
    if status.hosts and (len(status.hosts.hosts) > 1 or status.hosts.rebalancing):
        lines += ["", *_draw_hosts(screen, status.hosts.hosts)]
    if status.processes:
        lines += ["", *_draw_processes(screen, status.processes, now_ns)]
    if status.hidden:
        text = f"Only scheduler administrators see: {', '.join(status.hidden)}"
        lines += ["", screen.paint(text, QUIET)]
    return lines


def _draw_title(screen: Screen, status: Status, now_ns: int) -> list[str]:
    releases = sorted({one.release for one in status.hosts.hosts if one.release}) if status.hosts else []
    facts = [" ".join(["yunishard", *releases]), status.url]
    if status.started_ns:
        facts.append(f"up {format_seconds((now_ns - status.started_ns) / _NS)}")
    checks = status.health.health_checks if status.health else []
    if checks:
        passed = sum(one.succeeded for one in checks)
        facts.append(f"{passed} of {format_count(len(checks), 'health check')} passed")
    return wrap(screen, " · ".join(facts), colour=QUIET)


def _draw_concerns(screen: Screen, status: Status) -> list[str]:
    if not status.concerns:
        return [screen.paint("Nothing needs attention.", GOOD)]
    number = len(status.concerns)
    lines = [screen.paint(f"{format_count(number, 'problem')} need{'s' if number == 1 else ''} attention:", BAD)]
    for one in status.concerns:
        lines += wrap(screen, one.what, first="  ! ", colour=STRONG)
        if one.next:
            lines += wrap(screen, one.next, first="    next: ")
    return lines


def _draw_partitions(screen: Screen, partitions: Sequence[Partition]) -> list[str]:
    several_rms = len({one.cluster_id for one in partitions}) > 1
    ordered = sorted(partitions, key=lambda one: one.state.lower() != SILENT)
    kinds = list_kinds(*(one.capacity.capacity for one in partitions))[:2]
    headings = ["PARTITION", *(["RM"] if several_rms else []), "STATE", "NODES", "RUNNING", "WAITING", "ALLOCS"]
    right = {headings.index(name) for name in ("NODES", "RUNNING", "WAITING", "ALLOCS")}
    rows: list[list[Text]] = [
        [
            one.name,
            *([one.cluster_id] if several_rms else []),
            color_state(one.state),
            f"{one.total_nodes:,}",
            f"{one.running:,}",
            f"{one.waiting:,}",
            f"{one.total_containers:,}",
            *(_draw_usage(screen, kind, one.capacity) for kind in kinds),
        ]
        for one in ordered[:PARTITIONS_SHOWN]
    ]
    lines = draw_table(screen, [*headings, *(kind.upper() for kind in kinds)], rows, right=right)
    if (more := len(ordered) - PARTITIONS_SHOWN) > 0:
        lines.append(screen.paint(f"and {format_count(more, 'partition')} more; --json has all", QUIET))
    return lines


def _draw_usage(screen: Screen, kind: str, one: Capacity) -> Cell:
    total, used = one.capacity.get(kind, 0), one.used_capacity.get(kind, 0)
    if not total:
        return Cell(UNKNOWN)
    share = format_percent(used, total)
    if 0 < screen.width < WIDE_CHARACTERS:
        bar = draw_bar(screen, used, total, cells=BAR_NARROW)
        return Cell(f"{bar.text} {share:>5}", bar.colour)
    bar = draw_bar(screen, used, total)
    return Cell(f"{bar.text} {share:>5} {format_figure(kind, used)} of {format_figure(kind, total)}", bar.colour)


def _draw_managers(screen: Screen, managers: Sequence[ResourceManager], now_ns: int) -> list[str]:
    rows: list[list[Text]] = []
    for one in managers:
        state = color_state(one.state)
        if one.away_since:
            state = Cell(f"away since {format_ago(one.away_since, now_ns)}", BAD)
        rows.append([one.rm, state, ", ".join(one.partitions) or UNKNOWN])
    return draw_table(screen, ("RM", "STATE", "PARTITIONS"), rows)


def _draw_hosts(screen: Screen, hosts: Sequence[HostView]) -> list[str]:
    rows: list[list[Text]] = [
        [
            one.name,
            color_state(one.state),
            "yes" if one.leader else UNKNOWN,
            str(one.partitions),
            str(one.leaving),
            str(one.cores),
            format_bytes(one.memory),
            one.release or UNKNOWN,
        ]
        for one in hosts
    ]
    headings = ("HOST", "STATE", "LEADER", "PARTITIONS", "LEAVING", "CORES", "MEMORY", "RELEASE")
    return draw_table(screen, headings, rows, right={3, 4, 5, 6})


def _draw_processes(screen: Screen, processes: Sequence[ProcessStatus], now_ns: int) -> list[str]:
    rows: list[list[Text]] = [
        [
            one.process,
            one.partition or UNKNOWN,
            Cell("up", GOOD) if one.is_up else Cell("down", BAD),
            format_seconds(now_ns / _NS - one.started_s) if one.started_s else UNKNOWN,
            format_bytes(one.resident_bytes) if one.resident_bytes else UNKNOWN,
            format_seconds(one.cpu_s),
            f"{one.loop_lag_s * 1000:.0f} ms",
        ]
        for one in processes
    ]
    headings = ("PROCESS", "PARTITION", "STATE", "UPTIME", "MEMORY", "CPU TIME", "LAG")
    return draw_table(screen, headings, rows, right={4, 5, 6})
