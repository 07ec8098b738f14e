"""Views of a journal for the command line: the recovered state, the changes of each step, and those of one object.

All of them read the snapshot and the steps after it, and keep an image of the partition. A journal does not contain the
changes before its snapshot.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from yunishard.common.config.model import QueueConfig, ResourcesConfig, parse_amounts
from yunishard.common.messages.journal_messages import SentMessage, Step
from yunishard.common.messages.kinds import Message, Resources
from yunishard.common.messages.wire import WireError, decode_body
from yunishard.common.process.terminal import clean
from yunishard.common.resources import CORES, add_to
from yunishard.partition_worker.engine import durable_records
from yunishard.partition_worker.engine.application import ENDED
from yunishard.partition_worker.engine.durable_records import Image, Record, Removed, kind_of
from yunishard.partition_worker.journal.protocol import Extent, ReadableJournal
from yunishard.partition_worker.recovery import Recovery, read_records

SNAPSHOT: Final = "snapshot"
"""The kind of the step that stands for the snapshot."""

NAMES_SHOWN: Final = 4
"""Names of objects with the same change that `describe_changes` contains."""

_NAMING: Final = ("key", "ask_key", "allocation_key", "application_id", "node_id", "replaces", "path")
"""The fields of records and messages that name an object."""

_NOT_SHOWN: Final = ("record", "rank", "key", "usage", "max_allocated", "is_counted", "is_allocating")
_SUMMARIZED: Final = ("state", "queue", "node_id", "released", "preempted", "schedulable", "capacity", "resources")
"""The fields whose changes `describe_changes` contains."""

_TIMES: Final = ("at", "created", "back_off_until", "quota_preemption_at", "state_timeout_at", "placeholder_timeout_at")
"""Fields in Unix seconds; the names of those in nanoseconds end with `_ns`."""

_ENDED: Final = frozenset(str(state) for state in ENDED)
_UNITS: Final = ("", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


# Steps --------------------------------------------------------------------------------------------------------------


class Change(Struct, omit_defaults=True):
    """The change of one object."""

    kind: str
    name: str
    after: Record
    before: Record | None = None


class Source(NamedTuple):
    """The place of a journal."""

    partition: str
    folder: Path | None
    """The directory of quarantined messages; None if the system keeps none."""
    open: Callable[[], ReadableJournal]
    """Open the journal. Raises FileNotFoundError if there is none, here or in the methods of the result."""

    def exists(self) -> bool:
        """Whether there is a journal now."""
        try:
            with closing(self.open()) as reader:
                reader.read_meta()
        except FileNotFoundError:
            return False
        return True


class Replay:
    """The state of a partition after each step of its journal, also while its worker writes.

    Each reading opens the journal again, so that a worker that stops meanwhile can close it in order.
    """

    def __init__(self, source: Source, notify: Callable[[str], None]) -> None:
        """`notify` is called when the journal begins with another step since the last reading."""
        self.source, self._notify = source, notify
        self.recovery = Recovery()
        self.meta: Extent | None = None
        self._names: dict[int, str] = {}
        """The ids of applications by rank."""
        self._next = 1

    def read(self, is_wanted: Callable[[Step], bool] = lambda _: True) -> Iterator[tuple[Step, Iterable[Change]]]:
        """Read the steps that were not read yet; first the snapshot, as a step of the kind SNAPSHOT with all objects.

        Stops before the first step that is not wanted, which a later call reads.

        Raises:
            JournalDamaged, OSError: they cannot be read.
        """
        with closing(self.source.open()) as reader:
            is_whole = False
            while not is_whole:
                is_whole = True
                yield from self._follow_snapshot(reader)
                for step in reader.read_steps(self._next):
                    if step.number != self._next:  # the worker has just deleted steps
                        is_whole = False
                        break
                    if not is_wanted(step):
                        break
                    changes = list(map(self._describe, read_records(step)))
                    self.recovery.apply_step(step)
                    self._next += 1
                    yield step, changes

    def _follow_snapshot(self, reader: ReadableJournal) -> Iterator[tuple[Step, Iterable[Change]]]:
        """Start with the snapshot; start again if it has steps that were not read, or if the journal was replaced."""
        meta, known = reader.read_meta(), self.meta
        is_other = max(meta.last, meta.snapshot) < self._next - 1
        if known is not None and (is_other or meta.begins != known.begins):
            base = f"a snapshot after step {meta.snapshot}" if meta.snapshot else "an empty partition"
            self._notify(f"the journal begins with {base} now")
            is_other = is_other or meta.begins > self._next or not meta.snapshot
        if known is not None and not is_other:
            self.meta = meta
            return
        self.meta, content = reader.open_snapshot()
        self.recovery = recovery = Recovery()
        self._next = self.meta.begins
        if content is not None:
            recovery.read_snapshot(content)
            applications, outbox = recovery.image.of(durable_records.ApplicationRecord), recovery.outbox
            self._names |= {one.rank: one.application_id for one in applications}
            told = [SentMessage(*one) for one in outbox.unacknowledged()]
            step = Step(recovery.last, recovery.at, SNAPSHOT, recovery.received, outbox.acknowledged, told=told)
            yield step, (self._describe(record) for record in recovery.image)

    def _describe(self, record: Record) -> Change:
        if isinstance(record, durable_records.ApplicationRecord):
            self._names[record.rank] = record.application_id
        before = self.recovery.image.find_previous(record)
        named = before if isinstance(record, Removed) and before is not None else record
        kind, name = re.sub("(?<=[a-z])(?=[A-Z])", " ", kind_of(type(named))).lower(), str(named.identity)
        if isinstance(named, durable_records.AllocationRecord):
            kind = "placeholder" if named.placeholder else "allocation" if named.node_id else "ask"
        elif isinstance(named.identity, int) and kind.startswith("application"):
            kind, name = "application", self._names.get(named.identity, name)
        return Change(kind, name, record, None if before is record else before)


def read_all(source: Source, is_wanted: Callable[[Step], bool] = lambda _: True) -> Replay:
    """Read a journal to its end, or up to the first step that is not wanted.

    Raises:
        JournalDamaged, OSError: it cannot be read.
    """
    replay = Replay(source, lambda _: None)
    for _ in replay.read(is_wanted):
        pass
    return replay


# One object ---------------------------------------------------------------------------------------------------------


class Sent(Struct):
    """A message to the RM about an object."""

    number: int
    kind: str
    parts: list[str]
    """The fields of the message that contain the object, with the reason of a rejection."""
    acknowledged: tuple[int, float] | None = None
    """The first step after the RM's acknowledgement, and its time."""


