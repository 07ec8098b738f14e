"""The worker's shell: one connection to the broker, and its log.

Not here: anything that is decided (`worker.py`).
"""

import argparse
import gc
import logging
import math
import time
from importlib.metadata import entry_points
from typing import Final

from common.driver import drive
from common.machine import Delivery, Send
from common.names import BROKER, PREDICATE_PLUGINS
from common.process import Life
from common.sockets import Dealer, Wire
from partition_worker.engine.tuning import RESERVATION_DELAY_S, Tuning
from partition_worker.groups import Groups
from partition_worker.log_levels import LogLevels
from partition_worker.plugins import chosen
from partition_worker.worker import GROUPS, Worker

YOUNG_OBJECTS: Final = 50_000
"""Objects between two collections of garbage: the engine's objects live long and their rare cycles can wait."""

_log = logging.getLogger("core.scheduler.partition")


class _Timed:
    """A worker that is told how long its ticks take."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def deadline(self) -> float:
        return self._worker.deadline

    def handle(self, delivery: Delivery, now: float) -> list[Send]:
        return self._worker.handle(delivery, now)

    def tick(self, now: float) -> list[Send]:
        started_s = time.perf_counter()
        sends = self._worker.tick(now)
        self._worker.took(time.perf_counter() - started_s)
        return sends


async def serve(args: argparse.Namespace, life: Life) -> None:
    """Run the worker of one partition until told to stop."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    plugins = chosen(args.predicates.split(",") if args.predicates else (), entry_points(group=PREDICATE_PLUGINS))
    worker = Worker(
        partition=args.partition, epoch=args.epoch, manual=args.manual, plugins=plugins, tuning=_tuning(args)
    )
    wire = Wire()
    link = Dealer(args.broker, peer=BROKER, name=args.partition, wake=wire.wake)
    wire.add(BROKER, link)
    wire.add(GROUPS, Groups(wake=wire.wake))
    link.watch()
    wire.send(worker.hello())
    life.ready()
    life.on_stop(wire.wake)
    levels = LogLevels()

    def write_notes() -> None:
        levels.follow(worker.settings)
        _write_notes(worker)

    try:
        await drive(_Timed(worker), wire, life.stopping, write_notes=write_notes)
    finally:
        link.close()


def _tuning(args: argparse.Namespace) -> Tuning:
    return Tuning(
        reservation_delay_s=math.inf if args.disable_reservation else RESERVATION_DELAY_S,
        preemption_pause_s=args.preemption_pause,
        preemption_threshold=args.preemption_threshold / 100,
    )


def _write_notes(worker: Worker) -> None:
    levels = (
        (logging.DEBUG, worker.notes),
        (logging.INFO, worker.announcements),
        (logging.WARNING, worker.warnings),
    )
    for level, lines in levels:
        for line in lines:
            _log.log(level, "%s: %s", worker.name, line)
        lines.clear()
