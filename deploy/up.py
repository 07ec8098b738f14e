"""`yunishard up`: the whole system on this machine, from one command until a signal stops it.

Not here: the sources of settings (`settings.py`), checks (`preflight.py`), the event loop (`service.py`).
"""

import argparse
import asyncio
import logging
import os
import sys
from typing import Final

from common.compiled import find_engine
from common.process import configure_logging, install_signal_handlers
from common.settings import Settings, SettingsError, add_options, given_options
from deploy.preflight import find_warnings, prepare
from deploy.processes import COMMANDS, Commands
from deploy.service import supervise
from deploy.settings import SETTINGS_FILE, find_unknown_variables, resolve_settings
from deploy.supervisor import CANNOT_START, HASTENED, Supervisor

ABOUT: Final = """\
Start and supervise the whole system: the broker, the ports for resource
managers, the web service, and a worker for each partition. Prints a line for
each endpoint and then `ready`; logs go to stderr. A process that ends is
restarted."""

MORE: Final = """\
Each option can also be given in the environment (YUNISHARD_LOG_LEVEL=debug)
or as a line of the settings file (log-level: debug; `queues.same-hierarchy`
for --same-hierarchy). The command line overrides the environment, and the
environment the file; `yunishard settings` shows the effective settings.

examples:
  yunishard up                                  the usual ports
  yunishard up --ephemeral --rest 127.0.0.1:0   leaves nothing behind; any port
  yunishard up --config queues.yaml --state /var/lib/yunishard
  yunishard up --settings /etc/yunishard.yaml --scheduler-admins 'alice ops'

exit codes:
  0    stopped in order, by SIGINT (Ctrl-C), SIGTERM, or the end of its
       terminal
  2    wrong usage, or it cannot start: one line on stderr tells why, and
       nothing is left running
  130  stopped at once, by a second SIGINT or SIGTERM"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard up`."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_file_option(parser)
    add_options(parser)


def add_file_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the settings file."""
    about = "file with these options (default: $YUNISHARD_SETTINGS)"
    parser.add_argument(f"--{SETTINGS_FILE}", metavar="FILE", help=about)


def main(args: argparse.Namespace, commands: Commands = COMMANDS) -> int:
    """Run until stopped; return the exit status."""
    try:
        supervisor = _run(resolve_settings(given_options(args), os.environ, file=args.settings), commands)
    except SettingsError as error:
        return _fail(str(error))
    except KeyboardInterrupt:  # before the event loop handles the signals: nothing has started yet
        return HASTENED
    return _fail(supervisor.failure) if supervisor.failure else (supervisor.status or 0)


def _run(settings: Settings, commands: Commands) -> Supervisor:
    install_signal_handlers()
    configure_logging("supervisor", settings.log_level)
    log = logging.getLogger("core.supervisor")
    for line in find_unknown_variables(os.environ):
        log.warning("%s", line)
    with prepare(settings) as resources:
        for line in find_warnings(settings):
            log.warning("%s", line)
        compiled = None if settings.interpreted else find_engine()
        if compiled is not None:
            log.info("workers run the compiled engine in %s", compiled)
        return asyncio.run(supervise(resources, commands, compiled=compiled))


def _fail(reason: str) -> int:
    sys.stderr.write(f"yunishard up: {reason}\n")
    return CANNOT_START
