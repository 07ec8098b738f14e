"""The broker's shell: the socket that all our processes connect to."""

import argparse
from pathlib import Path

from broker.switch import Switch
from common.driver import clock, drive
from common.process import Life
from common.sockets import Router, Wire


async def serve(args: argparse.Namespace, life: Life) -> None:
    """Run the broker until told to stop. An unreadable default configuration is an OSError."""
    default_config = _text(args.default_config)
    wire = Wire()
    router = Router(args.listen, prefix="", named=True, wake=wire.wake)
    wire.add("", router)
    router.watch()
    life.ready()
    life.on_stop(wire.wake)
    try:
        await drive(Switch(default_config=default_config, now=clock()), wire, life.stopping)
    finally:
        router.close()


def _text(path: str | None) -> str:
    return Path(path).read_text(encoding="utf-8") if path else ""
