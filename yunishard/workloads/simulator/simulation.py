"""Simulate one run: a configuration, nodes and a trace, in virtual time, with the engine of a worker.

All jobs go to one partition. A job requests the queue that the trace names, or that the option `--queue` builds of its
user, group and site; otherwise the leaf queue that `yunishard replay` would request (`user_queues.py`). The placement
rules of the partition decide, as in a live system.

A job is an application with one ask for each task. As a gang it has a placeholder for each. A job that depends on
others is submitted once they have ended.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from yunishard.cli.main import CommandUnusable
from yunishard.common.config.model import PartitionConfig
from yunishard.common.config.validation import load
from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.wire import NEVER
from yunishard.common.names import DEFAULT_PARTITION
from yunishard.common.resources import total_of
from yunishard.common.rm_player import Submission, Task
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.state import RESERVATION_DELAY_S, Tuning
from yunishard.partition_worker.virtual_time import VirtualTime
from yunishard.workloads.replay.user_queues import UserQueues
from yunishard.workloads.simulator.node_files import SimulatedNode, load_nodes, sum_capacity
from yunishard.workloads.simulator.recorder import JobRun, Recorder
from yunishard.workloads.simulator.results import RunHead, write_results
from yunishard.workloads.simulator.traces import Trace, TraceJob, load_traces

START_S: Final = 1_000_000_000.0
"""The Unix time at which a trace starts. It is the same in each simulation, and so are the results."""

PROGRESS_JOBS: Final = 500
"""Ended jobs between two reports of progress."""

_POLICY: Final = rm_messages.PreemptionPolicy(allow_preempt_self=True, allow_preempt_other=True)
"""As a Kubernetes pod without a priority class has it."""


class RunSpec(msgspec.Struct, kw_only=True):
    """A run, as the command passes it to its process."""

    name: str
    config: str
    """File name of the configuration."""
    config_text: str
    node_sort: str = ""
    """The node sort policy; empty for that of the configuration."""
    partition: str = ""
    nodes: str
    traces: list[str]
    output: str
    """The folder for the results."""
    queue: str = ""
    """The requested queue, with `{user}`, `{group}` and `{site}`; empty for the mapping of `yunishard replay`."""
    sites: list[str] = []
    parallel: str = "asks"
    """How a job of several tasks is submitted: `asks`, `gang`, or as one `task`."""
    gang_style: str = "Soft"
    gang_timeout_s: float = 0.0
    """Seconds after which the placeholders of a gang are released; 0 for the default of the scheduler."""
    termination_delay_s: float = 0.0
    reserves: bool = True
    preempts: bool = True
    until_s: float = 0.0
    """When to end; 0 for the end of the last job. Jobs that are not submitted by then are left out of the results."""


Progress = Callable[[int, int, float], None]
"""Receives how many jobs have ended, how many there are, and the virtual time."""


def simulate(spec: RunSpec, report: Progress) -> None:
    """Simulate a run and write its results.

    Raises:
        CommandUnusable: a file is not usable, or does not fit the others.
    """
    config = choose_partition(spec)
    nodes = load_nodes(Path(spec.nodes))
    capacity = sum_capacity(nodes)
    is_one_task = spec.parallel == "task"
    paths = [Path(name) for name in spec.traces]
    trace = load_traces(paths, types=capacity.keys(), sites=frozenset(spec.sites), one_task=is_one_task)
    simulation = Simulation(spec, config, nodes, trace, report)
    span = simulation.run()
    jobs = simulation.jobs
    if spec.until_s:
        jobs = [run for run in jobs if run.state != "planned"]
        if later := len(simulation.jobs) - len(jobs):
            trace.left_out["job not submitted by --until"] = later
    head = RunHead(
        name=spec.name,
        configuration=Path(spec.config).name,
        node_sort_policy=config.node_sort_policy.policy,
        partition=config.name,
        traces=tuple(path.name for path in paths),
        nodes=len(nodes),
        capacity=capacity,
        left_out=dict(sorted(trace.left_out.items())),
    )
    write_results(Path(spec.output), head, simulation.recorder, jobs, span=span)


def choose_partition(spec: RunSpec) -> PartitionConfig:
    """Return the partition of the configuration to simulate, with the node sort policy of the run.

    Raises:
        CommandUnusable: there is no such partition.
    """
    partitions = {one.name.lower(): one for one in load(spec.config_text).partitions}
    wanted = spec.partition.lower() or (
        DEFAULT_PARTITION if DEFAULT_PARTITION in partitions else next(iter(partitions))
    )
    if wanted not in partitions:
        raise CommandUnusable(f"{spec.config}: no partition {spec.partition}; there are {', '.join(partitions)}")
    config = partitions[wanted]
    if spec.node_sort:
        config = replace(config, node_sort_policy=replace(config.node_sort_policy, type=spec.node_sort))
    return config


class Simulation:
    """One run."""

    def __init__(
        self, spec: RunSpec, config: PartitionConfig, nodes: list[SimulatedNode], trace: Trace, report: Progress
    ) -> None:
        self.spec = spec
        self._report = report
        self._queues = UserQueues(spec.config_text)
        self._config = config
        tuning = Tuning(reservation_delay_s=RESERVATION_DELAY_S if spec.reserves else inf)
        partition = Partition(config, name=f"sim_{config.name}", now=START_S, tuning=tuning)
        self.jobs = [JobRun(job, f"job-{job.name}") for job in trace.jobs]
        self._by_name = {run.job.name: run for run in self.jobs}
        self._ended = 0
        self._waits_for: dict[str, int] = {}
        """Jobs that have not ended, by the name of the job that waits for them."""
        self._dependents: defaultdict[str, list[JobRun]] = defaultdict(list)
        added = rm_messages.NodeRequest(nodes=[_build_node(node) for node in nodes])
        partition.apply(added, START_S)
        self.recorder = Recorder(partition, self.jobs, start=START_S, finished=self._finish)
        self._time = VirtualTime(partition, self.recorder, now=START_S, termination_delay_s=spec.termination_delay_s)

    def run(self) -> float:
        """Play the whole trace; return the seconds that it took."""
        for run in self.jobs:
            known = [name for name in dict.fromkeys(run.job.after) if name in self._by_name and name != run.job.name]
            for name in known:
                self._dependents[name].append(run)
            if known:
                self._waits_for[run.job.name] = len(known)
            else:
                self._schedule(run, run.job.submit)
        self._report(0, len(self.jobs), 0.0)
        self._time.run(START_S + self.spec.until_s if self.spec.until_s else NEVER)
        self._report(self._ended, len(self.jobs), self.recorder.last)
        return self.spec.until_s or self.recorder.last

    def _schedule(self, run: JobRun, at: float) -> None:
        self._time.schedule(START_S + at, partial(self._submit, run))

    def _finish(self, run: JobRun) -> None:
        """A job has ended: submit those that depend on it, and on no other one."""
        self._ended += 1
        now = self.recorder.last
        for dependent in self._dependents.pop(run.job.name, ()):
            name = dependent.job.name
            self._waits_for[name] -= 1
            if not self._waits_for[name]:
                self._schedule(dependent, max(dependent.job.submit, now + dependent.job.think))
        if not self._ended % PROGRESS_JOBS:
            self._report(self._ended, len(self.jobs), now)

    # Applications -----------------------------------------------------------------------------------------------------

    def _submit(self, run: JobRun) -> Submission:
        """Build the application of a job, and its asks."""
        self.recorder.submitted(run, self._time.now)
        job = run.job
        style = self._choose_gang_style(job)
        timeout_ms = round(self.spec.gang_timeout_s * 1000)
        group = job.groups[0] if job.groups else ""
        application = rm_messages.AddApplicationRequest(
            application_id=run.application_id,
            queue_name=self._choose_queue(job, group),
            ugi=rm_messages.UserGroupInformation(user=job.user, groups=list(job.groups)),
            tags={"group": group, "namespace": group, "site": job.site, **job.tags},
            placeholder_ask=total_of(job.tasks) if style else {},
            gang_scheduling_style=style,
            execution_timeout_milli_seconds=timeout_ms if style else 0,
        )
        tasks = tuple(
            Task(self._build_ask(run, number, resources, is_gang=bool(style)), job.run_time)
            for number, resources in enumerate(job.tasks, start=1)
        )
        placeholders: tuple[rm_messages.Allocation, ...] = ()
        if style:
            placeholders = tuple(
                replace(task.ask, allocation_key=f"{task.ask.allocation_key}.placeholder", placeholder=True)
                for task in tasks
            )
        return Submission(application, tasks, placeholders)

    def _choose_gang_style(self, job: TraceJob) -> str:
        if job.gang is not None:
            return job.gang
        return self.spec.gang_style if self.spec.parallel == "gang" and len(job.tasks) > 1 else ""

    def _choose_queue(self, job: TraceJob, group: str) -> str:
        if job.queue:
            return job.queue
        if self.spec.queue:
            return fill_template(self.spec.queue, user=job.user, group=group, site=job.site)
        return self._queues.choose_queue(self._config.name, group, job.user)

    def _build_ask(self, run: JobRun, number: int, resources: Resources, *, is_gang: bool) -> rm_messages.Allocation:
        return rm_messages.Allocation(
            allocation_key=f"{run.application_id}.{number}",
            application_id=run.application_id,
            resource_per_alloc=resources,
            priority=run.job.priority,
            allocation_tags=dict(run.job.tags),
            task_group_name=f"group-{_name_amounts(resources)}" if is_gang else "",
            preemption_policy=_POLICY if self.spec.preempts else None,
        )


def fill_template(template: str, *, user: str, group: str, site: str) -> str:
    """Fill the template of a queue. Dots of the values would be levels of the queue tree, so they become underscores.

    >>> fill_template("root.{group}.{user}", user="a.b", group="g1", site="")
    'root.g1.a_b'
    """
    for word, value in (("{user}", user), ("{group}", group), ("{site}", site)):
        template = template.replace(word, value.replace(".", "_"))
    return template


def _name_amounts(resources: Resources) -> str:
    """Tasks of equal amounts are in the same task group."""
    return "-".join(f"{kind}-{amount}" for kind, amount in sorted(resources.items()))


def _build_node(node: SimulatedNode) -> rm_messages.NodeInfo:
    return rm_messages.NodeInfo(
        node_id=node.name,
        action=rm_messages.NODE_CREATE,
        attributes=dict(node.attributes),
        schedulable_resource=node.capacity,
    )
