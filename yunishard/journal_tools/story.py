"""The story of an ask in sentences with times, from the journal: `yunishard journal story`.

    submitted -> waited because ... -> reserved -> preempted others -> allocated -> preempted, released, removed

The changes come from the records, the causes of releases from the messages to the RM. The journal does not record why
an ask waited. So the partition is restored after some steps of each wait, and explains the ask as a running one does
(`engine/explain/`). Between two steps nothing changes, so an explanation holds until the next step.
"""

import argparse
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from yunishard.common.messages.journal_messages import Step
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.common.messages.wire import WireError, decode_body
from yunishard.common.process.terminal import clean, write
from yunishard.common.rest.explain import ExplanationView
from yunishard.common.text_formats import format_count, format_resources, format_seconds
from yunishard.journal_tools.inspection import describe_extent, print_json
from yunishard.journal_tools.replay import restore
from yunishard.journal_tools.views import SNAPSHOT, Change, Replay, Source, format_time
from yunishard.partition_worker.engine.application import ENDED
from yunishard.partition_worker.engine.durable_records import (
    AllocationRecord,
    ApplicationRecord,
    HeldUpdateRecord,
    Image,
    PreemptionRecord,
    Removed,
    ReservationRecord,
    StatusRecord,
)
from yunishard.partition_worker.engine.explain.explanations import explain_ask
from yunishard.partition_worker.recovery import Recovery

EXPLAINED_MAX: Final = 12
"""Moments of the story at which the wait of an ask is explained; the partition is restored for each. Those of a longer
wait are spread: the first doubling times, and the last step.
"""

VICTIMS_SHOWN: Final = 5
"""Victims that a sentence names."""

_REMOVED_BY: Final = {
    "AllocationRequest": "the RM released it",
    "ApplicationRequest": "its application was removed",
    "NodeRequest": "its node was removed",
    "KillApplication": "its application was killed",
    "RetirePartition": "the partition was removed",
    "SyncEnd": "the RM did not report it again",
}
"""Why an ask or allocation is gone, by the kind of the step, unless a message to the RM has a reason."""

_SILENT_STATES: Final = ("Accepted", "Running")
"""States that an application enters with its asks, which a story leaves out."""

_PREEMPTED_FOR: Final = {
    "guaranteed": "which was below its guarantee",
    "required-node": "which requires this node",
}


class StoryEntry(Struct, omit_defaults=True):
    """A sentence of a story."""

    step: int
    time: float
    what: str
    """A word for programs, such as `allocated`."""
    text: str
    reason: str = ""
    """The code of the reason why it waited."""


class AskStory(Struct):
    """The events of an ask, as sentences."""

    ask: str
    application: str = ""
    entries: list[StoryEntry] = []
    waits: list[tuple[int, int]] = []
    """The first and last step of each wait."""


def tell_story(source: Source, ask: str, *, with_reasons: bool = True) -> tuple[AskStory, Replay]:
    """Describe the events of an ask; without entries if the journal has nothing about it.

    Raises:
        JournalDamaged, OSError: the journal cannot be read.
    """
    replay = Replay(source, lambda _: None)
    teller = _Teller(ask, replay)
    for step, changes in replay.read():
        teller.read_step(step, list(changes))
    story = teller.finish()
    if with_reasons and story.waits:
        reasons = _explain_waits(source, ask, _choose_steps(story))
        story.entries = sorted([*story.entries, *reasons], key=lambda one: one.step)
    return story, replay


