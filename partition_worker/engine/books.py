"""The books of a partition: everything it knows, in one place that the modules of the engine share.

Queues, nodes, applications, users, timers and counters, and the effects that the present step has had so far. Who
changes them is above: `ledger.py` for what is asked for and allocated, `lifecycle.py` for states, `updates/` for the
RM's word, `cycle/` for decisions. Not here: rules.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

from common import event_codes
from common.config.model import PartitionConfig
from common.machine import NEVER
from common.messages import Resources
from common.node_sort_policies import NODE_SORT_POLICIES
from common.resources import NOTHING
from common.rm_messages import Allocation as Announced
from common.rm_messages import AllocationRelease, RejectedAllocation
from partition_worker.engine.allocation import Allocation
from partition_worker.engine.application import Application
from partition_worker.engine.application_states import RETENTION_S, AppState
from partition_worker.engine.ask_shapes import Needs
from partition_worker.engine.effects import Effect, Happened, Note, Part
from partition_worker.engine.nodes.node import Node
from partition_worker.engine.nodes.nodes import Fleet
from partition_worker.engine.placement_chain import PlacementChain
from partition_worker.engine.placement_rules import RuleError
from partition_worker.engine.predicates.evaluation import Predicates
from partition_worker.engine.predicates.predicate import Predicate
from partition_worker.engine.preemption_log import Preemptions
from partition_worker.engine.queues.tree import Tree
from partition_worker.engine.readiness.readiness import Readiness, Swappable
from partition_worker.engine.readiness.reservation_index import Reserved
from partition_worker.engine.rejection import Rejection
from partition_worker.engine.report import Report
from partition_worker.engine.timers import Timers
from partition_worker.engine.tuning import DEFAULT, Tuning
from partition_worker.engine.user_limits import Usage
from partition_worker.engine.user_resolution import Users, Waiting, resolver_of

CLEAN_EVERY_S: Final = 10.0
"""How often dynamic and draining queues that are empty are removed."""

QUOTA_LOOK_EVERY_S: Final = 1.0
"""How often queues that are to be brought down to their maximum are looked at, while there are any."""

ENDED_MAX: Final = 50_000
"""Ended applications (and as many rejected ones) that are remembered; beyond it the oldest are forgotten before their
time.
"""


REMOVED_MAX: Final = 10_000
"""Applications that the RM removed and that are kept for whoever writes a history and asks every few seconds. Beyond
it the oldest are forgotten, and missing there.
"""

REACHED_MAX: Final = 20_000
"""Pairs of queue and state whose entries are counted, each a series of the metrics. Beyond it a dynamic queue that goes
leaves its counts to the queue above it."""


@dataclass(slots=True)
class Counters:
    """What has happened in this partition since it began; only ever grows."""

    allocated: int = 0
    released: int = 0
    rejected: int = 0
    errors: int = 0
    submitted: int = 0
    refused: int = 0
    decommissioned: int = 0
    reached: Counter[tuple[str, AppState]] = field(default_factory=Counter)
    """How often an application of this queue entered this state, also of queues that are gone. Refused applications
    are counted in the queue they asked for; all whose queue does not exist in "", or their RM would decide how many
    names there are to remember.
    """

    @property
    def accepted(self) -> int:
        return self.entries(AppState.ACCEPTED)

    @property
    def completed(self) -> int:
        return self.entries(AppState.COMPLETED)

    @property
    def failed(self) -> int:
        return self.entries(AppState.FAILED)

    def fold(self, path: str, into: str) -> None:
        """Count what is counted for a queue that is gone with the queue above it, if too many names are remembered."""
        if len(self.reached) > REACHED_MAX:
            for state in AppState:
                if count := self.reached.pop((path, state), 0):
                    self.reached[into, state] += count

    def entries(self, state: AppState) -> int:
        """How often an application entered this state."""
        return sum(count for (_, reached), count in self.reached.items() if reached is state)


class Books:
    """All state of one partition. Read by queries, changed by the modules of the engine only."""

    def __init__(
        self,
        config: PartitionConfig,
        *,
        name: str,
        now: float,
        plugins: Sequence[Predicate] = (),
        tuning: Tuning = DEFAULT,
    ) -> None:
        self.name = name
        self.tuning = tuning
        self.config = config
        self.tracking = True
        """Whether events are added to the history."""
        self._happenings: list[Happened] = []
        self.tree = Tree(config)
        for queue in self.tree:
            self.happened(event_codes.QUEUE, queue.path, event_codes.ADD, event_codes.DETAILS_NONE)
        self.fleet = Fleet(self.node_sort(config), config.node_sort_policy.weights, Predicates(plugins))
        self.placement, self.placement_problem = _placement(config)
        self.resolver = config.user_group_resolver.type  # for the life of the partition
        self.users = Users(resolver_of(self.resolver))
        self.waiting = Waiting()
        self.usage = Usage(config, self.happened)
        self.applications: dict[str, Application] = {}
        """Those that have not ended, by id."""
        self.readiness = Readiness(self.tree, self.fleet, self.applications)
        self.preemptions = Preemptions(self.applications)
        self.reserved = Reserved()
        self.swappable = Swappable()
        self.needs = Needs()
        self.ended: dict[str, Application] = {}
        """Completed and failed ones, by id and the time they ended."""
        self.removed: deque[Application] = deque(maxlen=REMOVED_MAX)
        """Those that the RM removed, by the time they ended. Nobody decides by it, so a snapshot goes without."""
        self.rejections: dict[str, Rejection] = {}
        self.allocations: dict[str, Allocation] = {}
        """Every ask and allocation of our own, by key: keys are unique in a partition."""
        self.foreign: dict[str, Node] = {}
        """The node of every foreign allocation, by key."""
        self.running_allocations = 0
        """Allocations of our own that have a node."""
        self.timers = Timers()
        self.counters = Counters()
        self.created_ns = int(now * 1e9)
        self.step = 0
        """Number of the latest input or cycle; effects name it as their cause."""
        self.now = now
        self.report: Report | None = None
        """What the RM has mentioned, while it reports everything anew; until it has, nothing is placed."""
        self.retired = False
        """Whether the partition left the configuration: it is empty and stays so."""
        self.clean_at = NEVER
        """When queues that are empty are looked for next."""
        self.quota_look_at = NEVER
        """When it is looked next whether a queue has to be brought down to its maximum."""
        self.latest_stamp_ns = self.application_ranks = 0
        self._effects: list[Effect] = []

    @staticmethod
    def node_sort(config: PartitionConfig) -> str:
        """In which order the configuration wants nodes to be tried."""
        policy = config.node_sort_policy.policy
        return policy if policy in NODE_SORT_POLICIES else "fair"

    def emit(self, part: Part) -> None:
        """Tell something, in this order."""
        kind = type(part)
        if kind is Announced:
            self.counters.allocated += 1
        elif kind is AllocationRelease:
            self.counters.released += 1
        elif kind is RejectedAllocation:
            self.counters.rejected += 1
        self._effects.append(Effect(self.step, part))

    def happened(
        self,
        kind: int,
        object_id: str,
        change: int,
        detail: int,
        *,
        reference: str = "",
        message: str = "",
        resource: Resources = NOTHING,
    ) -> None:
        """Add an event to the history, unless nobody keeps one. The amounts must not be changed afterwards."""
        if self.tracking:
            self._happenings.append((kind, object_id, reference, change, detail, message, resource))

    def note(self, text: str) -> None:
        """Leave a line for the log about an input that had no effect."""
        self.emit(Note(text))

    def tell_people(self, text: str) -> None:
        """Leave a line for the log that whoever runs the system should see."""
        self.emit(Note(text, for_people=True))

    def stamp_ns(self) -> int:
        """The present in Unix nanoseconds, later than every stamp before it: things that arrive together keep their
        order.
        """
        self.latest_stamp_ns = max(self.latest_stamp_ns + 1, int(self.now * 1e9))
        return self.latest_stamp_ns

    def next_application_rank(self) -> int:
        self.application_ranks += 1
        return self.application_ranks

    def expect_cleaning(self) -> None:
        """There is, or may soon be, a queue to remove."""
        if self.clean_at == NEVER:
            self.clean_at = self.now + CLEAN_EVERY_S

    def expect_quota_look(self) -> None:
        """A queue has a time at which it is brought down to its maximum."""
        if self.quota_look_at == NEVER and self.config.preemption.is_quota_enabled:
            self.quota_look_at = self.now + QUOTA_LOOK_EVERY_S

    def remember_ended(self, application: Application) -> None:
        """Keep an ended application for those who ask; its id is free again."""
        self.ended[f"{application.application_id}-{application.finished_ns}"] = application
        if len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]

    def forget_ended(self, application: Application) -> None:
        """Nobody may ask for this ended application any more."""
        self.ended.pop(f"{application.application_id}-{application.finished_ns}", None)

    def remember_rejection(self, rejection: Rejection) -> None:
        self.rejections.pop(rejection.application_id, None)
        self.rejections[rejection.application_id] = rejection
        if len(self.rejections) > ENDED_MAX:
            del self.rejections[next(iter(self.rejections))]

    @property
    def next_forgetting(self) -> float:
        """When the oldest rejection or ended application has been remembered for long enough, or NEVER."""
        rejection, ended = next(iter(self.rejections.values()), None), next(iter(self.ended.values()), None)
        return min(
            NEVER if rejection is None else _forgotten_at(rejection.at_ns),
            NEVER if ended is None else _forgotten_at(ended.finished_ns),
        )

    def expired(self) -> list[Application]:
        """Forget the rejections whose time has come; the ended applications whose time has."""
        now = self.now
        for rejection in tuple(takewhile(lambda one: _forgotten_at(one.at_ns) <= now, self.rejections.values())):
            del self.rejections[rejection.application_id]
        return list(takewhile(lambda one: _forgotten_at(one.finished_ns) <= now, self.ended.values()))

    def begin(self, now: float) -> None:
        """A new step: whatever is told from here on has it as its cause."""
        assert not self._effects, "effects of an earlier step were not taken"
        self.step += 1
        self.now = max(now, self.now)

    def retract(self, unwanted: Callable[[Part], bool]) -> None:
        """Take back some of what has been told in this step: nobody is to hear it."""
        self._effects = [effect for effect in self._effects if not unwanted(effect.part)]

    @property
    def told(self) -> int:
        """How many events were told since they were taken."""
        return len(self._happenings)

    def rearrange(self, first: int, key: Callable[[Happened], int]) -> None:
        """Put the events told from this one on in the order of a key; those of one key stay as they are."""
        self._happenings[first:] = sorted(self._happenings[first:], key=key)

    def happenings(self) -> list[Happened]:
        """What was added to the history since this was asked last, once."""
        happenings, self._happenings = self._happenings, []
        return happenings

    def taken(self) -> list[Effect]:
        """The effects of this step, once."""
        effects, self._effects = self._effects, []
        return effects


def _placement(config: PartitionConfig) -> tuple[PlacementChain, str]:
    """The rules, and what is wrong with them: without any every application is rejected, and told why."""
    try:
        return PlacementChain(config.placement_rules), ""
    except RuleError as error:
        return PlacementChain.without_rules(), str(error)


def _forgotten_at(ended_ns: int) -> float:
    return ended_ns / 1e9 + RETENTION_S
