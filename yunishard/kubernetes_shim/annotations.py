"""Decodes the JSON that users write in annotations, as YuniKorn does: by the rules of `encoding/json` of Go.

- The case of a key does not matter, where an object has fixed keys. Keys of maps, such as labels, are as written.
- If a key appears again, also in another case, its value changes what is there: a text or number replaces it, an object
  changes the keys that it has, a list changes the elements that it has. `null` changes no text, number or object
  with fixed keys, and removes everything else.
- `null` as the whole text is an empty value.
- Keys that are not known are ignored. `list_unknown_keys` names them, for a warning.
- A value of another type is an error, also if a later one replaces it.

Not here: objects of the API server (`objects.py`), whose keys the API server has checked.
"""

import json
import re
from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from types import NoneType
from typing import Final, NamedTuple, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

from msgspec import DecodeError, Struct, ValidationError, convert
from msgspec.structs import fields

VALUES_MAX: Final = 20_000
"""Keys and elements of one annotation, in all of its objects and lists, which take about 50 ms. An annotation with more
cannot be decoded."""

UNKNOWN_KEYS_MAX: Final = 3
"""Unknown keys of one annotation that are named, so that a warning is short; further ones are only counted."""

KEY_LENGTH_MAX: Final = 64
"""Characters of an unknown key that are shown, and compared with known ones; the rest is cut off."""

PLACE_LENGTH_MAX: Final = 200
"""Characters that say where in the text a value is; the rest is cut off."""

_WHOLE: Final = "the value"

_NEARNESS_MIN: Final = 0.65
"""Ratio of `difflib` from which on a key is a probable misspelling of another one."""

_T = TypeVar("_T")


def decode_annotation(text: str, kind: type[_T]) -> _T:
    """Return the value of a JSON text: of a struct or TypedDict, whose keys are compared without case, a list or map.
    The value is not to be changed, as the next call may return it again.

    Raises:
        DecodeError: the text is no JSON, is nested too deeply, has too many values, or one of another type.
    """
    found = _decode(text, cast(Hashable, kind))
    if found.problem:
        raise DecodeError(found.problem)
    return cast(_T, found.value)


def list_unknown_keys(text: str, kind: type[object]) -> list[str]:
    """Return a description of each key that is not known, with the nearest one that is; none if the text has no such
    value.
    """
    return list(_decode(text, cast(Hashable, kind)).unknown)


def describe_unknown_key(key: str, known: Sequence[str], place: str = "") -> str:
    """Return a sentence about a key that means nothing, with the known one that is nearest."""
    key = _repair(key[:KEY_LENGTH_MAX])
    by_fold = {_fold(one): one for one in known}
    near = get_close_matches(_fold(key), by_fold, n=1, cutoff=_NEARNESS_MIN)
    advice = f"did you mean {by_fold[near[0]]!r}?" if near else f"known are {', '.join(known)}"
    return f"{key!r}{f' in {place}' if place else ''} is ignored: {advice}"


class _Decoded(NamedTuple):
    value: object = None
    unknown: tuple[str, ...] = ()
    problem: str = ""


@lru_cache(maxsize=16)
def _decode(text: str, kind: Hashable) -> _Decoded:
    decoder = _Decoder()
    try:
        found = json.loads(text, object_pairs_hook=_Members, parse_constant=_refuse_constant)
        merged = decoder.merge(kind, None, found, _WHOLE)
        value: object = convert(([] if get_origin(kind) is list else {}) if merged is None else merged, kind)
    except RecursionError:
        return _Decoded(problem="the JSON is nested too deeply")
    except ValueError as error:
        return _Decoded(problem=str(error))
    more = decoder.unknown_count - len(decoder.unknown)
    return _Decoded(value, (*decoder.unknown, *([f"and {more} more"] if more else [])))


class _Members(list[tuple[str, object]]):
    """The keys and values of a JSON object, in order and with repetitions."""


class _Field(NamedTuple):
    name: str
    kind: Hashable


class _Decoder:
    """Decodes one text. A value that `merge` has returned is changed when it is given again."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.unknown_count = 0
        self._left = VALUES_MAX

    def merge(self, kind: Hashable, before: object, value: object, place: str) -> object:
        """Return the value of this kind after it was given, if `before` is what it was; None if it is absent."""
        origin, inner = get_origin(kind), get_args(kind)
        if NoneType in inner:
            (plain,) = (one for one in inner if one is not NoneType)
            return None if value is None else self.merge(plain, before, value, place)
        known = _find_fields(kind)
        if isinstance(value, list):
            self._left -= len(value)
            if self._left < 0:
                raise DecodeError(f"there are more than {VALUES_MAX} values")
        if value is None:
            if origin in (list, dict):
                return None
            return ({} if known else "" if kind is str else 0) if before is None else before
        if isinstance(value, _Members) and known:
            return self._merge_fields(known, before, value, place)
        if isinstance(value, _Members) and origin is dict:
            items = before if isinstance(before, dict) else {}
            items.update((_repair(key), self.merge(inner[1], None, item, f"{place}.{key}")) for key, item in value)
            return items
        if type(value) is list and origin is list:
            former = before if isinstance(before, list) else []
            pairs = zip([*former, *[None] * len(value)], value, strict=False)
            return [self.merge(inner[0], *pair, f"{place}[{number}]") for number, pair in enumerate(pairs)]
        try:
            leaf: object = convert({} if isinstance(value, _Members) else value, kind)
        except ValidationError as error:
            raise DecodeError(f"{_show(place) or place}: {error}") from None
        return _repair(leaf) if isinstance(leaf, str) else leaf

    def _merge_fields(self, known: Mapping[str, _Field], before: object, members: _Members, place: str) -> object:
        found = before if isinstance(before, dict) else {}
        for key, item in members:
            field = known.get(_fold(key))
            if field is None:
                self._note_unknown(key, known, place)
                continue
            merged = self.merge(field.kind, found.get(field.name), item, f"{place}.{field.name}")
            if merged is None:
                found.pop(field.name, None)
            else:
                found[field.name] = merged
        return found

    def _note_unknown(self, key: str, known: Mapping[str, _Field], place: str) -> None:
        self.unknown_count += 1
        if len(self.unknown) < UNKNOWN_KEYS_MAX:
            self.unknown.append(describe_unknown_key(key, [one.name for one in known.values()], _show(place)))


def _show(place: str) -> str:
    """Return where in the text a value is; empty for all of it."""
    return _repair(place.removeprefix(_WHOLE).removeprefix(".")[:PLACE_LENGTH_MAX])


@cache
def _find_fields(kind: Hashable) -> Mapping[str, _Field]:
    """Return the fields of a struct or TypedDict by their names without case; none for other kinds."""
    if isinstance(kind, type) and issubclass(kind, Struct):
        return {_fold(one.encode_name): _Field(one.encode_name, one.type) for one in fields(kind)}
    if is_typeddict(kind):
        return {_fold(name): _Field(name, one) for name, one in get_type_hints(kind, include_extras=True).items()}
    return {}


def _fold(key: str) -> str:
    """Return a key without case. All known keys are ASCII, and besides their capitals, only the long s and the Kelvin
    sign are equal to letters of theirs.
    """
    return key.replace("\N{LATIN SMALL LETTER LONG S}", "s").lower()


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _repair(text: str) -> str:
    r"""Return a text with a sign in place of each half of a pair, such as `\ud83d` alone, which no text can have."""
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
