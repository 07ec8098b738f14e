"""What there is to say about the text of a configuration by itself, whoever wants it: read once, and remembered.

A text of 10,000 queues takes most of a second, in which nothing would be routed. So a large one is judged by another
process (`reader.py`), and the judgement is a value that can be sent. What depends on whose text it is comes after it
(`books.py`).

Not here: when another process is asked (`foresight.py`).
"""

from collections import OrderedDict
from typing import Final

import msgspec

from common.config.check import load_problems, loaded, validated
from common.config.doubts import doubts
from common.config.hierarchy import hierarchy_problems
from common.config.model import Configuration
from common.config.naming import naming_problems
from common.config.problems import ConfigError, Problem
from common.config.rules import rule_problems

TEXTS_KEPT: Final = 2
"""Texts whose judgement is remembered: every RM that has its queues from the watched file wants the same."""

Problems = tuple[Problem, ...]


class Judgement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All of it. Without a configuration there are `problems`, and nothing else is known."""

    configuration: Configuration | None = None
    """In its normal form."""
    problems: Problems = ()
    """Why the text is none that makes sense."""
    naming: Problems = ()
    """Names of partitions that none may have here."""
    building: tuple[Problems, ...] = ()
    """Of each partition, what keeps it from being built."""
    rules: tuple[Problems, ...] = ()
    """Of each partition, why its placement rules cannot be built."""
    hierarchy: Problems = ()
    """Queues that have another parent in another partition."""
    doubts: Problems = ()
    """What is allowed, and hardly meant."""


_decoder: Final = msgspec.msgpack.Decoder(Judgement)


def judged(text: str) -> Judgement:
    """Read the text, and look at it in every way."""
    try:
        written, lines = validated(text)
    except ConfigError as error:
        return Judgement(problems=error.problems)
    places = [(one, f"partitions[{index}]") for index, one in enumerate(written.partitions)]
    return Judgement(
        configuration=loaded(written, text),
        naming=tuple(naming_problems(written, lines)),
        building=tuple(tuple(load_problems(one, path=path, lines=lines)) for one, path in places),
        rules=tuple(tuple(rule_problems(one, path=path, lines=lines)) for one, path in places),
        hierarchy=tuple(hierarchy_problems(written, lines)),
        doubts=tuple(doubts(written, lines)),
    )


def encoded(judgement: Judgement) -> bytes:
    """For another process."""
    return msgspec.msgpack.encode(judgement)


class Understanding:
    """The judgements that are remembered, those of the latest texts."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Judgement] = OrderedDict()
        self.read = 0
        """How many texts were read in this process."""

    def __call__(self, text: str) -> Judgement:
        """The judgement on a text, which is read here if it is not known."""
        found = self._known.get(text)
        if found is None:
            self.read += 1
            found = judged(text)
        self._keep(text, found)
        return found

    def knows(self, text: str) -> bool:
        return text in self._known

    def learn(self, text: str, data: bytes) -> None:
        """Remember what another process has found. Raises msgspec.MsgspecError for what is no judgement."""
        self._keep(text, _decoder.decode(data))

    def _keep(self, text: str, judgement: Judgement) -> None:
        self._known[text] = judgement
        self._known.move_to_end(text)
        if len(self._known) > TEXTS_KEPT:
            self._known.popitem(last=False)


understood: Final = Understanding()
"""That of this process: a text means the same to everybody."""
