"""Read a workload log in the Standard Workload Format (SWF) and plan the replay: partitions, nodes, applications, asks.

SWF: one job a line with 18 numbers, comments after `;`, -1 for an unknown value
(https://www.cs.huji.ac.il/labs/parallel/workload/swf.html). The log is read as a stream and within bounds, because logs
come from anywhere. A line that is not a job becomes a `Malformed` with its line number and the reason.

In the plan, sites of the log become partitions, groups and users become queues (by placement rules, so the
configuration names none), and jobs become applications. The log does not contain the size of a site. Each site gets as
many processors as its jobs keep busy: their processor time, divided by the length of the log and by the wanted load.

Not here: when anything is submitted (`machine.py`).
"""

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from io import BufferedIOBase
from math import ceil
from pathlib import Path
from typing import Final

from common.names import normalise_partition_name

COLUMNS: Final = 18
LINE_BYTES_MAX: Final = 4096
JOBS_MAX: Final = 5_000_000
SITES_MAX: Final = 10_000
VALUE_MAX: Final = 10**12
"""No column of a real log comes near it; products of two still fit 64 bits after scaling."""
MALFORMED_KEPT_MAX: Final = 20
QUOTED_CHARS_MAX: Final = 60
UNKNOWN: Final = -1

_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,18}(\.[0-9]{0,18})?([eE][+-]?[0-9]{1,2})?")
_COMMENT: Final = re.compile(r";\s*([A-Za-z]+):\s*(.*)")
_SITE_NAME: Final = re.compile(r"([0-9]{1,9})\s+(\S.*)")
_GZIP_MAGIC: Final = b"\x1f\x8b"


class SwfError(Exception):
    """A log that cannot be used at all; one line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job line. Numbers are not negative, or `UNKNOWN`; number and submit time are always known."""

    line: int
    number: int
    submit_s: int
    """Since the start of the log."""
    wait_s: int
    run_s: int
    processors: int
    memory_kb: int
    """Used, for each processor."""
    processors_requested: int
    memory_requested_kb: int
    """For each processor."""
    status: int
    user: int
    group: int
    partition: int


@dataclass(frozen=True, slots=True)
class Malformed:
    """A line that is no job, and why; the text is shortened and safe to print."""

    line_number: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line_number}: {self.reason}: {self.text}"


@dataclass(frozen=True, slots=True)
class Comment:
    """A header line `; Key: value`, or any other comment with an empty key."""

    key: str
    value: str


@dataclass(slots=True)
class Log:
    """A whole log in memory."""

    jobs: list[Job] = field(default_factory=list)
    sites: dict[int, str] = field(default_factory=dict)
    """Names that the header gives to partitions."""
    malformed: list[Malformed] = field(default_factory=list)
    """The first `MALFORMED_KEPT_MAX` of them."""
    malformed_count: int = 0

    def take(self, entry: Job | Malformed | Comment, *, strict: bool = False) -> None:
        """Add what a line says.

        Raises:
            SwfError: too many jobs, or with `strict` a malformed line.
        """
        match entry:
            case Job():
                if len(self.jobs) >= JOBS_MAX:
                    raise SwfError(f"more than {JOBS_MAX} jobs")
                self.jobs.append(entry)
            case Malformed():
                if strict:
                    raise SwfError(str(entry))
                self.malformed_count += 1
                if len(self.malformed) < MALFORMED_KEPT_MAX:
                    self.malformed.append(entry)
            case Comment(key="Partition", value=value) if named := _SITE_NAME.fullmatch(value):
                if len(self.sites) < SITES_MAX:
                    self.sites[int(named[1])] = named[2]
            case Comment():
                pass


