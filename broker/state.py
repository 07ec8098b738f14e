"""State shared by all parts of the broker: settings, registry, configuration versions, counters, and validation for an
RM.

Not here: decisions about registrations and configurations (`rm_sessions.py`, `config_updates.py`) and changes in
progress (`config_rollout.py`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Final, Literal, get_args

from msgspec import Raw

from yunishard.broker.config_analysis import AnalysedPartition
from yunishard.broker.config_validation import AnalysisCache
from yunishard.broker.config_versions import FROM_FILE, ConfigVersions, StoredTexts
from yunishard.broker.hosts import Hosts
from yunishard.broker.registry import Registry, RmSession
from yunishard.common.config.model import compute_checksum
from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.config.validation import DEFAULT_TEXT
from yunishard.common.messages.control_messages import Echo
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import ConfigRefusals, RefusedChange
from yunishard.common.messages.wire import NEVER, Outgoing, make_outgoing
from yunishard.common.names import NUMBERS_PER_INCARNATION, compile_rm_ids
from yunishard.common.process.metrics import Histogram

if TYPE_CHECKING:
    from yunishard.common.settings import Settings

WARNINGS_LOGGED_MAX: Final = 20
"""Warnings about one configuration that are logged; a last line counts the others."""

WARNINGS_MAX: Final = 100
"""Warnings in the answer to a configuration change; a last one counts the others."""


class ChangeRefused(Exception):
    """A configuration change that is refused: the text gives the reason, `status` is an HTTP status."""

    def __init__(self, status: int, reason: str, *, code: str = "configuration", problems: Iterable[Problem] = ()):
        super().__init__(reason)
        self.status = status
        self.code = code
        """For programs; after `busy` a retry may succeed."""
        self.problems = tuple(problems)

    @property
    def in_one_line(self) -> str:
        """For the log."""
        return "; ".join(str(self).splitlines())


# Counters -----------------------------------------------------------------------------------------------------------

RolloutOutcome = Literal["committed", "objected", "expired", "unstartable", "unrecorded", "ended"]
ROLLOUT_OUTCOMES: Final[tuple[RolloutOutcome, ...]] = get_args(RolloutOutcome)
"""In force; a worker voted no; a vote was missing; a worker cannot start; the record failed; the RM's session ended."""

MoveReason = Literal["lost", "drain", "rebalance", "unserved"]
MOVE_REASONS: Final[tuple[MoveReason, ...]] = get_args(MoveReason)
"""The partition's host was lost; it is draining; an operator requested a rebalancing; no worker was ready there."""

ROLLOUT_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)


@dataclass(slots=True)
class Counters:
    """Counters since the broker started, for the metrics."""

    rollouts: Counter[RolloutOutcome] = field(default_factory=Counter)
    rollout_s: Histogram = field(default_factory=lambda: Histogram(ROLLOUT_BOUNDS_S))
    """Duration of committed roll-outs."""
    leases_renewed: int = 0
    """Leases that were granted to another worker because the worker was silent."""
    moves: Counter[MoveReason] = field(default_factory=Counter)
    """Partitions that were placed on another host."""
    recoveries: Counter[str] = field(default_factory=Counter)
    """Workers that rejoined, by what they had of their partition (`leases.py`)."""
    record_writes: Counter[Literal["durable", "refused"]] = field(default_factory=Counter)
    failed_nodes: Counter[str] = field(default_factory=Counter)
    """RM id to nodes that it registered for partitions that it does not have."""


# Echoes -------------------------------------------------------------------------------------------------------------

ECHO_MAX_S: Final = 1.0
"""How long messages wait for the echo of a proxy, which normally takes a millisecond."""


