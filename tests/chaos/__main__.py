"""`python -m tests.chaos`: kill and stop the processes of a system while three resource managers work with it."""

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

from tests.chaos.conductor import ChaosError
from tests.chaos.run import Run, play

ABOUT = """\
Three resource managers submit asks made of a real log while broker, proxy, web service, workers and supervisor are
killed (SIGKILL) and stopped (SIGSTOP) at random. Every ask must be allocated exactly once as its resource manager sees
it, and in the end resource managers, REST and journals must agree. The exit status is 1 if not."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=ABOUT)
    parser.add_argument("--blows", type=int, default=200, help="processes that are killed or stopped (default: 200)")
    parser.add_argument("--asks", type=int, default=50_000, help="in all (default: 50000)")
    parser.add_argument("--seed", type=int, help="for another run with the same blows, as far as chance is ours")
    parser.add_argument("--spares", type=int, default=1, help="spare workers (default: 1)")
    args = parser.parse_args()
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    sys.stdout.write(f"seed {seed}\n")
    begun = time.monotonic()

    def say(blows: int, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:7.1f} s  {blows:4d} blows  {text}\n")
        sys.stdout.flush()

    try:
        chaos = asyncio.run(play(Run(seed=seed, blows=args.blows, asks=args.asks, spares=args.spares), say))
    except ChaosError as error:
        sys.stdout.write(f"seed {seed}: {error}\n")
        return 1
    for rm in chaos.rms:
        sys.stdout.write(f"{rm.rm_id}: {', '.join(rm.books.counts())}\n")
    sys.stdout.write(table(chaos.recoveries))
    return 0


def table(recoveries: Mapping[str, Sequence[float]]) -> str:
    """How long each sort of blow took to recover from, in seconds."""
    lines = [f"{'':<24}{'blows':>6}{'median s':>10}{'worst s':>10}"]
    for sort, times in sorted(recoveries.items()):
        lines.append(f"{sort:<24}{len(times):>6}{statistics.median(times):>10.2f}{max(times):>10.2f}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
