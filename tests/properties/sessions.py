"""Random sessions as lines of a story, and the time after them, in which an RM lets go what it is asked for.

session = generate(seed)      plays it, and has its lines
replay(session.lines)         plays the same lines again, for a failure that is shortened line by line
session.rest(2000)            lets time pass without further events
session.finish()              ends all that runs, and what starts then, until nothing runs
"""

import random
import re
from collections.abc import Iterator
from contextlib import suppress

from tests.builders import COMMANDS, PROVIDED_CREATE, words
from tests.properties.searching import RESERVES_AT_MOST_S
from tests.properties.workload import LEAVES, TREES, WHO, Line, Livelier, confirmation_of, line
from tests.trial import Trial
from yunishard.common.messages.rm_messages import PREEMPTED_BY_SCHEDULER, AllocationRelease
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.effects import Effect

STEPS = 60
CONFIRMS_WITHIN_S = 5.0
FINISHES_AFTER_S = 150.0
"""How long what has started runs: longer than each pause of an ask, such as the back-off of its application."""
ROUNDS_MAX = 60
"""How often what runs ends and others start; each ask of a session starts at most once."""

PREEMPTING_TREES = (
    """root.a preemption.delay=1s guaranteed=memory:12,gpu:2 max=memory:24;
       root.b preemption.delay=1s guaranteed=memory:10; root.c preemption.delay=1s""",
    """root.p max=memory:30 quota.preemption.delay=5s; root.p.a guaranteed=memory:9,gpu:2 preemption.delay=1s;
       root.p.b preemption.delay=1s max=memory:15 quota.preemption.delay=5s; root.b guaranteed=memory:9,gpu:1;
       root.a preemption.policy=fence""",
    """root.p guaranteed=memory:15 preemption.delay=1s; root.p.a preemption.delay=1s priority.offset=1;
       root.p.b guaranteed=memory:6 preemption.delay=1s; root.b preemption.delay=1s limit.user.*=memory:12;
       root.a preemption.policy=disabled max=memory:9,gpu:2 quota.preemption.delay=70s""",
    """root max=memory:40 quota.preemption.delay=1s limit.group.dev=memory:20; root.c maxapps=2 guaranteed=memory:20;
       root.a max=memory:20,gpu:3 quota.preemption.delay=5s guaranteed=gpu:1 preemption.delay=5s;
       root.b max=memory:10 quota.preemption.delay=20s guaranteed=memory:4 preemption.delay=5s""",
)
"""Queues that preempt from each other, and that are brought down to lowered maxima."""


class LightTrial(Trial):
    """A trial that does not verify all sums after each step, which takes most of the time."""

    def _step(self, effects: list[Effect]) -> None:
        self.effects += effects

    def waits(self, seconds: float) -> "LightTrial":
        until = self.now + seconds
        while self.partition.next_change <= until:
            self.now = max(self.now, self.partition.next_change)
            self._step(self.partition.step(self.now, 0))
            self.settles()
        self.now = until
        self._step(self.partition.step(self.now, 0))
        self.settles()
        return self


class Session:
    """A trial, the lines that it has played, and what the RM was asked to let go."""

    def __init__(self, head: list[str], *, never_leave: bool = False) -> None:
        self.lines = list(head)
        settings = dict((*text.split(" ", 1), "")[:2] for text in head)
        self.trial = LightTrial(
            settings["config"],
            nodes=settings["nodes"],
            rules=(PROVIDED_CREATE,) if "create-queues" in settings else (),
            quota_preemption="enforce-quotas" in settings,
        )
        self.never_leave = never_leave
        """Whether the RM lets no victim go."""
        self.asked: list[AllocationRelease] = []
        """The releases that it has not confirmed."""
        self._read = 0

    def play(self, command: str) -> None:
        """Play a line of a story."""
        self.lines.append(command)
        verb, _, text = command.partition(" ")
        if verb == "pass":
            self.trial.waits(float(text))
        elif verb == "reconfigure":
            self.trial.reconfigures(text)
        elif verb == "move":
            with suppress(NotDone):
                self.trial.moves(*words(text).names)
        else:
            self.trial.does(COMMANDS[verb](text))
        known, effects = self.trial.partition.allocations, self.trial.effects[self._read :]
        self._read = len(self.trial.effects)
        self.asked += [effect.part for effect in effects if isinstance(effect.part, AllocationRelease)]
        self.asked[:] = [
            one
            for one in self.asked
            if (found := known.get(one.allocation_key)) is not None and (found.released or found.preempted)
            if not (self.never_leave and one.termination_type == PREEMPTED_BY_SCHEDULER)
        ]

    def rest(self, seconds: float) -> None:
        """Let time pass, while the RM confirms each release within a few seconds."""
        end = self.trial.now + seconds
        while self.trial.now < end:
            while self.asked:
                self.play(f"release {confirmation_of(self.asked[0])}")
            self.play(f"pass {CONFIRMS_WITHIN_S:g}")
        while self.asked:
            self.play(f"release {confirmation_of(self.asked[0])}")

    def finish(self) -> None:
        """End all allocations, and those made then, until there are none, even once reservations have ended."""
        for _ in range(ROUNDS_MAX):
            if not (running := self._list_running()):
                self.play(f"pass {RESERVES_AT_MOST_S:g}")
                self.rest(FINISHES_AFTER_S)
                if not (running := self._list_running()):
                    return
            for text in running:
                self.play(f"release {text}")
            self.rest(FINISHES_AFTER_S)

    def _list_running(self) -> list[str]:
        every = self.trial.partition.applications.values()
        return [f"{application.application_id} {key}" for application in every for key in application.allocations]


