"""What the web service counts of itself: requests by route, and how long they took.

Everything else that it has to tell (its process, its streams, its history) is told by whoever knows it; `around` has
them all. Not here: the page (`metric_routes.py`).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final

from common.families import Distribution, Family, counter, distribution
from common.histogram import Histogram

_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class OwnFigures:
    """The figures of this process."""

    def __init__(self) -> None:
        self.around: list[Callable[[], Iterable[Family]]] = []
        """Who else in this process tells figures."""
        self._answered: Counter[tuple[str, str, int]] = Counter()
        """By method, path of the route and status."""
        self._took: dict[str, Histogram] = {}
        """By path of the route."""

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered after so long; of a stream, begun to be."""
        self._answered[method, route, status] += 1
        if route not in self._took:
            self._took[route] = Histogram(_BOUNDS_S)
        self._took[route].observe(seconds)

    def families(self) -> Iterator[Family]:
        """All of them, as of now."""
        yield counter(
            "yunishard_rest_requests_total",
            "Requests that were answered, by route and status; those for what is not there are not among them. Worry "
            "about many of status 503 (somebody behind does not answer), 500 (a defect) or 403.",
            ("method", "route", "status"),
            [((method, route, str(status)), count) for (method, route, status), count in self._answered.items()],
        )
        yield distribution(
            "yunishard_rest_request_seconds",
            "Seconds from a request to its answer, of a stream to its beginning. Worry if lists take longer than a "
            "second: ask for parts of them (limit).",
            ("route",),
            [((route,), took) for route, took in self._took.items()],
        )
        for told in self.around:
            yield from told()


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_UNESCAPED: Final = re.compile(r'[^\\\n"]*')

EXACT_MAX: Final = 1e15
"""Below it the digits of a whole number are those of its shortest form: the quick way for bytes of memory."""

PARTITION: Final = "partition"

_Series = tuple[tuple[str, ...], tuple[str, ...]]
"""Names and values of labels, in the order of the names."""


class _Shown:
    """All series of a name, whoever told them."""

    def __init__(self, first: Family) -> None:
        self.kind = first.kind
        self.help = first.help
        self.values: dict[_Series, float] = {}
        self.distributions: dict[_Series, tuple[tuple[float, ...], Distribution]] = {}
        """Upper bounds, and what was observed."""

    def add(self, family: Family, partition: str) -> None:
        """What one process told, with the name of its partition if that is to be said."""
        if family.kind != self.kind:
            return  # a name has one type; no two of our own families meet so
        more = (partition,) if partition else ()
        given = (*family.labels, PARTITION) if partition else family.labels
        order = sorted(range(len(given)), key=given.__getitem__)
        names = tuple(given[place] for place in order)
        for values, value in family.samples:
            every = (*values, *more)
            self.values[_said(names, tuple([every[place] for place in order]))] = value
        for one in family.distributions:
            every = (*one[0], *more)
            self.distributions[_said(names, tuple([every[place] for place in order]))] = family.bounds, one


def _said(names: tuple[str, ...], values: tuple[str, ...]) -> _Series:
    """The labels of a series; what is about no partition does not say so."""
    if PARTITION not in names or values[names.index(PARTITION)]:
        return names, values
    place = names.index(PARTITION)
    return (*names[:place], *names[place + 1 :]), (*values[:place], *values[place + 1 :])


def text(
    partitions: Sequence[tuple[str, list[Family]]], others: Iterable[Family] = (), *, several: bool = False
) -> bytes:
    """The metrics of partitions, by their full names; families by name, series by the values of their labels. `others`
    are about the system; `several` partitions are there, whether or not all of them have answered.
    """
    shown: dict[str, _Shown] = {}
    for partition, found in [*partitions, ("", list(others))]:
        for family in found:
            if family.name not in shown:
                shown[family.name] = _Shown(family)
            shown[family.name].add(family, partition if several and PARTITION not in family.labels else "")
    lines: list[str] = []
    for name, one in sorted(shown.items()):
        if not one.values and not one.distributions:
            continue
        lines.append(f"# HELP {name} {one.help.translate(_HELP_ESCAPES)}")
        lines.append(f"# TYPE {name} {one.kind}")
        lines += [f"{name}{_labels(*labels)} {number(value)}" for labels, value in sorted(one.values.items())]
        for (names, values), (bounds, observed) in sorted(one.distributions.items()):
            lines += _histogram(name, names, values, bounds, observed)
    lines.append("")
    return "\n".join(lines).encode()


def _histogram(
    name: str, names: tuple[str, ...], values: tuple[str, ...], bounds: tuple[float, ...], observed: Distribution
) -> Iterator[str]:
    """A bucket also counts all that are below it; its bound is the last of its labels."""
    _, counts, total = observed
    count = 0
    for bound, here in zip((*bounds, math.inf), counts, strict=True):
        count += here
        yield f"{name}_bucket{_labels((*names, 'le'), (*values, number(bound)))} {number(count)}"
    yield f"{name}_sum{_labels(names, values)} {number(total)}"
    yield f"{name}_count{_labels(names, values)} {number(count)}"


def number(value: float) -> str:
    """A value in its shortest form: whole numbers without a fraction, an exponent from a million on.

    >>> [number(value) for value in (0.0, 21.0, 0.5, 16_800_000_000.0, 0.00001, math.inf)]
    ['0', '21', '0.5', '1.68e+10', '1e-05', '+Inf']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return repr(value).removesuffix(".0")
    if 1e6 <= value < EXACT_MAX and value == int(value):
        digits = str(int(value))
        fraction = digits[1:].rstrip("0")
        return f"{digits[0]}{'.' if fraction else ''}{fraction}e+{len(digits) - 1:02d}"
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)]) + "}"


def _escaped(value: str) -> str:
    """A label's value; nearly all are as they are, and there are tens of thousands."""
    return value if _UNESCAPED.fullmatch(value) else value.translate(_LABEL_ESCAPES)
