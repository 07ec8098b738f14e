"""`yunishard settings`: show every setting with its effective value and its source.

Only a running system has the settings that resource managers send. The docstring of `run_settings` is the help text.
Not here: which settings there are (`deploy/`, `common/config/extra_config.py`).
"""

import argparse
import os
from collections.abc import Iterator
from typing import Final

from yunishard.cli.commands.console import print_json
from yunishard.cli.commands.rest import Rest, add_token_file
from yunishard.cli.main import CommandUnusable
from yunishard.common.config.extra_config import effective
from yunishard.common.process.terminal import print_table
from yunishard.common.settings import DEFAULT, SettingsError, add_options, given_options
from yunishard.deploy.settings import resolve_settings
from yunishard.deploy.up import add_file_option

RM_PREFIX: Final = "rm/"
"""Prefix of the settings that a resource manager sends."""


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard settings`."""
    parser.add_argument("--ca", metavar="FILE", help="with a URL: CA certificates that sign the server's certificate")
    add_token_file(parser)
    parser.add_argument("--json", action="store_true", help="print JSON: a list of name, value and source")
    add_file_option(parser)
    about = "URL: show the settings of the system there; else as for `up`"
    add_options(parser, help_of=lambda setting: about if setting.name == "rest" else setting.help)


def run_settings(args: argparse.Namespace) -> int:
    """Show every setting with its effective value and its source: an option, the
    environment, a line of the settings file, or the default. Without a URL, show
    what `yunishard up` would use here and now, with these options.

    examples:
      yunishard settings
      yunishard settings --settings /etc/yunishard.yaml
      yunishard settings --rest http://127.0.0.1:9080   of the running system,
                                                        and of its RMs

    exit codes:
      0  done
      1  the system refused the request
      2  wrong usage, an invalid setting, or the system does not answer
    """
    options = given_options(args)
    url = options.get("rest", "")
    try:
        if "://" in url:
            shown = list(_fetch_settings(Rest(url, args.ca, args.token_file)))
        else:
            effective = resolve_settings(options, os.environ, args.settings).effective
            shown = [(one.name, one.value, one.source) for one in effective]
    except SettingsError as error:
        raise CommandUnusable(str(error)) from None
    if args.json:
        print_json([dict(zip(("name", "value", "source"), row, strict=True)) for row in shown])
    else:
        print_table(("setting", "value", "source"), [(name, value or "-", source) for name, value, source in shown])
    return 0


def _fetch_settings(rest: Rest) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and source of the settings of a running system, then the effective settings of each RM."""
    entries = [(one["name"], one["value"], one["source"]) for one in rest.get("settings").decode(list[dict[str, str]])]
    yield from (one for one in entries if not one[0].startswith(RM_PREFIX))
    for rm in (f"RM {rm_id}" for rm_id in rest.rm_ids()):
        own = [one for one in entries if one[0].startswith(RM_PREFIX)]
        sent = {name.removeprefix(RM_PREFIX): value for name, value, source in own if source == rm}
        rows = {}
        for one in effective(sent):
            name = f"{RM_PREFIX}{one.key}"
            rows[name] = (name, one.value, rm if one.sent else f"{DEFAULT} ({rm})")
        ineffective = (f"{rm} (", f"{DEFAULT} ({rm} ")
        yield from (rows | {one[0]: one for one in own if one[2].startswith(ineffective)}).values()
