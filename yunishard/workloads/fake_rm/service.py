"""The fake RM of a system with simulated nodes, as a process of the supervisor.

A system without any RM has no partition, so `yunishard up --simulated-nodes` would show nothing. This RM registers as
`simulated` and leaves when the supervisor stops it, which happens as soon as another RM has a partition. Its partitions
have their nodes from the core, as those of every RM; it submits applications if `simulated-load` asks for them.

Not here: when it runs (`deploy/supervisor.py`).
"""

import asyncio
import logging
from functools import partial
from typing import Final

from yunishard.common.names import STAND_IN_RM
from yunishard.common.process.main import Arguments, Life
from yunishard.common.settings import Settings, host_and_port
from yunishard.common.simulated_nodes import parse_node_resources
from yunishard.sdk.client import connect
from yunishard.sdk.exceptions import SessionLost, YunishardError
from yunishard.workloads.fake_rm.machine import FakeNodes, FakeRM
from yunishard.workloads.fake_rm.run import CONNECT_S_MAX, play
from yunishard.workloads.fake_rm.workload import RUN_S, Workload, build_configuration, find_rate
from yunishard.workloads.replay.user_queues import UserQueues

_ALL_ADDRESSES: Final = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 - to connect, not to listen
"""Addresses at which a port is open on all interfaces, and how to connect to it from here."""

_log = logging.getLogger("core.fake_rm")


async def serve(arguments: Arguments, life: Life) -> None:
    """Register, report that the system is ready, and play until it is time to stop."""
    settings = arguments.settings
    queues, config = _read_queues(settings)
    resources = parse_node_resources(settings.node_resources)
    nodes = settings.simulated_nodes * len(queues.names)
    rate = find_rate(nodes, settings.simulated_load_percent / 100, RUN_S)
    fake = FakeRM(
        FakeNodes(partitions=queues.names, names=(), resources=resources),
        Workload(queues.targets, resources, rate=rate),
        rm_id=STAND_IN_RM,
    )
    task = asyncio.current_task()
    assert task is not None
    life.on_stop(partial(_cancel, task))
    try:
        address = find_address(settings.native)
        async with connect(address, rm_id=STAND_IN_RM, config=config, keys="", timeout_s=CONNECT_S_MAX) as rm:
            life.ready()
            await play(rm, fake, show=_log.debug)
    except asyncio.CancelledError:  # before it was connected
        return
    except SessionLost as error:
        if error.code != "superseded":
            raise OSError(str(error)) from None
        _log.warning("another RM registered as %s and takes the place of the built-in one", STAND_IN_RM)
        await life.stopping.wait()
    except (YunishardError, TimeoutError) as error:
        raise OSError(f"RM {STAND_IN_RM}: {error}") from None


def find_address(native: str) -> str:
    """Return the address at which this host reaches its own native port."""
    host, port = host_and_port(native)
    host = _ALL_ADDRESSES.get(host, f"[{host}]" if ":" in host else host)
    return f"tcp://{host}:{port}"


def _read_queues(settings: Settings) -> tuple[UserQueues, str]:
    """Return the queues, and the configuration to register with: empty for the file that the core reads itself."""
    if settings.config is not None:
        return UserQueues(settings.config.read_text(encoding="utf-8")), ""
    text = build_configuration(settings.simulated_nodes, parse_node_resources(settings.node_resources))
    return UserQueues(text), text


def _cancel(task: "asyncio.Task[object]") -> None:
    task.cancel()
