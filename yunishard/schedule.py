"""`yunishard schedule`: let a partition that decides only when asked to make its next decisions, and see them.

Not here: how the system is asked (`rest.py`), what a decision is.
"""

import argparse
import sys
from typing import Final

from common.query_messages import STEPS_MAX
from yunishard.rest import Failed, Rest, add_rest
from yunishard.tables import show

ABOUT: Final = """\
Make the next scheduling decisions, one after the other, in a system that was
started with `yunishard up --manual`, and print each. For tests and teaching;
for scheduler administrators."""

MORE: Final = """\
examples:
  yunishard schedule default                 the next decision
  yunishard schedule rm-1_gpu --steps 20     20, or fewer if nothing is left

exit codes:
  0  done, also if there was nothing to decide
  1  refused, with the reason
  2  wrong usage, or nothing answers"""

COLUMNS: Final = ("kind", "applicationID", "allocationKey", "nodeID")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("partition", metavar="PARTITION", help="its name, as the web service shows it")
    parser.add_argument(
        "--steps", metavar="N", type=_steps, default=1, help=f"how many decisions, at most {STEPS_MAX} (default: 1)"
    )
    add_rest(parser)


def main(args: argparse.Namespace) -> int:
    """Make them; the exit status."""
    try:
        rest = Rest(args.rest, args.ca, args.token_file)
        answer = rest.in_partition(args.partition, "schedule", query={"steps": str(args.steps)})
        found = answer.as_json()
    except Failed as failed:
        sys.stderr.write(f"yunishard schedule: {failed}\n")
        return failed.status
    if args.json:
        sys.stdout.write(answer.text)
        return 0
    told = found if isinstance(found, dict) else {}
    decisions = [one for one in told.get("decisions", []) if isinstance(one, dict)]
    if decisions:
        show(("DECISION", "APPLICATION", "ASK", "NODE", "RELEASES"), [_row(one) for one in decisions])
    else:
        sys.stdout.write("nothing to decide\n")
    return 0


def _steps(text: str) -> int:
    if not text.isdecimal() or len(text) > len(str(STEPS_MAX)) or not 1 <= int(text) <= STEPS_MAX:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {STEPS_MAX}, got {text[:32]!r}")
    return int(text)


def _row(decision: dict[str, object]) -> list[str]:
    released = decision.get("releases")
    keys = [str(key) for key in released] if isinstance(released, list) else []
    return [*(str(decision.get(name) or "-") for name in COLUMNS), ", ".join(keys) or "-"]
