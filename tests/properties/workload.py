"""Seeded sequences of commands: rich, mostly sensible, with what an RM may get wrong among them."""

import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

from tests.builders import COMMANDS, TYPE_NAMES
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.query_messages import Actor, NodeAction, QueueAction
from yunishard.common.messages.rm_messages import AllocationRelease
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.partition import Partition

TREES = (
    "root.a; root.b",
    "root.a max=memory:20; root.b guaranteed=memory:10; root.c guaranteed=memory:30,gpu:2",
    "root.p max=memory:30; root.p.a guaranteed=memory:10; root.p.b max=memory:15 priority.offset=1; root.b maxapps=2",
    """root application.sort.priority=disabled; root.b maxapps=1;
       root.a application.sort.policy=fair guaranteed=memory:5,gpu:2""",
    """root.p maxapps=2; root.p.a application.sort.policy=fair; root.p.b priority.policy=fence priority.offset=2;
       root.a guaranteed=gpu:1 max=gpu:3""",
    """root limit.user.bob=memory:12 limit.user.*=apps:2 limit.group.dev=memory:14,gpu:1 limit.group.*=apps:2;
       root.a limit.user.*=memory:6; root.b limit.user.eve=apps:1,memory:20,gpu:0 limit.group.ops=memory:9""",
    """root.a application.unschedasks.backoff=1; root.b application.unschedasks.backoff=2 maxapps=2;
       root.c guaranteed=memory:7 max=memory:40""",
    """root.p limit.user.*=memory:9,apps:1; root.p.a limit.user.bob=memory:6 limit.user.ann=apps:1 maxapps=2;
       root.p.b limit.group.ops=apps:1 limit.group.dev=memory:8; root.a limit.user.*=gpu:1 limit.group.dev=memory:3""",
)
"""Queues of different kinds; every one of them has leaves `a` and `b` somewhere."""

LEAVES = ("root.a", "root.b", "root.c", "root.p.a", "root.p.b")

SECONDS = (0.6, 1.1, 2.7, 2.7, 5.2, 31.0)
"""Steps of time, of which no few add up to exactly what somebody waits for."""

WHO = ("user=bob", "user=eve", "user=bob groups=dev,ops", "user=eve groups=dev", "user=ann groups=ops", "user=joe")
"""Users, and groups that may be others from one application to the next."""


class Line(NamedTuple):
    """A command as a story has it: a verb, and what it is about."""

    verb: str
    texts: tuple[str, ...]

    def build(self) -> Command:
        return COMMANDS[self.verb](*self.texts)


def line(verb: str, *texts: str) -> Line:
    return Line(verb, texts)


