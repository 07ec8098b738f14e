"""Read a workload log in the Standard Workload Format (SWF) and plan the replay: partitions, nodes, applications, asks.

SWF: one job a line with 18 numbers, comments after `;`, -1 for an unknown value
(https://www.cs.huji.ac.il/labs/parallel/workload/swf.html). The log is read as a stream and within bounds, because logs
come from anywhere. A line that is not a job is counted and reported with its number and the reason.

In the plan, sites of the log become partitions, groups and users become queues (by placement rules, so the
configuration names none), and jobs become applications. The log does not contain the size of a site. Each site gets as
many processors as its jobs keep busy: their processor time, divided by the length of the log and by the wanted load.

Not here: when anything is submitted (`machine.py`).
"""

import gzip
import re
import zlib
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from io import BufferedIOBase
from math import ceil
from pathlib import Path
from typing import Final, Literal

from yunishard.cli.main import CommandUnusable
from yunishard.common.names import normalise_partition_name
from yunishard.workloads.replay.user_queues import UserQueues

COLUMNS: Final = 18
LINE_BYTES_MAX: Final = 4096
JOBS_MAX: Final = 5_000_000
LINES_MAX: Final = 2 * JOBS_MAX
"""Lines of a log, with comments and malformed ones; a longer log is refused while it is read."""
PIECES_MAX: Final = 256
"""Pieces of LINE_BYTES_MAX of a longer line, which is malformed; with more the log is refused."""
SITES_MAX: Final = 10_000
VALUE_MAX: Final = 10**12
"""Larger than any value in a real log; products of two values still fit 64 bits after scaling."""
MALFORMED_KEPT_MAX: Final = 20
QUOTED_CHARS_MAX: Final = 60
UNKNOWN: Final = -1

_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,2})?")
_SITE: Final = re.compile(r";\s*Partition:\s*([0-9]{1,9})\s+(\S.*)")
"""A header line that names a partition."""


class MalformedLineError(ValueError):
    """A line that is no job; the text is the reason."""


JobState = Literal["planned", "waiting", "running", "done", "failed"]


@dataclass(slots=True, kw_only=True)
class Job:
    """A job of the log, as an application with one ask for each of its tasks; and its progress in the replay."""

    number: int
    submit_s: int
    """Since the start of the log; in a plan since the first job of the replay."""
    run_s: int
    """`UNKNOWN` if the log does not say."""
    processors: int
    """Used, or requested if the log does not say; not positive if neither is known."""
    memory: int
    """Bytes for each processor, used or requested, the larger one; 0 if the log does not say."""
    is_part: bool
    """Whether the line is one part of a job that was swapped out; the whole job has a line of its own."""
    user: str
    group: str
    site: int
    """The number of the partition in the log, or `UNKNOWN`."""
    estimate_s: int = UNKNOWN
    """The requested run time."""
    preceding: int = UNKNOWN
    """The number of the job that has to end first."""
    think_s: int = UNKNOWN
    """Seconds between the end of that job and the submission of this one."""
    partition: str = ""
    """The partition of the replay, which the plan sets."""
    leaf: str = ""
    """The queue that the application requests, with queues of the user's own."""
    state: JobState = "planned"
    wait_s: float = 0.0
    """From the logged submit time to the last allocation of a task."""
    start_s: float | None = None
    """When the last of its tasks got its first allocation."""
    end_s: float | None = None
    node_id: str = ""
    """Where its first task ran, or runs."""
    preemptions: int = 0
    lost_s: float = 0.0
    """Run time of preempted tasks, which start again."""
    is_refused: bool = False
    problem: str = ""
    """Why it failed, or will fail when its last task has ended."""

    @property
    def application_id(self) -> str:
        return f"job-{self.number}"

    @property
    def queue(self) -> str:
        """The requested queue, or the one that the placement rules of `Plan.build_configuration` choose."""
        return self.leaf or f"root.{self.group}.{self.user}"

    @property
    def work_s(self) -> int:
        """Processor seconds."""
        return self.run_s * self.processors

    def split_tasks(self) -> dict[str, int]:
        """Return the processors of each task by its allocation key. They differ by one at most."""
        count = min(self.processors, TASKS_MAX)
        each, rest = divmod(self.processors, count)
        return {f"{self.application_id}.{number + 1}": each + (number < rest) for number in range(count)}


