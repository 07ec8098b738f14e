"""Samples of all workers, added up and written in the text format of Prometheus.

A series that several partitions have under the same name and labels is one series with the sum of their values.
Rejected: writing with prometheus_client, which appends `_total` to the name of every counter and prints 21 as `21.0`;
its parser reads what is written here (see the test).
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, Literal

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"

_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_LABEL_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Labels = tuple[tuple[str, str], ...]
"""Names and values, in the order of the names."""


class Family(Struct, frozen=True):
    """All series of a name in one partition; `labels` are the names for the values that each sample begins with."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: list[str]
    samples: list[tuple[list[str], float]]


@dataclass(slots=True)
class _Sum:
    kind: str
    help: str
    values: dict[Labels, float] = field(default_factory=dict)


_decoder: Final = Decoder(list[Family])


def families(body: bytes) -> list[Family]:
    """What a worker answered.

    Raises:
        ValueError: it is something else.
    """
    found = _decoder.decode(body)
    for family in found:
        if any(len(values) != len(family.labels) for values, _ in family.samples):
            raise DecodeError(f"{family.name}: a sample has not one value for each label")
    return found


def text(partitions: Iterable[list[Family]]) -> bytes:
    """The metrics of all partitions together; families by name, series by the values of their labels."""
    sums: dict[str, _Sum] = {}
    for partition in partitions:
        for family in partition:
            total = sums.setdefault(family.name, _Sum(family.kind, family.help))
            for values, value in family.samples:
                labels = tuple(sorted(zip(family.labels, values, strict=True)))
                total.values[labels] = total.values.get(labels, 0.0) + value
    lines: list[str] = []
    for name, total in sorted(sums.items()):
        lines.append(f"# HELP {name} {total.help.translate(_HELP_ESCAPES)}")
        lines.append(f"# TYPE {name} {total.kind}")
        lines += [f"{name}{_labels(labels)} {number(value)}" for labels, value in sorted(total.values.items())]
    return "".join(f"{line}\n" for line in lines).encode()


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


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_LABEL_ESCAPES)}"' for name, value in labels) + "}"
