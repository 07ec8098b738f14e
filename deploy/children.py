"""The processes that the supervisor runs, as its machine represents them: phases, events, instructions, and metrics.

Not here: decisions (`supervisor.py`), the operating system's processes (`processes.py`).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from yunishard.common.messages.control_messages import WorkersWanted
from yunishard.common.messages.wire import BrokerAddress, Outgoing
from yunishard.common.names import BROKER, FAKE_RM, RMPROXY, WEBSERVICE, WORKER, lease_name
from yunishard.common.process.metrics import Family, counter, gauge
from yunishard.common.retries import RestartDelay

STOP_ORDER: Final = (FAKE_RM, WEBSERVICE, RMPROXY, WORKER, BROKER)

# Children -------------------------------------------------------------------------------------------------------------


class Phase(Enum):
    """The state of a process. `Child.due` is the deadline of the phase. A worker that gets a partition starts twice."""

    PAUSED = "paused"  # not running; starts when due
    STARTING = "starting"  # must be ready when due
    READY = "ready"  # must have sent a heartbeat when due
    LEAVING = "leaving"  # asked to stop; killed when due
    KILLED = "killed"


class Cause(Enum):
    """Why a process that should run ended."""

    ENDED = "ended"
    FAILED = "failed"  # it reported that it cannot run
    SLOW = "slow"  # it was not ready in time
    SILENT = "silent"


@dataclass(slots=True)
class Child:
    """A process, or the pause before it starts. A worker without a partition is a spare worker."""

    name: str
    """Of a worker: its name as a peer of the broker, which no other process gets."""
    role: str
    due: float
    partition: str = ""
    epoch: int = 0
    phase: Phase = Phase.PAUSED
    is_queued: bool = False
    """Whether it is due and waits until other workers have started."""
    since: float = 0.0
    """The time of its start, or at which it was granted its partition."""
    is_dismissed: bool = False
    """Whether it is a worker whose lease the broker has taken back."""
    problem: str = ""
    """Why it cannot run or is killed; empty otherwise."""
    cause: Cause = Cause.ENDED
    delay: RestartDelay = field(default_factory=RestartDelay)

    @property
    def is_running(self) -> bool:
        """Whether it runs and was not asked to stop."""
        return self.phase in (Phase.STARTING, Phase.READY)

    @property
    def is_spare(self) -> bool:
        """Whether it is a worker without a partition."""
        return self.role == WORKER and not self.partition

    @property
    def title(self) -> str:
        """Its name in the log."""
        return f"{WORKER} {lease_name(self.partition, self.epoch)}" if self.partition else self.name


class HostCapacity(NamedTuple):
    """The size of the supervisor's host, by which the leader chooses hosts for partitions."""

    release: str = ""
    cores: int = 1
    memory_bytes: int = 0


# Events ---------------------------------------------------------------------------------------------------------------


class Ready(msgspec.Struct, frozen=True):
    """A process has opened these endpoints. A worker is ready twice: without a partition, and with it."""

    name: str
    endpoints: Mapping[str, str] = {}


class Granted(msgspec.Struct, frozen=True):
    """The broker has granted a worker a partition, and the worker starts to serve it."""

    name: str
    partition: str
    epoch: int


class LeaderFound(msgspec.Struct, frozen=True):
    """The broker has reported where the leading broker is."""

    leader: BrokerAddress


class Alive(msgspec.Struct, frozen=True):
    """A process has sent a heartbeat."""

    name: str


class Failed(msgspec.Struct, frozen=True):
    """A process has reported why it cannot run; its `Died` follows."""

    name: str
    reason: str


class Refused(msgspec.Struct, frozen=True):
    """The broker has reported that this whole system must not run."""

    name: str
    reason: str


class Died(msgspec.Struct, frozen=True):
    """A process has ended; `ending` tells how, as in `exit status 1` or `SIGKILL`."""

    name: str
    ending: str


class HelloWanted(msgspec.Struct, frozen=True):
    """This supervisor is not registered with the leading broker, or messages to or from it were lost."""


class Leave(msgspec.Struct, frozen=True):
    """A signal asks the system to stop; the second one, at once."""


Event = Ready | Granted | LeaderFound | Alive | Failed | Refused | Died | HelloWanted | Leave | WorkersWanted

# Instructions ---------------------------------------------------------------------------------------------------------


class Start(msgspec.Struct, frozen=True):
    """Start a process of this role."""

    name: str
    role: str
    arguments: tuple[str, ...]


class Terminate(msgspec.Struct, frozen=True):
    """Ask a process to stop."""

    name: str


class Kill(msgspec.Struct, frozen=True):
    """End a process at once, even a stopped one (SIGSTOP)."""

    name: str


class Tell(msgspec.Struct, frozen=True):
    """Write to a process where the leading broker is."""

    name: str
    leader: BrokerAddress


class Connect(msgspec.Struct, frozen=True):
    """Connect to the leading broker, in place of an earlier one."""

    leader: BrokerAddress


class Disconnect(msgspec.Struct, frozen=True):
    """Close the connection to the broker."""


class Forget(msgspec.Struct, frozen=True):
    """Remove what a killed worker has left of the files of a partition that has ended."""

    partition: str


class Announce(msgspec.Struct, frozen=True):
    """Write a line to standard output."""

    line: str


READY: Final = Announce("ready")
"""The system has opened its ports."""


class Note(msgspec.Struct, frozen=True):
    """Write a line to the log."""

    level: str
    text: str


Instruction = Start | Terminate | Kill | Tell | Connect | Disconnect | Outgoing | Forget | Announce | Note
"""`Outgoing` is a message for the broker, dropped without a connection."""

# Metrics --------------------------------------------------------------------------------------------------------------

SPARE: Final = "spare"
"""The label `role` of spare workers."""


def collect_metrics(children: Iterable[Child], restarts: Mapping[tuple[str, Cause], int]) -> Iterator[Family]:
    """Yield the supervisor's own metrics; `restarts` counts by role and cause."""
    found = Counter((SPARE if child.is_spare else child.role, child.phase) for child in children)
    roles = [role for role in STOP_ORDER if role != FAKE_RM or any(known == FAKE_RM for known, _ in found)]
    yield gauge(
        "yunishard_supervisor_processes",
        "Processes by role (workers without a partition are spare) and phase: ready, starting, leaving, killed, or "
        "paused before the next start. Investigate a process that stays paused or starting: it ends again and again.",
        ("role", "phase"),
        [((role, phase.value), found[role, phase]) for role in (*roles, SPARE) for phase in Phase],
    )
    yield counter(
        "yunishard_supervisor_restarts_total",
        "Processes that were restarted, by cause: the process ended by itself (ended), reported that it cannot run "
        "(failed), was not ready in time (slow), or sent no heartbeat (silent). Investigate each; the log has details.",
        ("role", "cause"),
        [((role, cause.value), restarts.get((role, cause), 0)) for role in roles for cause in Cause],
    )
