"""What changes from one text of a configuration to another, for `yunishard config diff --summary`.

Not here: what counts as a change (`common/config/difference.py`), which texts are compared (`config.py`).
"""

import json
import sys

import msgspec

from common.config.check import load
from common.config.difference import Difference, differences
from common.config.model import Configuration
from common.config.problems import ConfigError
from yunishard.rest import UNREACHABLE, Failed

Side = tuple[str, str]
"""What one side of a comparison is called, and its text."""


def show_summary(a: Side, b: Side, *, in_json: bool) -> int:
    """Print one line for each change from `a` to `b`; the exit status, which is 1 if there is any."""
    found = differences(_understood(a), _understood(b))
    if in_json:
        sys.stdout.write(json.dumps(msgspec.to_builtins(found), indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.writelines(f"{_line(one)}\n" for one in found)
    return 1 if found else 0


def _understood(side: Side) -> Configuration:
    name, text = side
    try:
        return load(text)
    except ConfigError as error:
        more = len(error.problems) - 1
        others = f" (and {more} more: see `yunishard validate`)" if more else ""
        reason = " ".join(str(error.problems[0]).splitlines())
        raise Failed(f"{name}: no configuration to compare: {reason}{others}", status=UNREACHABLE) from None


def _line(difference: Difference) -> str:
    return " ".join(str(difference).splitlines())  # a value may have several
