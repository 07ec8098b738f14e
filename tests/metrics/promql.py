"""As much of Prometheus' query language as is needed to know which series an expression speaks of.

Not here: what it comes to.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_WORDS: Final = frozenset({"by", "without", "on", "ignoring", "bool", "and", "or", "unless", "offset"})
_SELECTOR: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?![a-zA-Z0-9_:]|\s*\()\s*(\{[^}]*\})?")
_MATCHER: Final = re.compile(r'([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_TEXT: Final = re.compile(r'"[^"]*"')


class Selector(NamedTuple):
    """Which series are meant: by name, and by label, comparison and text."""

    name: str
    matchers: tuple[tuple[str, str, str], ...]


def selectors(expression: str) -> Iterator[Selector]:
    """All that it has.

    >>> list(selectors('sum by (le) (rate(a_total{b=~"$x",c="y"}[5m])) / ignoring(z) up > bool 0'))
    [Selector(name='a_total', matchers=(('b', '=~', '$x'), ('c', '=', 'y'))), Selector(name='up', matchers=())]
    """
    plain = _GROUPING.sub(" ", _RANGE.sub(" ", expression))
    for found in _SELECTOR.finditer(plain):
        if found[1] in _WORDS or (found.start() and plain[found.start() - 1].isalnum()):
            continue
        yield Selector(found[1], tuple(_MATCHER.findall(found[2] or "")))


def grouped(expression: str) -> list[str]:
    """The labels by which, or without which, something is summed or matched.

    >>> grouped('sum by (le, x) (rate(a[5m])) / ignoring(z) b')
    ['le', 'x', 'z']
    """
    return [label.strip() for found in _GROUPING.findall(expression) for label in found.split(",") if label.strip()]


def placeholders(legend: str) -> list[str]:
    """The labels that a legend, or the text of an alert, shows.

    >>> placeholders("{{queue}} of {{ $labels.partition }}: {{ $value | humanize }}")
    ['queue', 'partition']
    """
    labels: list[str] = re.findall(r"\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}", legend)
    return labels
