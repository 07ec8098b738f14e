"""Read the result folder of a simulated run: `run.json`, `jobs.csv`, `usage.csv`, `preemptions.csv`.

Figures, comparison and report depend on these files only, so that they can be made of any folder, also of one that
another program wrote or a user has changed. The files are therefore checked: an error names file, line, column and
what would be right. Columns may be in any order, and further ones are ignored.

Times are seconds since the start of the trace, and amounts are in base units (`common/resources.py`).
"""

import csv
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Final, Literal

import msgspec

from yunishard.cli.main import CommandUnusable
from yunishard.workloads.replay.result_folder import FORMAT, RUN_FILE

JOBS_MAX: Final = 5_000_000
"""Jobs of a run. A folder with more is refused, because all of them are held in memory."""

USAGE_ROWS_MAX: Final = 20_000_000
"""Lines of `usage.csv`: 1,000 intervals of 10,000 queues with two resource types, which take about a gigabyte of
memory. A longer file is refused."""

RUNS_MAX: Final = 8
"""Runs that are compared or shown in one report, as a chart with more lines is not readable. More are refused."""

JobState = Literal["completed", "rejected", "unfinished"]
_STATES: Final = {"completed", "rejected", "unfinished"}


class RunInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The content of `run.json`."""

    format: int
    name: str
    configuration: str
    """Name of the file."""
    node_sort_policy: str
    traces: tuple[str, ...]
    jobs: int
    rejected: int
    unfinished: int
    span: float
    """Seconds from the start of the trace to the end of the last job, or of the simulation."""
    nodes: int
    capacity: dict[str, int]
    partition: str = "default"
    left_out: dict[str, int] = {}
    """Reason to number of entries of the trace that were not simulated."""
    replay_speed: float = 0.0
    """Of a replay in real time, seconds of the log in one second; 0 for a simulation."""


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A line of `jobs.csv`."""

    job: str
    user: str
    queue: str
    submit: float
    start: float | None
    """None for a job that never started."""
    end: float | None
    """None for a job that was rejected or has not ended."""
    wait: float | None
    run_time: float | None
    slowdown: float | None
    """Bounded slowdown; None for a job that has not completed."""
    tasks: int
    state: JobState
    preemptions: int
    lost: float
    """Seconds of work that preemptions have undone."""


@dataclass(slots=True)
class UsageSeries:
    """One resource type of one queue, for each interval of the run."""

    used: Sequence[float]
    pending: Sequence[float]
    guaranteed: Sequence[float | None]
    """None where the configuration sets none."""
    maximum: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Preemption:
    """A line of `preemptions.csv`."""

    time: float
    queue: str
    """The queue of the victim."""
    by_queue: str
    """The queue for whose ask it was preempted; empty if that is not known."""
    lost: float


@dataclass(slots=True)
class Run:
    """One run with all its data."""

    folder: Path
    info: RunInfo
    jobs: list[SimulatedJob]
    times: list[float] = field(default_factory=list)
    """Starts of the intervals of `usage`."""
    usage: dict[str, dict[str, UsageSeries]] = field(default_factory=dict)
    """Queue path to resource type to its usage."""
    preemptions: list[Preemption] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.info.name


def find_folders(paths: Sequence[Path]) -> list[Path]:
    """Return the folders of runs: each path is one, or contains some.

    Raises:
        CommandUnusable: a path is no folder with runs, or there are too many.
    """
    found: list[Path] = []
    for path in paths:
        if (path / RUN_FILE).is_file():
            inside = [path]
        elif path.is_dir():
            inside = sorted(one.parent for one in path.glob(f"*/{RUN_FILE}"))
        else:
            raise CommandUnusable(f"{path}: no such directory; expected one that `yunishard simulate --output` wrote")
        if not inside:
            raise CommandUnusable(f"{path}: no {RUN_FILE} in it or in the directories below it")
        found += [one for one in inside if one not in found]
    if len(found) > RUNS_MAX:
        raise CommandUnusable(
            f"{len(found)} runs, of which at most {RUNS_MAX} can be shown together: name some of them"
        )
    return found


def load_runs(paths: Sequence[Path]) -> list[Run]:
    """Load the runs in these paths. Runs of the same name get the name of their folder as a prefix."""
    runs = [load_run(folder) for folder in find_folders(paths)]
    names = [run.name for run in runs]
    for run in runs:
        if names.count(run.name) > 1:
            where = run.folder.resolve()
            parts = [where.parent.name, where.name] if where.name == run.name else [where.name, run.name]
            run.info = msgspec.structs.replace(run.info, name="/".join(parts))
    return runs


def load_run(folder: Path) -> Run:
    """Load the run in a folder.

    Raises:
        CommandUnusable: a file is missing, cannot be read or is malformed.
    """
    return Run(folder, _read_info(folder / RUN_FILE), *_read_tables(folder))


def _read_info(path: Path) -> RunInfo:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise CommandUnusable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        version = json.loads(raw).get("format")
        if version == FORMAT:
            return msgspec.json.decode(raw, type=RunInfo)
    except (ValueError, AttributeError, msgspec.MsgspecError) as error:
        raise CommandUnusable(f"{path}: {error}") from None
    raise CommandUnusable(f"{path}: format {version!r}, but this release reads format {FORMAT}")


