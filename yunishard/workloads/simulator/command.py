"""The command `yunishard simulate`: its actions, and the processes of the runs.

    run        simulate traces with each configuration and node sort policy; the default
    report     an HTML report of runs (`report.py`)
    compare    figures of runs side by side (`compare.py`)

A run is a process of its own, at most as many at a time as there are processors, with the folder of the compiled engine
first on its path, as `deploy/processes.py` starts workers.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from yunishard.cli.commands.console import Action, add_actions, format_file_name, read_configuration
from yunishard.cli.main import DEFAULT_ACTION, NOT_DONE, CommandFailed, CommandUnusable, dedent, parse_whole
from yunishard.common.config.problems import ConfigError
from yunishard.common.config.validation import load
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES
from yunishard.common.process.compiled import find_engine
from yunishard.common.process.folders import make_temporary_folder
from yunishard.common.process.terminal import clean, find_raw_stream
from yunishard.workloads.simulator import compare, report
from yunishard.workloads.simulator.node_files import load_nodes
from yunishard.workloads.simulator.run_folder import RUNS_MAX, load_run
from yunishard.workloads.simulator.run_process import Line
from yunishard.workloads.simulator.simulation import RunSpec, choose_partition
from yunishard.workloads.simulator.summary import print_summaries, summarize, to_json

SECONDS_MAX: Final = 10**9

_DURATION: Final = re.compile(r"([0-9]{1,9})(\.[0-9]{1,3})?(s|m|h|d)?")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_simulate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard simulate`."""
    parser.set_defaults(**{DEFAULT_ACTION: "run"})
    for name, own in add_actions(parser, {name: action.about for name, action in ACTIONS.items()}).items():
        ACTIONS[name].add(own)


def run_simulate(args: argparse.Namespace) -> int:
    """Simulate a cluster: run the trace of a workload in virtual time, with the same
    scheduler as a live system, and write what became of each job.

    The same input gives the same files, byte by byte. A month of jobs takes minutes.

    examples:
      yunishard simulate run LOG.swf.gz --config queues.yaml --nodes nodes.csv
      yunishard simulate run LOG.swf.gz --config a.yaml --config b.yaml \\
          --nodes nodes.csv --node-sort fair,binpacking --output results
      yunishard simulate compare results
      yunishard simulate report results --output report.html

    exit codes:
      0  simulated
      1  a run failed
      2  wrong usage, or a file cannot be used
    """
    return ACTIONS[args.action].run(args)


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, _, parser.epilog = dedent(_run.__doc__ or "").partition("\n\n")
    about = "SWF log, openb pod list or JSON lines, plain or .gz; several are merged"
    add("traces", nargs="+", metavar="TRACE", help=about)
    about = "queues.yaml; several are simulated side by side"
    add("--config", action="append", required=True, metavar="FILE", help=about)
    about = "CSV: name, count, a column for each resource type, attribute:KEY; or an openb node list"
    add("--nodes", required=True, metavar="FILE", help=about)
    names = ",".join(NODE_SORT_POLICIES)
    about = f"node sort policies to compare, with commas between: {names} (default: of the configuration)"
    add("--node-sort", type=_parse_policies, default=("",), metavar="POLICY", help=about)
    add("--output", type=Path, metavar="DIR", help="write the results of each run to DIR/<run>")
    add("--partition", default="", metavar="PARTITION", help="partition of the configuration (default: default)")
    about = "only jobs of this site of the log, by name or number; can be repeated"
    add("--site", action="append", default=[], metavar="SITE", help=about)
    about = "queue that jobs request, with {user}, {group} and {site}, as in root.{group} (default: see below)"
    add("--queue", default="", metavar="TEMPLATE", help=about)
    about = "submit a job of several processors as separate asks, as a gang, or as one task (default: asks)"
    add("--parallel", choices=("asks", "gang", "task"), default="asks", help=about)
    add("--gang-style", choices=("Soft", "Hard"), default="Soft", help="style of gangs (default: Soft)")
    about = "release the placeholders of incomplete gangs after this time (default: 15m)"
    add("--gang-timeout", type=parse_duration, default=0.0, metavar="TIME", help=about)
    about = "time until a preempted task has ended (default: 0)"
    add("--termination-delay", type=parse_duration, default=0.0, metavar="TIME", help=about)
    add("--no-preemption", action="store_true", help="submit asks that neither preempt nor are preempted")
    about = "reserve no nodes for asks that wait, as with the setting `disable-reservation`"
    add("--no-reservation", action="store_true", help=about)
    add("--until", type=parse_duration, default=0.0, metavar="TIME", help="end then (default: with the last job)")
    about = "runs at a time (default: number of processors)"
    add("--parallel-runs", type=parse_whole(1, 64), default=os.cpu_count() or 1, metavar="N", help=about)
    add("--interpreted", action="store_true", help="do not use the compiled engine")
    add("--json", action="store_true", help="print the figures of all runs as one JSON document")


