"""`python -m tests.sim`: many seeds with a line that says how far it is, or one with a story.

Exit status 1 for a seed that found something, or for messages and faults that no hundred of them has seen.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.sim import coverage
from tests.sim.running import Outcome, run, run_many

SEEDS: Final = 2_000
COVERAGE_SEEDS: Final = 250
"""So many seeds in a row have to see every message and fault: the rarest come about four times in a hundred."""


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    options.add_argument("--seed", type=int, help="one seed, with its story")
    options.add_argument("--first", type=int, default=1, help="the first of many seeds")
    options.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default: {SEEDS})")
    options.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that finds something")
    options.add_argument("--cluster", action="store_true", help="worlds with a database, and one to three hosts")
    args = options.parse_args()
    if args.seed is not None:
        return _one(args.seed, cluster=args.cluster)
    outcomes = run_many(args.first, args.seeds, processes=args.processes, cluster=args.cluster)
    return _many(outcomes, args.seeds, cluster=args.cluster, keep_going=args.keep_going)


def _one(seed: int, *, cluster: bool) -> int:
    outcome = run(seed, cluster=cluster)
    _say(outcome.report)
    _say(coverage.table(outcome.kinds, outcome.faults))
    _say(f"{outcome.steps} steps, digest {outcome.digest}: {'FAILED' if outcome.problem else 'ok'}")
    return int(bool(outcome.problem))


def _many(outcomes: Iterator[Outcome], count: int, *, cluster: bool, keep_going: bool) -> int:
    began = time.monotonic()
    failed = 0
    kinds: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    total: Outcome | None = None
    for done, outcome in enumerate(outcomes, 1):
        total = outcome
        kinds.update(outcome.kinds)
        faults.update(outcome.faults)
        if outcome.problem:
            failed += 1
            _say(f"\n{outcome.report}\n")
            if not keep_going:
                break
        if done % 10 == 0:
            speed = done / (time.monotonic() - began)
            _say(f"\r{done} of {count} seeds, {failed} failed, {speed:.1f}/s ", end="")
        if done % COVERAGE_SEEDS == 0 and (unseen := coverage.missing(kinds, faults, cluster=cluster)):
            _say(f"\nseeds {outcome.seed - COVERAGE_SEEDS + 1} to {outcome.seed} have not seen {', '.join(unseen)}")
            failed += 1
        if done % COVERAGE_SEEDS == 0 and done < count:
            kinds.clear()
            faults.clear()
    assert total is not None
    _say(f"\n{coverage.table(kinds, faults)}\n{time.monotonic() - began:.0f} s, {failed} failed")
    return int(failed > 0)


def _say(text: str, *, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
