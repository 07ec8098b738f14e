"""Checks of the arguments that a program passes to the SDK, at the call and with a message that names the argument.

A wrong type would otherwise show much later: as an AttributeError inside the SDK, as three groups where a text of three
letters was passed, or as the core's refusal of a whole message.

Not here: what the core decides (ids that are taken, queues that do not exist, quantities: `common/quantity.py`).
"""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Final

from msgspec import Struct
from msgspec.msgpack import encode
from msgspec.structs import fields

from common.messages import INT64_MAX, INT64_MIN, Command
from common.wire import WireError, body_of, decoded

SHOWN_LENGTH_MAX: Final = 80
"""Characters of a wrong value that a message repeats."""


def check_text(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is a `str`, and ValueError if it cannot be written as UTF-8."""
    if not isinstance(value, str):
        raise wrong_type(function, argument, value, "text (str)")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{function}: {argument} must be text that UTF-8 can write, got {shown(value)}: {error.reason} "
            f"at character {error.start}"
        ) from None


def check_whole(
    function: str, argument: str, value: object, *, low: int = INT64_MIN, high: int = INT64_MAX, unit: str = ""
) -> None:
    """Raises TypeError unless it is an `int`, and ValueError if it is out of these bounds."""
    what = f"a whole number{' of ' + unit if unit else ''} (int)"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(function, argument, value, what)
    if not low <= value <= high:
        raise ValueError(f"{function}: {argument} must be {what} from {low} to {high}, got {shown(value)}")


def check_flag(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is True or False."""
    if not isinstance(value, bool):
        raise wrong_type(function, argument, value, "True or False")


def check_seconds(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is a number, and ValueError if it is negative."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(function, argument, value, "a number of seconds")
    if not value >= 0:  # also of what is not a number
        raise ValueError(f"{function}: {argument} must be a number of seconds, 0 or more, got {shown(value)}")


def check_choice(function: str, argument: str, value: object, choices: Sequence[str]) -> None:
    """Raises TypeError unless it is a `str`, and ValueError unless it is one of these."""
    check_text(function, argument, value)
    if value not in choices:
        raise ValueError(f"{function}: {argument} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")


def check_one_of(function: str, argument: str, value: object, kind: type | UnionType, what: str = "") -> None:
    """Raises TypeError unless it is None or an instance of one of these classes."""
    if value is not None and not isinstance(value, kind):
        raise wrong_type(function, argument, value, what or f"{getattr(kind, '__name__', kind)} or None")


def check_callable(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is None or can be called."""
    if value is not None and not callable(value):
        raise wrong_type(function, argument, value, "a function or None")


def check_texts(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is a sequence of texts, and not one text, whose letters would become the items."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        hint = f": write [{shown(value)}] for a single one" if isinstance(value, str) else ""
        raise wrong_type(function, argument, value, "a list or tuple of texts", hint)
    for number, item in enumerate(value):
        check_text(function, f"{argument}[{number}]", item)


def check_text_map(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is None, or a mapping from text to text."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise wrong_type(function, argument, value, "a dict of text to text, or None")
    for key, item in value.items():
        if not isinstance(key, str):
            raise wrong_type(function, f"a key of {argument}", key, "text (str)")
        check_text(function, f"{argument}[{key!r}]", item)


def check_items(function: str, argument: str, value: object, kind: type, builder: str) -> None:
    """Raises TypeError unless it is a sequence of these structs."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        hint = ": put it into a list" if isinstance(value, kind) else ""
        raise wrong_type(function, argument, value, f"a list of {kind.__name__} (`{builder}` makes one)", hint)
    for number, item in enumerate(value):
        if not isinstance(item, kind):
            raise wrong_type(function, f"{argument}[{number}]", item, f"{kind.__name__} (`{builder}` makes one)")


def check_command(function: str, command: Command) -> None:
    """Raises TypeError if a field of a struct has a value that no message can carry; names the place."""
    try:
        decoded(type(command), body_of(command))
    except WireError as error:
        reason = str(error).removeprefix(f"{type(command).__name__}: ")
    except _UNENCODABLE as error:
        reason = f"{error} - at `{_unencodable_part(command, '$')}`"
    else:
        return
    raise TypeError(f"{function}: a field has a value that cannot be sent: {reason}")


_UNENCODABLE: Final = (TypeError, OverflowError, UnicodeEncodeError)


def _unencodable_part(value: object, place: str) -> str:
    """The place of the innermost part of a value that cannot be encoded, written as in the errors of decoding."""
    parts: list[tuple[str, object]] = []
    if isinstance(value, Struct):
        parts = [(f"{place}.{one.encode_name}", getattr(value, one.name)) for one in fields(value)]
    elif isinstance(value, list):
        parts = [(f"{place}[{number}]", item) for number, item in enumerate(value)]
    for inner, part in parts:
        try:
            encode(part)
        except _UNENCODABLE:
            return _unencodable_part(part, inner)
    return place


def wrong_type(function: str, argument: str, value: object, wanted: str, hint: str = "") -> TypeError:
    """That an argument has another type than it should."""
    return TypeError(f"{function}: {argument} must be {wanted}, got {shown(value)} ({type(value).__name__}){hint}")


def shown(value: object) -> str:
    """A value as a program would write it, shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}..."