class Entry(Struct):
    """The changes and messages of a step, or in the snapshot, that concern an object."""

    step: int
    time: float
    what: str
    changes: list[Change]
    sent: list[Sent]


def trace_object(replay: Replay, name: str) -> list[Entry]:
    """Find the changes of an object, and the messages about it.

    An application also has the changes of its asks, and a node those of its allocations.
    """
    entries = []
    waiting: list[Sent] = []
    for step, changes in replay.read():
        for one in waiting:
            if one.number <= step.acknowledged:
                one.acknowledged = (step.number, step.at)
        waiting = [one for one in waiting if one.acknowledged is None]
        found = [
            one
            for one in changes
            if name in (one.name, *_list_names(one.after), *_list_names(one.before))
            and not (one.before and isinstance(one.after, durable_records.StateLogRecord))  # its status has it, too
        ]
        told = (Sent(one.number, one.kind, _find_parts(one, name)) for one in step.told)
        sent = [one for one in told if one.parts]
        waiting += sent
        if found or sent:
            entries.append(Entry(step.number, step.at, step.kind, found, sent))
    return entries


def _list_names(part: object) -> Iterator[object]:
    """The names in a record, or in an item of a message."""
    parts = (getattr(part, field, None) for field in ("ask", "release", "submission"))
    return (getattr(one, field, None) for one in (part, *parts, *getattr(part, "victims", ())) for field in _NAMING)


def _find_parts(sent: SentMessage, name: str) -> list[str]:
    """The fields of a message with an item about the object."""
    if name.encode() not in sent.body or sent.kind not in Message.kinds:
        return []
    try:
        message = decode_body(Message.kinds[sent.kind], sent.body)
    except WireError:
        return []  # of another release
    found: dict[str, None] = {}
    for field in message.__struct_fields__:
        items = getattr(message, field)
        for item in items if isinstance(items, list) else ():
            if name in (item, *_list_names(item)):
                reason = getattr(item, "reason", "") or getattr(item, "message", "")
                found[f"{field}: {reason}" if reason else field] = None
    return list(found)


# State --------------------------------------------------------------------------------------------------------------

Row = tuple[object, ...]


