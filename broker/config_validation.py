"""Messages that need the analysis of a configuration text, and the analyses that the broker keeps.

Child processes analyse all texts (`analysis_process.py`), in the order of `AnalysisQueue`. Meanwhile messages wait:

    arrived --its text has no analysis--> waiting --analysed, or refused--> handled as if it arrived now
        |
        +--anything else--> handled at once, unless an earlier message of the same lane waits

A lane is an RM, or a source of texts within the broker. Only messages of the same RM keep their order, so nothing waits
for the text of another RM. A text that is refused without an analysis is handled like an invalid one. Checks that
depend on the RM are in `state.py`.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

import msgspec

from yunishard.broker.config_analysis import ConfigAnalysis
from yunishard.common.config.model import compute_checksum
from yunishard.common.config.parse import TEXT_BYTES_MAX
from yunishard.common.config.problems import Problem
from yunishard.common.messages.control_messages import ChangedFile, TextRead, VersionRead
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ChangeConfig
from yunishard.common.messages.rm_messages import RegisterResourceManager, UpdateConfiguration
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, WireError, decode_body
from yunishard.common.names import FILE, READER, RECORD

CACHE_BYTES_MAX: Final = 64 << 20
"""Bytes of encoded analyses in the cache. Beyond it, the least recently used ones are removed, and their texts are
analysed again. The latest one is always kept."""

LANE_MAX: Final = 64
"""Messages of one RM that may wait for its text. A further one with a text is refused, any other one dropped, as on a
broken connection."""

RETRY_S: Final = 1.0
"""Seconds until a text of the broker's own is tried again, if no process can be started."""

DEFAULT_TEXT: Final = Incoming(FILE, Header(kind="DefaultText"), b"")
"""The broker's message to itself, that the default configuration has been analysed."""

_CALLS: Final = frozenset({"RegisterResourceManager", "UpdateConfiguration", "Resume"})
"""Calls of RMs through a proxy."""

_ORDERED_KINDS: Final = _CALLS | {"ChangeConfig", "Leave", "ManagerAway"}
"""Messages about an RM that must not overtake a waiting one of the same RM."""


class NeededText(NamedTuple):
    """A text that a message needs analysed, and the client that has sent it."""

    text: str
    client: str


def find_text(incoming: Incoming, default_text: str) -> NeededText | None:
    """The text in a message. An RM that sends none uses the default configuration. None if there is none, or if the
    message cannot be decoded: the broker's machine refuses it.
    """
    rm = f"RM {incoming.header.rm}"
    try:
        match incoming.header.kind:
            case "RegisterResourceManager":
                text = decode_body(RegisterResourceManager, incoming.body).config
                return NeededText(text, rm) if text else NeededText(default_text, SYSTEM)
            case "UpdateConfiguration":
                text = decode_body(UpdateConfiguration, incoming.body).config
                return NeededText(text, rm) if text else NeededText(default_text, SYSTEM)
            case "ChangeConfig":
                change = decode_body(ChangeConfig, incoming.body)
                return NeededText(change.config, f"user {change.author}")
            case "ChangedFile":
                text = decode_body(ChangedFile, incoming.body).text
                return NeededText(text, SYSTEM) if text.strip() else None
            case "VersionRead":
                text = decode_body(VersionRead, incoming.body).text
                return NeededText(text, SYSTEM) if text else None
            case DEFAULT_TEXT.header.kind:
                return NeededText(default_text, SYSTEM)
    except WireError:
        return None
    return None


def refuse_text(reason: str, *, is_incomplete: bool = False) -> ConfigAnalysis:
    """The analysis of a text that is refused without one."""
    problem = Problem(message=f"the configuration is refused: {reason}", kind="analysis")
    return ConfigAnalysis(problems=(problem,), is_incomplete=is_incomplete)


class AnalysisWanted(Exception):
    """A message cannot be handled without the analysis of this text. Nothing has changed."""

    def __init__(self, text: str) -> None:
        super().__init__("a configuration has no analysis")
        self.text = text


