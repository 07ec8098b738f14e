"""The machine of the shim: events of the API server and results of the core in, actions out.

It owns the cluster (`cluster.py`) that predicates read, and the applications, tasks and nodes that the core has.
It reads no clock, and never waits: what has to happen later has a deadline (`next_deadline`, `advance`).

The driver calls, in any order after the start:

- `handle_object` for each object of the API server that is new, changed or gone. Until `handle_listed` the objects are
  only stored;
- `handle_listed` once, when all kinds were listed; `handle_registered` for each new session with the core. After both,
  the machine sends a full report;
- `handle_result` for each result of the session, `handle_outcome` for each action that has an outcome;
- `advance` at `next_deadline`;

and after each of them executes `take_actions()`. `may_run` answers the core's question where an ask may run.

Not here: executing actions (`driver.py`), what pods mean (`pods.py`), predicates (`predicates`).
"""

from typing import Literal, TypeVar

from kubernetes_shim.actions import Action, Failure, Outbox
from kubernetes_shim.objects import Kind, Object
from yunishard.items import Update

Event = Literal["added", "modified", "deleted"]
_O = TypeVar("_O", bound=Object)


class Shim:
    """The shim of one cluster."""

    def __init__(self) -> None:
        self._outbox = Outbox()

    def take_actions(self) -> list[Action]:
        """Return the actions to execute now, in order."""
        return self._outbox.take()

    @property
    def next_deadline(self) -> float:
        """The time at which `advance` has to be called; infinity if nothing is due."""
        return float("inf")

    def handle_object(self, kind: Kind[_O], event: Event, obj: _O, now: float) -> None:
        """Handle an object that was added, modified or deleted; a deletion has the last known object."""

    def handle_listed(self, now: float) -> None:
        """All kinds were listed once."""

    def handle_registered(self, now: float) -> None:
        """A new session with the core began, which has nothing of this shim."""

    def handle_result(self, partition: str, news: Update, now: float) -> None:
        """Handle a result of the core."""

    def handle_outcome(self, action: Action, failure: Failure | None, now: float) -> None:
        """Handle the outcome of an action; `failure` is None if it succeeded."""

    def advance(self, now: float) -> None:
        """Do what is due."""

    def may_run(self, key: str, node: str, allocate: bool) -> str | None:  # noqa: FBT001 - the SDK's signature
        """Return why an ask may not run on a node, or None."""
        return None