class Workload:
    """What an RM might send, one command at a time, the same for the same seed."""

    def __init__(self, rng: random.Random, *, leaves: tuple[str, ...] = LEAVES, tame: bool = False) -> None:
        self.rng = rng
        self.leaves = leaves
        self.tame = tame
        """Without removals of nodes and applications."""
        self._keys = 0
        self._asked: list[tuple[str, str]] = []

    def start(self) -> list[Command]:
        """A few nodes and applications."""
        return [one.build() for one in self.first_lines()]

    def first_lines(self) -> list[Line]:
        return [self._nodes(f"n{number}" for number in range(self.rng.randint(1, 4))), *(self._app() for _ in range(6))]

    def next(self) -> Command:
        return self.next_line().build()

    def next_line(self) -> Line:
        choices: list[Callable[[], Line]] = (
            [self._ask] * 10 + [self._release] * 6 + [self._resize] * 2 + [self._app] * 3 + [self._recover, self._node]
        )
        choices += [self._change_node] * 2 + [self._foreign, self._foreign_release, self._again]
        if not self.tame:
            choices += [self._remove_app, self._remove_node, self._release_all]
        return self.rng.choice(choices)()

    # Nodes ----------------------------------------------------------------------------------------------------------

    def _node_id(self) -> str:
        return f"n{self.rng.randrange(5)}"

    def _nodes(self, names: Iterable[str]) -> Line:
        return line(
            "node", *(f"{name} memory={self.rng.choice((8, 10, 16))} gpu={self.rng.randrange(4)}" for name in names)
        )

    def _node(self) -> Line:
        return self._nodes([self._node_id()])

    def _change_node(self) -> Line:
        verb = self.rng.choice(("update-node", "drain", "undrain"))
        amount = f" memory={self.rng.choice((4, 10, 20))} gpu=2" if verb == "update-node" else ""
        return line(verb, self._node_id() + amount)

    def _remove_node(self) -> Line:
        return line("remove-node", self._node_id())

    def _foreign(self) -> Line:
        return line("foreign", f"f{self.rng.randrange(3)} {self._node_id()} memory={self.rng.randint(1, 5)}")

    def _foreign_release(self) -> Line:
        return line("release", f"- f{self.rng.randrange(3)}")

    # Applications ---------------------------------------------------------------------------------------------------

    def _app_id(self) -> str:
        return f"app-{self.rng.randrange(7)}"

    def _app(self) -> Line:
        return line("app", f"{self._app_id()} {self.rng.choice(self.leaves)} {self.rng.choice(WHO)}")

    def _remove_app(self) -> Line:
        return line("remove-app", self._app_id())

    # Asks and allocations -------------------------------------------------------------------------------------------

    def _amount(self) -> str:
        gpu = self.rng.choice(("", "", " gpu=1"))
        return f"memory={self.rng.choice((1, 2, 3, 3, 5, 9))}{gpu}"

    def _one_ask(self, app: str) -> str:
        self._keys += 1
        self._asked.append((app, f"k{self._keys}"))
        created = self.rng.choice(("", " created=100", " created=101"))
        priority = self.rng.choice(("", "", " priority=1", " priority=-1"))
        required = self.rng.choice(("",) * 9 + (f" required={self._node_id()}",))
        return f"{app} k{self._keys} {self._amount()}{created}{priority}{required}"

    def _ask(self) -> Line:
        app = self._app_id()
        return line("ask", *(self._one_ask(app) for _ in range(self.rng.randint(1, 4))))

    def _recover(self) -> Line:
        return line("ask", f"{self._one_ask(self._app_id())} on={self._node_id()}")

    def _known(self) -> tuple[str, str]:
        return self.rng.choice(self._asked or [("app-0", "k0")])

    def _resize(self) -> Line:
        app, key = self._known()
        return line("ask", f"{app} {key} {self._amount()}")

    def _again(self) -> Line:
        """Something known runs, the RM says; or nothing new, if it does already."""
        app, key = self._known()
        return line("ask", f"{app} {key} {self._amount()} on={self._node_id()}")

    def _release(self) -> Line:
        chosen = [self._known() for _ in range(self.rng.randint(1, 3))]
        return line("release", *(f"{app} {key} type={self._type()}" for app, key in chosen))

    def _release_all(self) -> Line:
        return line("release", self._app_id())

    def _type(self) -> str:
        return self.rng.choice(("STOPPED_BY_RM", "STOPPED_BY_RM", "UNKNOWN_TERMINATION", "TIMEOUT"))


# What an operator does ------------------------------------------------------------------------------------------------

OPERATOR = Actor("ann", ["ops"], scheduler_admin=True)

QUEUE_ACTIONS: tuple[QueueAction, ...] = ("stop", "start", "start")
NODE_ACTS: tuple[NodeAction, ...] = ("cordon", "drain", "uncordon", "uncordon", "uncordon")
"""What is done is undone as often, or soon nothing could be placed."""


def change_queue(partition: Partition, action: QueueAction, queue: str, now: float) -> list[Effect]:
    """Stop or start a queue, if that is possible."""
    with suppress(NotDone):
        if action == "stop":
            return partition.stop_queue(queue, "because", OPERATOR, now)
        return partition.start_queue(queue, OPERATOR, now)
    return partition.drain_effects()


