"""`python -m tests.fuzz`: mutated messages to every port of a real system, and to its machines."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.fuzz import found, hunt, machines
from tests.fuzz.hunt import HuntError, Outcome
from tests.fuzz.readers import targets

ABOUT = """\
Sends good messages with something wrong in them: over real sockets to the native port (without keys, and with), gRPC,
REST and the broker, while a good resource manager works beside; and in this process to the machines and to all that
reads files. No process may die, hang or grow, and the good one may not wait. The exit status is 1 if so."""

SHARES: Final = {
    "native": 0.10,
    "native-2": 0.10,
    "inner": 0.05,
    "grpc": 0.04,
    "rest": 0.04,
    "curve": 0.05,
}
"""Of all messages; the rest is for the machines."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=ABOUT)
    parser.add_argument("--frames", type=int, default=1_000_000, help="messages in all (default: 1000000)")
    parser.add_argument("--seed", type=int, help="for the same messages again")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="send again what was saved when something broke")
    args = parser.parse_args()
    if args.replay:
        return replayed(args.replay)
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    say(f"seed {seed}")
    counts = {name: int(share * args.frames) for name, share in SHARES.items()}
    try:
        told("real system", hunt.plain({name: counts[name] for name in hunt.PLAIN}, seed))
        told("real system with keys", hunt.keyed({name: counts[name] for name in hunt.KEYED}, seed))
    except HuntError as error:
        say(f"seed {seed}: {error}")
        return 1
    return on_machines(args.frames - sum(counts.values()), seed)


def on_machines(count: int, seed: int) -> int:
    """The part without sockets; the exit status."""
    begun, sent = time.monotonic(), 0
    for some, problem in machines.all_attacks(count, seed):
        sent += some
        if problem:
            say(problem)
            return 1
    seconds = time.monotonic() - begun
    say(f"machines: {sent} messages in {seconds:.0f} s, {sent / seconds:.0f} a second")
    return 0


def told(where: str, outcome: Outcome) -> None:
    """How a hunt went."""
    waits = sorted(outcome.waits)
    say(f"{where}: {outcome.sent} messages in {outcome.seconds:.0f} s, {outcome.sent / outcome.seconds:.0f} a second")
    say(f"  the good one waited {waits[len(waits) // 2]:.3f} s usually, {waits[-1]:.3f} s at the worst")
    say(f"  {outcome.grown}")


def replayed(file: Path) -> int:
    """What was saved, once more."""
    if file.suffix == ".msgpack":
        problem = hunt.replay(file)
        say(problem or "nothing broke")
        return 1 if problem else 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        found.play(found.read(file), targets(Path(folder)))
    say("nothing broke")
    return 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
