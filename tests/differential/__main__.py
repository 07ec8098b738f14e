"""`python -m tests.differential`: play generated traces to the reference and to this system, and compare.

This process only starts the lanes and adds up what they say. Each lane has a network of its own, because the reference
serves REST on a fixed port; what a lane does is in `lane.py`.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

from tests.differential.areas import AREAS

ROOT: Final = Path(__file__).parents[2]
ORACLE: Final = Path(__file__).parent / "oracle"
"""A small Go program around the published module of the reference."""

MEANINGS: Final = {
    "ok": "equal",
    "known": "with documented differences only",
    "FAIL": "with others",
    "~~": "that differed once, but not again",
    "--": "in which the reference differs from itself",
    "??": "that the reference does not finish",
}
"""What came of a trace, by the first word of the line that a lane writes about it."""

ABOUT: Final = """\
Generate traces, play each to a fresh reference scheduler and to a fresh partition of this system, and compare the
states that they record. A disagreement is made as short as possible and written down, with both states and the way to
replay it. The exit status is 1 if there was any."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=ABOUT)
    parser.add_argument(
        "--oracle-dir", type=Path, metavar="DIR", default=ORACLE, help="Go source of the reference behind gRPC"
    )
    parser.add_argument("--oracle", type=Path, metavar="FILE", help="the same, built already")
    parser.add_argument("--areas", default=",".join(AREAS), help="what the traces are about (default: %(default)s)")
    parser.add_argument("--traces", type=int, default=60, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the others follow (default: %(default)s)")
    parser.add_argument("--lanes", type=int, default=6, help="how many at once (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "disagreements", help="where they go (default: %(default)s)")
    parser.add_argument("--replay", type=Path, nargs="*", metavar="FILE", help="play these traces instead")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.areas.split(",")) - AREAS.keys())
    if unknown:
        parser.error(f"unknown areas: {', '.join(unknown)}; there are {', '.join(AREAS)}")
    if shutil.which("unshare") is None:
        parser.error("unshare (of util-linux) is needed: the reference wants a network of its own")
    with tempfile.TemporaryDirectory(prefix="oracle-") as folder:
        oracle = built(arguments.oracle_dir, arguments.oracle, Path(folder), parser)
        fixed = ["--oracle", str(oracle), "--out", str(arguments.out.resolve())]
        if arguments.replay:
            return lane([*fixed, "--replay", *(str(path.resolve()) for path in arguments.replay)], Counter())
        fixed += ["--areas", arguments.areas, "--step", str(arguments.lanes)]
        ends = arguments.seed + arguments.traces
        each = [[*fixed, "--first", str(arguments.seed + n), "--end", str(ends)] for n in range(arguments.lanes)]
        ends_of: Counter[str] = Counter()
        with ThreadPoolExecutor(arguments.lanes) as pool:
            status = max(pool.map(partial(lane, ends_of=ends_of), each))
        told = ", ".join(f"{ends_of[word]} {meaning}" for word, meaning in MEANINGS.items())
        sys.stdout.write(f"{arguments.traces} traces: {told}\n")
        return status


def built(source: Path, binary: Path | None, folder: Path, parser: argparse.ArgumentParser) -> Path:
    """The reference, ready to be started."""
    if binary is not None:
        if not binary.is_file():
            parser.error(f"there is no {binary}")
        return binary.resolve()
    if not (source / "go.mod").is_file():
        parser.error(f"there is no Go source of the reference in {source}")
    if shutil.which("go") is None:
        parser.error("Go is needed to build the reference, and is not installed")
    sys.stdout.write("building the reference\n")
    binary = folder / "oracle"
    subprocess.run(["go", "build", "-o", binary, "."], cwd=source, check=True)
    return binary


def lane(arguments: list[str], ends_of: Counter[str]) -> int:
    """Run one lane to its end, in a network where nobody else is, and count what came of its traces."""
    command = ["unshare", "--map-root-user", "--net", sys.executable, "-m", "tests.differential.lane", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            ends_of[line[:5].rstrip()] += 1
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