def list_applications(image: Image) -> Iterator[Row]:
    """The applications in order of submission, those that ended too."""
    allocated: dict[str, Resources] = defaultdict(dict)
    counts: Counter[tuple[str, bool]] = Counter()
    for ask in image.of(durable_records.AllocationRecord):
        is_allocated = bool(ask.node_id) and not ask.replaces
        counts[ask.application_id, is_allocated] += 1
        add_to(allocated[ask.application_id], ask.resources if is_allocated else {})
    statuses = {one.rank: one for one in image.of(durable_records.StatusRecord)}
    for one in sorted(image.of(durable_records.ApplicationRecord), key=lambda one: one.rank):
        status, key = statuses[one.rank], one.application_id if not statuses[one.rank].finished_ns else ""
        sums = counts[key, False], counts[key, True], allocated[key]
        yield one.application_id, status.queue, one.user, status.state, *sums, status.submitted_ns


def list_asks(image: Image) -> Iterator[Row]:
    """The asks and allocations, by application."""
    queues = {row[0]: row[1] for row in list_applications(image)}
    asks = image.of(durable_records.AllocationRecord)
    for ask in sorted(asks, key=lambda ask: (ask.application_id, ask.created_ns, ask.key)):
        words = (("preempted", ask.preempted), ("released", ask.released), ("replacing", ask.replaces))
        state = next((word for word, is_so in words if is_so), "allocated" if ask.node_id else "pending")
        queue = queues.get(ask.application_id, "")
        yield ask.key, ask.application_id, queue, state, ask.node_id, ask.resources, ask.priority, ask.created_ns


def list_nodes(image: Image) -> Iterator[Row]:
    """The nodes by id."""
    allocated: dict[str, Resources] = defaultdict(dict)
    foreign: dict[str, Resources] = defaultdict(dict)
    counts: Counter[str] = Counter()
    for ask in image.of(durable_records.AllocationRecord):
        placeholder = image.find(durable_records.AllocationRecord, ask.replaces)
        if placeholder is None or placeholder.node_id != ask.node_id:
            add_to(allocated[ask.node_id], ask.resources)
            counts[ask.node_id] += 1
    for one in image.of(durable_records.ForeignRecord):
        add_to(foreign[one.node_id], one.resources)
    for node in sorted(image.of(durable_records.NodeRecord), key=lambda node: node.node_id):
        key, state = node.node_id, "schedulable" if node.schedulable else "draining"
        yield key, state, counts[key], allocated[key], foreign[key], node.capacity


def list_queues(image: Image) -> Iterator[Row]:
    """The queues from the root down, with the sums of everything below each. A used amount includes placeholders."""
    head = image.find(durable_records.PartitionRecord)
    paths = {one.path: one for one in sorted(image.of(durable_records.QueueRecord), key=lambda one: one.rank)}
    configured = {} if head is None or not head.config.queues else _list_configured(head.config.root)
    counts: Counter[tuple[str, str]] = Counter()
    sums: dict[tuple[str, str], Resources] = defaultdict(dict)
    applications = {row[0]: str(row[1]) for row in list_applications(image) if row[3] not in _ENDED}
    for path in applications.values():
        counts.update((above, "applications") for above in _list_above(path))
    for ask in image.of(durable_records.AllocationRecord):
        what = "used" if ask.node_id and not ask.replaces else "pending"
        for above in _list_above(applications.get(ask.application_id, "")):
            counts[above, what] += 1
            add_to(sums[above, what], ask.resources)
    for path in sorted(paths, key=lambda path: path.split(".")):
        record, written = paths[path], configured.get(path, ResourcesConfig())
        settings = record.settings
        guaranteed = parse_amounts(written.guaranteed) if settings is None else settings.guaranteed
        maximum = parse_amounts(written.max) if settings is None else settings.maximum
        state = "Stopped" if head is not None and path in head.stops else record.state
        totals = counts[path, "applications"], counts[path, "pending"], counts[path, "used"]
        yield path, state, *totals, sums[path, "pending"], sums[path, "used"], guaranteed, maximum


def _list_above(path: str) -> list[str]:
    """A queue and those above it."""
    parts = path.split(".") if path else []
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _list_configured(queue: QueueConfig, above: str = "") -> dict[str, ResourcesConfig]:
    """The resources of the configured queues, by path."""
    path = f"{above}.{queue.name}".lower().lstrip(".")
    found = {path: queue.resources}
    for child in queue.queues:
        found |= _list_configured(child, path)
    return found