def hash_text(text: bytes) -> bytes:
    """The key of a text in the cache."""
    return hashlib.sha256(text).digest()


class AnalysisCache:
    """The analyses of the latest texts, by the hash of the text, and that of the default configuration."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[ConfigAnalysis, int]] = {}
        """With the size in bytes; the least recently used one comes first."""
        self._size = 0
        self._pinned: dict[str, ConfigAnalysis] = {}
        self.found: dict[str, ConfigAnalysis] = {}
        """By text, the analyses for the message that is being handled. They take precedence, and a text is found
        without the 3 ms that the hash of a megabyte takes."""

    def get(self, text: str) -> ConfigAnalysis:
        """The analysis of a text.

        Raises:
            AnalysisWanted: there is none.
        """
        found = self.find_near(text) or self.find(hash_text(text.encode()))
        if found is None:
            raise AnalysisWanted(text)
        return found

    def find_near(self, text: str) -> ConfigAnalysis | None:
        """The analysis of the message that is being handled, or of the default configuration."""
        return self.found.get(text) or self._pinned.get(text)

    def find(self, key: bytes) -> ConfigAnalysis | None:
        """The analysis of the text with this hash."""
        if key not in self._known:
            return None
        entry = self._known.pop(key)
        self._known[key] = entry
        return entry[0]

    def compute_checksum(self, text: str) -> str:
        """The checksum of a text, which is usually in its analysis."""
        found = self.find_near(text)
        return found.checksum if found is not None and found.checksum else compute_checksum(text)

    @property
    def has_pinned(self) -> bool:
        """Whether the default configuration has been analysed."""
        return bool(self._pinned)

    def add(self, key: bytes, analysis: ConfigAnalysis, size: int) -> None:
        """Keep the analysis of a text, which has this size in bytes."""
        if key in self._known:
            self._size -= self._known.pop(key)[1]
        self._known[key] = analysis, size
        self._size += size
        while self._size > CACHE_BYTES_MAX and len(self._known) > 1:
            self._size -= self._known.pop(next(iter(self._known)))[1]

    def pin(self, text: str) -> None:
        """Keep the analysis of this text, which is known, in place of the last one that was pinned."""
        self._pinned = {text: self.get(text)}


@dataclass(slots=True)
class _Waiting:
    """A message that waits in a lane."""

    incoming: Incoming
    own: NeededText | None = None
    """The text in it."""
    texts: list[NeededText] = field(default_factory=list)
    """Texts that its handling has asked for, beside its own."""
    analyses: dict[str, ConfigAnalysis] = field(default_factory=dict)
    """By text, those that it has waited for."""
    text: str = ""
    """The one that it waits for."""
    key: bytes = b""
    """The hash of that."""
    job: int = 0
    """Number of that text in the queue; 0 if it waits for none."""


class ConfigPreloader:
    """Has the texts in messages analysed before it passes the messages on to `handle_analysed`."""

    def __init__(
        self,
        handle_analysed: Callable[[Incoming, float], list[Outgoing]],
        cache: AnalysisCache,
        get_default_text: Callable[[], str],
    ) -> None:
        self._handle_analysed = handle_analysed
        self._cache = cache
        self._get_default_text = get_default_text
        self._queue = AnalysisQueue()
        self._lanes: dict[str, deque[_Waiting]] = {}
        """The first message of each waits for a text, the others for that message."""
        self._texts: dict[int, bytes] = {}
        """Texts that wait for a process, by number."""
        self._retry_at: dict[str, float] = {}
        """Lane whose first message is tried again, to the time."""
        self._numbers = count(1)
        self.deadline = NEVER
        """When to call `tick`."""

    def analyze_default(self, now: float) -> None:
        """Have the default configuration analysed at the next tick."""
        self._lanes["default"] = deque([_Waiting(DEFAULT_TEXT)])
        self._retry_at["default"] = self.deadline = now

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        header = incoming.header
        if header.kind == TextRead.__name__ and incoming.source.startswith(READER):
            return self._finish(self._handle_outcome(incoming, now), now)
        if header.kind == "Hello" and not header.partition:
            self._drop_calls(incoming.source)
        lane = self._find_lane(incoming)
        if lane in self._lanes:
            return self._finish(self._join(lane, incoming, now), now)
        own = find_text(incoming, self._get_default_text()) if lane else None
        if own is None:
            return self._handle_analysed(incoming, now)
        self._lanes[lane] = deque([_Waiting(incoming, own)])
        return self._finish(self._advance(lane, now), now)

    def tick(self, now: float) -> list[Outgoing]:
        """Refuse texts that have waited too long, and start those whose time has come."""
        sends: list[Outgoing] = []
        for lane in [lane for lane, at in self._retry_at.items() if at <= now]:
            del self._retry_at[lane]
            sends += self._advance(lane, now)
        for job, reason in self._queue.expire(now):
            self._texts.pop(job.number, None)
            late = self._find_waiting(job.number)
            if late is not None:
                self._settle(late, refuse_text(reason, is_incomplete=True))
                sends += self._advance(late, now)
        return self._finish(sends, now)

    def _find_lane(self, incoming: Incoming) -> str:
        """The lane of a message; empty if it has none."""
        header = incoming.header
        if header.kind in _ORDERED_KINDS:
            return f"RM {header.rm}"
        if header.kind == VersionRead.__name__ and incoming.source == RECORD:
            return f"record of RM {header.rm}"
        return "file" if header.kind == ChangedFile.__name__ and incoming.source == FILE else ""

    def _join(self, lane: str, incoming: Incoming, now: float) -> list[Outgoing]:
        """Have a message wait behind others. A registration that is repeated on a new connection takes the place of the
        first one.
        """
        waiting, header = self._lanes[lane], incoming.header
        for one in waiting if header.kind == RegisterResourceManager.__name__ else ():
            before = one.incoming.header
            if (before.kind, before.session) == (header.kind, header.session) and one.incoming.body == incoming.body:
                one.incoming = incoming
                return []
        if len(waiting) < LANE_MAX:
            waiting.append(_Waiting(incoming))
            return []
        needed = find_text(incoming, self._get_default_text())
        if needed is None:
            return []
        refusal = refuse_text(f"{LANE_MAX} messages about {lane} wait for its last one", is_incomplete=True)
        return self._pass(_Waiting(incoming, analyses={needed.text: refusal}), now)

    def _drop_calls(self, proxy: str) -> None:
        """Drop the waiting calls of RMs whose proxy has restarted: their connections are gone."""
        for lane, waiting in list(self._lanes.items()):
            calls = [one for one in waiting if one.incoming.source == proxy and one.incoming.header.kind in _CALLS]
            for one in calls:
                waiting.remove(one)
                if one.job:
                    self._queue.cancel(one.job)
                    self._texts.pop(one.job, None)
            if calls:
                self._retry_at[lane] = 0.0
                self.deadline = 0.0

    # Analyses ---------------------------------------------------------------------------------------------------------

    def _advance(self, lane: str, now: float) -> list[Outgoing]:
        """Handle the messages of a lane up to the first one whose text has to be analysed, and request that."""
        sends: list[Outgoing] = []
        while waiting := self._lanes.get(lane):
            first = waiting[0]
            if first.job:
                return sends
            needed = self._find_missing(first)
            if needed is not None and not self._request(first, needed, now):
                return sends
            if needed is None:
                waiting.popleft()
                sends += self._pass(first, now)
        self._lanes.pop(lane, None)
        return sends

    def _find_missing(self, one: _Waiting) -> NeededText | None:
        """The first text that the message needs and that has no analysis."""
        if one.own is None or one.own.client == SYSTEM:  # the default configuration may be another one now
            one.own = find_text(one.incoming, self._get_default_text())
        for needed in ([one.own] if one.own is not None else []) + one.texts:
            if needed.text not in one.analyses:
                known = self._cache.find_near(needed.text)
                if known is None:
                    return needed
                one.analyses[needed.text] = known
        return None

    def _request(self, one: _Waiting, needed: NeededText, now: float) -> bool:
        """Request the analysis of a text; whether it is known, or refused at once."""
        data = needed.text.encode()
        one.text, one.key = needed.text, hash_text(data)
        if (known := self._cache.find(one.key)) is not None:
            one.analyses[one.text] = known
        elif len(data) > TEXT_BYTES_MAX:
            reason = f"it has {len(data)} bytes, a configuration may have at most {TEXT_BYTES_MAX}"
            one.analyses[one.text] = refuse_text(reason)
        elif reason := self._queue.find_no_room(needed.client, len(data)):
            one.analyses[one.text] = refuse_text(reason, is_incomplete=True)
        else:
            one.job = next(self._numbers)
            self._texts[one.job] = data
            self._queue.add(Job(one.job, needed.client, len(data), now))
            return False
        return True

    def _pass(self, one: _Waiting, now: float) -> list[Outgoing]:
        """Handle a message with its analyses. If it needs another one, it waits for that."""
        self._cache.found = one.analyses
        try:
            return self._handle_analysed(one.incoming, now)
        except AnalysisWanted as wanted:
            return self._wait(one, wanted, now)
        finally:
            self._cache.found = {}

    def wait(self, incoming: Incoming, wanted: AnalysisWanted, now: float) -> list[Outgoing]:
        """Have a message wait for a further analysis, at the head of its lane."""
        return self._wait(_Waiting(incoming), wanted, now)

    def _wait(self, one: _Waiting, wanted: AnalysisWanted, now: float) -> list[Outgoing]:
        one.own = one.own or find_text(one.incoming, self._get_default_text())
        one.texts.append(NeededText(wanted.text, one.own.client if one.own is not None else SYSTEM))
        lane = self._find_lane(one.incoming)
        assert lane, f"{one.incoming.header.kind} needs no configuration"
        self._lanes.setdefault(lane, deque()).appendleft(one)
        self._retry_at[lane] = now
        return []

    def _handle_outcome(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Handle the outcome of a text, and the messages that waited for it."""
        outcome = decode_body(TextRead, incoming.body)
        process = int(incoming.source.rpartition("/")[2])
        job = self._queue.finish(process, outcome.used_s, now)
        lane = self._find_waiting(job.number)
        if lane is None:
            return []
        if outcome.unavailable and job.client == SYSTEM:
            self._lanes[lane][0].job = 0
            self._retry_at[lane] = now + RETRY_S
            return []
        key = self._lanes[lane][0].key
        if not outcome.analysis:
            reason = outcome.problem or outcome.unavailable
            self._settle(lane, refuse_text(reason, is_incomplete=not outcome.problem))
            return self._advance(lane, now)
        analysis = msgspec.msgpack.decode(outcome.analysis, type=ConfigAnalysis)
        self._cache.add(key, analysis, len(outcome.analysis))
        sends: list[Outgoing] = []
        for name in [name for name, waiting in self._lanes.items() if waiting[0].job and waiting[0].key == key]:
            self._queue.cancel(self._lanes[name][0].job)
            self._texts.pop(self._lanes[name][0].job, None)
            self._settle(name, analysis)
            sends += self._advance(name, now)
        return sends

    def _find_waiting(self, job: int) -> str | None:
        """The lane whose first message waits for this text; None if none does any more."""
        return next((name for name, waiting in self._lanes.items() if waiting and waiting[0].job == job), None)

    def _settle(self, lane: str, analysis: ConfigAnalysis) -> None:
        first = self._lanes[lane][0]
        first.analyses[first.text], first.job = analysis, 0

    def _finish(self, sends: Iterable[Outgoing], now: float) -> list[Outgoing]:
        """Add the texts that start now."""
        started = [
            Outgoing(f"{READER}/{process}", Header(kind="ReadText", ref=str(job.number)), self._texts.pop(job.number))
            for process, job in self._queue.start(now)
        ]
        self.deadline = min([self._queue.find_deadline(now), *self._retry_at.values()])
        return [*sends, *started]


