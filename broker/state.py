"""State shared by all parts of the broker: policy, registry, configuration versions, counters, and validation for an
RM.

Not here: decisions about registrations and configurations (`rm_sessions.py`, `config_updates.py`) and changes in
progress (`config_rollout.py`).
"""

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from broker.config_validation import ConfigAnalysis, analyses
from broker.outgoing import EchoBarrier
from broker.registry import NUMBERS_PER_INCARNATION, Registry
from common.config.model import Configuration, compute_checksum
from common.config.problems import Problem
from common.config.validation import DEFAULT_TEXT
from common.control_messages import ConfigVersion
from common.metrics import Histogram
from common.names import compile_rm_ids

SameHierarchy = Literal["off", "warn", "enforce"]

WARNINGS_LOGGED_MAX: Final = 20
"""Warnings about one configuration that are logged; a last line counts the others."""

WARNINGS_MAX: Final = 100
"""Warnings in the answer to a configuration change; a last one counts the others."""

PARTITIONS_MAX: Final = 500
"""Default limit of partitions of all RMs: their worker processes take about 12 GiB."""

BAD_REQUEST: Final = 400
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
PRECONDITION_FAILED: Final = 412
UNAVAILABLE: Final = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPolicy:
    """The operator's settings of the broker."""

    allowed_rms: tuple[str, ...] = ("*",)
    """Ids of RMs that may register; `*` matches any characters."""
    same_hierarchy: SameHierarchy = "warn"
    """How to treat a queue with another parent in another partition."""
    partitions_max: int = PARTITIONS_MAX
    """Limit for all RMs together, including partitions that are being taken down; each has a worker process."""
    silence_s: float = 3.0
    """An RM or proxy that has sent nothing for so long counts as away."""
    lease_s: float = 10.0
    """A worker that has sent nothing for so long is replaced."""
    pause_s: float = 900.0
    """An RM that has been away for so long loses its session and its partitions."""


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
ROLLOUT_OUTCOMES: Final[tuple[RolloutOutcome, ...]] = (
    *("committed", "objected", "expired", "unstartable", "unrecorded", "ended"),
)
"""In force; a worker voted no; a vote was missing; a worker cannot start; the record failed; the RM's session ended."""

ROLLOUT_BOUNDS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)


@dataclass(slots=True)
class Counters:
    """Counters since the broker started, for the metrics."""

    rollouts: Counter[RolloutOutcome] = field(default_factory=Counter)
    rollout_s: Histogram = field(default_factory=lambda: Histogram(ROLLOUT_BOUNDS_S))
    """Duration of committed roll-outs."""
    registrations_granted: int = 0
    registrations_refused: int = 0
    leases_renewed: int = 0
    """Leases that were granted to another worker because the worker was silent."""
    recoveries: Counter[str] = field(default_factory=Counter)
    """Workers that rejoined, by what they had of their partition (`liveness.py`)."""
    record_writes: int = 0
    record_failures: int = 0
    failed_nodes: Counter[str] = field(default_factory=Counter)
    """RM id to nodes that it registered for partitions that it does not have."""


# Configuration versions ---------------------------------------------------------------------------------------------

VERSIONS_MAX: Final = 100
"""Versions kept for each RM; the oldest is dropped first and can no longer be rolled back to."""

FROM_FILE: Final = "file"
OWNER_ORIGINS: Final = ("registration", "update", FROM_FILE)
"""Origins of versions that the configuration's owner wrote."""

RMS_MAX: Final = 1_000
"""RMs whose versions are kept; the RM that was first known is dropped first, with all changes to its configuration."""


@dataclass(slots=True)
class VersionEntry:
    """One version without its text. The fields are those of `ConfigVersion`."""

    number: int
    checksum: str
    at_ns: int
    author: str
    origin: str
    base: str


@dataclass(slots=True)
class VersionHistory:
    """The versions of one RM, oldest first, and the text of the latest."""

    entries: deque[VersionEntry] = field(default_factory=lambda: deque(maxlen=VERSIONS_MAX))
    text: str = ""

    @property
    def latest(self) -> VersionEntry | None:
        return self.entries[-1] if self.entries else None

    @property
    def from_file(self) -> bool:
        """Whether the latest version is from the watched file or changes one that is; True if the owner's version has
        been dropped.
        """
        owners = [one.origin for one in self.entries if one.origin in OWNER_ORIGINS]
        return owners[-1] == FROM_FILE if owners else bool(self.entries)


class ConfigVersions:
    """The configuration versions of every RM.

    A configuration has an *owner*: the RM that sends it, or the watched file. A change over REST has the owner's text
    as its `base` and stays in force, also after restarts and registrations, until the owner sends another text.
    """

    def __init__(self, recorded: dict[str, VersionHistory] | None = None) -> None:
        self._histories: dict[str, VersionHistory] = recorded or {}

    def history(self, rm: str) -> VersionHistory:
        """The history of an RM; empty for a new one."""
        return self._histories.get(rm, VersionHistory())

    def choose_text(self, rm: str, own_text: str) -> str:
        """The text for an RM whose owner has `own_text`: the latest version if that is its base, else `own_text`."""
        history = self.history(rm)
        if history.latest is not None and history.latest.base == compute_checksum(own_text):
            return history.text
        return own_text

    def build_next(self, rm: str, text: str, *, at_ns: int, author: str, origin: str, base: str) -> ConfigVersion:
        """Build the next version; it counts once it is passed to `add_version`."""
        latest = self.history(rm).latest
        return ConfigVersion(
            number=latest.number + 1 if latest else 1,
            checksum=compute_checksum(text),
            at_ns=at_ns,
            author=author,
            origin=origin,
            base=base,
            config=text,
        )

    def add_version(self, rm: str, version: ConfigVersion) -> None:
        """Make a durable version the latest."""
        history = self._histories.setdefault(rm, VersionHistory())
        history.entries.append(
            VersionEntry(version.number, version.checksum, version.at_ns, version.author, version.origin, version.base)
        )
        history.text = version.config
        if len(self._histories) > RMS_MAX:
            del self._histories[next(iter(self._histories))]

    def rebase(self, rm: str, base: str) -> bool:
        """Set the base of the latest version to the owner's present text; whether that is a change."""
        latest = self.history(rm).latest
        if latest is None or latest.base == base:
            return False
        latest.base = base
        return True