def change_node(partition: Partition, action: NodeAction, node: str, now: float) -> list[Effect]:
    """Cordon, uncordon or drain a node, if that is possible."""
    with suppress(NotDone):
        match action:
            case "cordon":
                return partition.cordon_node(node, "", OPERATOR, now)
            case "drain":
                return partition.drain_node(node, "because", OPERATOR, now)
            case "uncordon":
                return partition.uncordon_node(node, OPERATOR, now)
    return partition.drain_effects()


def operate(partition: Partition, rng: random.Random, now: float) -> list[Effect]:
    """Do something that an operator might do, to a queue or a node."""
    if rng.random() < 0.5:
        return change_queue(partition, rng.choice(QUEUE_ACTIONS), rng.choice(LEAVES), now)
    return change_node(partition, rng.choice(NODE_ACTS), f"n{rng.randrange(5)}", now)


class Livelier(Workload):
    """As `Workload`, and time passes, gangs come with their placeholders, and nodes are refused by name.

    What the scheduler asks for is confirmed sooner or later: `told` is what it asked for.
    """

    def __init__(self, rng: random.Random, *, leaves: tuple[str, ...], told: list[AllocationRelease]) -> None:
        super().__init__(rng, leaves=leaves)
        self.told = told
        self._stamped = rng.random() < 0.5
        """Whether asks may have the same creation time."""

    def next_step(self) -> Command | float:
        """A command, or seconds that pass."""
        step = self.next_line_or_time()
        return step if isinstance(step, float) else step.build()

    def next_line_or_time(self) -> Line | float:
        choices: list[Callable[[], Line | float]] = [self.next_line] * 12
        choices += [self._time] * 4 + [self._gang_ask] * 4 + [self._gang_app] * 2
        if self.told:
            choices += [self._confirm] * 6
        return self.rng.choice(choices)()

    def _time(self) -> float:
        return self.rng.choice(SECONDS)

    def _gang_app(self) -> Line:
        more = self.rng.choice(("", "style=Hard")) + self.rng.choice(("", " timeout=2300", " timeout=5700"))
        leaf = self.rng.choice(self.leaves)
        return line(
            "app", f"{self._app_id()} {leaf} {self.rng.choice(WHO)} gang=memory:{self.rng.choice((3, 6, 9))} {more}"
        )

    def _gang_ask(self) -> Line:
        """Placeholders or real asks of one of two groups."""
        app, group = self._app_id(), self.rng.choice(("tg", "tg", "other"))
        if self.rng.random() < 0.5:
            each = f"memory=3 group={group} placeholder"
        else:
            each = f"memory={self.rng.choice((2, 3, 3, 4))} group={group}"
        return line("ask", *(self._plain_ask(app, each) for _ in range(self.rng.randint(1, 3))))

    def _one_ask(self, app: str) -> str:
        text = super()._one_ask(app)
        if not self._stamped:
            text = " ".join(word for word in text.split() if not word.startswith("created="))
        text += self.rng.choice(("", "", " victim", " originator"))
        if self.rng.random() < 0.15:
            text += f" tag.yunishard/forbiddenNodes={self._node_id()}"
        return text

    def _plain_ask(self, app: str, what: str) -> str:
        self._keys += 1
        self._asked.append((app, f"k{self._keys}"))
        return f"{app} k{self._keys} {what}"

    def _confirm(self) -> Line:
        one = self.told.pop(self.rng.randrange(len(self.told)))
        text = confirmation_of(one)
        return line("release", text) if self.rng.random() < 0.9 else line("release", text, text)


def confirmation_of(one: AllocationRelease) -> str:
    """What the RM answers to a release that it was asked for."""
    return f"{one.application_id} {one.allocation_key} type={TYPE_NAMES[one.termination_type]}"
