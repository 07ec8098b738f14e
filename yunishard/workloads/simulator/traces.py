"""Read the jobs of a trace: SWF, Alibaba's openb CSV, or the JSON lines of this project.

    swf     Standard Workload Format, as `yunishard replay` reads it (`yunishard/workloads/replay/workload.py`)
    openb   `openb_pod_list_*.csv` of cluster-trace-gpu-v2023: a pod is a job with one task
    jsonl   a JSON object a line with the fields of `JobLine`

The format is found in the content. Files may be packed with gzip, and are read within bounds, because they come from
anywhere. An error names file, line, field and what would be right.

Not here: nodes (`node_files.py`), queues and applications (`simulation.py`).
"""

import codecs
import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import dataclass, field
from io import BufferedIOBase
from math import isfinite
from pathlib import Path
from typing import Final

import msgspec

from yunishard.cli.main import CommandUnusable
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import QuantityError, parse_quantity
from yunishard.partition_worker.engine.state import TEXT_MAX, find_text_objection
from yunishard.workloads.replay import workload

JOBS_MAX: Final = workload.JOBS_MAX
"""Jobs of a trace. A longer one is refused, because all of them are held in memory."""

TASKS_MAX: Final = 10_000
"""Tasks of a job of a JSON line. A job with more is refused."""

TASKS_OF_ALL_MAX: Final = 20_000_000
"""Tasks of all jobs of a trace. A trace with more is refused while it is read."""

LINE_BYTES_MAX: Final = 1 << 20
"""Bytes of a line of JSON or CSV. A longer one is refused."""

LINES_MAX: Final = 2 * JOBS_MAX
"""Lines of a file, with empty ones. A longer one is refused while it is read."""

MEBIBYTE: Final = 1 << 20

GPU: Final = "gpu-milli"
"""The resource type of GPUs in openb: thousandths of a GPU, as pods share them."""

GPU_MODEL: Final = "gpu-model"
"""The node attribute with the model of the GPUs in openb."""

NODE_SELECTOR: Final = "yunishard/nodeSelector"
"""The tag of an ask with its demands on node attributes (docs/operating/constraints.md)."""


@dataclass(slots=True, eq=False)
class TraceJob:
    """A job of a trace. Times are seconds, `submit` since the start of the trace."""

    name: str
    submit: float
    run_time: float
    tasks: tuple[Resources, ...]
    """The amounts of each task; equal ones are shared."""
    user: str = ""
    groups: tuple[str, ...] = ()
    queue: str = ""
    """The requested queue; empty if the trace names none."""
    site: str = ""
    """The part of the trace's system that ran it."""
    gang: str | None = None
    """`Soft` or `Hard`, or empty for separate asks; None if the trace does not say."""
    after: tuple[str, ...] = ()
    """Names of the jobs that have to end before it is submitted."""
    think: float = 0.0
    """Seconds between the last of these ends and the submission."""
    priority: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


class JobLine(msgspec.Struct, forbid_unknown_fields=True):
    """A line of the project's own format."""

    id: str
    submit: float
    resources: dict[str, str | int]
    """Amounts of one task: text as in `queues.yaml`, or a number in base units."""
    run_time: float | None = None
    estimate: float | None = None
    """The run time that the user expects; used if `run_time` is missing."""
    user: str = "user"
    groups: list[str] = []
    queue: str = ""
    tasks: int = 1
    gang: bool | str | None = None
    """True or "Soft", "Hard"; false for separate asks; absent for the choice of `--parallel`."""
    after: list[str] = []
    think_time: float = 0.0
    priority: int = 0
    tags: dict[str, str] = {}