def _run(args: argparse.Namespace) -> int:
    """Simulate traces with each configuration and node sort policy.

    The queue of a job: the one that the trace names; else that of --queue; else the
    leaf queue named like its user or group; other groups share the leaves in turn.
    Placement rules decide in the end; applications carry the tags `namespace` and
    `group` (the first group) and `site`.
    """
    with make_temporary_folder("simulate") as temporary:
        specs = build_specs(args, args.output or temporary)
        with _show_progress(specs) as note:
            problems = run_all(specs, note, at_once=args.parallel_runs, is_interpreted=args.interpreted)
        for problem in problems:
            sys.stderr.write(f"yunishard simulate: {problem}\n")
        done = [spec for spec in specs if (Path(spec.output) / "run.json").exists()]
        if problems:
            raise CommandFailed(f"{len(specs) - len(done)} of {len(specs)} runs failed", status=NOT_DONE)
        summaries = [summarize(load_run(Path(spec.output))) for spec in done]
    if args.json:
        print(json.dumps([to_json(summary) for summary in summaries], indent=2))  # noqa: T201 - the output
    else:
        print_summaries(summaries)
    return 0


ACTIONS: Final = {
    "run": Action("simulate traces; `yunishard simulate TRACE...` is the same", _add_run_arguments, _run),
    "compare": Action("compare simulated runs", compare.add_compare_arguments, compare.run_compare),
    "report": Action("write a report of simulated runs as HTML", report.add_report_arguments, report.run_report),
}


def parse_duration(text: str) -> float:
    """Parse a time: seconds, or with the unit s, m, h or d, for the `type` of an option.

    >>> parse_duration("1.5"), parse_duration("2h")
    (1.5, 7200.0)
    """
    match = _DURATION.fullmatch(text)
    seconds = float(match[1] + (match[2] or "")) * _UNITS[match[3] or "s"] if match else -1.0
    if not 0 <= seconds <= SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"expected a time such as 90, 15m or 2h, got {text[:32]!r}")
    return seconds


