"""A machine of the simulation: its clock, its supervisor, and what is lost with it.

Not here: its processes (`roles.py`, `supervision.py`), cuts between hosts (`network.py`, `database.py`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from yunishard.common.messages.wire import BrokerAddress
from yunishard.common.names import LOCAL_HOST

if TYPE_CHECKING:
    from tests.sim.supervision import Keeper

SKEW_MAX_S: Final = 300.0
"""How far the clock of a host may be from the right time."""


@dataclass
class Host:
    """A machine on which a supervisor runs, or soon does."""

    name: str = LOCAL_HOST
    skew_s: float = 0.0
    """How far its clock is ahead."""
    cores: int = 1
    is_up: bool = True
    keeper: "Keeper | None" = None
    """Its latest supervisor."""

    @property
    def own(self) -> BrokerAddress:
        """Where its processes reach its broker."""
        return BrokerAddress(f"ipc://{self.name}")

    @property
    def remote(self) -> BrokerAddress:
        """Where those of other hosts do."""
        return BrokerAddress(f"tcp://{self.name}", f"key of {self.name}")
