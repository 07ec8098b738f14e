"""The partition's figures that YuniKorn does not have: decisions, what waits, the thrash guard, predicates, steps.

All of them begin at 0 with the process and name their partition themselves. Not here: YuniKorn's (`figures.py`), those
of the journal's files (`journal/figures.py`) and of the process (`common/process_figures.py`).
"""

from collections.abc import Iterator
from typing import Final

from common.families import Family, Sample, counter, gauge
from common.histogram import Histogram
from partition_worker.engine.partition import Partition
from partition_worker.engine.predicates.rm_verdicts import Verdicts
from partition_worker.engine.preemption_log import Preemptions
from partition_worker.recorder import Recorder
from partition_worker.replica import Replica

_LABELS: Final = ("partition",)


def families(
    replica: Replica, partition: Partition, cycles: Histogram, recorder: Recorder | None, now: float
) -> Iterator[Family]:
    """All of them; `now` is Unix seconds."""
    yield from _deciding(replica.name, partition, cycles)
    what = "Messages that were set aside as they ended the worker twice. Worry at any: the log says where each is kept."
    yield counter("yunishard_poison_messages_total", what, _LABELS, _one(replica.name, replica.poisons))
    yield from _outbox(replica)
    what = (
        "Releases by the resource manager that had no effect, as the partition has no such application, ask or "
        "allocation. A few are normal, as both sides may end the same thing. Worry about a rate that stays up: "
        "releases may go to the wrong partition."
    )
    yield counter("yunishard_releases_ignored_total", what, _LABELS, _one(replica.name, replica.releases_ignored))
    yield from _preemptions(replica.name, partition.preemptions, now)
    yield _predicates(replica.name, partition.fleet.predicates.verdicts)
    if recorder is not None:
        yield from _steps(replica.name, recorder)


def _one(partition: str, value: float) -> list[Sample]:
    return [((partition,), value)]


def _deciding(name: str, partition: Partition, cycles: Histogram) -> Iterator[Family]:
    what = "Decisions made: an ask placed, a node kept for one, placeholders swapped or given up, others asked to go."
    yield counter("yunishard_decisions_total", what, _LABELS, _one(name, partition.decided))
    what = (
        "Seconds spent on deciding; by the number of decisions it is what one takes. Worry above a few milliseconds "
        "for each, or if the rate is near 1: then the worker does nothing else."
    )
    yield counter("yunishard_deciding_seconds_total", what, _LABELS, _one(name, cycles.sum_s))
    what = "Asks that wait for a node. Worry if it grows while `yunishard_decisions_total` does not."
    waiting = sum([one.asks.count for one in partition.applications.values()])
    yield gauge("yunishard_asks_pending", what, _LABELS, _one(name, waiting))


def _outbox(replica: Replica) -> Iterator[Family]:
    outbox = replica.lane.outbox
    what = (
        "Messages that the resource manager has not acknowledged. At 1024, or 16 MiB, nothing more is placed until it "
        "does: worry if it stays there."
    )
    yield gauge("yunishard_outbox_messages", what, _LABELS, _one(replica.name, len(outbox)))
    what = "The same in bytes of their bodies."
    yield gauge("yunishard_outbox_bytes", what, _LABELS, _one(replica.name, outbox.size))


def _preemptions(partition: str, preemptions: Preemptions, now: float) -> Iterator[Family]:
    yield counter(
        "yunishard_preemptions_total",
        "Times that others had to go: for a guarantee, for a required node, for a quota that was lowered. Worry if it "
        "goes on for long while nothing new comes.",
        (*_LABELS, "kind"),
        [((partition, kind), preemptions.made[kind]) for kind in ("guaranteed", "quota", "required-node")],
    )
    what = "Allocations that had to go, in all of these."
    yield counter("yunishard_preemption_victims_total", what, _LABELS, _one(partition, preemptions.victims))
    what = (
        "Attempts of an ask to make others go that came to nothing while the thrash guard protected some queue from "
        "it. A rate that stays up says that queues would fight for the same room."
    )
    yield counter("yunishard_preemptions_held_back_total", what, _LABELS, _one(partition, preemptions.held_back))
    what = "Pairs of queues of which one takes nothing from the other at present, as that one took from it a while ago."
    yield gauge("yunishard_truces", what, _LABELS, _one(partition, preemptions.truces.in_force(now)))


def _predicates(partition: str, verdicts: Verdicts) -> Family:
    return counter(
        "yunishard_predicate_questions_total",
        "Questions to the resource manager about which ask may run where: put, answered in time or nearly, and given "
        "up as there was no answer within 0.2 s. Worry if the last one grows: such asks wait.",
        (*_LABELS, "outcome"),
        [
            ((partition, "asked"), verdicts.questions),
            ((partition, "answered"), verdicts.answers),
            ((partition, "unanswered"), verdicts.unanswered),
        ],
    )


def _steps(partition: str, recorder: Recorder) -> Iterator[Family]:
    what = "The number of the latest step, over the whole life of the journal: what came, and time that passed."
    yield counter("yunishard_journal_steps_total", what, _LABELS, _one(partition, recorder.last))
    what = (
        "Bytes of steps that the disk has not taken yet. At 16 MiB nothing more is decided: worry if it does not come "
        "back to 0."
    )
    yield gauge("yunishard_journal_unkept_bytes", what, _LABELS, _one(partition, recorder.unkept_bytes))
    what = "Messages that wait for the disk before they are told."
    yield gauge("yunishard_journal_held_messages", what, _LABELS, _one(partition, recorder.held))