# State --------------------------------------------------------------------------------------------------------------


class BrokerState:
    """The state that all parts of the broker share. The shell logs `notes` and `warnings` and clears them."""

    def __init__(
        self,
        *,
        default_text: str = "",
        watched: str = "",
        versions: ConfigVersions | None = None,
        policy: BrokerPolicy,
        incarnation: int = 0,
    ) -> None:
        self.registry = Registry(incarnation)
        self.versions = versions or ConfigVersions()
        self.echo_barrier = EchoBarrier()
        self.policy = policy
        self.default_text = default_text if default_text.strip() else DEFAULT_TEXT
        """The configuration of RMs that send none."""
        self.watched = watched
        """Path of the watched file with that text; empty if there is none."""
        self.file_checksum = compute_checksum(default_text)
        """Checksum of the file's present text, valid or not."""
        self.file_empty = bool(watched) and not default_text.strip()
        """Whether the file has never had a text, so that `default_text` is not from the file."""
        self.counters = Counters()
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._numbers = incarnation * NUMBERS_PER_INCARNATION

    def next_number(self) -> int:
        """Assign the number of a roll-out."""
        self._numbers += 1
        return self._numbers

    def may_register(self, rm: str) -> bool:
        """Whether the policy allows an RM with this id."""
        return compile_rm_ids(self.policy.allowed_rms).fullmatch(rm) is not None

    def validate(self, rm: str, text: str, live: Container[str] = ()) -> Configuration:
        """The configuration in a text, if this RM may have it.

        A text whose placement rules cannot be built is refused for partitions that are `live` (by full name), as they
        keep their rules; a new partition with such rules rejects every application and reports why.

        Raises:
            ChangeRefused: with every problem.
        """
        analysis = analyses.get(text)
        _refuse_if_any(analysis.problems)
        _refuse_if_any(analysis.naming)
        configuration = analysis.configuration
        assert configuration is not None, "a text without a configuration has problems"
        problem = self.registry.name_problem(rm, [one.name for one in configuration.partitions])
        if problem:
            raise ChangeRefused(BAD_REQUEST, problem, problems=[Problem(message=problem, kind="partition-name")])
        live_names = {one.name for one in configuration.partitions if self.registry.full_name(rm, one.name) in live}
        self._check_partition_count(rm, configuration)
        _refuse_if_any(list(_building_problems(live_names, configuration, analysis)))
        self._check_hierarchy(rm, analysis.hierarchy)
        self._log_warnings(rm, analysis.warnings)
        return configuration

    def list_warnings(self, text: str) -> list[Problem]:
        """The warnings about a valid configuration, as `yunishard validate` lists them."""
        analysis = analyses.get(text)
        hierarchy = analysis.hierarchy if self.policy.same_hierarchy == "warn" else ()
        found = [*hierarchy, *analysis.warnings]
        listed = found[:WARNINGS_MAX]
        if len(found) > len(listed):
            text = f"{len(found) - len(listed)} more such warnings: `yunishard validate` shows them"
            listed.append(Problem(message=text, kind="more"))
        return listed

    def _check_partition_count(self, rm: str, configuration: Configuration) -> None:
        others = sum(slot.rm != rm for slot in self.registry.slots.values())
        wanted, most = len(configuration.partitions), self.policy.partitions_max
        if others + wanted > most:
            raise ChangeRefused(
                CONFLICT,
                f"{wanted} partitions are too many now: all RMs together may have {most}, as the setting "
                "partitions-max says",
            )

    def _check_hierarchy(self, rm: str, problems: Sequence[Problem]) -> None:
        if self.policy.same_hierarchy == "enforce":
            _refuse_if_any(problems)
        if self.policy.same_hierarchy != "off":
            self.warnings += [f"configuration of RM {rm}: {problem}" for problem in problems]

    def _log_warnings(self, rm: str, found: Sequence[Problem]) -> None:
        lines = [str(problem) for problem in found[:WARNINGS_LOGGED_MAX]]
        if len(found) > len(lines):
            lines.append(f"{len(found) - len(lines)} more such warnings: `yunishard validate` shows them")
        self.warnings += [f"configuration of RM {rm}: {line}" for line in lines]


def _refuse_if_any(problems: Sequence[Problem]) -> None:
    if problems:
        raise ChangeRefused(BAD_REQUEST, "\n".join(map(str, problems)), problems=problems)


def _building_problems(
    live: Container[str], configuration: Configuration, analysis: ConfigAnalysis
) -> Iterator[Problem]:
    """What prevents building partitions, with places in the text as written. `live` holds plain names."""
    for one, building, rules in zip(configuration.partitions, analysis.building, analysis.rules, strict=True):
        yield from building
        if one.name in live:
            yield from rules
