"""What a single YAML value means for the type that is wanted: words for yes and no, whole numbers, fractions.

The rules are those of the YAML library YuniKorn reads its files with, a mixture of YAML 1.1 and 1.2 that PyYAML's own
constructors do not share (`1e3`, `0o17`, a quoted "on"). What has no meaning for the wanted type is None.

Not here: keys and structure (`fields.py`).
"""

import base64
import re
from typing import Final

import msgspec

from common.config.nodes import Scalar

UINT64_MAX: Final = 2**64 - 1

_TAG: Final = "tag:yaml.org,2002:"
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# Words of YAML 1.1, which count even when they are quoted.
_WORDS: Final = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9][0-9]*))"
)
_BASES: Final = {"x": 16, "b": 2, "o": 8, "d": 10}
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL: Final = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_NUMBER_LENGTH_MAX: Final = 400  # characters; Python refuses to convert numbers of thousands of digits in its own words


def is_null(scalar: Scalar) -> bool:
    """Whether nothing was written: an empty value, `~`, or one of the words for null, not quoted."""
    return scalar.text in _NULLS and (scalar.plain or scalar.tag == _TAG + "null")


def as_text(scalar: Scalar) -> str | None:
    """Return the text as it was written; a tag may promise what the text is not, or that it is binary."""
    kind = scalar.tag.removeprefix(_TAG)
    number = msgspec.structs.replace(scalar, plain=True, tag="")
    match kind:
        case "int" if _integer(number) is None:
            return None
        case "float" if as_float(number) is None:
            return None
        case "bool" if scalar.text not in _BOOLS:
            return None
        case "null" if scalar.text not in _NULLS:
            return None
        case "binary":
            return _decoded(scalar.text)
    return scalar.text


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except ValueError:
        return None


def as_bool(scalar: Scalar) -> bool | None:
    """Return the truth value; `true` and `false` count only when they are not quoted."""
    if _is_bare(scalar, "bool") and scalar.text in _BOOLS:
        return _BOOLS[scalar.text]
    return _WORDS.get(scalar.text)


def as_unsigned(scalar: Scalar) -> int | None:
    """Return the number of 0 to 2^64-1; a fraction is cut off, a negative number has no meaning."""
    number = _integer(scalar) if _is_bare(scalar, "int", "float") else None
    if number is None and (fraction := as_float(scalar)) is not None and 0 <= fraction <= UINT64_MAX:
        number = int(fraction)
    return number if number is not None and 0 <= number <= UINT64_MAX else None


def as_float(scalar: Scalar) -> float | None:
    """Return the number, which may be infinite or not a number."""
    if not _is_bare(scalar, "float", "int"):
        return None
    if scalar.text in _SPECIAL:
        return _SPECIAL[scalar.text]
    whole = _integer(scalar)
    if whole is not None and abs(whole) <= UINT64_MAX:
        return float(whole)
    text = _digits(scalar)
    number = float(text) if _FLOAT.fullmatch(text) else None
    return None if number in (float("inf"), float("-inf")) else number


def _integer(scalar: Scalar) -> int | None:
    match = _INTEGER.fullmatch(_digits(scalar))
    if match is None or match.lastgroup is None:
        return None
    number = int(match.group(match.lastgroup), _BASES[match.lastgroup])
    return -number if match.group("sign") == "-" else number


def _digits(scalar: Scalar) -> str:
    """Return the text without the separators that may stand anywhere behind the first digit, or nothing if too long."""
    if scalar.text.startswith("_") or len(scalar.text) > _NUMBER_LENGTH_MAX:
        return ""
    return scalar.text.replace("_", "")


def _is_bare(scalar: Scalar, *kinds: str) -> bool:
    """Whether the value was written without quotes, or with a tag that names one of the kinds."""
    return scalar.plain or any(scalar.tag == _TAG + kind for kind in kinds)