class EchoBarrier:
    """Holds messages until a proxy has processed the messages before them, by number of the echo.

    An RM may use a new partition as soon as the REST caller that added it has the answer. A gRPC proxy would refuse it
    if it had not received the new partition yet, so the broker first updates the proxy, waits for its `Echo`, and then
    sends the answer. The retirement of a partition waits likewise, so that all commands before it reach the worker. A
    proxy that does not answer delays nothing for more than ECHO_MAX_S.
    """

    def __init__(self) -> None:
        self._held: dict[str, tuple[float, list[Outgoing]]] = {}
        """Number to deadline and messages."""
        self._numbers = count(1)

    @property
    def deadline(self) -> float:
        """When the first messages have waited long enough."""
        return min((deadline for deadline, _ in self._held.values()), default=NEVER)

    def hold(self, proxy: str, rm: str, messages: list[Outgoing], now: float) -> list[Outgoing]:
        """Hold these messages; the result asks the proxy for an echo."""
        ref = str(next(self._numbers))
        self._held[ref] = now + ECHO_MAX_S, messages
        return [make_outgoing(proxy, Echo(), Header(kind="Echo", rm=rm, ref=ref))]

    def release(self, ref: str) -> list[Outgoing]:
        """The messages that waited for this echo."""
        return self._held.pop(ref, (0.0, []))[1]

    def release_overdue(self, now: float) -> list[Outgoing]:
        """The messages that have waited long enough."""
        late = [ref for ref, (deadline, _) in self._held.items() if deadline <= now]
        return [one for ref in late for one in self.release(ref)]


# Refusals -----------------------------------------------------------------------------------------------------------

KEEPING_MAX: Final = 1_000
"""RMs that keep their configuration in place of the text of the file; the health check no longer shows the oldest."""

REFUSAL_CHARS_MAX: Final = 1_000
"""Characters of a reason that the health check shows; the rest is in the log."""


class RefusedConfigs:
    """Configurations that are not in force because they were refused, for the health check."""

    def __init__(self) -> None:
        self.file = ""
        """Why the text of the watched file is not in force."""
        self._keeping: dict[str, str] = {}
        """RM id to why it keeps its configuration in place of the text of the file."""
        self._latest: RefusedChange | None = None

    def add(self, rm: str, refusal: ChangeRefused, *, origin: str, author: str, now: float) -> None:
        """Note the refusal of a change of this RM. One that has to be tried again is no refusal."""
        if refusal.code == "busy":
            return
        reason = refusal.in_one_line[:REFUSAL_CHARS_MAX]
        self._latest = RefusedChange(rm_id=rm, origin=origin, author=author, reason=reason, at_ns=int(now * 1e9))
        if origin == FROM_FILE:
            self.keep(rm, reason)

    def keep(self, rm: str, reason: str) -> None:
        """Note that an RM keeps its configuration in place of the text of the file."""
        self._keeping[rm] = reason[:REFUSAL_CHARS_MAX]
        if len(self._keeping) > KEEPING_MAX:
            del self._keeping[next(iter(self._keeping))]

    def settle(self, rm: str) -> None:
        """Note that a new configuration of the RM is in force, or that it is gone."""
        self._keeping.pop(rm, None)

    def accept_file(self) -> None:
        """Note that the file has another text, which is valid."""
        self.file = ""
        self._keeping.clear()

    def list_all(self, sessions: Mapping[str, RmSession]) -> ConfigRefusals:
        """All of them, for these RMs."""
        using = {rm for rm, session in sessions.items() if session.follows_core}
        keeping = {rm: reason for rm, reason in self._keeping.items() if rm in using}
        return ConfigRefusals(file=self.file, keeping=keeping, latest=self._latest)


# State --------------------------------------------------------------------------------------------------------------


