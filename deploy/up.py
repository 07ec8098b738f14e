"""`yunishard up`: the whole system on this machine, from one command until someone stops it.

Not here: the parts it is made of, which are `settings.py`, `premises.py`, `supervisor.py` and `service.py`.
"""

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import Final

from common import signals
from common.compiled import found
from common.names import OFF
from deploy.children import BROKER, RMPROXY, WEBSERVICE, WORKER
from deploy.environment import unknown_variables
from deploy.exposure import warnings
from deploy.options import OPTIONS, YES_NO
from deploy.premises import Premises, prepared
from deploy.processes import COMMANDS, Commands
from deploy.service import supervise
from deploy.settings import SETTINGS_FILE, Settings, Tls, settings_from
from deploy.supervisor import CANNOT_START, HASTENED, STARTS_MAX, Plan, Supervisor
from deploy.values import NATIVE_SCHEME, Unusable
from deploy.web_settings import WebSettings

SILENCES_MAX: Final = 5
"""A process of ours is killed once it has been silent for so many times what makes a resource manager count as away:
it may have much to do, and whoever waits for it waits for longer when it starts again.
"""

STARTS_PER_PROCESSOR: Final = 2
"""Workers that start at the same time, for each processor; the supervisor has its own lower bound."""

STARTS_MOST: Final = 16
"""More do not start at the same time on any machine: the supervisor starts one process after the other, and must not
attend to nothing else for long."""

ABOUT: Final = """\
Start the whole system and watch over it: the broker, the port for resource
managers, the web service, and a worker for each partition. Prints a line for
each endpoint and then `ready`; logs go to stderr. What dies is started again."""

MORE: Final = """\
Each option can also be given in the environment (YUNISHARD_LOG_LEVEL=debug)
or as a line of the settings file (log-level: debug; `queues.same-hierarchy`
for --same-hierarchy). The command line wins over the environment, and that
over the file; `yunishard settings` shows what came out of it.

examples:
  yunishard up                                  the usual ports
  yunishard up --ephemeral --rest 127.0.0.1:0   leaves nothing behind; any port
  yunishard up --config queues.yaml --state /var/lib/yunishard
  yunishard up --settings /etc/yunishard.yaml --scheduler-admins 'alice ops'

exit codes:
  0    stopped in order, by SIGINT (Ctrl-C), SIGTERM, or the end of its
       terminal
  2    wrong usage, or it cannot start: one line on stderr says why, and
       nothing is left running
  130  stopped at once, by a second SIGINT or SIGTERM"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command. Values stay text: `settings.py` checks those from all sources alike."""
    parser.description, parser.epilog = ABOUT, MORE
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser, *, rest_metavar: str = "", rest_about: str = "") -> None:
    """Describe the settings, under their headings; for `rest`, which may mean more elsewhere, in these words."""
    about = "file with these options (default: $YUNISHARD_SETTINGS)"
    parser.add_argument(f"--{SETTINGS_FILE}", metavar="FILE", help=about)
    for heading in dict.fromkeys(option.group for option in OPTIONS.values()):
        group = parser.add_argument_group(heading)
        for option in OPTIONS.values():
            if option.group != heading:
                continue
            if option.metavar == YES_NO and option.default == "false":
                group.add_argument(option.flag, dest=option.name, action="store_const", const="true", help=option.about)
            else:
                other = rest_metavar and option.name == "rest"
                metavar, about = (rest_metavar, rest_about) if other else (option.metavar, option.about)
                group.add_argument(option.flag, dest=option.name, metavar=metavar, help=about)


def flags_of(args: argparse.Namespace) -> dict[str, str]:
    """The settings that were given on the command line."""
    return {name: text for name, text in vars(args).items() if isinstance(text, str)}


def main(args: argparse.Namespace, commands: Commands = COMMANDS) -> int:
    """Run until stopped; the exit status."""
    try:
        settings = settings_from(flags_of(args), os.environ)
        ended = _run(settings, commands)
    except Unusable as error:
        return _refused(str(error))
    except KeyboardInterrupt:  # before the loop took the signals over: nothing was started yet
        return HASTENED
    return _refused(ended.failure) if ended.failure else (ended.status or 0)


