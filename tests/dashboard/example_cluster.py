"""A resource manager with the work of a small company: what the dashboard shows in its tests and screenshots.

40 nodes in four racks run notebooks, training jobs and reports. Something waits for each usual cause: a full queue, a
user's limit, a number of running applications, a node that is too small; and `research` preempts `analytics`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition
from typing import Final, NamedTuple

from yunishard.common.messages.rm_messages import Allocation, AllocationRelease, NodeInfo, PreemptionPolicy
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.exceptions import YunishardError
from yunishard.sdk.items import Callbacks, NodeAction, TerminationType, application, ask, node, release, removal

RM: Final = "company"
QUEUES: Final = """\
partitions:
  - name: default
    placementrules:
      - name: provided
      - name: user
        create: true
        parent:
          name: fixed
          value: root.users
    nodesortpolicy:
      type: fair
    queues:
      - name: root
        submitacl: "* "
        queues:
          - name: research
            adminacl: "rita "
            resources:
              guaranteed: {vcore: 240, memory: 900Gi}
              max: {vcore: 480, memory: 2Ti, gpu: 32}
            queues:
              - name: language
                resources:
                  guaranteed: {vcore: 120, memory: 400Gi}
                properties: {preemption.delay: 1s}
                limits:
                  - limit: "nobody takes it all"
                    users: ["*"]
                    maxresources: {vcore: 96}
              - name: vision
                resources:
                  max: {vcore: 160, memory: 800Gi, gpu: 16}
          - name: analytics
            resources:
              guaranteed: {vcore: 100}
            queues:
              - name: nightly
                maxapplications: 2
              - name: reports
                resources:
                  max: {vcore: 60, memory: 240Gi}
                limits:
                  - limit: "group bi, all members together"
                    groups: [bi]
                    maxresources: {vcore: 30}
          - name: sandbox
            resources:
              max: {vcore: 16, memory: 64Gi}
          - name: users
            parent: true
            childtemplate:
              resources:
                max: {vcore: 8, memory: 32Gi}
"""
NODES: Final = 40
GPU_NODES: Final = 8
DRAINED: Final = ("node-07", "node-23")
WAIT_MAX_S: Final = 60.0
"""How long the jobs may take to start on a machine that is busy otherwise."""


class Job(NamedTuple):
    """An application that asks for `count` allocations of `each`; `running` of them can run."""

    name: str
    queue: str
    user: str
    count: int
    each: dict[str, int | str]
    running: int
    groups: tuple[str, ...] = ()
    priority: int = 0


LARGE: Final[dict[str, int | str]] = {"vcore": "4", "memory": "8Gi"}
JOBS: Final = (
    # 16 gpu at most
    Job("train-resnet", "root.research.vision", "ann", 7, {"vcore": "4", "memory": "24Gi", "gpu": 3}, 5),
    # the limit of a group
    Job("weekly-report", "root.analytics.reports", "dana", 12, {"vcore": "3", "memory": "8Gi"}, 10, ("bi",)),
    # larger than any node
    Job("cohort-model", "root.analytics.reports", "frank", 1, {"vcore": "2", "memory": "96Gi"}, 0),
    Job("scratch", "root.sandbox", "gil", 6, {"vcore": "2", "memory": "8Gi"}, 6, (), -1),
    # its queue is full
    Job("load-test", "root.sandbox", "gil", 8, {"vcore": "1", "memory": "8Gi"}, 2),
    # 8 vcore for each user
    Job("notebook-bob", "", "bob", 3, {"vcore": "3", "memory": "12Gi"}, 2),
    Job("notebook-carol", "", "carol", 1, {"vcore": "2", "memory": "8Gi"}, 1),
    Job("etl-clicks", "root.analytics.nightly", "etl", 8, {"vcore": "4", "memory": "12Gi"}, 8),
    # the rest of the cluster
    Job("etl-orders", "root.analytics.nightly", "etl", 140, LARGE, 110),
    # two applications at most
    Job("etl-returns", "root.analytics.nightly", "etl", 4, {"vcore": "2", "memory": "4Gi"}, 0),
)
PREEMPTOR: Final = Job("train-llm", "root.research.language", "alice", 28, LARGE, 3, (), 10)
"""Its queue is below its guarantee, while `analytics` has more than its own and the cluster is full. Four of its asks
exceed the limit of its user.
"""


class ExampleCluster:
    """The resource manager. It counts what runs, and confirms that victims of preemption have ended."""

    def __init__(self, address: str, rm_id: str = RM, config: str = QUEUES) -> None:
        self._running: set[str] = set()
        self._changed = Condition()
        callbacks = Callbacks(allocated=self._add, released=self._remove)
        self.rm = BlockingResourceManager(address, rm_id=rm_id, config=config, callbacks=callbacks)

    def fill(self) -> None:
        """Add the nodes and the work, and wait until everything runs that can."""
        self.rm.update_nodes([_make_node(number) for number in range(NODES)])
        self.rm.update_nodes([node(name, action=NodeAction.DRAIN) for name in DRAINED])
        self.submit(Job("notebook-old", "", "carol", 1, {"vcore": "1"}, 1))
        self.rm.update_applications(remove=[removal("notebook-old")])
        self.rm.update_applications(new=[application("oversized", "root.sandbox", user="gil", gang={"vcore": "900"})])
        for job in JOBS:
            self.submit(job)
        self.submit(PREEMPTOR)

    def submit(self, job: Job) -> None:
        """Submit an application with its asks, and wait for those that can run."""
        self.rm.update_applications(new=[application(job.name, job.queue, user=job.user, groups=job.groups)])
        keys = [f"{job.name}-{number:02}" for number in range(job.count)]
        policy = PreemptionPolicy(
            allow_preempt_self=job.queue.startswith("root.analytics"), allow_preempt_other=job is PREEMPTOR
        )
        asks = [ask(key, job.name, job.each, priority=job.priority, preemption=policy) for key in keys]
        self.rm.update_allocations(allocations=asks)
        with self._changed:
            found = self._changed.wait_for(lambda: sum(key in self._running for key in keys) >= job.running, WAIT_MAX_S)
            assert found, f"{sum(key in self._running for key in keys)} of {job.running} of {job.name} run"

    def _add(self, one: Allocation) -> None:
        with self._changed:
            self._running.add(one.allocation_key)
            self._changed.notify_all()

    def _remove(self, one: AllocationRelease) -> None:
        if one.termination_type == TerminationType.PREEMPTED_BY_SCHEDULER:
            kind = TerminationType.PREEMPTED_BY_SCHEDULER
            with suppress(YunishardError):  # it is being closed
                ended = release(one.application_id, one.allocation_key, termination_type=kind)
                self.rm.update_allocations(releases=[ended])


def _make_node(number: int) -> NodeInfo:
    gpus: dict[str, int | str] = {"gpu": 4} if number < GPU_NODES else {}
    attributes = {"si.io/hostname": f"host-{number:02}.example", "si.io/rackname": f"rack-{number % 4}"}
    return node(f"node-{number:02}", {"vcore": "16", "memory": "64Gi", **gpus}, attributes=attributes)


@contextmanager
def example_cluster(address: str) -> Iterator[ExampleCluster]:
    """Register, submit the work, and disconnect at the end."""
    cluster = ExampleCluster(address)
    try:
        cluster.fill()
        yield cluster
    finally:
        cluster.rm.close()