# The order of texts ---------------------------------------------------------------------------------------------------
#
#   add --text and client--> waiting --a process is free, within the budget--> running --TextRead--> taken out
#                               |
#                               +--no room, or too long--> refused
#
# The order is fair between clients, each with a budget of processor time. A client is an RM, or a user of a front end.
# Each has one text in a process at a time. The next text is that of the client with the least processor time in the
# last BUDGET_WINDOW_S, so that the first text of a client does not wait behind the many texts of another one; and the
# last free process is for clients that have used little.

PROCESSES_MAX: Final = 3
"""Processes that analyse texts at the same time; further texts wait."""

READERS: Final = tuple(f"{READER}/{process}" for process in range(PROCESSES_MAX))
"""The names of the processes that analyse texts."""

BUDGET_S: Final = 30.0
"""Processor seconds of analyses of one client within BUDGET_WINDOW_S. Beyond it, its texts wait until it has used less,
or are refused after WAITING_MAX_S."""

BUDGET_WINDOW_S: Final = 60.0

LITTLE_S: Final = 1.0
"""Processor seconds up to which a client may use the last free process."""

COST_MIN_S: Final = 0.01
"""Processor seconds that each text counts at least, for the messages about it."""

WAITING_MAX_S: Final = 20.0
"""Seconds that a text may wait for its analysis; then it is refused, before its caller gives up."""