def _read_tables(
    folder: Path,
) -> tuple[list[SimulatedJob], list[float], dict[str, dict[str, UsageSeries]], list[Preemption]]:
    jobs = [_parse_job(row) for row in _read_table(folder / "jobs.csv", _JOB_COLUMNS, JOBS_MAX)]
    times, usage = _read_usage(folder / "usage.csv")
    path = folder / "preemptions.csv"
    rows = _read_table(path, _PREEMPTION_COLUMNS, USAGE_ROWS_MAX) if path.exists() else ()
    return jobs, times, usage, [_parse_preemption(row) for row in rows]


# Lines ----------------------------------------------------------------------------------------------------------------

_JOB_COLUMNS: Final = (
    *("job", "user", "queue", "submit", "start", "end", "wait", "run_time", "bounded_slowdown", "tasks", "state"),
    *("preemptions", "lost"),
)
_USAGE_COLUMNS: Final = ("time", "queue", "resource", "used", "pending", "guaranteed", "maximum")
_PREEMPTION_COLUMNS: Final = ("time", "queue", "by_queue", "lost")


@dataclass(slots=True)
class _Row:
    """A line of a file, with the values of the columns that are needed."""

    path: Path
    columns: tuple[str, ...]
    line: int = 0
    values: Sequence[str] = ()

    def refuse(self, column: int, expected: str) -> CommandUnusable:
        text = f"{self.path}: line {self.line}: {self.columns[column]}: expected {expected}"
        return CommandUnusable(f"{text}, got {self.values[column][:40]!r}")

    def parse_number(self, column: int) -> float:
        try:
            number = float(self.values[column])
        except ValueError:
            number = -1.0
        if not (isfinite(number) and number >= 0):
            raise self.refuse(column, "a number that is not negative")
        return number

    def parse_optional(self, column: int) -> float | None:
        return self.parse_number(column) if self.values[column] else None


def _read_table(path: Path, columns: tuple[str, ...], rows_max: int) -> Iterator[_Row]:
    """Yield the lines of a file. All are the same object with other values, because there may be millions."""
    row = _Row(path, columns)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            if missing := [name for name in columns if name not in header]:
                raise CommandUnusable(f"{path}: no column {missing[0]!r} in the header line")
            pick = [header.index(name) for name in columns]
            for number, values in enumerate(lines, start=1):
                if number > rows_max:
                    raise CommandUnusable(f"{path}: more than {rows_max:,} lines")
                if len(values) != len(header):
                    raise CommandUnusable(
                        f"{path}: line {lines.line_num}: {len(values)} columns, but {len(header)} in the header line"
                    )
                row.line, row.values = lines.line_num, [values[index] for index in pick]
                yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise CommandUnusable(f"{path}: {reason}") from None


def _parse_job(row: _Row) -> SimulatedJob:
    job, user, queue, *_ = row.values
    state = row.values[10]
    if state not in _STATES:
        raise row.refuse(10, "completed, rejected or unfinished")
    return SimulatedJob(
        job=job,
        user=user,
        queue=queue,
        submit=row.parse_number(3),
        start=row.parse_optional(4),
        end=row.parse_optional(5),
        wait=row.parse_optional(6),
        run_time=row.parse_optional(7),
        slowdown=row.parse_optional(8),
        tasks=int(row.parse_number(9)),
        state=state,  # type: ignore[arg-type]  # it is one of them
        preemptions=int(row.parse_number(11)),
        lost=row.parse_number(12) if row.values[12] else 0.0,
    )


def _parse_preemption(row: _Row) -> Preemption:
    return Preemption(row.parse_number(0), row.values[1], row.values[2], row.parse_number(3))


@dataclass(slots=True)
class _SeriesBuilder:
    """The lines of one resource type of one queue, held compactly, as there may be millions in all."""

    times: "array[float]" = field(default_factory=lambda: array("d"))
    used: "array[float]" = field(default_factory=lambda: array("d"))
    pending: "array[float]" = field(default_factory=lambda: array("d"))
    guaranteed: list[float | None] = field(default_factory=list)
    maximum: list[float | None] = field(default_factory=list)

    def append(self, row: _Row) -> None:
        self.times.append(row.parse_number(0))
        self.used.append(row.parse_number(3))
        self.pending.append(row.parse_number(4))
        for limits, column in ((self.guaranteed, 5), (self.maximum, 6)):
            limit = row.parse_optional(column)
            limits.append(limits[-1] if limits and limits[-1] == limit else limit)  # one object for equal ones

    def build(self, times: Sequence[float]) -> UsageSeries:
        """Return the series; an interval without a line, because the queue did not exist yet, has no use."""
        if self.times.tolist() == times:
            return UsageSeries(self.used, self.pending, self.guaranteed, self.maximum)
        at = {time: index for index, time in enumerate(self.times)}
        places = [at.get(time) for time in times]
        return UsageSeries(
            array("d", [0.0 if place is None else self.used[place] for place in places]),
            array("d", [0.0 if place is None else self.pending[place] for place in places]),
            [None if place is None else self.guaranteed[place] for place in places],
            [None if place is None else self.maximum[place] for place in places],
        )


def _read_usage(path: Path) -> tuple[list[float], dict[str, dict[str, UsageSeries]]]:
    found: dict[tuple[str, str], _SeriesBuilder] = {}
    for row in _read_table(path, _USAGE_COLUMNS, USAGE_ROWS_MAX):
        key = row.values[1], row.values[2]
        if key not in found:
            found[key] = _SeriesBuilder()
        found[key].append(row)
    times = sorted(set().union(*(series.times for series in found.values())))
    usage: dict[str, dict[str, UsageSeries]] = {}
    for (queue, resource), series in found.items():
        usage.setdefault(queue, {})[resource] = series.build(times)
    return times, usage