class _Teller:
    """Collects the sentences about one ask, step by step."""

    def __init__(self, ask: str, replay: Replay) -> None:
        self.story = AskStory(ask)
        self._replay, self._step = replay, Step(0, 0.0, "")
        self._waits_since: int | None = None
        self._cause = ""
        """The reason of the latest release that the RM was informed of."""
        self._placed: dict[str, Step] = {}
        """The steps in which applications were placed in a queue, by application."""

    @property
    def _image(self) -> Image:
        return self._replay.recovery.image

    def finish(self) -> AskStory:
        self._end_wait(self._step.number)
        return self.story

    def read_step(self, step: Step, changes: Sequence[Change]) -> None:
        self._step = step
        self._read_messages(step)
        if step.kind == SNAPSHOT:
            changes = [one for one in changes if isinstance(one.after, AllocationRecord | ReservationRecord)]
        preemptions = [one.after for one in changes if isinstance(one.after, PreemptionRecord)]
        for change in changes:
            match change.after:
                case AllocationRecord(key=self.story.ask) as ask:
                    self._tell_change(change.before, ask, preemptions)
                case Removed() if isinstance(change.before, AllocationRecord) and change.name == self.story.ask:
                    self._tell_end(change.before)
                case AllocationRecord(replaces=self.story.ask) as real if not _was_replacing(change.before):
                    self._tell("replaced", f"The placeholder is being replaced by {real.key}.")
                case ReservationRecord(ask_key=self.story.ask) as reservation if change.before is None:
                    self._tell("reserved", f"Reserved node {reservation.node_id}.")
                case Removed() if isinstance(change.before, ReservationRecord) and change.name == self.story.ask:
                    ended = self._image.find(AllocationRecord, self.story.ask)
                    if ended is not None and not ended.node_id:
                        self._tell("reservation-ended", f"The reservation of node {change.before.node_id} ended.")
                case PreemptionRecord(ask_key=self.story.ask) as found:
                    self._tell("preempting", _describe_victims(found))
                case HeldUpdateRecord(ask=held) if held is not None and held.allocation_key == self.story.ask:
                    name = held.application_id
                    self._tell("held", f"Received, and held until the groups of the user of {name} are known.")
                case ApplicationRecord() as application if change.before is None:
                    self._placed[application.application_id] = step
                case StatusRecord() as status if isinstance(change.before, StatusRecord):
                    self._tell_move(change.before, status)

    def _tell(self, what: str, text: str) -> None:
        self.story.entries.append(StoryEntry(self._step.number, self._step.at, what, text))

    def _end_wait(self, last: int) -> None:
        if self._waits_since is not None:
            self.story.waits.append((self._waits_since, last))
        self._waits_since = None

    # Changes of the ask -----------------------------------------------------------------------------------------------

    def _tell_change(self, before: object, ask: AllocationRecord, preemptions: Sequence[PreemptionRecord]) -> None:
        self.story.application = ask.application_id
        if not isinstance(before, AllocationRecord):
            self._tell_begin(ask)
            return
        if ask.resources != before.resources:
            was, now = format_resources(before.resources), format_resources(ask.resources)
            self._tell("resized", f"Its resources changed from {was} to {now}.")
        if ask.priority != before.priority:
            self._tell("priority", f"Its priority changed from {before.priority} to {ask.priority}.")
        if ask.scale_up_told and not before.scale_up_told:
            self._tell("unschedulable", "Reported to the RM as an ask that only a larger cluster could place.")
        if ask.replaces and not before.replaces:
            self._tell("replacing", f"Replaces the placeholder {ask.replaces}; waits until its release is confirmed.")
        if ask.node_id and (not before.node_id or before.replaces) and not ask.replaces:
            self._end_wait(self._step.number - 1)
            wait = format_seconds(max(0.0, self._step.at - ask.created_ns / 1e9))
            self._tell("allocated", f"Allocated on node {ask.node_id} after {wait}.")
        if ask.preempted and not before.preempted:
            self._tell("preempted", self._describe_preemption(ask, preemptions))
        elif ask.released and not before.released:
            self._tell("release-requested", f"The RM is asked to release it: {self._cause or 'no reason is recorded'}.")

    def _tell_begin(self, ask: AllocationRecord) -> None:
        about = format_resources(ask.resources)
        about += f", priority {ask.priority}" if ask.priority else ""
        about += f", placeholder of task group {ask.task_group}" if ask.placeholder else ""
        user, queue = self._find_application(ask.application_id)
        of = f"application {ask.application_id} of user {user} in queue {queue}"
        if (placed := self._placed.get(ask.application_id)) is not None:
            text = f"Application {ask.application_id} of user {user} was placed in queue {queue}."
            self.story.entries.append(StoryEntry(placed.number, placed.at, "placed", text))
            of = f"application {ask.application_id}"
        if self._step.kind == SNAPSHOT:
            runs = f"it runs on node {ask.node_id}" if ask.node_id else "it waits"
            age = format_seconds(max(0.0, self._step.at - ask.created_ns / 1e9))
            self._tell("snapshot", f"The journal begins; the ask is {age} old, and {runs}: {about}, {of}.")
        elif ask.node_id:
            self._tell("reported", f"Reported by the RM as running on node {ask.node_id}: {about}, {of}.")
        else:
            self._tell("submitted", f"Submitted: {about}, {of}.")
        if not ask.node_id:
            self._waits_since = self._step.number

    def _find_application(self, application_id: str) -> tuple[str, str]:
        """The user and the queue of an application."""
        for one in self._image.of(ApplicationRecord):
            status = self._image.find(StatusRecord, one.rank)
            if one.application_id == application_id and status is not None and status.state not in ENDED:
                return one.user, status.queue
        return "", ""

    def _tell_move(self, before: StatusRecord, status: StatusRecord) -> None:
        one = self._image.find(ApplicationRecord, status.rank)
        if one is None or one.application_id != self.story.application:
            return
        if status.queue != before.queue:
            self._tell("moved", f"Its application was moved from queue {before.queue} to {status.queue}.")
        is_told = status.state not in _SILENT_STATES and self._waits_since is not None
        if status.state != before.state and is_told:
            self._tell("application", f"Its application is {status.state}.")

    def _describe_preemption(self, ask: AllocationRecord, found: Sequence[PreemptionRecord]) -> str:
        ran = f" It had run for {format_seconds(max(0.0, self._step.at - ask.bound_ns / 1e9))}."
        named = [one for one in found if any(victim.key == ask.key for victim in one.victims)]
        cause = next(iter(named or (found if len(found) == 1 else ())), None)
        if cause is None:
            return f"Preempted: {self._cause or 'the RM is asked to release it'}.{ran}"
        if not cause.ask_key:
            return f"Preempted because queue {cause.queue} used more than its quota.{ran}"
        why = _PREEMPTED_FOR.get(cause.reason, cause.reason)
        where = f"application {cause.application_id} in queue {cause.queue}"
        return f"Preempted for ask {cause.ask_key} of {where}, {why}.{ran}"

    def _tell_end(self, ask: AllocationRecord) -> None:
        self._end_wait(self._step.number - 1)
        if ask.preempted or ask.released:
            done = _REMOVED_BY.get(self._step.kind, "it ended")
            text = "the RM confirmed it" if self._step.kind == "AllocationRequest" else done
            what = "released"
        else:
            text = _REMOVED_BY.get(self._step.kind, self._cause or f"{self._step.kind} removed it")
            what = "released" if ask.node_id else "removed"
        ran = ""
        if ask.node_id and ask.bound_ns and not ask.replaces:
            ran = f" It ran for {format_seconds(max(0.0, self._step.at - ask.bound_ns / 1e9))}."
        self._tell(what, f"{what.capitalize()}: {text}.{ran}")

    # Messages ---------------------------------------------------------------------------------------------------------

    def _read_messages(self, step: Step) -> None:
        for sent in step.told:
            if sent.kind != AllocationResponse.__name__ or self.story.ask.encode() not in sent.body:
                continue
            try:
                response = decode_body(AllocationResponse, sent.body)
            except WireError:
                continue  # of another release
            for released in response.released:
                if released.allocation_key == self.story.ask:
                    self._cause = released.message
            for one in response.rejected_allocations:
                if one.allocation_key == self.story.ask:
                    self._tell("rejected", f"Rejected: {one.reason}.")