@dataclass(slots=True)
class Log:
    """A whole log in memory."""

    jobs: list[Job] = field(default_factory=list)
    sites: dict[int, str] = field(default_factory=dict)
    """Number of a site to its name in the header."""
    malformed: list[str] = field(default_factory=list)
    """The first `MALFORMED_KEPT_MAX` lines that are no job: line number, reason, and the text, safe to print."""
    malformed_count: int = 0


def load(path: Path, *, strict: bool = False) -> Log:
    """Load the log in a file, plain or packed with gzip.

    Raises:
        CommandUnusable: unreadable, without any job, with too many, or with `strict` at the first malformed line.
    """
    try:
        with path.open("rb") as file, closing(unpack(file)) as stream:
            log = parse_log(stream, strict=strict)
    except OSError as error:  # includes gzip.BadGzipFile
        raise CommandUnusable(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise CommandUnusable(f"cannot read {path}: damaged gzip file ({error})") from None
    except CommandUnusable as error:
        raise CommandUnusable(f"{path}: {error}") from None
    if not log.jobs:
        first = f"; {log.malformed[0]}" if log.malformed else ""
        raise CommandUnusable(f"{path}: no job in it ({log.malformed_count} malformed lines{first})")
    return log


def parse_log(stream: BufferedIOBase, *, strict: bool = False) -> Log:
    """Parse all lines of a log."""
    log = Log()
    seen: set[int] = set()
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if number > LINES_MAX:
            raise CommandUnusable(f"more than {LINES_MAX} lines")
        try:
            if len(line) > LINE_BYTES_MAX and not line.endswith(b"\n"):
                for _ in range(PIECES_MAX):
                    rest = stream.readline(LINE_BYTES_MAX)
                    if not rest or rest.endswith(b"\n"):
                        break
                else:
                    raise CommandUnusable(f"line {number}: longer than {PIECES_MAX * LINE_BYTES_MAX} bytes")
                raise MalformedLineError(f"longer than {LINE_BYTES_MAX} bytes")
            line = line.strip()
            if line.startswith(b";"):
                site = _SITE.fullmatch(line.decode("utf-8", errors="replace"))
                if site and len(log.sites) < SITES_MAX:
                    log.sites[int(site[1])] = site[2]
            elif line:
                job = parse_job(line)
                if not job.is_part and job.number in seen:
                    raise MalformedLineError(f"job {job.number} appeared before")
                if not job.is_part:
                    seen.add(job.number)
                if len(log.jobs) >= JOBS_MAX:
                    raise CommandUnusable(f"more than {JOBS_MAX} jobs")
                log.jobs.append(job)
        except MalformedLineError as error:
            text = f"line {number}: {error}: {_quote(line)}"
            if strict:
                raise CommandUnusable(text) from None
            log.malformed_count += 1
            if len(log.malformed) < MALFORMED_KEPT_MAX:
                log.malformed.append(text)
    return log


def parse_job(line: bytes) -> Job:
    """Parse a job line.

    Raises:
        MalformedLineError: it is no job line.
    """
    words = line.split()
    if len(words) != COLUMNS:
        raise MalformedLineError(f"{len(words)} columns, expected {COLUMNS}")
    values: list[int] = []
    for column, word in enumerate(words, start=1):
        if not _NUMBER.fullmatch(word):
            raise MalformedLineError(f"column {column} is no number: {_quote(word)}")
        # A few logs have fractions of seconds, which are rounded. float() is not exact for large whole numbers.
        value = int(word) if word.lstrip(b"+-").isdigit() else round(float(word))
        if not UNKNOWN <= value <= VALUE_MAX:
            raise MalformedLineError(f"column {column} is out of range: {_quote(word)}")
        values.append(value)
    if UNKNOWN in values[:2]:
        raise MalformedLineError("job number and submit time must be known")
    number, submit_s, _, run_s, used, _, memory_kb, requested, estimate_s, memory_requested_kb, *others = values
    status, user, group, _, _, site, preceding, think_s = others
    return Job(
        number=number,
        submit_s=submit_s,
        run_s=run_s,
        processors=used if used > 0 else requested,
        memory=max(memory_kb, memory_requested_kb, 0) * 1024,
        is_part=status in (2, 3, 4),
        user=f"u{user}" if user >= 0 else "unknown",
        group=f"g{group}" if group >= 0 else "unknown",
        site=site,
        estimate_s=estimate_s,
        preceding=preceding,
        think_s=think_s,
    )


def unpack(file: BufferedIOBase) -> BufferedIOBase:
    """Return the file's content, unpacked if its first bytes are those of gzip."""
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return gzip.GzipFile(fileobj=file, mode="rb") if is_packed else file


def _quote(text: bytes) -> str:
    """Return a text shortened and without control characters, for a terminal."""
    quoted = text.strip()[: QUOTED_CHARS_MAX + 1].decode("ascii", errors="replace")
    safe = "".join(char if char.isascii() and char.isprintable() else "?" for char in quoted)
    return safe if len(safe) <= QUOTED_CHARS_MAX else safe[:QUOTED_CHARS_MAX] + "..."


# The plan of a replay -------------------------------------------------------------------------------------------------

PARTITIONS_DEFAULT: Final = 6
LOAD_DEFAULT: Final = 0.7
"""With this load, queues grow at busy hours and are empty at the end, in all logs that were tried."""

NODE_PROCESSORS: Final = 16
PARTITIONS_MAX: Final = 64
"""Partitions that a replay can have."""

NODES_MAX: Final = 10_000
"""Nodes of one partition; beyond it the nodes become bigger instead of more."""
TASKS_MAX: Final = 128
"""Asks of one job: one for each processor up to here, then several processors an ask."""
PROCESSORS_MAX: Final = 1_000_000
MEMORY_KB_MAX: Final = 1 << 30

WATCHED_S: Final = 42.0
"""Seconds for a replay at the default speed without waiting in queues, which takes the rest of the minute."""
ASKS_PER_SECOND_MAX: Final = 1000
"""Bounds the default speed, on average; bigger logs take more than a minute."""

OTHER: Final = "other"
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_CHARS_MAX: Final = 56
"""A partition's name has at most 64 characters, and a suffix may be necessary to make it unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A partition and its nodes, which are all alike."""

    partition: str
    nodes: int
    node_processors: int
    node_memory: int

    @property
    def processors(self) -> int:
        return self.nodes * self.node_processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Partitions and jobs of a replay."""

    sites: tuple[Site, ...]
    """Busiest first; `other`, if there is one, last."""
    jobs: tuple[Job, ...]
    """By submit time."""
    span_s: int
    """From the first submission to the last end, had every job started at once."""
    folded_sites: int = 0
    """How many sites share the partition `other`."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Reason to number of job lines that cannot be replayed."""
    configuration: str = ""
    """The user's own `queues.yaml`."""

    @property
    def default_speed(self) -> float:
        """Log seconds per real second, for a replay of about a minute."""
        asks = sum(min(job.processors, TASKS_MAX) for job in self.jobs)
        return max(1.0, self.span_s / max(WATCHED_S, asks / ASKS_PER_SECOND_MAX))

    def build_configuration(self) -> str:
        """Return the `queues.yaml` of the replay: the user's own; or one by which all users may submit, to
        `root.<group>.<user>`, created on demand.
        """
        return self.configuration or "partitions:\n" + "".join(
            _PARTITION.format(name=site.partition) for site in self.sites
        )


_PARTITION: Final = """\
  - name: "{name}"
    placementrules: [{{name: user, create: true, parent: {{name: tag, value: group, create: true}}}}]
    queues: [{{name: root, submitacl: "*"}}]
"""


def plan(
    log: Log,
    *,
    rm_id: str,
    partitions: int = PARTITIONS_DEFAULT,
    load: float = LOAD_DEFAULT,
    nodes: int | None = None,
    queues: UserQueues | None = None,
) -> Plan:
    """Plan the replay: the busiest `partitions` sites get their own partition, all others share one; or each site gets
    a partition of `queues`.

    `load` is the share of its processors that a site's jobs would use over the whole log; above 1 the replay takes
    longer than the log. `nodes` sets each partition's number of nodes instead.
    """
    left_out: Counter[str] = Counter()
    kept: list[Job] = []
    for job in sorted(log.jobs, key=lambda job: job.submit_s):
        if reason := _find_obstacle(job):
            left_out[reason] += 1
        else:
            kept.append(job)
    sizes = Counter(job.site for job in kept)
    if queues is None:
        names = _name_partitions(sizes, log.sites, rm_id=rm_id, partitions=partitions)
    else:
        names = {site: queues.choose_partition(log.sites.get(site, "")) for site in sorted(sizes)}
    start_s = kept[0].submit_s if kept else 0
    jobs = tuple(replace(job, partition=names[job.site], submit_s=job.submit_s - start_s) for job in kept)
    if queues is not None:
        jobs = tuple(replace(job, leaf=queues.choose_queue(job.partition, job.group, job.user)) for job in jobs)
    span_s = max((job.submit_s + job.run_s for job in jobs), default=0)
    grouped: dict[str, list[Job]] = {name: [] for name in names.values()}
    for planned in jobs:
        grouped[planned.partition].append(planned)
    sites = tuple(_size_site(name, part, span_s=span_s, load=load, nodes=nodes) for name, part in grouped.items())
    return Plan(
        sites=sites,
        jobs=jobs,
        span_s=span_s,
        folded_sites=max(0, len(names) - partitions) if queues is None else 0,
        left_out=dict(left_out),
        configuration="" if queues is None else queues.text,
    )


# Private ------------------------------------------------------------------------------------------------------------


def _find_obstacle(job: Job) -> str:
    """Return why this job cannot be replayed; empty if it can."""
    obstacles = {
        "a part of a job that has a line of its own": job.is_part,
        "run time unknown": job.run_s < 0,
        "number of processors unknown": job.processors <= 0,
        f"more than {PROCESSORS_MAX} processors": job.processors > PROCESSORS_MAX,
        f"more than {MEMORY_KB_MAX} KiB for each processor": job.memory > MEMORY_KB_MAX * 1024,
    }
    return next((reason for reason, holds in obstacles.items() if holds), "")


def _name_partitions(jobs: Counter[int], sites: dict[int, str], *, rm_id: str, partitions: int) -> dict[int, str]:
    """Return the partition of each site, busiest first. The names are valid and unique, except for `other`."""
    busiest = sorted(jobs, key=lambda site: (-jobs[site], site))
    taken: set[str] = set()
    names: dict[int, str] = {}
    for site in busiest[:partitions]:
        unnamed = f"site-{site}" if site >= 0 else "default"
        names[site] = _make_unique(_UNNAMEABLE.sub("-", sites.get(site, unnamed))[:_NAME_CHARS_MAX], taken, rm_id=rm_id)
    if rest := busiest[partitions:]:
        names.update(dict.fromkeys(rest, _make_unique(OTHER, taken, rm_id=rm_id)))
    return names


def _make_unique(wanted: str, taken: set[str], *, rm_id: str) -> str:
    """Return the name, with a number if the core would treat it as one of `taken`."""
    name, number = wanted, 1
    while (key := normalise_partition_name(rm_id, name).lower()) in taken:
        number += 1
        name = f"{wanted}-{number}"
    taken.add(key)
    return name


def _size_site(name: str, jobs: list[Job], *, span_s: int, load: float, nodes: int | None) -> Site:
    biggest_job = max(job.processors for job in jobs)
    biggest_task = ceil(biggest_job / TASKS_MAX)
    if nodes is None:
        busy = ceil(sum(job.work_s for job in jobs) / (load * max(span_s, 1)))
        # A job's tasks could run one after another, but no real site had fewer processors than one of its jobs.
        processors = max(busy, biggest_job)
        nodes = min(ceil(processors / NODE_PROCESSORS), NODES_MAX)
        node_processors = max(ceil(processors / nodes), biggest_task)
    else:
        node_processors = max(NODE_PROCESSORS, biggest_task)
    memory = max(job.memory for job in jobs) * node_processors
    return Site(partition=name, nodes=nodes, node_processors=node_processors, node_memory=memory)
