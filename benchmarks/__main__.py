"""`python -m benchmarks`: run benchmarks, compare the figures, and report.

`catalogue.py` lists the benchmarks. This module has the options. It writes a table to stdout, the progress to stderr,
and all figures to a file if `--json` names one.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from os import getloadavg
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import must, systems
from benchmarks.catalogue import BENCHMARKS
from benchmarks.results import (
    COMMITTED,
    ROUNDS,
    Benchmark,
    Plan,
    Results,
    checked,
    measure_reporting,
    merged,
    read,
    table,
    this_machine,
    write,
)
from benchmarks.systems import NoReference

BUSY: Final = 0.75
"""Load for each core above which a warning is printed: rates will be too low."""

QUICK: Final = 0.1
"""The share of the full sizes in a quick run."""

NETWORK: Final = "--own-network"
"""Option of the second run of this program, in its own network namespace."""

ABOUT: Final = """\
Measure what has to be fast. Without names, everything; a table goes to stdout, with the difference from what is
committed (benchmarks/results.json) and, with --reference, the ratio to the reference in the same run."""

Say = Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program. Exit status 1: a limit is exceeded; 2: it could not be measured."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    options = parser.parse_args(given)
    by_name = {one.name: one for one in BENCHMARKS}
    if unknown := [name for name in options.names if name not in by_name]:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(by_name)}")
    if options.list:
        sys.stdout.write("".join(f"  {one.name:<14} {one.about}\n" for one in BENCHMARKS))
        return 0
    if options.quick and (options.update or options.check):
        parser.error("figures of a quick run compare with nothing: --update and --check go without --quick")
    wants_reference = bool(options.reference or options.reference_dir)
    try:
        if wants_reference and not options.own_network:
            return systems.again_in_own_network([NETWORK, *given])
        if wants_reference:
            systems.bring_loopback_up()
        with ExitStack() as stack:
            command = options.reference or (
                stack.enter_context(systems.built(options.reference_dir)) if options.reference_dir else ""
            )
            plan = Plan(
                share=QUICK if options.quick else 1.0,
                rounds=options.rounds,
                reference=systems.reference(command) if command else None,
            )
            return _run(options, [by_name[name] for name in options.names], plan)
    except NoReference as problem:
        sys.stderr.write(f"{problem}\n")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=ABOUT)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; --list shows them")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes: to see whether it works")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="of each (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument("--update", action="store_true", help="write them to benchmarks/results.json, to be committed")
    parser.add_argument("--check", action="store_true", help="only what is judged; fail if it costs a fifth more")
    parser.add_argument("--must", action="store_true", help="what has to hold against the reference, and for growth")
    parser.add_argument("--committed", type=Path, default=COMMITTED, metavar="FILE", help="compare with these figures")
    parser.add_argument("--reference", metavar="COMMAND", help=f"starts the reference on {systems.REFERENCE_GRPC}")
    parser.add_argument("--reference-dir", type=Path, metavar="DIR", help="Go source of the reference, to be built")
    parser.add_argument(NETWORK, action="store_true", help=argparse.SUPPRESS)
    return parser


def _run(options: argparse.Namespace, chosen: list[Benchmark], plan: Plan) -> int:
    load = getloadavg()[0]
    if load > BUSY * this_machine().cores:
        sys.stderr.write(f"this machine has other work (load {load:.1f}): rates will be lower than they could be\n")
    if options.must:
        return _must(plan)
    committed = read(options.committed)
    if options.check:
        return _check(chosen, committed, plan)
    found = Results(this_machine(), [])
    comparable = committed if plan.share == 1 else Results(found.machine, [])
    for benchmark in chosen or BENCHMARKS:
        with _progress() as say:
            figures = list(measure_reporting(benchmark, plan, say))
        if not figures:
            sys.stderr.write(f"{benchmark.name} measured nothing: {benchmark.about}\n")
        sys.stdout.write(table(figures, comparable))
        sys.stdout.flush()
        found.figures.extend(figures)
    if options.json is not None:
        write(options.json, found)
    if options.update:
        write(COMMITTED, merged(committed, found))
    return 0


def _check(chosen: list[Benchmark], committed: Results, plan: Plan) -> int:
    """Compare with the committed figures; 1 if there is a regression."""
    judged = [one for one in chosen or BENCHMARKS if one.judged]
    with _progress() as say:
        found, complaints = checked(judged, committed, plan, say)
    here = this_machine()
    if here != committed.machine:
        sys.stdout.write(f"note: committed on {_where(committed)}, this is {_where(Results(here, []))}\n")
    sys.stdout.write("".join(f"{line}\n" for line in complaints))
    if not complaints:
        sys.stdout.write(f"{sum(one.cost is not None for one in found)} figures are as good as the committed ones\n")
    return 1 if complaints else 0


def _where(results: Results) -> str:
    machine = results.machine
    return f"{machine.cpu}, {machine.cores} cores, Python {machine.python}"


def _must(plan: Plan) -> int:
    """Print a verdict for each requirement; 1 if one fails."""
    if plan.reference is None:
        sys.stderr.write("without the reference (--reference, --reference-dir) only growth is looked at\n")
    failed = 0
    for verdict in must.verdicts(plan):
        sys.stdout.write(f"{verdict}\n")
        sys.stdout.flush()
        failed += not verdict.holds
    return 1 if failed else 0


@contextmanager
def _progress() -> Iterator[Say]:
    """Show the progress: one changing line on a terminal, otherwise a line for each figure."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(text, highlight=False)
        return
    with Progress(SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), console=console) as bar:
        task = bar.add_task("measuring")
        yield lambda text: bar.update(task, description=text)


if __name__ == "__main__":
    sys.exit(main())
