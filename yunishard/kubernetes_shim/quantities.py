"""Amounts in Kubernetes notation (`500m`, `1.5Gi`, `1e3`) as the integers that the core has.

Kubernetes permits more than `queues.yaml` (`common/resources.py`): signs, decimals, exponents, and parts down to `n`.
Amounts are rounded up to whole units, so that a pod never needs more than the core has counted.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Final

from yunishard.common.messages.kinds import INT64_MAX, INT64_MIN, Resources
from yunishard.common.resources import CORES, QuantityError

CPU: Final = "cpu"
"""Kubernetes' name of what the core has as `vcore`, in thousandths."""

_PATTERN: Final = re.compile(
    r"([+-]?)([0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})(?:[eE]([+-]?[0-9]{1,3})|([numkKMGTPE]i?)?)"
)
_SCALES: Final[dict[str, Fraction]] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_CACHED: Final = 4096  # thousands of pods have the same few quantities


@lru_cache(_CACHED)
def parse_quantity(text: str | float, *, scale: int = 1) -> int:
    """Return a quantity times `scale`, rounded up, within 64 bits.

    >>> parse_quantity("1.5Gi"), parse_quantity("100m"), parse_quantity("0.1", scale=1000), parse_quantity("1e3")
    (1610612736, 1, 100, 1000)

    Raises:
        QuantityError: the text is not a quantity.
    """
    match = _PATTERN.fullmatch(str(text))
    if match is None or (match[4] or "") not in _SCALES:
        raise QuantityError(f"{str(text)[:80]!r} is not a quantity; write 500m, 2 or 1Gi")
    number = Fraction(match[1] + match[2]) * scale
    number *= Fraction(10) ** int(match[3]) if match[3] else _SCALES[match[4] or ""]
    return max(INT64_MIN, min(INT64_MAX, ceil(number)))


def convert_quantities(quantities: Mapping[str, str | int | float], *, with_zeros: bool = False) -> Resources:
    """Return amounts under the names and in the units of the core. An amount of 0 is left out unless `with_zeros`: it
    is the same for what a pod takes, and not for a quota.

    Raises:
        QuantityError: a text is not a quantity; names the resource.
    """
    found: Resources = {}
    for kind, text in quantities.items():
        try:
            amount = parse_quantity(text, scale=1000) if kind == CPU else parse_quantity(text)
        except QuantityError as error:
            raise QuantityError(f"{kind}: {error}") from None
        if amount or with_zeros:
            found[CORES if kind == CPU else kind] = amount
    return found
