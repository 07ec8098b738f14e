"""`yunishard k8s-shim`: the process of the shim, until a signal.

The docstring of `run_k8s_shim` is the help text. Not here: what it does (`driver.py`, `shim.py`).
"""

import argparse
import asyncio
import os
import secrets
import socket
from functools import partial
from pathlib import Path
from typing import Final

from yunishard.cli.main import ADDRESS_DEFAULT, add_core_options
from yunishard.kubernetes_shim.actions import NOT_FOUND
from yunishard.kubernetes_shim.client import KubernetesClient, KubernetesError
from yunishard.kubernetes_shim.driver import Driver
from yunishard.kubernetes_shim.events import EVENTS_PER_S, SENDERS, EventSender
from yunishard.kubernetes_shim.kubeconfig import Access, find_access
from yunishard.kubernetes_shim.lease import LeaseHolder
from yunishard.kubernetes_shim.metrics import ApiMetrics, ShimMetrics, serve_metrics
from yunishard.kubernetes_shim.objects import CONFIG_MAPS
from yunishard.kubernetes_shim.process import (
    add_process_options,
    read_first_settings,
    run_until_signal,
)
from yunishard.kubernetes_shim.settings import CONFIG_MAPS_READ, Settings, read_config_map
from yunishard.kubernetes_shim.shim import Shim
from yunishard.sdk.client import split_addresses
from yunishard.sdk.connection import ADDRESS

LEASE_DEFAULT: Final = "yunishard-k8s-shim"


def add_k8s_shim_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard k8s-shim`."""
    add = parser.add_argument
    add_core_options(parser, _check_addresses)
    about = f"the lease that the active one of several shims holds (default: {LEASE_DEFAULT})"
    add("--lease", metavar="NAME", default=LEASE_DEFAULT, help=about)
    about = (
        "what the lease has as its holder; a shim that starts as the holder does not wait, so no two that run may have "
        "the same (default: the host's name and a random number)"
    )
    add("--identity", type=_parse_identity, metavar="TEXT", help=about)
    add_process_options(parser, contents="the config maps and the lease")


def run_k8s_shim(args: argparse.Namespace) -> int:
    """Schedule the pods of a Kubernetes cluster: those with the scheduler name
    yunikorn become asks of the core, and get the nodes that the core allocates.

    Keys, annotations and config maps (yunikorn-defaults, yunikorn-configs) are
    YuniKorn's. The id of the resource manager is the setting service.clusterId.
    Several shims may run: one of them has the lease and works, the others wait.
    A shim that starts reports everything again and moves nothing.

    examples:
      yunishard k8s-shim                               in a pod, or with KUBECONFIG
      yunishard k8s-shim --connect tcp://a:9090,tcp://b:9090 --namespace yunikorn

    exit codes:
      0  stopped by Ctrl-C or SIGTERM
      1  another process has the lease or the session now
      2  wrong usage, or the API server, the settings or the keys cannot be used
    """
    run_until_signal("k8s-shim", args, _serve(args))
    return 0


async def _serve(args: argparse.Namespace) -> None:
    """Wait for the lease, and run the shim until it is cancelled or loses the lease."""
    access = find_access(os.environ, Path(args.kubeconfig) if args.kubeconfig else None)
    namespace = args.namespace or access.namespace or "default"
    instance = f"{socket.gethostname()}_{secrets.token_hex(4)}"
    api_metrics, metrics = ApiMetrics(), ShimMetrics()
    async with (
        serve_metrics(args.metrics or "", "k8s-shim", api_metrics.registry, metrics.registry),
        KubernetesClient(access, connections=2, metrics=api_metrics) as client,
        LeaseHolder(client, namespace, args.lease, args.identity or instance).hold() as lost,
        asyncio.TaskGroup() as tasks,
    ):
        metrics.has_lease.set(1)
        tasks.create_task(_run_driver(args, access, namespace, instance, api_metrics, metrics))
        await lost


async def _run_driver(
    args: argparse.Namespace,
    access: Access,
    namespace: str,
    instance: str,
    api_metrics: ApiMetrics,
    metrics: ShimMetrics,
) -> None:
    """Run the shim with clients of its own: requests for the lease wait for no others, and events delay nothing."""
    connect = partial(KubernetesClient, access, metrics=api_metrics)
    async with connect(per_s=EVENTS_PER_S, connections=SENDERS) as event_client:
        settings = await _read_settings(event_client, namespace)
        async with connect(per_s=settings.qps, burst=settings.burst) as client:
            driver = Driver(
                Shim(settings),
                client,
                EventSender(event_client, instance),
                address=args.address,
                settings=settings,
                keys=args.keys,
                namespace=namespace,
                metrics=metrics,
                on_ready=partial(_write_ready, access, settings),
            )
            await driver.run()


async def _read_settings(client: KubernetesClient, namespace: str) -> Settings:
    """Return the settings of the config maps; a missing one is empty.

    Raises:
        SettingsError: values that cannot be read.
    """
    maps = []
    for name in CONFIG_MAPS_READ:
        try:
            maps.append(read_config_map(await client.get(CONFIG_MAPS, namespace, name)))
        except KubernetesError as error:
            if error.status != NOT_FOUND:
                raise
    return read_first_settings(maps, namespace)


def _parse_identity(text: str) -> str:
    if not text.strip():  # of a variable that is not set; an empty holder means that there is none
        raise argparse.ArgumentTypeError("expected the identity of this process, such as the name and uid of its pod")
    return text


def _check_addresses(text: str) -> None:
    for address in split_addresses(text):
        if not ADDRESS.fullmatch(address):
            raise ValueError(f"expected tcp://HOST:PORT, such as {ADDRESS_DEFAULT}, got {address!r}")


def _write_ready(access: Access, settings: Settings) -> None:
    line = f"scheduling the pods of {access.server} as resource manager {settings.cluster_id}"
    print(line, flush=True)  # noqa: T201 - this is the output
