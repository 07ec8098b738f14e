"""Parts of both processes, `k8s-shim` and `k8s-admission`: the options that they share, running until a signal, and
what an operator reads when one cannot run."""

import argparse
import asyncio
import logging
import os
import re
import signal
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Final

import uvloop

from yunishard.cli.main import CommandFailed, CommandUnusable, suggest
from yunishard.common.config import extra_config
from yunishard.common.process.logs import configure_logging
from yunishard.common.settings import PORT_MAX
from yunishard.kubernetes_shim.client import KubernetesError, find_cause
from yunishard.kubernetes_shim.kubeconfig import AccessError
from yunishard.kubernetes_shim.lease import LeaseLost
from yunishard.kubernetes_shim.metrics import ListenFailed
from yunishard.kubernetes_shim.settings import CONFIG_MAPS_READ, KEYS, Settings, SettingsError, read_settings
from yunishard.sdk.exceptions import KeyFileError, KeyRefused, SessionLost

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403

_log = logging.getLogger("kubernetes.settings")

_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def add_process_options(parser: argparse.ArgumentParser, *, contents: str) -> None:
    """Add the options of the cluster, the metrics and the log; `contents` states which objects are in the namespace."""
    about = f"where {contents} are (default: $NAMESPACE, that of the pod, or default)"
    parser.add_argument("--namespace", metavar="NAME", default=os.environ.get("NAMESPACE", ""), help=about)
    about = "(default: $KUBECONFIG, the pod's service account, or ~/.kube/config)"
    parser.add_argument("--kubeconfig", metavar="FILE", help=about)

    about = "where to serve /metrics for Prometheus and /health (default: nowhere)"
    parser.add_argument("--metrics", type=parse_host_and_port, metavar="HOST:PORT", help=about)
    parser.add_argument("--log-level", choices=_LEVELS, default="info", help="(default: info)")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="(default: text)")


def parse_host_and_port(text: str) -> str:
    """Check the address of a port to open, for the `type` of an option."""
    match = re.fullmatch(r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]]+):([0-9]{1,5})", text)
    if match is None or int(match[1]) > PORT_MAX:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, such as 0.0.0.0:9089, got {text!r}")
    return text


def run_until_signal(process: str, args: argparse.Namespace, serve: Coroutine[None, None, None]) -> None:
    """Run the service of a process until it ends, or until SIGTERM or SIGINT cancels it.

    Raises:
        CommandFailed: another process has the lease or the session.
        CommandUnusable: the process cannot run with what it was given, or with its rights.
    """
    configure_logging(process, args.log_level, args.log_format)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_cancel_on_signal(serve))
    except Exception as error:
        cause = find_cause(error)
        if isinstance(cause, LeaseLost | SessionLost):
            raise CommandFailed(str(cause)) from None
        if isinstance(cause, KubernetesError):
            raise CommandUnusable(describe_refusal(cause)) from None
        if isinstance(cause, AccessError | SettingsError | KeyFileError | KeyRefused | ListenFailed):
            raise CommandUnusable(str(cause)) from None
        raise


def describe_refusal(error: KubernetesError) -> str:
    """Describe what the API server refused, and what an operator can do."""
    if error.status == UNAUTHORIZED:
        text = "the API server refuses the credentials (401): renew them, or name those of this cluster"
        return f"{error.request}: {text}"
    if error.status == FORBIDDEN:
        return f"a right is missing: {error.message}; the roles of the Helm chart (rbac.yaml) have all that are needed"
    return f"{error.request}: {error}" if error.request else str(error)


def list_ineffective_keys(data: Mapping[str, str], policy_group: str) -> list[str]:
    """Return a line for each key of a config map that has no effect, as it or its value is probably misspelt. These
    values, unlike those of `settings`, are of the core, which ignores what it cannot read.
    """
    found = []
    for key in sorted(data.keys() - KEYS):
        if key.endswith(".yaml"):
            if key != f"{policy_group}.yaml":
                found.append(f"{key} is not read: the queues are in {policy_group}.yaml (service.policyGroup)")
        elif not extra_config.is_known(key):
            found.append(f"{key} is not a setting, so it has no effect{suggest(key, KEYS)}")
        elif not extra_config.is_readable(key, data[key]):
            near = suggest(data[key], extra_config.LEVELS)
            found.append(f"{key} is {data[key]!r}, which cannot be read, so it has no effect{near}")
    return found


def read_first_settings(maps: Sequence[Mapping[str, str]], namespace: str) -> Settings:
    """Return the settings at the start, and log the keys that are none.

    Raises:
        SettingsError: values that cannot be read; the text names the config maps, too.
    """
    try:
        settings = read_settings(maps)
        for problem in (line for one in maps for line in list_ineffective_keys(one, settings.policy_group)):
            _log.warning("in the config maps of namespace %s: %s", namespace, problem)
        return settings
    except SettingsError as error:
        where = f"the config maps {' and '.join(CONFIG_MAPS_READ)} of namespace {namespace}"
        problems = "".join(f"\n  {line}" for line in str(error).splitlines())
        raise SettingsError(f"{where} have settings that cannot be read:{problems}") from None


async def _cancel_on_signal(serve: Coroutine[None, None, None]) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    asyncio.get_running_loop().set_exception_handler(report_loop_error)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    with suppress(asyncio.CancelledError):
        await serve


def report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Log an error that the loop reports, except those of connections that were closed during their TLS handshake:
    uvloop still writes to them, and a process that ends may close many.
    """
    is_closing = getattr(context.get("transport"), "is_closing", None)
    if isinstance(context.get("exception"), RuntimeError) and is_closing is not None and is_closing():
        return
    loop.default_exception_handler(context)
