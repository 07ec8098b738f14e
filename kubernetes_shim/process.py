"""Parts of both processes, `k8s-shim` and `k8s-admission`: the options that they share, and running until a signal."""

import argparse
import asyncio
import os
import signal
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final

import uvloop

from common.logs import configure_logging

_LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def add_cluster_options(parser: argparse.ArgumentParser, *, contents: str) -> None:
    """Add the options that find the cluster; `contents` states which objects are in the namespace."""
    about = f"where {contents} are (default: $NAMESPACE, that of the pod, or default)"
    parser.add_argument("--namespace", metavar="NAME", default=os.environ.get("NAMESPACE", ""), help=about)
    about = "(default: $KUBECONFIG, the pod's service account, or ~/.kube/config)"
    parser.add_argument("--kubeconfig", metavar="FILE", help=about)


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the log."""
    parser.add_argument("--log-level", choices=_LEVELS, default="info", help="(default: info)")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="(default: text)")


def run_until_signal(process: str, args: argparse.Namespace, serve: Coroutine[None, None, None]) -> None:
    """Run the service of a process until it ends, or until SIGTERM or SIGINT cancels it."""
    configure_logging(process, args.log_level, args.log_format)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_cancel_on_signal(serve))


async def _cancel_on_signal(serve: Coroutine[None, None, None]) -> None:
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    with suppress(asyncio.CancelledError):
        await serve