def _was_replacing(before: object) -> bool:
    return isinstance(before, AllocationRecord) and bool(before.replaces)


def _describe_victims(found: PreemptionRecord) -> str:
    keys = [one.key for one in found.victims[:VICTIMS_SHOWN]]
    more = found.victim_count - len(keys)
    named = ", ".join(keys) + (f" and {more} more" if more > 0 else "")
    queues = ", ".join(dict.fromkeys(one.queue for one in found.victims))
    what = format_count(found.victim_count, "allocation")
    return f"Preempted {what} of {queues} on node {found.node_id} for it: {named}."


# Why it waited --------------------------------------------------------------------------------------------------------


def _choose_steps(story: AskStory) -> set[int]:
    """The steps after which the wait is explained: of each wait the first two, the last, and some between them."""
    share = max(3, EXPLAINED_MAX // len(story.waits))
    chosen: set[int] = set()
    for first, last in story.waits:
        offsets = [0, 1]
        while len(offsets) < share - 1 and offsets[-1] * 2 < last - first:
            offsets.append(offsets[-1] * 2)
        chosen |= {min(first + offset, last) for offset in (*offsets, last - first)}
    return set(sorted(chosen)[:EXPLAINED_MAX])


def _explain_waits(source: Source, ask: str, steps: set[int]) -> list[StoryEntry]:
    """Explain the ask after each of these steps; one with the same cause as the one before is left out."""
    replay, entries, known = Replay(source, lambda _: None), list[StoryEntry](), ""
    for step, _ in replay.read(lambda one: one.number <= max(steps)):
        if step.number not in steps:
            continue
        found = _explain(replay.recovery, source.partition, ask)
        if found is None or found.stopped_by == Reason.NOT_TRIED:
            continue
        cause = next((one.text for one in found.checks if not one.passed), found.summary)
        if cause != known:
            known = cause
            entries.append(StoryEntry(step.number, step.at, "waited", found.summary, reason=found.stopped_by))
    return entries


def _explain(recovery: Recovery, partition: str, key: str) -> ExplanationView | None:
    """Explain an ask as it was after a step; None if it was not in an application yet."""
    restored = restore(recovery, partition)
    ask = restored.allocations.get(key)
    application = restored.applications.get(ask.application_id) if ask is not None else None
    if ask is None or application is None:
        return None
    return explain_ask(restored, application, ask, recovery.at)


# The command ----------------------------------------------------------------------------------------------------------


def print_story(source: Source, args: argparse.Namespace) -> None:
    """Print the story of an ask: a line for each sentence, or a JSON object.

    Raises:
        OSError: the journal has nothing about it.
    """
    story, replay = tell_story(source, args.ask, with_reasons=args.reasons)
    if not story.entries:
        raise OSError(f"nothing about ask {clean(args.ask)}: the journal {describe_extent(replay)}")
    for entry in story.entries:
        if args.json:
            print_json(entry)
        else:
            write(f"{format_time(entry.time)}  {clean(entry.text)}")
