"""From a workload log to what a resource manager would have: partitions, nodes, queues, applications and their asks.

Sites of the log become partitions, its groups and users queues (by placement, so the configuration names none), its
jobs applications. The log does not say how big a site was, so each gets as many processors as keep it busy: its jobs'
processor time, spread over the length of the log, divided by the wanted load. Everything here is computed before the
first message is sent. Not here: when anything happens (`machine.py`).
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from common.names import normalised
from yunishard.replay.swf import Job, Log, is_part

PARTITIONS_DEFAULT: Final = 6
LOAD_DEFAULT: Final = 0.7
"""Queues build up at the busy hours and are empty again by the end, in every log that was tried."""

NODE_PROCESSORS: Final = 16
PARTITIONS_MAX: Final = 64
"""Partitions that a replay can have."""

NODES_MAX: Final = 10_000
"""Nodes of one partition; beyond it the nodes become bigger instead of more."""
TASKS_MAX: Final = 128
"""Asks of one job: one for each processor up to here, then several processors an ask."""
PROCESSORS_MAX: Final = 1_000_000
MEMORY_KB_MAX: Final = 1 << 30

WATCHED_S: Final = 42.0
"""How long the log takes to replay at the default speed; what the queues hold back fills the rest of the minute."""
ASKS_PER_SECOND_MAX: Final = 1000
"""The default speed asks no faster than this, on average; bigger logs take more than a minute."""

OTHER: Final = "other"
_UNNAMEABLE: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_NAME_CHARS_MAX: Final = 56
"""Leaves room, within the 64 of a partition's name, for what makes it unique."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job as an application with one ask for each of its tasks."""

    application_id: str
    partition: str
    group: str
    user: str
    submit_s: int
    """Since the first job of the replay."""
    run_s: int
    processors: int
    memory: int
    """Bytes for each processor; 0 if the log does not say."""

    @property
    def queue(self) -> str:
        """Where the placement rules of `Plan.configuration` put it."""
        return f"root.{self.group}.{self.user}"

    @property
    def work_s(self) -> int:
        """Processor seconds."""
        return self.run_s * self.processors

    def tasks(self) -> list[int]:
        """Processors of each task: even, and the first ones one bigger where it does not divide."""
        count = min(self.processors, TASKS_MAX)
        each, rest = divmod(self.processors, count)
        return [each + 1] * rest + [each] * (count - rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A partition and its nodes, which are all alike."""

    partition: str
    jobs: int
    nodes: int
    node_processors: int
    node_memory: int

    @property
    def processors(self) -> int:
        return self.nodes * self.node_processors


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that the replay is going to do."""

    sites: tuple[Site, ...]
    """Busiest first; `other`, if there is one, last."""
    jobs: tuple[PlannedJob, ...]
    """By submit time."""
    span_s: int
    """From the first submission to the last end, had every job started at once."""
    folded_sites: int = 0
    """How many sites share the partition `other`."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Reason to number of job lines that cannot be replayed."""

    @property
    def default_speed(self) -> float:
        """Log seconds per second, for a replay of about a minute."""
        asks = sum(min(job.processors, TASKS_MAX) for job in self.jobs)
        return max(1.0, self.span_s / max(WATCHED_S, asks / ASKS_PER_SECOND_MAX))

    def configuration(self) -> str:
        """The `queues.yaml` of the replay: whoever submits, to `root.<group>.<user>`, created when needed."""
        return "partitions:\n" + "".join(_PARTITION.format(name=site.partition) for site in self.sites)


_PARTITION: Final = """\
  - name: "{name}"
    placementrules:
      - name: user
        create: true
        parent:
          name: tag
          value: group
          create: true
    queues:
      - name: root
        submitacl: "*"
"""


def plan(
    log: Log,
    *,
    rm_id: str,
    partitions: int = PARTITIONS_DEFAULT,
    load: float = LOAD_DEFAULT,
    nodes: int | None = None,
) -> Plan:
    """Lay out the replay: the busiest `partitions` sites keep their own partition, all others share one.

    `load` is the share of its processors that a site's jobs would use over the whole log; above 1 the replay takes
    longer than the log. `nodes` sets each partition's number of nodes instead.
    """
    assert partitions >= 1
    assert load > 0
    left_out: Counter[str] = Counter()
    kept: list[Job] = []
    for job in log.jobs:
        if reason := _unusable(job):
            left_out[reason] += 1
        else:
            kept.append(job)
    kept.sort(key=lambda job: (job.submit_s, job.line))
    names = _partition_names(Counter(job.partition for job in kept), log.sites, rm_id=rm_id, partitions=partitions)
    start_s = kept[0].submit_s if kept else 0
    jobs = tuple(_planned(job, names[job.partition], start_s) for job in kept)
    span_s = max((job.submit_s + job.run_s for job in jobs), default=0)
    grouped: dict[str, list[PlannedJob]] = {name: [] for name in names.values()}
    for planned in jobs:
        grouped[planned.partition].append(planned)
    return Plan(
        sites=tuple(_site(name, part, span_s=span_s, load=load, nodes=nodes) for name, part in grouped.items()),
        jobs=jobs,
        span_s=span_s,
        folded_sites=max(0, len(names) - partitions),
        left_out=dict(left_out),
    )


# Private ------------------------------------------------------------------------------------------------------------


def _processors(job: Job) -> int:
    return job.processors if job.processors > 0 else job.processors_requested


def _memory_kb(job: Job) -> int:
    return max(job.memory_requested_kb, job.memory_kb, 0)


def _unusable(job: Job) -> str:
    """Why this job cannot be replayed, or nothing."""
    if is_part(job):
        return "a part of a job that has a line of its own"
    if job.run_s < 0:
        return "run time unknown"
    if _processors(job) <= 0:
        return "number of processors unknown"
    if _processors(job) > PROCESSORS_MAX:
        return f"more than {PROCESSORS_MAX} processors"
    if _memory_kb(job) > MEMORY_KB_MAX:
        return f"more than {MEMORY_KB_MAX} KiB for each processor"
    return ""


def _planned(job: Job, partition: str, start_s: int) -> PlannedJob:
    return PlannedJob(
        application_id=f"job-{job.number}",
        partition=partition,
        group=f"g{job.group}" if job.group >= 0 else "unknown",
        user=f"u{job.user}" if job.user >= 0 else "unknown",
        submit_s=job.submit_s - start_s,
        run_s=job.run_s,
        processors=_processors(job),
        memory=_memory_kb(job) * 1024,
    )


def _partition_names(jobs: Counter[int], sites: dict[int, str], *, rm_id: str, partitions: int) -> dict[int, str]:
    """The partition of each site, busiest first; names that the core takes, each used once (and `other` by many)."""
    busiest = sorted(jobs, key=lambda site: (-jobs[site], site))
    taken: set[str] = set()
    names: dict[int, str] = {}
    for site in busiest[:partitions]:
        unnamed = f"site-{site}" if site >= 0 else "default"
        names[site] = _unique(_UNNAMEABLE.sub("-", sites.get(site, unnamed))[:_NAME_CHARS_MAX], taken, rm_id=rm_id)
    if rest := busiest[partitions:]:
        names.update(dict.fromkeys(rest, _unique(OTHER, taken, rm_id=rm_id)))
    return names


def _unique(wanted: str, taken: set[str], *, rm_id: str) -> str:
    """The name, with a number if the core would take it for one that is there already."""
    name, number = wanted, 1
    while (key := normalised(rm_id, name).lower()) in taken:
        number += 1
        name = f"{wanted}-{number}"
    taken.add(key)
    return name


def _site(name: str, jobs: list[PlannedJob], *, span_s: int, load: float, nodes: int | None) -> Site:
    biggest_job = max(job.processors for job in jobs)
    biggest_task = ceil(biggest_job / TASKS_MAX)
    if nodes is None:
        busy = ceil(sum(job.work_s for job in jobs) / (load * max(span_s, 1)))
        # A job's tasks could run one after another, but no site ever had fewer processors than a job of its.
        processors = max(busy, biggest_job)
        nodes = min(ceil(processors / NODE_PROCESSORS), NODES_MAX)
        node_processors = max(ceil(processors / nodes), biggest_task)
    else:
        node_processors = max(NODE_PROCESSORS, biggest_task)
    return Site(
        partition=name,
        jobs=len(jobs),
        nodes=nodes,
        node_processors=node_processors,
        node_memory=max(job.memory for job in jobs) * node_processors,
    )