def load(path: Path, *, strict: bool = False) -> Log:
    """The log in a file, plain or packed with gzip.

    Raises:
        SwfError: unreadable, without any job, or with `strict` at the first malformed line.
    """
    log = Log()
    try:
        with path.open("rb") as file, closing(_unpacked(file)) as stream:
            for entry in entries(stream):
                log.take(entry, strict=strict)
    except OSError as error:  # includes gzip.BadGzipFile
        raise SwfError(f"cannot read {path}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise SwfError(f"cannot read {path}: damaged gzip file ({error})") from None
    except SwfError as error:
        raise SwfError(f"{path}: {error}") from None
    if not log.jobs:
        first = f"; {log.malformed[0]}" if log.malformed else ""
        raise SwfError(f"{path}: no job in it ({log.malformed_count} malformed lines{first})")
    return log


def entries(stream: BufferedIOBase) -> Iterator[Job | Malformed | Comment]:
    """What the lines of a log say, in order; blank lines say nothing."""
    seen: set[int] = set()
    number = 0
    while raw := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(raw) > LINE_BYTES_MAX and not raw.endswith(b"\n"):
            _skip_line(stream)
            yield Malformed(number, _quoted(raw), f"longer than {LINE_BYTES_MAX} bytes")
            continue
        line = raw.strip()
        if not line:
            continue
        entry = _comment(line) if line.startswith(b";") else job_of(line, number)
        if isinstance(entry, Job) and not is_part(entry):
            if entry.number in seen:
                entry = Malformed(number, _quoted(line), f"job {entry.number} appeared before")
            else:
                seen.add(entry.number)
        yield entry


def job_of(line: bytes, number: int) -> Job | Malformed:
    """The job that a line describes, or what is wrong with it."""
    words = line.split()
    if len(words) != COLUMNS:
        return Malformed(number, _quoted(line), f"{len(words)} columns, expected {COLUMNS}")
    values: list[int] = []
    for column, word in enumerate(words, start=1):
        value = _value(word)
        if value is None:
            return Malformed(number, _quoted(line), f"column {column} is no number: {_quoted(word)}")
        if not UNKNOWN <= value <= VALUE_MAX:
            return Malformed(number, _quoted(line), f"column {column} is out of range: {_quoted(word)}")
        values.append(value)
    if UNKNOWN in values[:2]:
        return Malformed(number, _quoted(line), "job number and submit time must be known")
    return Job(
        line=number,
        number=values[0],
        submit_s=values[1],
        wait_s=values[2],
        run_s=values[3],
        processors=values[4],
        memory_kb=values[6],
        processors_requested=values[7],
        memory_requested_kb=values[9],
        status=values[10],
        user=values[11],
        group=values[12],
        partition=values[15],
    )


def is_part(job: Job) -> bool:
    """Whether the line is one stretch of a job that was swapped out; the whole job then has a line of its own."""
    return job.status in (2, 3, 4)


# Private ------------------------------------------------------------------------------------------------------------


def _unpacked(file: BufferedIOBase) -> BufferedIOBase:
    """The file's content; the first bytes tell whether it is packed, not its name."""
    packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    file.seek(0)
    return gzip.GzipFile(fileobj=file, mode="rb") if packed else file


def _skip_line(stream: BufferedIOBase) -> None:
    while (rest := stream.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
        pass


def _comment(line: bytes) -> Comment:
    text = line.decode("utf-8", errors="replace")
    named = _COMMENT.fullmatch(text)
    return Comment(named[1], named[2].strip()) if named else Comment("", text)


def _value(word: bytes) -> int | None:
    if not _NUMBER.fullmatch(word):
        return None
    # A few logs give fractions of seconds; whole ones are good enough. int() for the usual case, because it is exact.
    return int(word) if word.lstrip(b"+-").isdigit() else round(float(word))


def _quoted(text: bytes) -> str:
    """Shortened, without control characters: it goes to a terminal."""
    quoted = text.strip()[: QUOTED_CHARS_MAX + 1].decode("ascii", errors="replace")
    safe = "".join(char if char.isascii() and char.isprintable() else "?" for char in quoted)
    return safe if len(safe) <= QUOTED_CHARS_MAX else safe[:QUOTED_CHARS_MAX] + "..."


# The plan of a replay -------------------------------------------------------------------------------------------------

PARTITIONS_DEFAULT: Final = 6
LOAD_DEFAULT: Final = 0.7
"""Queues build up at the busy hours and are empty again by the end, in every log that was tried."""

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
"""How long the log takes to replay at the default speed; what the queues hold back fills the rest of the minute."""
ASKS_PER_SECOND_MAX: Final = 1000
"""The default speed asks no faster than this, on average; bigger logs take more than a minute."""

OTHER: Final = "other"
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_CHARS_MAX: Final = 56
"""Leaves room, within the 64 of a partition's name, for what makes it unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job as an application with one ask for each of its tasks."""

    application_id: str
    partition: str
    group: str
    user: str
    submit_s: int
    """Since the first job of the replay."""
    run_s: int
    processors: int
    memory: int
    """Bytes for each processor; 0 if the log does not say."""

    @property
    def queue(self) -> str:
        """Where the placement rules of `Plan.configuration` put it."""
        return f"root.{self.group}.{self.user}"

    @property
    def work_s(self) -> int:
        """Processor seconds."""
        return self.run_s * self.processors

    def tasks(self) -> list[int]:
        """Processors of each task: even, and the first ones one bigger where it does not divide."""
        count = min(self.processors, TASKS_MAX)
        each, rest = divmod(self.processors, count)
        return [each + 1] * rest + [each] * (count - rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A partition and its nodes, which are all alike."""

    partition: str
    jobs: int
    nodes: int
    node_processors: int
    node_memory: int

    @property
    def processors(self) -> int:
        return self.nodes * self.node_processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that the replay is going to do."""

    sites: tuple[Site, ...]
    """Busiest first; `other`, if there is one, last."""
    jobs: tuple[PlannedJob, ...]
    """By submit time."""
    span_s: int
    """From the first submission to the last end, had every job started at once."""
    folded_sites: int = 0
    """How many sites share the partition `other`."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Reason to number of job lines that cannot be replayed."""

    @property
    def default_speed(self) -> float:
        """Log seconds per second, for a replay of about a minute."""
        asks = sum(min(job.processors, TASKS_MAX) for job in self.jobs)
        return max(1.0, self.span_s / max(WATCHED_S, asks / ASKS_PER_SECOND_MAX))

    def configuration(self) -> str:
        """The `queues.yaml` of the replay: whoever submits, to `root.<group>.<user>`, created when needed."""
        return "partitions:\n" + "".join(_PARTITION.format(name=site.partition) for site in self.sites)


_PARTITION: Final = """\
  - name: "{name}"
    placementrules:
      - name: user
        create: true
        parent:
          name: tag
          value: group
          create: true
    queues:
      - name: root
        submitacl: "*"
"""


def plan(
    log: Log,
    *,
    rm_id: str,
    partitions: int = PARTITIONS_DEFAULT,
    load: float = LOAD_DEFAULT,
    nodes: int | None = None,
) -> Plan:
    """Lay out the replay: the busiest `partitions` sites keep their own partition, all others share one.

    `load` is the share of its processors that a site's jobs would use over the whole log; above 1 the replay takes
    longer than the log. `nodes` sets each partition's number of nodes instead.
    """
    assert partitions >= 1
    assert load > 0
    left_out: Counter[str] = Counter()
    kept: list[Job] = []
    for job in log.jobs:
        if reason := _unusable(job):
            left_out[reason] += 1
        else:
            kept.append(job)
    kept.sort(key=lambda job: (job.submit_s, job.line))
    names = _partition_names(Counter(job.partition for job in kept), log.sites, rm_id=rm_id, partitions=partitions)
    start_s = kept[0].submit_s if kept else 0
    jobs = tuple(_planned(job, names[job.partition], start_s) for job in kept)
    span_s = max((job.submit_s + job.run_s for job in jobs), default=0)
    grouped: dict[str, list[PlannedJob]] = {name: [] for name in names.values()}
    for planned in jobs:
        grouped[planned.partition].append(planned)
    return Plan(
        sites=tuple(_site(name, part, span_s=span_s, load=load, nodes=nodes) for name, part in grouped.items()),
        jobs=jobs,
        span_s=span_s,
        folded_sites=max(0, len(names) - partitions),
        left_out=dict(left_out),
    )


# Private ------------------------------------------------------------------------------------------------------------


def _processors(job: Job) -> int:
    return job.processors if job.processors > 0 else job.processors_requested


def _memory_kb(job: Job) -> int:
    return max(job.memory_requested_kb, job.memory_kb, 0)


def _unusable(job: Job) -> str:
    """Why this job cannot be replayed, or nothing."""
    if is_part(job):
        return "a part of a job that has a line of its own"
    if job.run_s < 0:
        return "run time unknown"
    if _processors(job) <= 0:
        return "number of processors unknown"
    if _processors(job) > PROCESSORS_MAX:
        return f"more than {PROCESSORS_MAX} processors"
    if _memory_kb(job) > MEMORY_KB_MAX:
        return f"more than {MEMORY_KB_MAX} KiB for each processor"
    return ""


def _planned(job: Job, partition: str, start_s: int) -> PlannedJob:
    return PlannedJob(
        application_id=f"job-{job.number}",
        partition=partition,
        group=f"g{job.group}" if job.group >= 0 else "unknown",
        user=f"u{job.user}" if job.user >= 0 else "unknown",
        submit_s=job.submit_s - start_s,
        run_s=job.run_s,
        processors=_processors(job),
        memory=_memory_kb(job) * 1024,
    )


def _partition_names(jobs: Counter[int], sites: dict[int, str], *, rm_id: str, partitions: int) -> dict[int, str]:
    """The partition of each site, busiest first; names that the core takes, each used once (and `other` by many)."""
    busiest = sorted(jobs, key=lambda site: (-jobs[site], site))
    taken: set[str] = set()
    names: dict[int, str] = {}
    for site in busiest[:partitions]:
        unnamed = f"site-{site}" if site >= 0 else "default"
        names[site] = _unique(_UNNAMEABLE.sub("-", sites.get(site, unnamed))[:_NAME_CHARS_MAX], taken, rm_id=rm_id)
    if rest := busiest[partitions:]:
        names.update(dict.fromkeys(rest, _unique(OTHER, taken, rm_id=rm_id)))
    return names


def _unique(wanted: str, taken: set[str], *, rm_id: str) -> str:
    """The name, with a number if the core would take it for one that is there already."""
    name, number = wanted, 1
    while (key := normalise_partition_name(rm_id, name).lower()) in taken:
        number += 1
        name = f"{wanted}-{number}"
    taken.add(key)
    return name


def _site(name: str, jobs: list[PlannedJob], *, span_s: int, load: float, nodes: int | None) -> Site:
    biggest_job = max(job.processors for job in jobs)
    biggest_task = ceil(biggest_job / TASKS_MAX)
    if nodes is None:
        busy = ceil(sum(job.work_s for job in jobs) / (load * max(span_s, 1)))
        # A job's tasks could run one after another, but no site ever had fewer processors than a job of its.
        processors = max(busy, biggest_job)
        nodes = min(ceil(processors / NODE_PROCESSORS), NODES_MAX)
        node_processors = max(ceil(processors / nodes), biggest_task)
    else:
        node_processors = max(NODE_PROCESSORS, biggest_task)
    return Site(
        partition=name,
        jobs=len(jobs),
        nodes=nodes,
        node_processors=node_processors,
        node_memory=max(job.memory for job in jobs) * node_processors,
    )
