"""`python -m tests.cluster`: three hosts and a database of two servers fail while resource managers work with them."""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.chaos.__main__ import table
from tests.cluster import faults, network, patroni
from tests.cluster.cluster import Cluster
from tests.cluster.database import PAIR, Pair
from tests.cluster.run import LOST_HOST_MAX_S, MOVE_MAX_S, ClusterError, Measured, play
from tests.upgrade.builds import CommitUnavailable, export_commit

ABOUT: Final = f"""\
Three hosts and two database servers, each in namespaces of its own, joined by a bridge. Hosts and servers lose their
power, links are cut one way and both, processes are killed and stopped, hosts are cloned, the database gets hostile
settings and another time, while three resource managers submit asks; then each host is drained and restarted. Every ask
must be allocated exactly once, and in the end resource managers, REST of each host and journals must agree. Partitions
of a lost host must decide again within {LOST_HOST_MAX_S:g} s, and those of a drained host must pause for less than
{MOVE_MAX_S:g} s. It needs root or user namespaces, iproute2 and util-linux.
The exit status is 1 if anything is wrong, and 2 if it cannot run here."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=ABOUT)
    parser.add_argument("--faults", type=int, help="how many (default: each once)")
    parser.add_argument("--only", metavar="NAME", nargs="+", help="only these, such as 'crash host'")
    parser.add_argument("--restarts", type=int, default=3, help="hosts that are drained and restarted (default: 3)")
    parser.add_argument("--asks", type=int, default=50_000, help="at least, in all (default: 50000)")
    about = "multiplies the limits for lost and drained hosts, for a machine that is busy with other work (default: 1)"
    parser.add_argument("--slack", type=float, default=1.0, help=about)
    parser.add_argument("--patroni", action="store_true", help="a database with automatic failover")
    parser.add_argument("--upgrade-from", metavar="COMMIT", help="run its sources until each host is restarted")
    parser.add_argument("--seed", type=int, help="for the same faults in the same order")
    args = parser.parse_args()
    try:
        if args.patroni and (obstacle := patroni.find_obstacle()):
            raise OSError(obstacle)
        network.enter()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    rng, begun = random.Random(seed), time.monotonic()
    known = patroni.FAULTS if args.patroni else faults.FAULTS
    if args.only:
        known = tuple({one.sort: one for one in known if one.sort in args.only}.values())
    planned = faults.plan(known, len(known) if args.faults is None else args.faults, rng)

    def make(folder: Path) -> Cluster:
        folder.chmod(0o755)  # servers have a user of their own
        sources = None
        if args.upgrade_from:
            sources, subject = export_commit(args.upgrade_from, folder / "previous")
            say(f"upgrade from {subject}")
        if args.patroni:
            return Cluster(folder, patroni.Patroni, patroni.SERVERS, sources=sources)
        return Cluster(folder, Pair, PAIR, sources=sources)

    def say(text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - begun:7.1f} s  {text}\n")
        sys.stdout.flush()

    say(f"seed {seed}")
    try:
        with tempfile.TemporaryDirectory(prefix="cluster-") as folder, make(Path(folder)) as cluster:
            say("all hosts are ready")
            measured = asyncio.run(play(cluster, planned, args.restarts, args.asks, rng, say, slack=args.slack))
    except ClusterError as error:
        say(f"seed {seed}: {error}")
        return 1
    except CommitUnavailable as error:
        sys.stderr.write(f"--upgrade-from {args.upgrade_from}: {error}\n")
        return 2
    sys.stdout.write(report(measured))
    return 0


def report(measured: Measured) -> str:
    """What was measured."""
    lost, moves = max(measured.lost, default=0.0), max(measured.moves, default=0.0)
    return (
        f"{measured.asks:,} asks, each allocated exactly once\n{table(measured.faults)}"
        f"partitions of lost hosts decided again after at most {lost:.2f} s, of {LOST_HOST_MAX_S:g} s\n"
        f"drained partitions paused for at most {moves:.2f} s, of {MOVE_MAX_S:g} s\n"
    )


if __name__ == "__main__":
    sys.exit(main())
