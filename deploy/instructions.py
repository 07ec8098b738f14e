"""What the supervisor's machine hears, and what it wants done.

Not here: why (`supervisor.py`), how (`service.py` and `processes.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.control_messages import WorkersWanted

# Events ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """A process opened everything, at these endpoints. A spare worker is ready twice: for a partition, and with it."""

    name: str
    endpoints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alive:
    """A process still does its work."""

    name: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A process says why it cannot run; its death follows."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Died:
    """A process is gone; `ending` says how, as in `exit status 1` or `SIGKILL`."""

    name: str
    ending: str


@dataclass(frozen=True, slots=True)
class Leave:
    """Someone wants the system to stop; said a second time, at once."""


Event = Ready | Alive | Failed | Died | Leave | WorkersWanted

# Instructions ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Start a process of this role; it is gone now."""

    name: str
    role: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Tell a spare worker which partition is its own from now on, and under which lease."""

    name: str
    partition: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask a process to stop."""

    name: str


@dataclass(frozen=True, slots=True)
class Kill:
    """End a process at once, even one that is stopped (as by SIGSTOP)."""

    name: str


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the broker, which is there now, and say Hello."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Drop the connection to the broker."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the broker that the worker of a partition ended before it was ready, and why."""

    partition: str
    epoch: int
    reason: str
    cannot_start: bool
    """Whether the worker itself, or the operating system, reported the reason."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove what is kept of a partition that has ended."""

    partition: str


@dataclass(frozen=True, slots=True)
class Announce:
    """A line for whoever started the system."""

    line: str


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the log."""

    level: str
    text: str


Instruction = Start | Assign | Terminate | Kill | Connect | Disconnect | Report | Forget | Announce | Note
