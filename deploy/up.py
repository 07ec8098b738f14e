"""`yunishard up`: the whole system on this machine, from one command until someone stops it.

Not here: the parts it is made of, which are `settings.py`, `premises.py`, `supervisor.py` and `service.py`.
"""

import argparse
import asyncio
import logging
import os
import sys
from typing import Final

from deploy.premises import prepared
from deploy.processes import COMMANDS, Commands
from deploy.service import supervise
from deploy.settings import DEFAULTS, Settings, Unusable, settings_from
from deploy.supervisor import CANNOT_START, HASTENED, Plan, Supervisor

ABOUT: Final = """\
Start the whole system and watch over it: the broker, the port for resource
managers, the web service, and a worker for each partition. Prints a line for
each endpoint and then `ready`; logs go to stderr. What dies is started again."""

MORE: Final = """\
Each option can also be given in the environment (YUNISHARD_LOG_LEVEL=debug)
or as a line of the settings file (log-level: debug). The command line wins
over the environment, and that over the file.

examples:
  yunishard up                                  the usual ports
  yunishard up --ephemeral --rest 127.0.0.1:0   leaves nothing behind; any port
  yunishard up --config queues.yaml --state /var/lib/yunishard

exit codes:
  0    stopped in order, by SIGINT (Ctrl-C) or SIGTERM
  2    wrong usage, or it cannot start: one line on stderr says why, and
       nothing is left running
  130  stopped at once, by a second SIGINT or SIGTERM"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command. Values stay text: `settings.py` checks those from all sources alike."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    for option, metavar, about in (
        ("config", "FILE", "queues for resource managers that send none (default: a built-in default queue)"),
        ("native", "tcp://HOST:PORT", f"port for resource managers (default: {DEFAULTS['native']})"),
        ("grpc", "HOST:PORT", f"port for the scheduler interface over gRPC (default: {DEFAULTS['grpc']})"),
        ("rest", "HOST:PORT", f"port for REST and metrics (default: {DEFAULTS['rest']})"),
        ("state", "DIR", "directory for what the system keeps (default: ~/.local/state/yunishard)"),
    ):
        parser.add_argument(f"--{option}", metavar=metavar, help=about)
    ephemeral = "keep state in a temporary directory, removed at the end"
    parser.add_argument("--ephemeral", action="store_const", const="true", help=ephemeral)
    parser.add_argument("--log-level", metavar="debug|info|warning|error", help="how much to log (default: info)")
    parser.add_argument("--settings", metavar="FILE", help="file with these options (default: $YUNISHARD_SETTINGS)")


def main(args: argparse.Namespace, commands: Commands = COMMANDS) -> int:
    """Run until stopped; the exit status."""
    flags = {name.replace("_", "-"): value for name, value in vars(args).items() if isinstance(value, str)}
    try:
        settings = settings_from(flags, os.environ)
        ended = _run(settings, commands)
    except Unusable as error:
        return _refused(str(error))
    except KeyboardInterrupt:  # before the loop took the signals over: nothing was started yet
        return HASTENED
    return _refused(ended.failure) if ended.failure else (ended.status or 0)


def _run(settings: Settings, commands: Commands) -> Supervisor:
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)-7s supervisor %(name)s: %(message)s",
        stream=sys.stderr,
    )
    with prepared(settings) as premises:
        plan = Plan(
            broker=premises.broker,
            native=f"tcp://{settings.native}",
            grpc=str(settings.grpc),
            rest=str(settings.rest),
            log_level=settings.log_level,
            config=str(settings.config or ""),
        )
        return asyncio.run(supervise(plan, commands, inherited=premises.lock))


def _refused(reason: str) -> int:
    sys.stderr.write(f"yunishard up: {reason}\n")
    return CANNOT_START
