"""Replay the rest of a journal under another configuration: `yunishard journal replay --config FILE --diff`.

From the chosen moment, two copies of the restored partition receive the recorded inputs of the RM
(`recorded_inputs.py`) in virtual time (`virtual_time.py`): one keeps the recorded configuration, the other one gets the
given one. Comparing the two leaves out the effects of virtual time itself; the agreement of the first one with the
journal shows how large they are.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from yunishard.common.config.model import PartitionConfig
from yunishard.common.config.problems import ConfigError
from yunishard.common.config.validation import load
from yunishard.common.names import external_name
from yunishard.common.rm_player import Eviction, Observer, Submission, Task
from yunishard.common.text_formats import format_count, format_seconds
from yunishard.journal_tools.recorded_inputs import RecordedAsk, RecordedInputs
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.virtual_time import VirtualTime

SAME_S: Final = 1.0
"""Seconds between two starts of an ask that count as the same: a worker decides in cycles, virtual time at once."""


class AskOutcome(Struct, omit_defaults=True):
    """The fate of an ask in one run; times are Unix seconds."""

    queue: str = ""
    node: str = ""
    started: float | None = None
    ended: float | None = None
    evicted: float | None = None
    by: str = ""
    """The key of the ask for which it was evicted."""
    rejected: str = ""
    """The reason why the ask, or its application, was refused."""

    @property
    def state(self) -> str:
        """The state at the end, in a word."""
        if self.rejected:
            return "rejected"
        if self.evicted is not None:
            return "evicted"
        if self.ended is not None:
            return "ended" if self.started is not None else "withdrawn"
        return "waiting" if self.started is None else "running"


class RunOutcome(Struct, Observer):
    """The decisions of one run; an observer of `VirtualTime`."""

    asks: dict[str, AskOutcome] = field(default_factory=dict)
    applications: dict[str, str] = field(default_factory=dict)
    """By id: the queue in which it is or was placed, or `rejected: ` with the reason."""

    def of(self, key: str) -> AskOutcome:
        """The outcome of an ask, which is written to."""
        return self.asks.setdefault(key, AskOutcome())

    def accepted(self, application_id: str, queue: str, at: float) -> None:
        """An application was placed in a queue."""
        self.applications[application_id] = queue

    def started(self, key: str, application_id: str, node_id: str, at: float) -> None:
        """An ask got its node."""
        one = self.of(key)
        one.node, one.started = node_id, at

    def ended(self, key: str, application_id: str, at: float) -> None:
        """An allocation ran to its end, or an ask was withdrawn."""
        self.of(key).ended = at

    def evicted(self, eviction: Eviction, at: float) -> None:
        """An allocation was preempted, or ended by the scheduler otherwise."""
        one = self.of(eviction.key)
        one.evicted, one.by = at, eviction.by

    def rejected(self, application_id: str, key: str, reason: str, at: float) -> None:
        """An application or an ask was refused."""
        if key:
            self.of(key).rejected = reason
        else:
            self.applications[application_id] = f"rejected: {reason}"


# The configuration ----------------------------------------------------------------------------------------------------


def load_config(path: Path, partition: str, rm: str) -> PartitionConfig:
    """Read the configuration of a partition from a `queues.yaml`.

    Raises:
        OSError: the file cannot be read or is not valid, or has no such partition.
    """
    try:
        found = load(path.read_text(encoding="utf-8")).partitions
    except (ConfigError, UnicodeDecodeError) as error:
        raise OSError(f"{path}: {error}") from None
    name = external_name(rm, partition)
    named = [one for one in found if one.name == name] or list(found if len(found) == 1 else ())
    if not named:
        there = ", ".join(one.name for one in found)
        raise OSError(f"{path}: it has no partition {name}; there are: {there}")
    return named[0]


# Playing --------------------------------------------------------------------------------------------------------------


def play(partition: Partition, inputs: RecordedInputs, config: PartitionConfig | None) -> RunOutcome:
    """Play the inputs to a restored partition, with its recorded configurations or with another one from the start.

    Raises:
        OSError: the partition cannot take the configuration; the text has the reasons.
    """
    run = RunOutcome()
    time = VirtualTime(partition, run, now=partition.now, termination_delay_s=inputs.confirmation_s, resubmits="none")
    if config is not None:
        if objections := partition.objections(config):
            raise OSError(f"the partition cannot take this configuration at this moment: {'; '.join(objections)}")
        time.act(lambda: partition.reconfigure(config, time.now))
    run.applications = {name: one.queue.path for name, one in partition.applications.items()}
    _schedule(time, inputs)
    for at, changed in inputs.configs if config is None else ():
        time.run(until=at)
        time.act(lambda changed=changed: partition.reconfigure(changed, time.now))  # type: ignore[misc]
    time.run(until=inputs.end)
    _complete(run, inputs)
    return run


def _schedule(time: VirtualTime, inputs: RecordedInputs) -> None:
    for name in time.partition.applications:
        time.keep(name)
    for at, command in inputs.commands:
        time.schedule(at, lambda command=command: command)  # type: ignore[misc]
    for at, new in inputs.applications:
        time.schedule(at, lambda new=new: Submission(new, (), stays=True))  # type: ignore[misc]
    for key, one in inputs.asks.items():
        if one.was_running:
            if one.ended is not None and one.has_run_time:
                time.end_at(key, one.ended)
        elif one.is_known and key in time.tasks:
            time.set_run_time(key, one.run_s)
        elif not one.is_known and not one.is_reported:
            time.schedule_task(one.at, Task(one.ask, one.run_s))
        if one.started is None and one.ended is not None and not one.ask.placeholder:
            time.end_at(key, one.ended)
    for name, at in inputs.removals.items():
        time.schedule_removal(at, name)


def _complete(run: RunOutcome, inputs: RecordedInputs) -> None:
    """Add the queues of asks, the reasons of applications that were refused with them, and what ran before."""
    for key, recorded in inputs.asks.items():
        if recorded.ask.placeholder:
            continue
        one, name = run.of(key), recorded.ask.application_id
        placed = run.applications.get(name, "")
        if placed.startswith("rejected: ") and one.started is None:
            one.rejected = one.rejected or placed.removeprefix("rejected: ")
        else:
            one.queue = placed
        if recorded.was_running:
            one.started, one.node = recorded.started, recorded.node_id
        if recorded.is_reported:
            one.started, one.ended, one.node = recorded.started, recorded.ended, recorded.node_id


def list_recorded(inputs: RecordedInputs) -> RunOutcome:
    """The outcome according to the journal."""
    run = RunOutcome()
    for key, one in inputs.asks.items():
        if not one.ask.placeholder:
            ended = None if one.preempted is not None else one.ended
            run.asks[key] = AskOutcome(node=one.node_id, started=one.started, ended=ended, evicted=one.preempted)
    return run


# Comparing ------------------------------------------------------------------------------------------------------------


class RunSummary(Struct):
    """The figures of one run, over the asks that waited at the moment or came later."""

    asks: int = 0
    started: int = 0
    waiting: int = 0
    """At the end."""
    rejected: int = 0
    evicted: int = 0
    """Also of the allocations that ran at the moment."""
    mean_wait_s: float | None = None
    """Of those that started."""


def summarize_run(run: RunOutcome, inputs: RecordedInputs, queue: str | None = None) -> RunSummary:
    """Count the asks of a run, or of one of its queues."""
    found = RunSummary()
    waits: list[float] = []
    for key, one in _list_asks(run, inputs):
        if queue is not None and one.queue != queue:
            continue
        recorded = inputs.asks[key]
        found.evicted += one.evicted is not None
        if _ran_before(recorded):
            continue
        found.asks += 1
        found.rejected += bool(one.rejected)
        found.waiting += one.state == "waiting"
        if one.started is not None:
            found.started += 1
            waits.append(max(0.0, one.started - recorded.at))
    found.mean_wait_s = round(sum(waits) / len(waits), 3) if waits else None
    return found


def _list_asks(run: RunOutcome, inputs: RecordedInputs) -> Iterator[tuple[str, AskOutcome]]:
    return ((key, run.of(key)) for key, one in inputs.asks.items() if not one.ask.placeholder)


def _ran_before(one: RecordedAsk) -> bool:
    return one.is_reported or one.was_running


class Difference(Struct, omit_defaults=True):
    """An ask whose fate differs between the recorded and the other configuration."""

    ask: str
    application: str
    text: str
    """The difference in words."""
    wait_change_s: float | None = None
    """Seconds that it starts later with the other configuration; None if it starts in one run only."""
    before: AskOutcome = field(default_factory=AskOutcome)
    after: AskOutcome = field(default_factory=AskOutcome)


def compare_runs(before: RunOutcome, after: RunOutcome, inputs: RecordedInputs) -> tuple[list[Difference], int]:
    """Return the asks with another fate: first those that start in one run only, then by the change of their wait; and
    the number of those that are only on another node.
    """
    found, moved = [], 0
    for key, old in _list_asks(before, inputs):
        new = after.of(key)
        if text := "; ".join(_describe_difference(old, new)):
            change = None if old.started is None or new.started is None else round(new.started - old.started, 3)
            found.append(Difference(key, inputs.asks[key].ask.application_id, text, change, old, new))
        else:
            moved += old.node != new.node
    found.sort(key=lambda one: (one.wait_change_s is not None, -abs(one.wait_change_s or 0.0)))
    return found, moved


def _describe_difference(old: AskOutcome, new: AskOutcome) -> Iterator[str]:
    if old.queue != new.queue and old.queue and new.queue:
        yield f"in {new.queue} in place of {old.queue}"
    if bool(old.rejected) != bool(new.rejected):
        yield f"rejected: {new.rejected}" if new.rejected else "not rejected"
    if old.started is None or new.started is None:
        if old.started is not new.started:
            yield "does not start" if new.started is None else f"starts on {new.node}; it did not start"
    elif abs(new.started - old.started) >= SAME_S:
        later = new.started - old.started
        yield f"starts {format_seconds(abs(later))} {'later' if later > 0 else 'earlier'}, on {new.node}"
    if (old.evicted is None) != (new.evicted is None):
        by = f" for {new.by}" if new.by else ""
        yield "not evicted" if new.evicted is None else f"evicted{by}"
    elif old.state != new.state and {old.state, new.state} == {"running", "ended"}:
        yield f"{new.state} at the end in place of {old.state}"


def measure_agreement(recorded: RunOutcome, replayed: RunOutcome, inputs: RecordedInputs) -> tuple[int, int]:
    """The number of asks that started in both the journal and its replay within SAME_S, or in neither, and of all."""
    same = total = 0
    for key, one in _list_asks(recorded, inputs):
        if _ran_before(inputs.asks[key]):
            continue
        other = replayed.of(key)
        total += 1
        if one.started is None or other.started is None:
            same += one.started is other.started
        else:
            same += abs(one.started - other.started) < SAME_S
    return same, total


def describe_assumptions(inputs: RecordedInputs, *, ignores_configs: bool) -> list[str]:
    """The assumptions in place of what the journal does not have; one sentence each."""
    unknown = sum(
        one.run_s is None and one.started is not None and not one.ask.placeholder for one in inputs.asks.values()
    )
    never = sum(one.started is None and not one.ask.placeholder for one in inputs.asks.values())
    delay = format_seconds(inputs.confirmation_s)
    found = [
        "An allocation runs as long as in the journal, whenever it starts.",
        "Applications ask for the queue in which they were placed; the journal does not have the requested one.",
        f"The RM confirms a preemption after {delay}, and asks for the work again only where it did in the journal.",
    ]
    if unknown:
        what = format_count(unknown, "allocation")
        found.append(f"{what} ran at the end, or did not end by the RM: the run time is unknown, so they do not end.")
    if never:
        found.append(f"{format_count(never, 'ask')} never started: if they do, they run until they were withdrawn.")
    if inputs.configs and ignores_configs:
        found.append(f"Left out: {format_count(len(inputs.configs), 'later change')} of the configuration.")
    found += [f"Left out: {format_count(count, what)}." for what, count in sorted(inputs.left_out.items())]
    return found