def _parse_policies(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in NODE_SORT_POLICIES:
            raise argparse.ArgumentTypeError(f"expected {' or '.join(NODE_SORT_POLICIES)}, got {name[:32]!r}")
    return names


# Runs -----------------------------------------------------------------------------------------------------------------


def build_specs(args: argparse.Namespace, output: Path) -> list[RunSpec]:
    """Build the runs: each configuration with each node sort policy.

    Raises:
        CommandUnusable: a configuration or the node file cannot be used, or there are too many runs.
    """
    if len(args.config) * len(args.node_sort) > RUNS_MAX:
        count = len(args.config) * len(args.node_sort)
        raise CommandUnusable(f"{count} runs, but at most {RUNS_MAX} can be compared: name fewer")
    load_nodes(Path(args.nodes))
    for name in args.traces:
        if not Path(name).is_file():
            raise CommandUnusable(f"{name}: no such file")
    specs: list[RunSpec] = []
    taken: Counter[str] = Counter()
    for file in args.config:
        text = _read_valid(file)
        for policy in args.node_sort:
            stem = Path(format_file_name(file)).stem.strip("<>")
            name = f"{stem}-{policy}" if policy and len(args.node_sort) > 1 else stem
            taken[name] += 1
            name = f"{name}-{taken[name]}" if taken[name] > 1 else name
            spec = RunSpec(
                name=name,
                config=format_file_name(file),
                config_text=text,
                node_sort=policy,
                partition=args.partition,
                nodes=args.nodes,
                traces=args.traces,
                output=str(output / name),
                queue=args.queue,
                sites=args.site,
                parallel=args.parallel,
                gang_style=args.gang_style,
                gang_timeout_s=args.gang_timeout,
                termination_delay_s=args.termination_delay,
                reserves=not args.no_reservation,
                preempts=not args.no_preemption,
                until_s=args.until,
            )
            choose_partition(spec)
            specs.append(spec)
    return specs


def _read_valid(file: str) -> str:
    text = read_configuration(file)
    try:
        partitions = load(text).partitions
    except ConfigError as error:
        more = f" (and {len(error.problems) - 1} more)" if len(error.problems) > 1 else ""
        first = " ".join(str(error.problems[0]).split())
        raise CommandUnusable(f"--config {file}: {first}{more}; `yunishard validate` lists all problems") from None
    if not partitions:
        raise CommandUnusable(f"--config {file}: there is no partition in it")
    return text


_MAIN: Final = "import sys; from yunishard.workloads.simulator.run_process import main; sys.exit(main())"

Report = Callable[[int, Line], None]
"""Receives the index of a run, and a line of its process."""


def run_all(specs: Sequence[RunSpec], report: Report, *, at_once: int, is_interpreted: bool) -> list[str]:
    """Run the processes of all runs; return what went wrong, by run."""
    running = _Running(None if is_interpreted else find_engine())
    with ThreadPoolExecutor(max_workers=min(at_once, len(specs))) as pool:
        try:
            futures = [pool.submit(_run_process, index, spec, report, running) for index, spec in enumerate(specs)]
            return [problem for future in futures if (problem := future.result())]
        except BaseException:  # such as Ctrl-C
            running.kill()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Running:
    """The processes of the runs, which end together. They have sessions of their own, so Ctrl-C reaches only us."""

    def __init__(self, engine: Path | None) -> None:
        self.engine = engine
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_over = False

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """Start a process."""
        with self._lock:
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True)  # noqa: S603 - our own module
            self._processes.add(process)
            if self._is_over:
                process.kill()
        return process

    def kill(self) -> None:
        """Kill all processes, and those that start from now on."""
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.kill()


def _run_process(index: int, spec: RunSpec, report: Report, running: _Running) -> str:
    """Run the process of one run; return the problem, empty if there is none."""
    engine = running.engine
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    folders = [str(engine)] if engine is not None else []
    folders += filter(None, [_find_own_folder(), environment.get("PYTHONPATH", "")])
    environment["PYTHONPATH"] = os.pathsep.join(folders)
    command = (sys.executable, "-P", "-c", _MAIN)
    problem = ""
    with running.start(command, environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended, and its status is reported below
            process.stdin.write(msgspec.json.encode(spec))
            process.stdin.close()
        for text in process.stdout:
            line = msgspec.json.decode(text, type=Line)
            problem = line.problem or problem
            report(index, line)
    if process.returncode and not problem:
        problem = f"its process ended with status {process.returncode}"
    return f"{spec.name}: {problem}" if problem else ""


def _find_own_folder() -> str:
    """Return the folder of the packages of this process, which must be found after the compiled ones."""
    found = find_spec("yunishard")
    assert found is not None
    assert found.origin is not None
    return str(Path(found.origin).parents[1])


@contextmanager
def _show_progress(specs: Sequence[RunSpec]) -> Iterator[Report]:
    """Show a bar for each run on a terminal, on standard error; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda index, line: None
        return
    from rich.console import Console  # imported here, as it takes longer than everything else in a command
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs"))
    with Progress(
        *columns, TimeRemainingColumn(), console=Console(file=find_raw_stream(sys.stderr)), transient=True
    ) as progress:
        tasks = [progress.add_task(clean(spec.name), total=None) for spec in specs]

        def report(index: int, line: Line) -> None:
            if line.jobs:
                progress.update(tasks[index], total=line.jobs, completed=line.done)

        yield report
