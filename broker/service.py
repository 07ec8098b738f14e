"""The broker's shell: the socket that all our processes connect to."""

import argparse
import logging
from pathlib import Path

from broker.switch import Switch
from common.driver import clock, drive
from common.process import Life
from common.sockets import Router, Wire

_log = logging.getLogger("core.rmproxy")


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
        switch = Switch(default_config=default_config, now=clock())
        await drive(switch, wire, life.stopping, write_notes=lambda: _write_notes(switch))
    finally:
        router.close()


def _write_notes(switch: Switch) -> None:
    for line in switch.notes:
        _log.info("%s", line)
    switch.notes.clear()


def _text(path: str | None) -> str:
    return Path(path).read_text(encoding="utf-8") if path else ""
