"""`yunishard settings`: every setting in force, and where it came from.

Of a system that runs, or of one that would be started here and now with these options. What resource managers set for
themselves only a running system knows.

Not here: which settings there are (`deploy/options.py`, `common/extra_config.py`).
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable
from typing import Final

from common.extra_config import effective
from deploy.settings import Resolved, settings_from
from deploy.up import add_settings, flags_of
from deploy.values import Unusable
from yunishard.rest import Failed, Rest, add_token_file
from yunishard.tables import show

RM_PREFIX: Final = "rm/"
WRONG: Final = 2

ABOUT: Final = """\
Show every setting, its value in force, and where that came from: an option,
the environment, a line of the settings file, or the default. Without a URL:
as `yunishard up` would find them here and now, with these options."""

MORE: Final = """\
examples:
  yunishard settings
  yunishard settings --settings /etc/yunishard.yaml
  yunishard settings --rest http://127.0.0.1:9080   of the system that runs
                                                    there, and its RMs

exit codes:
  0  done
  1  the system refused to say
  2  wrong usage, a setting that is not valid, or nothing answers"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--ca", metavar="FILE", help="with a URL: who signed its certificate")
    add_token_file(parser)
    parser.add_argument("--json", action="store_true", help="print JSON: a list of name, value and source")
    add_settings(parser, rest_metavar="URL|HOST:PORT|off", rest_about="a URL: ask the system there; else as of `up`")


def main(args: argparse.Namespace) -> int:
    """Show them; the exit status."""
    flags = {name: value for name, value in flags_of(args).items() if name not in ("ca", "token_file")}
    url = flags.get("rest", "")
    try:
        rest = Rest(url, args.ca, args.token_file) if "://" in url else None
        shown = [*_asked(rest)] if rest else [*settings_from(flags, os.environ).resolved]
    except (Unusable, Failed) as error:
        sys.stderr.write(f"yunishard settings: {error}\n")
        return error.status if isinstance(error, Failed) else WRONG
    if args.json:
        entries = [{"name": one.name, "value": one.value, "source": one.source} for one in shown]
        sys.stdout.write(json.dumps(entries, indent=2, ensure_ascii=False) + "\n")
    else:
        show(("setting", "value", "source"), [(one.name, one.value or "-", one.source) for one in shown])
    return 0


def _asked(rest: Rest) -> Iterable[Resolved]:
    """What the running system says, with what its resource managers' settings amount to."""
    found = rest.get("settings").as_json()
    entries = [
        Resolved(**{part: str(entry.get(part, "")) for part in ("name", "value", "source")})
        for entry in (found if isinstance(found, list) else [])
        if isinstance(entry, dict)
    ]
    sent: dict[str, dict[str, str]] = {f"RM {rm}": {} for rm in rest.rm_ids()}
    for entry in entries:
        if entry.name.startswith(RM_PREFIX):
            sent.setdefault(entry.source, {})[entry.name.removeprefix(RM_PREFIX)] = entry.value
        else:
            yield entry
    for rm, values in sent.items():
        yield from _in_force(rm, values)


def _in_force(rm: str, values: dict[str, str]) -> Iterable[Resolved]:
    """The settings of a resource manager as the core takes them; keys that the core does not know are its own."""
    for one in effective(values):
        note = f" sent {values[one.key]!r}, which means nothing" if one.key in values else ""
        source = rm if one.sent else f"default ({rm}{note})"
        yield Resolved(name=f"{RM_PREFIX}{one.key}", value=one.value, source=source)