VIEWS: Final[dict[str, tuple[Callable[[Image], Iterator[Row]], tuple[str, ...]]]] = {
    "applications": (
        list_applications,
        ("application", "queue", "user", "state", "pending", "allocations", "allocated", "submitted_ns"),
    ),
    "asks": (list_asks, ("ask", "application", "queue", "state", "node", "resources", "priority", "created_ns")),
    "queues": (
        list_queues,
        (
            *("queue", "state", "applications", "asks", "allocations"),
            *("pending", "used", "guaranteed", "maximum"),
        ),
    ),
    "nodes": (list_nodes, ("node", "state", "allocations", "allocated", "foreign", "capacity")),
}
"""By name: a function, and the columns."""


def summarize(replay: Replay) -> dict[str, object]:
    """The state as counts, by state if there are several."""
    recovery, outbox, rm = replay.recovery, replay.recovery.outbox, replay.recovery.session
    counts = Counter(kind_of(type(record)).lower() for record in recovery.image)
    numbers = {"last_step": recovery.last, "at": recovery.at, "received": recovery.received}
    messages = {"sent": outbox.last, "acknowledged": outbox.acknowledged}
    states = {
        name: dict(Counter(str(row[columns.index("state")]) for row in view(recovery.image)))
        for name, (view, columns) in VIEWS.items()
        if name != "queues"
    }
    others = {f"{kind}s": counts[kind] for kind in ("queue", "reservation")}
    return {"partition": replay.source.partition, "rm": rm and rm.rm, **numbers, **messages, **states, **others}


# Words --------------------------------------------------------------------------------------------------------------


def describe_change(change: Change, fields: Collection[str] = ()) -> str:
    """Format the fields that changed, or those of `fields` among them; only `removed` if the object is gone."""
    if isinstance(change.after, Removed):
        return "removed"
    before, after = _list_values(change.before), _list_values(change.after)
    changed = (name for name in {**before, **after} if (before.get(name) or None) != (after.get(name) or None))
    names = [name for name in changed if not fields or name in fields]
    return ", ".join(_format_field(name, before.get(name), after.get(name)) for name in names) or "updated"


def _list_values(record: Record | None) -> dict[str, object]:
    """The fields of a record that are not their default, without those that follow from other records."""
    values: dict[str, object] = {} if record is None else msgspec.to_builtins(record)
    return {name: value for name, value in values.items() if name not in _NOT_SHOWN}


def _format_field(name: str, before: object, after: object) -> str:
    label = re.sub("_(id|ns|at)$", "", name).replace("_", " ")
    if isinstance(before or after, bool):
        return label if after else f"not {label}"
    old, new = (format_value(name, value) for value in (before, after))
    return f"{label} {new}" if before is None else f"{label} {old} -> {new}"


def describe_changes(changes: Iterable[Change]) -> str:
    """Summarize the changes of a step, equal changes of several objects in one phrase."""
    words: dict[tuple[str, str], str] = {}
    for one in changes:
        if isinstance(one.after, durable_records.StateLogRecord):  # the status has the state, too
            continue
        is_new = one.before is None and not isinstance(one.after, Removed)
        text, known = "added" if is_new else describe_change(one, _SUMMARIZED), words.get((one.kind, one.name))
        words[one.kind, one.name] = text if known in (None, "updated") else known
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (kind, name), text in words.items():
        groups[kind, text].append(clean(name))
    return "; ".join(f"{kind} {_join(names)}: {text}".replace(" :", ":") for (kind, text), names in groups.items())


def _join(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def format_value(name: str, value: object) -> str:
    """Format the value of a field: times, amounts with units, `-` for nothing."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, int | float) and (name.endswith("_ns") or name in _TIMES):
        return format_time(value / 1e9 if name.endswith("_ns") else value) if value else "-"
    if name == "entered" and isinstance(value, list):
        return ", ".join(f"{state} {format_time(ns / 1e9)}" for ns, state in value)
    if isinstance(value, dict):
        return ", ".join(f"{clean(kind)} {_format_amount(kind, n)}" for kind, n in sorted(value.items()))
    return clean(msgspec.json.encode(value).decode() if isinstance(value, list) else str(value))


def _format_amount(kind: str, amount: object) -> str:
    if isinstance(amount, int) and kind == CORES:
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if isinstance(amount, int) and kind == "memory":
        power = min(max(0, amount.bit_length() - 1) // 10, len(_UNITS) - 1)
        return f"{amount / (1 << 10 * power):.4g}{_UNITS[power]}"
    return clean(str(amount))


def format_time(at: float) -> str:
    """Format a time in Unix seconds, as local time."""
    return datetime.fromtimestamp(at).astimezone().isoformat(sep=" ", timespec="milliseconds")[:23]