@dataclass(slots=True)
class Trace:
    """The jobs of all files, by submission."""

    jobs: list[TraceJob] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason to number of entries that cannot be simulated."""
    task_count: int = 0
    """Tasks of all jobs."""

    def add(self, job: TraceJob) -> None:
        """Add a job.

        Raises:
            ValueError: the scheduler would refuse it for its long texts, or there are too many jobs or tasks.
        """
        texts = {"id": job.name, "user": job.user, "queue": job.queue, "groups": "".join(job.groups)}
        if objection := find_text_objection(texts.values(), job.tags):
            longest = max(texts, key=lambda name: len(texts[name]))
            raise ValueError(f"{longest if len(texts[longest]) > TEXT_MAX // 2 else 'job'}: {objection}")
        self.task_count += len(job.tasks)
        if len(self.jobs) >= JOBS_MAX:
            raise ValueError(f"more than {JOBS_MAX:,} jobs")
        if self.task_count > TASKS_OF_ALL_MAX:
            raise ValueError(f"more than {TASKS_OF_ALL_MAX:,} tasks of all jobs")
        self.jobs.append(job)


def load_traces(paths: Iterable[Path], *, types: Set[str], sites: Set[str] = frozenset(), one_task: bool) -> Trace:
    """Load and merge traces. The first submission of all is at 0. With several files, the names of the jobs begin with
    the number of the file.

    `types` are the resource types of the nodes: the memory of an SWF log is ignored if they have none. `sites` selects
    jobs by the name or number of their site; empty for all. With `one_task` a job of SWF is one task.

    Raises:
        CommandUnusable: a file cannot be read, or is malformed; or there is no job.
    """
    merged = Trace()
    files = list(paths)
    for number, path in enumerate(files, start=1):
        trace = _load(path, types=types, one_task=one_task)
        if len(files) > 1:
            for job in trace.jobs:
                job.name = f"{number}-{job.name}"
                job.after = tuple(f"{number}-{name}" for name in job.after)
        merged.jobs += [job for job in trace.jobs if not sites or job.site in sites]
        merged.left_out += trace.left_out
        merged.task_count += trace.task_count
        for count, most, noun in ((len(merged.jobs), JOBS_MAX, "jobs"), (merged.task_count, TASKS_OF_ALL_MAX, "tasks")):
            if count > most:
                raise CommandUnusable(f"{path}: more than {most:,} {noun}, with those of the files before it")
        merged.left_out["of another site"] += sum(bool(sites) and job.site not in sites for job in trace.jobs)
    merged.left_out = +merged.left_out
    if not merged.jobs:
        why = "; ".join(f"{count} {reason}" for reason, count in merged.left_out.items())
        raise CommandUnusable(f"{', '.join(map(str, files))}: no job to simulate{why and f' ({why})'}")
    merged.jobs.sort(key=lambda job: job.submit)
    start = merged.jobs[0].submit
    for job in merged.jobs:
        job.submit -= start
    names = Counter(job.name for job in merged.jobs)
    if len(names) < len(merged.jobs):
        twice = next(name for name, count in names.items() if count > 1)
        raise CommandUnusable(f"job {twice} appears {names[twice]} times: names of jobs must be unique in a trace")
    return merged


def _load(path: Path, *, types: Set[str], one_task: bool) -> Trace:
    try:
        with path.open("rb") as file, closing(workload.unpack(file)) as stream:
            first = stream.readline(workload.LINE_BYTES_MAX)
    except (OSError, EOFError) as error:
        raise CommandUnusable(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if first.lstrip().startswith(b"{"):
        return _read(path, read_json_lines)
    if b"creation_time" in first:
        return _read(path, read_openb)
    try:
        return convert_swf(workload.load(path), types=types, one_task=one_task)
    except ValueError as error:
        raise CommandUnusable(f"{path}: {error}") from None


def _read(path: Path, read: Callable[[BufferedIOBase], Trace]) -> Trace:
    try:
        with path.open("rb") as file, closing(workload.unpack(file)) as stream:
            return read(stream)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise CommandUnusable(f"{path}: {error}") from None
    except CommandUnusable as error:
        raise CommandUnusable(f"{path}: {error}") from None


# SWF ------------------------------------------------------------------------------------------------------------------


def convert_swf(log: workload.Log, *, types: Set[str], one_task: bool) -> Trace:
    """Convert the jobs of an SWF log. A job with an unknown run time runs for its requested time."""
    trace = Trace()
    shared: dict[tuple[int, int], Resources] = {}

    def amounts(processors: int, memory: int) -> Resources:
        key = processors, memory
        if key not in shared:
            shared[key] = {"vcore": processors * 1000, **({"memory": memory * processors} if memory else {})}
        return shared[key]

    trace.left_out["malformed line"] += log.malformed_count
    for job in log.jobs:
        run_time = job.run_s if job.run_s >= 0 else job.estimate_s
        if reason := _find_obstacle(job, run_time):
            trace.left_out[reason] += 1
            continue
        memory = job.memory if "memory" in types else 0
        sizes = (job.processors,) if one_task else job.split_tasks().values()
        trace.add(
            TraceJob(
                name=str(job.number),
                submit=float(job.submit_s),
                run_time=float(run_time),
                tasks=tuple(amounts(size, memory) for size in sizes),
                user=job.user,
                groups=(job.group,),
                site=log.sites.get(job.site, str(job.site)).strip(),
                after=(str(job.preceding),) if job.preceding > 0 else (),
                think=float(max(job.think_s, 0)),
            )
        )
    trace.left_out = +trace.left_out
    return trace


def _find_obstacle(job: workload.Job, run_time: int) -> str:
    """Return why this job cannot be simulated; empty if it can."""
    if job.is_part:
        return "part of a job that has a line of its own"
    if run_time < 0:
        return "job of unknown run time"
    if not 0 < job.processors <= workload.PROCESSORS_MAX:
        return (
            "job of unknown size" if job.processors <= 0 else f"job of more than {workload.PROCESSORS_MAX} processors"
        )
    return ""


# Alibaba openb --------------------------------------------------------------------------------------------------------

_OPENB: Final = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)


def read_openb(stream: BufferedIOBase) -> Trace:
    """Read the pods of an openb list. A pod runs from when it was scheduled to its deletion, so the run time of one
    that was deleted before, as it waited, is unknown. Its group is its QoS class, and a pod that demands a GPU model
    gets a node selector.
    """
    trace = Trace()
    shared: dict[tuple[int, int, int], Resources] = {}
    for number, row in iterate_csv(stream, _OPENB):
        created = _parse_number(row, "creation_time", number)
        deleted = row.get("deletion_time") or ""
        if not deleted:
            trace.left_out["pod that was not deleted"] += 1
            continue
        if not row.get("scheduled_time"):
            trace.left_out["pod that was never scheduled"] += 1
            continue
        started = _parse_number(row, "scheduled_time", number)
        gpus = round(_parse_number(row, "num_gpu", number))
        share = round(_parse_number(row, "gpu_milli", number)) if gpus == 1 else 1000 * gpus
        cores, memory = (round(_parse_number(row, name, number)) for name in ("cpu_milli", "memory_mib"))
        key = cores, memory, share
        if key not in shared:
            amounts = {"vcore": cores, "memory": memory * MEBIBYTE, GPU: share}
            shared[key] = {kind: amount for kind, amount in amounts.items() if amount > 0}
        if not shared[key]:
            trace.left_out["pod without resources"] += 1
            continue
        models = [model for model in (row.get("gpu_spec") or "").split("|") if model]
        group = row.get("qos") or "unknown"
        job = TraceJob(
            name=row["name"],
            submit=created,
            run_time=max(_parse_number(row, "deletion_time", number) - started, 0.0),
            tasks=(shared[key],),
            user=group,
            groups=(group,),
            tags={NODE_SELECTOR: f"{GPU_MODEL} in ({','.join(models)})"} if models else {},
        )
        try:
            trace.add(job)
        except ValueError as error:
            raise CommandUnusable(f"line {number}: {error}") from None
    return trace


def iterate_csv(stream: BufferedIOBase, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the lines of a CSV file by their column names, with their numbers.

    Raises:
        CommandUnusable: a column or a value is missing, or there are too many lines.
    """
    lines = csv.reader(codecs.iterdecode((line for _, line in _iterate_lines(stream)), "utf-8-sig"))
    header = [name.strip() for name in next(lines, [])]
    if not any(header):
        raise CommandUnusable("line 1: no header line with the names of the columns")
    if missing := [name for name in columns if name not in header]:
        raise CommandUnusable(f"line 1: no column {missing[0]!r} in {', '.join(header)[:200]!r}")
    for values in lines:
        if not values:
            continue
        if len(values) != len(header):
            raise CommandUnusable(f"line {lines.line_num}: {len(values)} columns, but {len(header)} in the header line")
        yield lines.line_num, dict(zip(header, (value.strip() for value in values), strict=True))