class BrokerState:
    """The state that all parts of the broker share. The shell logs `notes` and `warnings` and clears them."""

    def __init__(
        self,
        *,
        default_text: str = "",
        watched: str = "",
        versions: ConfigVersions | None = None,
        settings: "Settings",
        incarnation: int = 0,
    ) -> None:
        """`incarnation` is above that of every earlier broker."""
        self.incarnation = incarnation
        self.registry = Registry(incarnation, has_store=bool(settings.store))
        self.hosts = Hosts()
        self.versions = versions or ConfigVersions()
        self.texts = StoredTexts()
        self.analyses = AnalysisCache()
        self.echo_barrier = EchoBarrier()
        self.settings = settings
        self.default_text = default_text if default_text.strip() else DEFAULT_TEXT
        """The configuration of RMs that send none."""
        self.watched = watched
        """Path of the watched file with that text; empty if there is none."""
        self.file_checksum = compute_checksum(default_text)
        """Checksum of the file's present text, valid or not."""
        self.file_empty = bool(watched) and not default_text.strip()
        """Whether the file has never had a text, so that `default_text` is not from the file."""
        self.counters = Counters()
        self.refused = RefusedConfigs()
        self.now = 0.0
        """Time of the message or tick that is being handled."""
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._numbers = incarnation * NUMBERS_PER_INCARNATION

    def next_number(self) -> int:
        """Assign the number of a roll-out."""
        self._numbers += 1
        return self._numbers

    def may_register(self, rm: str) -> bool:
        """Whether the settings allow an RM with this id."""
        return compile_rm_ids(self.settings.allowed_rms).fullmatch(rm) is not None

    def validate(self, rm: str, text: str, live: Collection[str] = ()) -> tuple[AnalysedPartition, ...]:
        """The partitions in a text, if this RM may have it.

        A text whose placement rules cannot be built is refused for partitions that are `live` (by full name), as they
        keep their rules; a new partition with such rules rejects every application and reports why.

        Raises:
            ChangeRefused: with every problem.
            AnalysisWanted: the text has not been analysed.
        """
        analysis = self.analyses.get(text)
        _refuse_if_any(analysis.problems, HTTPStatus.SERVICE_UNAVAILABLE if analysis.is_incomplete else None)
        _refuse_if_any(analysis.naming)
        partitions = analysis.partitions
        if problem := self.registry.name_problem(rm, [one.name for one in partitions]):
            naming = [Problem(message=problem, kind="partition-name")]
            raise ChangeRefused(HTTPStatus.BAD_REQUEST, problem, problems=naming)
        if rm not in self.registry.sessions and len(self.registry.sessions) >= self.settings.partitions_max:
            most = self.settings.partitions_max
            reason = f"{most} RMs are registered already, the limit of the setting partitions-max"
            raise ChangeRefused(HTTPStatus.CONFLICT, reason)
        others = sum(slot.rm != rm for slot in self.registry.slots.values())
        if others + len(partitions) > self.settings.partitions_max:
            limit = f"all RMs together may have {self.settings.partitions_max}, the limit of the setting partitions-max"
            raise ChangeRefused(HTTPStatus.CONFLICT, f"{len(partitions)} partitions are too many now: {limit}")
        building: list[Problem] = []
        for one in partitions:
            building += one.building
            if self.registry.full_name(rm, one.name) in live:
                building += one.rules
        _refuse_if_any(building)
        if self.settings.same_hierarchy == "enforce":
            _refuse_if_any(analysis.hierarchy)
        logged = list(analysis.hierarchy) if self.settings.same_hierarchy != "off" else []
        logged += _limit_warnings(analysis.warnings, WARNINGS_LOGGED_MAX)
        self.warnings += [f"configuration of RM {rm}: {problem}" for problem in logged]
        return partitions

    def read_configs(self, session: RmSession) -> dict[str, Raw]:
        """The encoded configuration in force of each partition of an RM, by full name.

        Raises:
            TextWanted, AnalysisWanted: its text has to be read, or analysed, first.
            ConfigError: it cannot be read, or this release cannot load it.
        """
        latest = self.versions.history(session.rm).latest
        assert latest is not None, "the configuration in force is the latest version"
        analysis = self.analyses.get(self.texts.get(session.rm, latest.number))
        if analysis.problems:
            raise ConfigError(analysis.problems)
        return self.registry.by_full_name(session.rm, analysis.partitions)

    def list_warnings(self, text: str) -> list[Problem]:
        """The warnings about a valid configuration, as `yunishard validate` lists them."""
        analysis = self.analyses.get(text)
        hierarchy = analysis.hierarchy if self.settings.same_hierarchy == "warn" else ()
        return _limit_warnings([*hierarchy, *analysis.warnings], WARNINGS_MAX)


def _refuse_if_any(problems: Sequence[Problem], status: HTTPStatus | None = None) -> None:
    if problems:
        raise ChangeRefused(status or HTTPStatus.BAD_REQUEST, "\n".join(map(str, problems)), problems=problems)


def _limit_warnings(found: Sequence[Problem], most: int) -> list[Problem]:
    """The first warnings; a last one counts the others."""
    others = len(found) - most
    text = f"{others} more such warnings: `yunishard validate` shows them"
    return [*found[:most], *([Problem(message=text, kind="more")] if others > 0 else [])]