class Events(Livelier):
    """As `Livelier`, and some asks preempt, maxima are lowered and raised, and applications are moved."""

    def _one_ask(self, app: str) -> str:
        return super()._one_ask(app) + self.rng.choice(("", " preemptor", " preemptor"))

    def first_lines(self) -> list[Line]:
        places = (f"{self.rng.choice(self.leaves)} {self.rng.choice(WHO)}" for _ in range(7))
        names = [f"n{number}" for number in range(self.rng.randint(1, 4))]
        return [self._nodes(names), line("app", *(f"app-{number} {place}" for number, place in enumerate(places)))]

    def burst(self, tree: str) -> Iterator[str]:
        """Perhaps other maxima, and asks of one application that fill its queue or the cluster."""
        app = self._app_id()
        if self.rng.random() < 0.4:
            yield f"reconfigure {self._with_other_maxima(tree)}"
        yield from (f"ask {self._one_ask(app)}" for _ in range(self.rng.randint(0, 9)))

    def next_texts(self, tree: str) -> Iterator[str]:
        chance = self.rng.random()
        if chance < 0.05:
            yield f"reconfigure {self._with_other_maxima(tree)}"
        elif chance < 0.07:
            yield f"move {self._app_id()} {self.rng.choice(self.leaves)}"
        else:
            step = self.next_line_or_time()
            if isinstance(step, float):
                yield f"pass {step:g}"
            else:
                yield from (f"{step.verb} {text}" for text in step.texts)

    def _with_other_maxima(self, tree: str) -> str:
        def change(found: re.Match[str]) -> str:
            return f"max={found[1]}:{max(1, int(found[2]) * self.rng.choice((1, 1, 2, 3, 4, 8)) // 4)}"

        return re.sub(r"max=(memory|gpu):(\d+)", change, tree)


def generate(seed: int) -> Session:
    """Play a random session, the same for the same seed."""
    rng = random.Random(seed)
    tree = " ".join(rng.choice((*TREES, *PREEMPTING_TREES * 4)).split())
    head = [f"config {tree}", f"nodes {rng.choice(('fair', 'binpacking'))}"]
    head += ["create-queues"] * rng.randint(0, 1) + ["enforce-quotas"] * rng.choice((0, 1, 1))
    session = Session(head, never_leave=rng.random() < 0.2)
    tree_of = session.trial.partition.tree
    leaves = LEAVES if "create-queues" in head else tuple(path for path in LEAVES if tree_of.find(path) is not None)
    events = Events(rng, leaves=leaves, told=session.asked)
    for one in events.first_lines():
        for text in one.texts:
            session.play(f"{one.verb} {text}")
    for step in [events.burst, events.burst, *[events.next_texts] * STEPS, events.burst]:
        for text in tuple(step(tree)):
            session.play(text)
    return session


def replay(lines: list[str], *, never_leave: bool = False) -> Session:
    """Play the lines of a session again."""
    head = [one for one in lines if one.split(" ")[0] in ("config", "nodes", "create-queues", "enforce-quotas")]
    session = Session(head, never_leave=never_leave)
    for command in lines[len(head) :]:
        session.play(command)
    return session