def _iterate_lines(stream: BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers.

    Raises:
        CommandUnusable: a line is too long, or there are too many.
    """
    number = 0
    while line := stream.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise CommandUnusable(f"line {number}: longer than {LINE_BYTES_MAX:,} bytes")
        if number > LINES_MAX:
            raise CommandUnusable(f"more than {LINES_MAX:,} lines")
        yield number, line


def _parse_number(row: Mapping[str, str], name: str, line: int) -> float:
    text = row.get(name) or ""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (isfinite(number) and 0 <= number <= workload.VALUE_MAX):
        raise CommandUnusable(f"line {line}: {name}: expected a number that is not negative, got {text[:40]!r}")
    return number


# JSON lines -----------------------------------------------------------------------------------------------------------


def read_json_lines(stream: BufferedIOBase) -> Trace:
    """Read a trace in the project's own format."""
    trace = Trace()
    shared: dict[tuple[tuple[str, int], ...], Resources] = {}
    decode = msgspec.json.Decoder(JobLine).decode
    for number, line in _iterate_lines(stream):
        if not line.strip():
            continue
        try:
            trace.add(_convert_line(decode(line), shared))
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise CommandUnusable(f"line {number}: {error}") from None
    return trace


def _convert_line(line: JobLine, shared: dict[tuple[tuple[str, int], ...], Resources]) -> TraceJob:
    """Raises ValueError with the field and what would be right."""
    run_time = line.estimate if line.run_time is None else line.run_time
    if run_time is None:
        raise ValueError("run_time: missing, and there is no estimate to use instead")
    for name, number in (("submit", line.submit), ("run_time", run_time), ("think_time", line.think_time)):
        if not (isfinite(number) and 0 <= number <= workload.VALUE_MAX):
            raise ValueError(f"{name}: expected seconds that are not negative, got {number}")
    if not 1 <= line.tasks <= TASKS_MAX:
        raise ValueError(f"tasks: expected 1 to {TASKS_MAX}, got {line.tasks}")
    if not line.id or not line.resources:
        raise ValueError(f"{'resources' if line.id else 'id'}: must not be empty")
    if line.gang not in (None, True, False, "Soft", "Hard"):
        raise ValueError(f"gang: expected true, false, 'Soft' or 'Hard', got {line.gang!r}")
    amounts = tuple(sorted((kind, parse_amount(kind, amount)) for kind, amount in line.resources.items()))
    resources = shared.setdefault(amounts, dict(amounts))
    style = line.gang if not isinstance(line.gang, bool) else "Soft" if line.gang else ""
    return TraceJob(
        name=line.id,
        submit=line.submit,
        run_time=run_time,
        tasks=(resources,) * line.tasks,
        user=line.user,
        groups=tuple(line.groups) or (line.user,),
        queue=line.queue,
        gang=style,
        after=tuple(line.after),
        think=line.think_time,
        priority=line.priority,
        tags=line.tags,
    )


def parse_amount(kind: str, amount: str | int) -> int:
    """Parse an amount: text as in `queues.yaml`, or a number in base units. Raises ValueError with the type."""
    if isinstance(amount, int):
        if not 0 <= amount <= workload.VALUE_MAX**1.5:
            raise ValueError(f"{kind}: expected an amount that is not negative, got {amount}")
        return amount
    try:
        return parse_quantity(amount, resource_type=kind)
    except QuantityError as error:
        raise ValueError(f"{kind}: {error}: {amount[:40]!r}; right are 4, 500m or 16Gi") from None
