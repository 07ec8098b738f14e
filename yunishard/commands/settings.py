"""`yunishard settings`: every setting with its effective value and source, of a running system or of one to be started.

Only a running system has the settings that resource managers send.

Not here: which settings there are (`deploy/`, `common/extra_config.py`).
"""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Final

from common.extra_config import effective
from deploy.settings import Resolved, settings_from
from deploy.up import add_settings, flags_of
from deploy.values import Unusable
from yunishard.commands.console import UNUSABLE, print_json, show
from yunishard.commands.rest import Failed, Rest, add_token_file

RM_PREFIX: Final = "rm/"
"""Prefix of the settings that a resource manager sends."""

SETTINGS_ABOUT: Final = """\
Show every setting with its effective value and its source: an option, the
environment, a line of the settings file, or the default. Without a URL, show
what `yunishard up` would use here and now, with these options."""

SETTINGS_EXAMPLES: Final = """\
examples:
  yunishard settings
  yunishard settings --settings /etc/yunishard.yaml
  yunishard settings --rest http://127.0.0.1:9080   of the running system,
                                                    and of its RMs

exit codes:
  0  done
  1  the system refused the request
  2  wrong usage, an invalid setting, or the system does not answer"""


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard settings`."""
    parser.description, parser.epilog = SETTINGS_ABOUT, SETTINGS_EXAMPLES
    parser.add_argument("--ca", metavar="FILE", help="with a URL: CA certificates that sign the server's certificate")
    add_token_file(parser)
    parser.add_argument("--json", action="store_true", help="print JSON: a list of name, value and source")
    add_settings(parser, rest_metavar="URL|HOST:PORT|off", rest_about="a URL: ask the system there; else as of `up`")


def run_settings(args: argparse.Namespace) -> int:
    """Print the settings; return the exit status."""
    flags = {name: value for name, value in flags_of(args).items() if name not in ("ca", "token_file")}
    url = flags.get("rest", "")
    try:
        rest = Rest(url, args.ca, args.token_file) if "://" in url else None
        shown = [*_fetch_settings(rest)] if rest else [*settings_from(flags, os.environ).resolved]
    except (Unusable, Failed) as error:
        sys.stderr.write(f"yunishard settings: {error}\n")
        return error.status if isinstance(error, Failed) else UNUSABLE
    if args.json:
        print_json([{"name": one.name, "value": one.value, "source": one.source} for one in shown])
    else:
        show(("setting", "value", "source"), [(one.name, one.value or "-", one.source) for one in shown])
    return 0


def _fetch_settings(rest: Rest) -> Iterable[Resolved]:
    """Yield the settings of a running system, then the effective settings of each resource manager."""
    entries = [
        Resolved(**{part: str(entry.get(part, "")) for part in ("name", "value", "source")})
        for entry in rest.get("settings").as_list()
    ]
    sent: dict[str, dict[str, str]] = {f"RM {rm}": {} for rm in rest.rm_ids()}
    for entry in entries:
        if entry.name.startswith(RM_PREFIX):
            sent.setdefault(entry.source, {})[entry.name.removeprefix(RM_PREFIX)] = entry.value
        else:
            yield entry
    for rm, values in sent.items():
        for one in effective(values):
            note = f" sent {values[one.key]!r}, which means nothing" if one.key in values else ""
            source = rm if one.sent else f"default ({rm}{note})"
            yield Resolved(name=f"{RM_PREFIX}{one.key}", value=one.value, source=source)
