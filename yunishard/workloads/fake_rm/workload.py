"""The random workload of the fake RM: applications at random times, of random sizes, from a seed.

Applications arrive as a Poisson process. Each has up to `TASKS_MAX` equal tasks that use a part of a node, and belongs
to one of a few users. The same seed gives the same sequence; what the core makes of it depends on time.

Not here: what happens to an application afterwards (`machine.py`).
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.rm_messages import Allocation, PreemptionPolicy
from yunishard.common.resources import CORES
from yunishard.common.rest.plan import RUN_TIME_TAG
from yunishard.common.rm_player import Submission, Task
from yunishard.sdk.items import application, ask

TASKS_MAX: Final = 8
"""Tasks of one application."""

RATE_MAX: Final = 6000.0
"""Applications a minute; a higher rate, also one that follows from the load, is lowered to it."""

RUN_S: Final = 60.0
"""Mean run time of a task."""

GANG_SHARE: Final = 0.2
"""Share of the applications with several tasks that are gangs."""

_PARTS: Final = (16, 8, 4, 2)
"""A task uses one of so many parts of a node, mostly a small one."""
_WEIGHTS: Final = (4, 3, 2, 1)
_GANG_PARTS: Final = _PARTS[:2]
"""Of the tasks of a gang: a gang that is larger than its queue would be refused."""
_MEAN_PART: Final = sum(weight / part for part, weight in zip(_PARTS, _WEIGHTS, strict=True)) / sum(_WEIGHTS)
_SPECIAL_SHARE: Final = 0.25
"""Share of the applications that use other resource types than cores and memory, such as GPUs."""

_USERS: Final = (
    *(("alice", "analytics"), ("bob", "analytics"), ("carol", "research"), ("dave", "research")),
    *(("erin", "operations"), ("frank", "operations")),
)

_URGENT_SHARE: Final = 0.1
_URGENT: Final = 10
"""Priority of the urgent applications; all others have 0."""


BURST_MAX: Final = 200
"""Applications that are submitted at the start; with a higher load, the rest of it comes with time."""

GANG_TIMEOUT_S: Final = 120
"""Seconds after which a gang that did not get all its placeholders asks for its tasks one by one."""

_PREEMPTION: Final = PreemptionPolicy(allow_preempt_self=True, allow_preempt_other=True)


class Workload:
    """A seeded sequence of applications.

    Args:
        queues: Partition and queue of each application, chosen at random; the queue may be empty.
        node: The size of a node.
        rate: Applications a minute; 0 for none.
        run_s: Mean run time of a task.
    """

    def __init__(
        self,
        queues: tuple[tuple[str, str], ...],
        node: Resources,
        *,
        rate: float,
        run_s: float = RUN_S,
        gang_share: float = GANG_SHARE,
        seed: int = 0,
    ) -> None:
        self.rate = min(rate, RATE_MAX)
        self._queues = queues
        self._node = node
        self._run_s = run_s
        self._gang_share = gang_share
        self._chance = Random(seed)  # noqa: S311 - not for secrets
        self._count = 0

    @property
    def queue_count(self) -> int:
        """Queues over which the applications are spread."""
        return len(self._queues)

    @property
    def mean_running(self) -> int:
        """Applications that run at the same time on average, if none waits."""
        return round(self.rate / 60 * self._run_s)

    def draw_submissions(self) -> Iterator[tuple[float, Submission]]:
        """Yield the applications and when to submit them, in seconds since the start: first about as many as run later
        on, then at random times.
        """
        if not self.rate:
            return
        for _ in range(min(self.mean_running, BURST_MAX)):
            yield 0.0, self._draw_submission()
        at = 0.0
        while True:
            yield at, self._draw_submission()
            at += self._chance.expovariate(self.rate / 60)

    def _draw_submission(self) -> Submission:
        chance = self._chance
        self._count += 1
        name = f"app-{self._count:04}"
        partition, queue = chance.choice(self._queues)
        user, group = chance.choice(_USERS)
        count = chance.randint(1, TASKS_MAX)
        is_gang = count > 1 and chance.random() < self._gang_share
        resources = self._draw_resources(_GANG_PARTS if is_gang else _PARTS)
        runs_s = [chance.expovariate(1 / self._run_s) for _ in range(count)]
        priority = _URGENT if chance.random() < _URGENT_SHARE else 0

        def build_ask(key: str, *, run_s: float | None = None) -> Allocation:
            return ask(
                f"{name}.{key}",
                name,
                resources,
                partition=partition,
                priority=priority,
                tags={} if run_s is None else {RUN_TIME_TAG: f"{run_s:.3f}s"},  # plans end it then
                preemption=_PREEMPTION,
                task_group="tasks" if is_gang else "",
                placeholder=run_s is None,
            )

        new = application(
            name,
            queue,
            user=user,
            groups=[group],
            partition=partition,
            tags={"namespace": group},
            gang={kind: amount * count for kind, amount in resources.items()} if is_gang else None,
            gang_timeout_s=GANG_TIMEOUT_S if is_gang else 0,
        )
        tasks = tuple(Task(build_ask(str(number), run_s=run_s), run_s) for number, run_s in enumerate(runs_s, start=1))
        placeholders = tuple(build_ask(f"{number}.placeholder") for number in range(1, count + 1))
        return Submission(new, tasks, placeholders if is_gang else ())

    def _draw_resources(self, parts: tuple[int, ...]) -> Resources:
        (part,) = self._chance.choices(parts, _WEIGHTS[: len(parts)])
        is_special = self._chance.random() < _SPECIAL_SHARE
        return {
            kind: max(1, amount // part)
            for kind, amount in self._node.items()
            if kind in (CORES, "memory") or is_special or len(self._node) == 1
        }


def find_rate(nodes: int, load: float, run_s: float) -> float:
    """Return the applications a minute that keep this share of the nodes busy on average."""
    node_seconds = (1 + TASKS_MAX) / 2 * _MEAN_PART * run_s  # of one application
    return min(RATE_MAX, 60 * load * nodes / node_seconds)


def build_configuration(nodes: int, node: Resources) -> str:
    """Return a `queues.yaml` with queues that show something: a guarantee, a maximum, and limits of users."""

    def share(part: float) -> str:
        amounts = (
            f"{kind}: {max(1, int(amount * nodes * part))}{'m' if kind == CORES else ''}"
            for kind, amount in node.items()
        )
        return "{" + ", ".join(amounts) + "}"

    return _QUEUES.format(production=share(0.4), analytics=share(0.25), user=share(0.15))


_QUEUES: Final = """\
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: production
            resources: {{guaranteed: {production}}}
          - name: analytics
            resources: {{max: {analytics}}}
          - name: research
            limits:
              - limit: each user of research
                users: ["*"]
                maxresources: {user}
            queues:
              - name: genomics
              - name: ml
"""
