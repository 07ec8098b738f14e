"""Samples of all workers, written in the text format of Prometheus.

While there is one partition its series have the labels of YuniKorn. Where there are several each series has the label
`partition` besides, so that nothing of two resource managers is ever added up or taken for the other's. A family
without series is left out.
Rejected: writing with prometheus_client, which appends `_total` to the name of every counter and prints 21 as `21.0`;
its parser reads what is written here (see the test).

Not here: the figures themselves, which each worker gives (`partition_worker/figures.py`).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

PARTITION: Final = "partition"

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names."""


class Family(Struct, frozen=True):
    """All series of a name in one partition; `labels` are the names for the values that each sample begins with.

    A histogram has distributions instead: label values, how much was observed up to each bound but above the one before
    (at the end what was above the last), and the sum.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: list[str]
    samples: list[tuple[list[str], float]]
    bounds: list[float] = []
    distributions: list[tuple[list[str], list[int], float]] = []


@dataclass(slots=True)
class _Shown:
    """All series of a name, in all partitions."""

    kind: str
    help: str
    values: dict[Labels, float] = field(default_factory=dict)
    distributions: dict[Labels, tuple[list[float], list[int], float]] = field(default_factory=dict)
    """Upper bounds, counts, and the sum."""

    def add(self, family: Family, more: Labels) -> None:
        for values, value in family.samples:
            self.values[_named(family, values, more)] = value
        bounds = [*family.bounds, math.inf]
        for values, counts, observed in family.distributions:
            self.distributions[_named(family, values, more)] = bounds, counts, observed


_decoder: Final = Decoder(list[Family])


def families(body: bytes) -> list[Family]:
    """What a worker answered.

    Raises:
        ValueError: it is something else.
    """
    found = _decoder.decode(body)
    for family in found:
        labelled = [sample[0] for sample in family.samples] + [one[0] for one in family.distributions]
        if any(len(values) != len(family.labels) for values in labelled):
            raise DecodeError(f"{family.name}: a sample has not one value for each label")
        if any(len(counts) != len(family.bounds) + 1 for _, counts, _ in family.distributions):
            raise DecodeError(f"{family.name}: a distribution has not one count for each bucket")
    return found


def text(
    partitions: Sequence[tuple[str, list[Family]]], others: Iterable[Family] = (), *, several: bool = False
) -> bytes:
    """The metrics of partitions, by their full names; families by name, series by the values of their labels. `others`
    are about the system; `several` partitions are there, whether or not all of them have answered.
    """
    shown: dict[str, _Shown] = {}
    for partition, found in [*partitions, ("", list(others))]:
        for family in found:
            more = ((PARTITION, partition),) if several and partition and PARTITION not in family.labels else ()
            shown.setdefault(family.name, _Shown(family.kind, family.help)).add(family, more)
    lines: list[str] = []
    for name, one in sorted(shown.items()):
        if not one.values and not one.distributions:
            continue
        lines.append(f"# HELP {name} {one.help.translate(_HELP_ESCAPES)}")
        lines.append(f"# TYPE {name} {one.kind}")
        lines += [f"{name}{_labels(labels)} {number(value)}" for labels, value in sorted(one.values.items())]
        for labels, (bounds, counts, observed) in sorted(one.distributions.items()):
            lines += _histogram(name, labels, bounds, counts, observed)
    return "".join(f"{line}\n" for line in lines).encode()


def _histogram(name: str, labels: Labels, bounds: list[float], counts: list[int], observed: float) -> Iterator[str]:
    """A bucket also counts all that are below it; its bound is the last of its labels."""
    count = 0
    for bound, here in zip(bounds, counts, strict=True):
        count += here
        yield f"{name}_bucket{_labels((*labels, ('le', number(bound))))} {number(count)}"
    yield f"{name}_sum{_labels(labels)} {number(observed)}"
    yield f"{name}_count{_labels(labels)} {number(count)}"


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
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


def _named(family: Family, values: list[str], more: Labels) -> Labels:
    return tuple(sorted([*zip(family.labels, values, strict=True), *more]))


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels) + "}"
