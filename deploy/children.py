"""One process that should run, or is still on its way out, as the supervisor's machine keeps it.

Not here: what becomes of it (`supervisor.py`), the process itself (`processes.py`).
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from common.names import worker_name
from deploy.restarts import Restarts

BROKER: Final = "broker"
RMPROXY: Final = "rmproxy"
WEBSERVICE: Final = "webservice"
WORKER: Final = "partition_worker"
STOP_ORDER: Final = (WEBSERVICE, RMPROXY, WORKER, BROKER)


class Phase(Enum):
    """Where a process is in its life; `due` is the time that belongs to it."""

    PAUSED = "paused"  # not running; starts when due
    STARTING = "starting"  # must be ready when due
    READY = "ready"  # must have said something when due
    LEAVING = "leaving"  # asked to stop; killed when due
    KILLED = "killed"


class Cause(Enum):
    """Why a process that should run does not."""

    ENDED = "ended"
    FAILED = "failed"  # it said that it cannot run
    SLOW = "slow"  # it was not ready in time
    SILENT = "silent"


@dataclass(slots=True)
class Child:
    """A process, or the pause before it starts. A worker without a partition is a spare one."""

    name: str
    """Of the process, as long as it runs; a spare worker keeps it when it gets a partition."""
    role: str
    due: float
    partition: str = ""
    epoch: int = 0
    phase: Phase = Phase.PAUSED
    queued: bool = False
    """Whether it is due and waits for others to have started."""
    since: float = 0.0
    """When it was last started, or given its partition."""
    complaint: str = ""
    """Why it cannot run, if it said so, was too slow or fell silent; empty otherwise."""
    cause: Cause = Cause.ENDED
    """The same in a word."""
    restarts: Restarts = field(default_factory=Restarts)

    @property
    def alive(self) -> bool:
        """Whether it runs and was not asked to stop."""
        return self.phase in (Phase.STARTING, Phase.READY)

    @property
    def spare(self) -> bool:
        """Whether it is a worker that waits for a partition."""
        return self.role == WORKER and not self.partition

    @property
    def title(self) -> str:
        """What it is, for people."""
        return worker_title(self.partition, self.epoch) if self.partition else self.name


def worker_title(partition: str, epoch: int) -> str:
    """What the worker of a partition under this lease is called, if it was started as such."""
    return f"{WORKER} {worker_name(partition, epoch)}"
