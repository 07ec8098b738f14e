"""Validation of configuration texts: analysis results, a cache of them, and preloading of large texts.

Analysing a text with 10,000 queues takes most of a second, in which the broker would route nothing. So a child process
analyses large texts (`python -m broker.config_validation`), and the messages that need them wait:

    arrived --large text, not in the cache--> waiting --analysed--> handled as if it arrived now
        |
        +--anything else--> handled at once, except messages that must not overtake waiting ones

A text from the record is in a message, too (`stored_texts.py`). The broker analyses a text itself if the child process
fails. Checks that depend on the RM are in `state.py`.
"""

import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, get_args

import msgspec

from common.config import validation
from common.config.model import Configuration, normalise
from common.config.placement_rules import find_rule_problems
from common.config.problems import ConfigError, Problem
from common.config.warnings import find_warnings
from common.control_messages import ChangedFile, VersionRead
from common.messages import Header
from common.names import READER
from common.query_messages import ChangeConfig
from common.rm_messages import RegisterResourceManager, UpdateConfiguration
from common.wire import Incoming, Outgoing, WireError, decode_body

ANALYSES_MAX: Final = 2
"""Analyses in the cache: all RMs that use the watched file share one text."""

PRELOAD_BYTES_MIN: Final = 64 << 10
"""Smaller messages are analysed directly, which takes less than the 30 ms of a child process."""

WAITING_MAX: Final = 1_000
"""Messages that may wait. With more, the broker analyses the text itself and handles all of them."""

_WithText = RegisterResourceManager | UpdateConfiguration | ChangeConfig | ChangedFile | VersionRead
_KINDS_WITH_TEXT: Final[dict[str, type[_WithText]]] = {one.__name__: one for one in get_args(_WithText)}

ORDERED_KINDS: Final = frozenset({*_KINDS_WITH_TEXT, "Resume", "Leave", "ManagerAway"})
"""Messages that must not overtake a waiting one; a Hello of any process but a worker must not either."""

ProblemTuple = tuple[Problem, ...]


class ConfigAnalysis(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The analysis of a configuration text, whichever RM it is for. Without a `configuration` only `problems` is
    set.
    """

    configuration: Configuration | None = None
    """In normal form, without its checksum."""
    problems: ProblemTuple = ()
    """Why the text is not a valid configuration."""
    naming: ProblemTuple = ()
    """Partition names that this core does not allow."""
    building: tuple[ProblemTuple, ...] = ()
    """For each partition, what prevents building it."""
    rules: tuple[ProblemTuple, ...] = ()
    """For each partition, why its placement rules cannot be built."""
    hierarchy: ProblemTuple = ()
    """Queues with another parent in another partition."""
    warnings: ProblemTuple = ()
    """Warnings: settings that are valid but probably unintended."""


def analyze(text: str) -> ConfigAnalysis:
    """Parse and check a configuration text."""
    try:
        written, lines = validation.validate(text)
    except ConfigError as error:
        return ConfigAnalysis(problems=error.problems)
    places = [(one, f"partitions[{index}]") for index, one in enumerate(written.partitions)]
    return ConfigAnalysis(
        configuration=normalise(written),
        naming=tuple(validation.find_name_problems(written, lines)),
        building=tuple(tuple(validation.find_build_problems(one, path=path, lines=lines)) for one, path in places),
        rules=tuple(tuple(find_rule_problems(one, path=path, lines=lines)) for one, path in places),
        hierarchy=tuple(validation.find_hierarchy_problems(written, lines)),
        warnings=tuple(find_warnings(written, lines)),
    )


class AnalysisCache:
    """The analyses of the latest texts."""

    def __init__(self) -> None:
        self._known: dict[str, ConfigAnalysis] = {}
        """The least recently used text comes first."""

    def get(self, text: str) -> ConfigAnalysis:
        """The analysis of a text, which is analysed here if it is not in the cache."""
        found = self._known.get(text) or analyze(text)
        self._keep(text, found)
        return found

    def __contains__(self, text: str) -> bool:
        return text in self._known

    def add_encoded(self, text: str, data: bytes) -> None:
        """Add the analysis that another process made. Raises msgspec.MsgspecError if it cannot be decoded."""
        self._keep(text, msgspec.msgpack.decode(data, type=ConfigAnalysis))

    def _keep(self, text: str, analysis: ConfigAnalysis) -> None:
        self._known.pop(text, None)
        self._known[text] = analysis
        if len(self._known) > ANALYSES_MAX:
            del self._known[next(iter(self._known))]


analyses: Final = AnalysisCache()
"""The cache of this process. An analysis depends on its text only, so all users share it."""


class ConfigPreloader:
    """Has the large texts in messages analysed before it passes the messages on to `handle_analysed`."""

    def __init__(
        self, handle_analysed: Callable[[Incoming, float], list[Outgoing]], cache: AnalysisCache = analyses
    ) -> None:
        self._handle_analysed = handle_analysed
        self._cache = cache
        self._waiting: deque[Incoming] = deque()
        """The text of the first one is being analysed."""
        self._text = ""
        """That text."""
        self._requests = 0
        """Texts sent to the child process so far."""

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        if incoming.source == READER:
            return self._handle_analysis(incoming, now)
        header = incoming.header
        is_ordered = header.kind in ORDERED_KINDS or (header.kind == "Hello" and not header.partition)
        if self._waiting and not is_ordered:
            return self._handle_analysed(incoming, now)
        self._waiting.append(incoming)
        if len(self._waiting) == 1:
            return self._handle_waiting(now)
        if len(self._waiting) <= WAITING_MAX:
            return []
        waiting, self._waiting = self._waiting, deque()
        return [one for each in waiting for one in self._handle_analysed(each, now)]

    def _handle_analysis(self, incoming: Incoming, now: float) -> list[Outgoing]:
        """Handle the messages that waited for this analysis. An empty one means that the child process failed."""
        if not self._waiting or incoming.header.ref != str(self._requests):
            return []
        with suppress(msgspec.MsgspecError):
            self._cache.add_encoded(self._text, incoming.body)
        return [*self._handle_analysed(self._waiting.popleft(), now), *self._handle_waiting(now)]

    def _handle_waiting(self, now: float) -> list[Outgoing]:
        """Handle waiting messages up to the first one whose text has to be analysed, and request that analysis."""
        sends: list[Outgoing] = []
        while self._waiting:
            text = self._find_unknown_text(self._waiting[0])
            if text is not None:
                self._text, self._requests = text, self._requests + 1
                return [*sends, Outgoing(READER, Header(kind="ReadText", ref=str(self._requests)), text.encode())]
            sends += self._handle_analysed(self._waiting.popleft(), now)
        self._text = ""
        return sends

    def _find_unknown_text(self, incoming: Incoming) -> str | None:
        """The large text in a message, unless its analysis is in the cache."""
        if len(incoming.body) < PRELOAD_BYTES_MIN:
            return None
        kind = _KINDS_WITH_TEXT.get(incoming.header.kind)
        if kind is None:
            return None
        try:
            message = decode_body(kind, incoming.body)
        except WireError:  # the broker's machine refuses the message
            return None
        text = message.text if isinstance(message, ChangedFile | VersionRead) else message.config
        return text if len(text) >= PRELOAD_BYTES_MIN and text not in self._cache else None


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # asks the other processes for the stacks of their threads
    sys.stdout.buffer.write(msgspec.msgpack.encode(analyze(sys.stdin.buffer.read().decode())))
