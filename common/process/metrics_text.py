"""The Prometheus text format, in which the metrics of all processes are rendered.

While there is one partition, its series have YuniKorn's labels. With several, each series also has the label
`partition`, so that values of different resource managers are never added up or confused. A family without series is
omitted. Rejected: prometheus_client, which appends `_total` to the name of every counter and prints 21 as `21.0`; its
parser reads this output (see the test).

Not here: the values (`metrics.py`, and those of each process), and who serves the page.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final

from yunishard.common.process.metrics import Distribution, Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

_UNESCAPED: Final = re.compile(r'[^\\\n"]*')

PARTITION: Final = "partition"
_NO_PARTITION: Final = (PARTITION, "")
"""A label that is left out."""

_Labels = tuple[tuple[str, str], ...]
"""Names and values of the labels of a series, in the order of the names."""

_Value = float | tuple[tuple[float, ...], Distribution]
"""The value of a series; of a distribution, its upper bounds and itself."""


def _add_series(series: dict[_Labels, _Value], family: Family, partition: str) -> None:
    """Add the series of one process, with the label `partition` unless it is empty."""
    own = [(PARTITION, partition)] if partition else []
    found: list[tuple[Sequence[str], _Value]] = [*family.samples]
    found += [(one[0], (family.bounds, one)) for one in family.distributions]
    for values, value in found:
        labels = sorted([*zip(family.labels, values, strict=True), *own])
        series[tuple([label for label in labels if label != _NO_PARTITION])] = value


def render(
    partitions: Sequence[tuple[str, list[Family]]], others: Iterable[Family] = (), *, several: bool = False
) -> bytes:
    """Render metrics as text: families by name, series by the values of their labels.

    Args:
        partitions: The families of each partition, by its full name.
        others: Families about the system.
        several: Whether there are several partitions, including those that did not answer.
    """
    shown: dict[str, tuple[Family, dict[_Labels, _Value]]] = {}
    for partition, found in [*partitions, ("", list(others))]:
        for family in found:
            first, series = shown.setdefault(family.name, (family, {}))
            if family.kind == first.kind:  # a name has one type; our own families never differ
                _add_series(series, family, partition if several and PARTITION not in family.labels else "")
    lines: list[str] = []
    for name, (one, series) in sorted(shown.items()):
        if not series:
            continue
        lines.append(f"# HELP {name} {one.help.translate(_HELP_ESCAPES)}")
        lines.append(f"# TYPE {name} {one.kind}")
        for labels in sorted(series, key=lambda labels: [*zip(*labels, strict=True)]):  # by names, then by values
            value = series[labels]
            if isinstance(value, tuple):
                lines += _format_histogram(name, labels, *value)
            else:
                lines.append(f"{name}{_format_labels(labels)} {number(value)}")
    lines.append("")
    return "\n".join(lines).encode()


def _format_histogram(name: str, labels: _Labels, bounds: tuple[float, ...], observed: Distribution) -> Iterator[str]:
    """Buckets are cumulative; the bound is the last label."""
    _, counts, total = observed
    count = 0
    for bound, here in zip((*bounds, math.inf), counts, strict=True):
        count += here
        yield f"{name}_bucket{_format_labels((*labels, ('le', number(bound))))} {number(count)}"
    yield f"{name}_sum{_format_labels(labels)} {number(total)}"
    yield f"{name}_count{_format_labels(labels)} {number(count)}"


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


def _format_labels(labels: _Labels) -> str:
    return "{" + ",".join([f'{name}="{_escape_label(value)}"' for name, value in labels]) + "}" if labels else ""


def _escape_label(value: str) -> str:
    """Escape the value of a label; of tens of thousands, nearly all need no escapes."""
    return value if _UNESCAPED.fullmatch(value) else value.translate(_LABEL_ESCAPES)