def _run(settings: Settings, commands: Commands) -> Supervisor:
    signals.install()
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)-7s supervisor %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for line in unknown_variables(os.environ):
        logging.getLogger("core.supervisor").warning("%s", line)
    with prepared(settings) as premises:
        for warning in warnings(settings):
            logging.getLogger("core.supervisor").warning("%s", warning)
        plan = Plan(
            broker=premises.broker,
            native=f"{NATIVE_SCHEME}{settings.native}" if settings.native else OFF,
            grpc=str(settings.grpc or OFF),
            rest=str(settings.rest or OFF),
            log_level=settings.log_level,
            silent_max_s=SILENCES_MAX * settings.silence_s,
            worker_silent_max_s=settings.lease_timeout_s + SILENCES_MAX * settings.silence_s,
            spares=settings.spare_workers,
            starts_max=starts_max(len(os.sched_getaffinity(0))),
            arguments=_arguments(settings, premises),
        )
        compiled = None if settings.interpreted else found()
        if compiled is not None:
            logging.getLogger("core.supervisor").info("workers run the compiled engine in %s", compiled)
        return asyncio.run(
            supervise(plan, commands, inherited=premises.lock, journals=premises.journals, compiled=compiled)
        )


def starts_max(processors: int) -> int:
    """How many workers may start at the same time.

    >>> [starts_max(processors) for processors in (1, 4, 64)]
    [4, 8, 16]
    """
    return max(STARTS_MAX, min(STARTS_MOST, STARTS_PER_PROCESSOR * processors))


def _arguments(settings: Settings, premises: Premises) -> dict[str, tuple[str, ...]]:
    """What each role is told besides addresses: role to arguments."""
    config = ("--default-config", str(settings.config)) if settings.config else ()
    admins = (f"--scheduler-admins={settings.scheduler_admins}",) if settings.scheduler_admins else ()
    hierarchy = ("--same-hierarchy", settings.same_hierarchy)
    allowed = f"--allowed-rms={','.join(settings.allowed_rms)}"
    memory = ("--memory-max", str(settings.proxy_memory_max_bytes))
    heartbeat = ("--heartbeat", f"{settings.heartbeat_s:g}")
    silence = ("--silence", f"{settings.silence_s:g}")
    partitions = ("--partitions-max", str(settings.partitions_max))
    patience = (
        *("--lease-timeout", f"{settings.lease_timeout_s:g}"),
        *("--pause-timeout", f"{settings.pause_timeout_s:g}"),
        *silence,
    )
    return {
        BROKER: (*config, "--record", str(premises.record), allowed, *hierarchy, *partitions, *heartbeat, *patience),
        RMPROXY: (
            *heartbeat,
            *silence,
            *(premises.keys.arguments if premises.keys else ()),
            *memory,
            *_tls(settings.grpc_tls),
        ),
        WEBSERVICE: (
            *("--settings", str(premises.settings)),
            *heartbeat,
            *admins,
            *_tls(settings.rest_tls),
            *("--audit", str(premises.audit)),
            *("--state", str(premises.audit.parent)),
            *_history(settings.web, premises.history),
            *_web(settings.web),
        ),
        WORKER: (
            *heartbeat,
            *("--journal", str(premises.journals)),
            *("--journal-max", str(settings.journal_max_bytes)),
            *("--asks-max", str(settings.asks_max)),
            f"--preemption-threshold={settings.preemption_threshold_percent}",
            f"--preemption-pause={settings.preemption_pause_s:g}",
            *(("--disable-reservation",) if settings.disable_reservation else ()),
            *((f"--predicates={','.join(settings.predicates)}",) if settings.predicates else ()),
            *(("--manual",) if settings.manual else ()),
        ),
    }


def _history(web: WebSettings, file: Path) -> tuple[str, ...]:
    if not web.history:
        return ()
    bounds = (f"--history-max={web.history_max_bytes}", f"--history-age={web.history_age_s:.0f}")
    return ("--history", str(file), *bounds)


def _web(web: WebSettings) -> tuple[str, ...]:
    """What the web service is told besides what others are told, too."""
    return (
        *((f"--auth={','.join(web.auth)}",) if web.auth else ()),
        *((f"--auth-keys={web.auth_keys}",) if web.auth_keys else ()),
        *((f"--auth-issuer={web.auth_issuer}",) if web.auth_issuer else ()),
        *((f"--auth-audience={web.auth_audience}",) if web.auth_audience else ()),
        *((f"--auth-proxy={','.join(map(str, web.auth_proxy))}",) if web.auth_proxy else ()),
        *((f"--cors={','.join(web.cors)}",) if web.cors else ()),
        *((f"--hosts={','.join(web.hosts)}",) if web.hosts else ()),
        *((f"--web-root={web.root}",) if web.root else ()),
        *((f"--default-rm={web.default_rm}",) if web.default_rm else ()),
        *(("--debug",) if web.debug else ()),
    )


def _tls(tls: Tls | None) -> tuple[str, ...]:
    if tls is None:
        return ()
    client_ca = ("--tls-client-ca", str(tls.client_ca)) if tls.client_ca else ()
    return ("--tls-cert", str(tls.cert), "--tls-key", str(tls.key), *client_ca)


def _refused(reason: str) -> int:
    sys.stderr.write(f"yunishard up: {reason}\n")
    return CANNOT_START