CLIENT_TEXTS_MAX: Final = 4
"""Texts of one client that may wait. A further one is refused at once."""

TEXTS_MAX: Final = 256
"""Texts of all clients that may wait. A further one is refused at once."""

BYTES_MAX: Final = 256 << 20
"""Bytes of all texts that wait. A further one is refused at once, unless none waits."""

SYSTEM: Final = ""
"""The client that the broker is itself, for texts of its record and the default configuration: it has no limits."""


@dataclass(frozen=True, slots=True)
class Job:
    """A text to analyse."""

    number: int
    client: str
    size: int
    """In bytes."""
    added_at: float


class Budgets:
    """The processor time that each client has used lately. It runs down evenly, BUDGET_S within BUDGET_WINDOW_S."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        """Client to seconds, and when they were that."""

    def get(self, client: str, now: float) -> float:
        """The seconds that count now."""
        used_s, at = self._used.get(client, (0.0, now))
        return max(0.0, used_s - (now - at) * BUDGET_S / BUDGET_WINDOW_S)

    def charge(self, client: str, seconds: float, now: float) -> None:
        if client == SYSTEM:
            return
        self._used = {one: entry for one, entry in self._used.items() if self.get(one, now)}
        self._used[client] = self.get(client, now) + max(seconds, COST_MIN_S), now

    def find_time_below(self, client: str, limit_s: float, now: float) -> float:
        """When the client has used less than this; now if it has."""
        excess_s = self.get(client, now) - limit_s
        return now if excess_s < 0 else now + excess_s * BUDGET_WINDOW_S / BUDGET_S + 1e-3


class AnalysisQueue:
    """The texts that wait and run, by number; the caller has the texts themselves."""

    def __init__(self) -> None:
        self.budgets = Budgets()
        self._waiting: dict[str, deque[Job]] = {}
        """Client to its texts, oldest first."""
        self._running: dict[int, Job] = {}
        """Process to its text."""
        self._bytes = 0
        """Of the texts that wait."""

    def find_no_room(self, client: str, size: int) -> str:
        """Return why a text of this size cannot wait; empty if it can."""
        if client == SYSTEM:
            return ""
        if len(self._waiting.get(client, ())) >= CLIENT_TEXTS_MAX:
            return f"{CLIENT_TEXTS_MAX} configurations of {client} wait for their analysis already: send one at a time"
        count = sum(map(len, self._waiting.values()))
        if count >= TEXTS_MAX or (count and self._bytes + size > BYTES_MAX):
            return (
                f"{count} configurations with {self._bytes >> 20} MiB wait for their analysis already: try again later"
            )
        return ""

    def add(self, job: Job) -> None:
        """Have a text wait; `find_no_room` has nothing against it."""
        self._waiting.setdefault(job.client, deque()).append(job)
        self._bytes += job.size

    def start(self, now: float) -> Iterator[tuple[int, Job]]:
        """Start texts in free processes; yield each with its process."""
        while (job := self._choose(now)) is not None:
            process = next(one for one in range(PROCESSES_MAX) if one not in self._running)
            self._remove(job)
            self._running[process] = job
            yield process, job

    def _choose(self, now: float) -> Job | None:
        """The next text. Of texts of clients that have used the same, the larger one probably takes longer."""
        limit_s = self._find_limit_s()
        used_s = {client: self.budgets.get(client, now) for client in self._iterate_idle()}
        ready = [self._waiting[client][0] for client, seconds in used_s.items() if seconds < limit_s]
        return min(ready, key=lambda job: (used_s[job.client], job.size, job.number), default=None)

    def _find_limit_s(self) -> float:
        """The processor time below which a client may start a text now; 0 if no process is free."""
        free = PROCESSES_MAX - len(self._running)
        return BUDGET_S if free > 1 else LITTLE_S if free else 0.0

    def _iterate_idle(self) -> Iterator[str]:
        """The clients that have texts waiting and none running."""
        busy = {job.client for job in self._running.values()} - {SYSTEM}
        return (client for client in self._waiting if client not in busy)

    def finish(self, process: int, used_s: float, now: float) -> Job:
        """Take out the text of a process, and charge its client."""
        job = self._running.pop(process)
        self.budgets.charge(job.client, used_s, now)
        return job

    def cancel(self, number: int) -> None:
        """Take out a text that waits and is not needed any more."""
        for jobs in self._waiting.values():
            for job in jobs:
                if job.number == number:
                    self._remove(job)
                    return

    def _remove(self, job: Job) -> None:
        jobs = self._waiting[job.client]
        jobs.remove(job)
        self._bytes -= job.size
        if not jobs:
            del self._waiting[job.client]

    def expire(self, now: float) -> list[tuple[Job, str]]:
        """Take out the texts that have waited too long, each with the reason for its refusal."""
        late = [job for job in self._iterate() if self._find_expiry(job) <= now]
        expired: list[tuple[Job, str]] = []
        for job in late:
            self._remove(job)
            used_s = self.budgets.get(job.client, now)
            reason = f"it has waited {WAITING_MAX_S:g} s for its analysis: try again when the core is less busy"
            if used_s >= LITTLE_S:
                reason = (
                    f"it has waited {WAITING_MAX_S:g} s for its analysis, as {job.client} has used {used_s:.0f} s of"
                    f" processor time for configurations, of the {BUDGET_S:g} s that it has in {BUDGET_WINDOW_S:g} s:"
                    f" try again in {max(used_s - LITTLE_S, 1.0) * BUDGET_WINDOW_S / BUDGET_S:.0f} s"
                )
            expired.append((job, reason))
        return expired

    def _iterate(self) -> Iterator[Job]:
        return (job for jobs in self._waiting.values() for job in jobs)

    def _find_expiry(self, job: Job) -> float:
        return NEVER if job.client == SYSTEM else job.added_at + WAITING_MAX_S

    def find_deadline(self, now: float) -> float:
        """When a text may start, or has waited too long."""
        deadline = min(map(self._find_expiry, self._iterate()), default=NEVER)
        if limit_s := self._find_limit_s():
            starts = [self.budgets.find_time_below(one, limit_s, now) for one in self._iterate_idle()]
            deadline = min([deadline, *starts])
        return deadline
