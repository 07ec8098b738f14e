"""Quantity text, such as `500m` or `4Gi`, to the integers the scheduler counts with.

Cores (`vcore`) are counted in thousandths, everything else in its own unit (bytes, pieces). This file knows nothing of
maps of resources or of where a text was written: callers add that to the error.

Not here: arithmetic (`resources.py`).
"""

import re
from typing import Final

from common.names import WHITE_SPACE

QUANTITY_MAX: Final = 2**63 - 1  # amounts travel as signed 64 bit integers
CORES: Final = "vcore"  # the one type that is counted in thousandths and may be written with `m`

_PATTERN: Final = re.compile(r"([0-9]+)[\t\n\f\r ]*([mkKMGTPE]i?)?")
_DIGITS_MAX: Final = len(str(QUANTITY_MAX))
_MULTIPLIERS: Final[dict[str, int]] = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)},
}


class QuantityError(ValueError):
    """The text is no quantity; its text is the short reason, without the offending quantity."""


def parse_quantity(text: str, *, resource_type: str) -> int:
    """Return the amount that `text` stands for: thousandths for `vcore`, else units of the type; never negative.

    Raises QuantityError with `invalid quantity`, `invalid suffix` or `invalid quantity: overflow`.
    """
    match = _PATTERN.fullmatch(text.strip(WHITE_SPACE))
    if match is None:
        raise QuantityError("invalid quantity")
    digits, suffix = match.group(1).lstrip("0") or "0", match.group(2) or ""
    # Measured before it is converted: Python refuses, in its own words, to convert thousands of digits.
    if len(digits) > _DIGITS_MAX or int(digits) > QUANTITY_MAX:
        raise QuantityError("invalid quantity: overflow")
    amount = int(digits) * _multiplier(suffix, resource_type=resource_type)
    if amount > QUANTITY_MAX:
        raise QuantityError("invalid quantity: overflow")
    return amount


def _multiplier(suffix: str, *, resource_type: str) -> int:
    if suffix == "m" and resource_type == CORES:
        return 1
    if suffix not in _MULTIPLIERS:
        raise QuantityError("invalid suffix")
    return _MULTIPLIERS[suffix] * (1000 if resource_type == CORES else 1)
