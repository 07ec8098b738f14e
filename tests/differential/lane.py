"""One lane: traces one after the other, each played to both systems at the same time.

What differs counts as a disagreement only if the reference says the same thing again and again: it leaves some things
to chance (the order of equals), and a trace may have been written badly. The disagreement is then made smaller
(`shrinking.py`) and written down.
"""

import argparse
import contextlib
import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from tests.conformance.items import Item
from tests.conformance.state import Json
from tests.differential.areas import AREAS, trace_of
from tests.differential.known import sort_differences
from tests.differential.shrinking import shrunk, up_to_record
from tests.differential.systems import Broken, Ours, bring_loopback_up, ours, played_by_oracle

AGAIN: Final = 5
"""How often the reference has to repeat what it said."""
SHRINK_PLAYS_MAX: Final = 40
SHOWN_MAX: Final = 6


@dataclass(frozen=True)
class Outcome:
    """What came of one trace on both systems."""

    reference: Json
    mine: Json
    differences: list[str]
    """Those that nothing explains."""
    reasons: list[str] = field(default_factory=list)
    """Of the differences that are meant."""


class Lane:
    """Plays traces, and remembers what it has found."""

    def __init__(self, oracle: Path, out: Path) -> None:
        self.found = 0
        self._oracle = oracle
        self._out = out
        self._stack = contextlib.ExitStack()
        self._system: Ours | None = None

    def close(self) -> None:
        self._stack.close()

    def try_trace(self, name: str, steps: list[Item], *, shrink: bool) -> None:
        """Play it, and say what came of it in a line or a few."""
        try:
            outcome = self.played(steps)
        except Broken as error:
            _say(f"??    {name}: the reference breaks: {str(error).splitlines()[0][:200]}")
            return
        if not outcome.differences:
            _say(f"known {name}: {'; '.join(outcome.reasons)}" if outcome.reasons else f"ok    {name}")
            return
        if not self.is_steady(steps, outcome.reference):
            _say(f"--    {name}: the reference does not say the same each time:{_listed(outcome.differences)}")
            return
        again = self.played(steps)
        if not again.differences:
            _say(f"~~    {name}: differed once, but not again:{_listed(outcome.differences)}")
            return
        self.found += 1
        _say(f"FAIL  {name}:{_listed(again.differences)}")
        if shrink:
            steps, again = self.made_smaller(steps, again)
        self.write_down(name, steps, again)

    def played(self, steps: list[Item]) -> Outcome:
        """Raises Broken if the reference does not get to the end; that ours does not is a difference."""
        with ThreadPoolExecutor(1) as beside:
            theirs = beside.submit(played_by_oracle, self._oracle, steps)
            try:
                mine: Json = self.system.played(steps)
            except Broken as error:
                self.restart()
                why = f"ours breaks: {str(error).rstrip().splitlines()[-1]}"
                return Outcome(theirs.result(), {"broken": str(error)}, [why])
            reference = theirs.result()
        if any("config" in step for step in steps):
            self.restart()  # what was changed over REST outlives the session
        found = sort_differences(steps, reference, mine)
        return Outcome(reference, mine, found.unexplained, found.reasons)

    @property
    def system(self) -> Ours:
        if self._system is None:
            self._system = self._stack.enter_context(ours())
        return self._system

    def restart(self) -> None:
        """Ours is not to be trusted any more."""
        self._system = None
        self._stack.close()

    def is_steady(self, steps: list[Item], reference: Json, *, times: int = AGAIN) -> bool:
        """Whether the reference says the same again."""
        try:
            return all(played_by_oracle(self._oracle, steps) == reference for _ in range(times))
        except Broken:
            return False

    def made_smaller(self, steps: list[Item], outcome: Outcome) -> tuple[list[Item], Outcome]:
        """Fewer steps that still disagree, and what they bring."""
        last = outcome

        def disagree(fewer: list[Item]) -> bool:
            nonlocal last
            try:
                tried = self.played(fewer)
            except Broken:
                return False
            kept = bool(tried.differences) and self.is_steady(fewer, tried.reference, times=1)
            if kept:
                last = tried
            return kept

        steps = shrunk(up_to_record(steps, outcome.differences[0]), disagree, tries_max=SHRINK_PLAYS_MAX)
        return steps, last

    def write_down(self, name: str, steps: list[Item], outcome: Outcome) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        path = self._out / f"{name}.yaml"
        replay = f"make differential REPLAY={path}"
        path.write_text(f"# {replay}\n" + yaml.safe_dump({"name": name, "steps": steps}, sort_keys=False, width=160))
        for who, state in (("reference", outcome.reference), ("ours", outcome.mine)):
            (self._out / f"{name}.{who}.json").write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
        (self._out / f"{name}.txt").write_text("\n".join(outcome.differences) + "\n")
        _say(f"      {name}: {len(steps)} steps in {path}{_listed(outcome.differences)}")


def _listed(found: list[str]) -> str:
    more = [f"... and {len(found) - SHOWN_MAX} more"] if len(found) > SHOWN_MAX else []
    return "".join(f"\n        {line[:400]}" for line in (*found[:SHOWN_MAX], *more))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.lane")
    parser.add_argument("--oracle", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--areas", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--end", type=int, default=0)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--replay", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and leave no system behind
    bring_loopback_up()
    lane = Lane(arguments.oracle, arguments.out)
    try:
        for path in arguments.replay:
            lane.try_trace(path.stem, yaml.safe_load(path.read_text())["steps"], shrink=False)
        areas = [area for area in arguments.areas.split(",") if area in AREAS]
        for seed in range(arguments.first, arguments.end, arguments.step):
            area = areas[seed % len(areas)]
            lane.try_trace(f"{area}-{seed}", trace_of(area, seed), shrink=True)
    finally:
        lane.close()
    return int(lane.found > 0)


if __name__ == "__main__":
    sys.exit(main())
