"""`python -m tests.conformance TRACE...`: play traces to systems of their own and print what differs."""

import argparse
import signal
import sys
from typing import Final, NoReturn

from tests.conformance.play import TRACES, differences_of

ABOUT: Final = """\
Start the system, play a trace to it, and compare what it records with what the reference did; a fresh system for each
trace. The exit status is 1 if anything differs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=ABOUT)
    parser.add_argument(
        "traces", metavar="TRACE", nargs="+", choices=TRACES, help="a name from tests/conformance/traces"
    )
    parser.add_argument("--native", action="store_true", help="over the native protocol (default: over gRPC)")
    signal.signal(signal.SIGTERM, _terminated)
    failed = False
    args = parser.parse_args()
    for name in args.traces:
        found = differences_of(name, native=args.native)
        failed |= bool(found)
        sys.stdout.write("\n      ".join([f"{'FAIL' if found else 'ok  '}  {name}", *found]) + "\n")
        sys.stdout.flush()
    return int(failed)


def _terminated(number: int, _: object) -> NoReturn:
    """End as after any failure, so that the system is not left behind."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
