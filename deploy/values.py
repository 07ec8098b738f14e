"""What the text of a setting means: one function for each kind of value, which refuses in a line with the source.

Not here: where the texts come from (`settings.py`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from common.acl import AclError, parse_acl
from common.names import OFF, RM_ID, RmIdError, compile_rm_ids, parse_rm_ids
from common.text_formats import parse_duration

NATIVE_SCHEME: Final = "tcp://"
PORT_MAX: Final = 65535
PERCENT_MAX: Final = 100

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/*\[\]]+):(?P<port>[0-9]{1,5})")
_PLUGIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SIZE: Final = re.compile(r"([0-9]{1,18}) ?([kMGT]?B|[KMGT]iB)")
_BYTES: Final[dict[str, int]] = {"B": 1} | {
    f"{letter}{sign}": int(base**power)
    for sign, base, letters in (("B", 1000, "kMGT"), ("iB", 1024, "KMGT"))
    for power, letter in enumerate(letters, start=1)
}
_YES: Final = ("true", "yes", "on", "1")
_NO: Final = ("false", "no", "off", "0")


class Unusable(ValueError):
    """Something that was asked for cannot be used; one line with the thing, the reason, and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as HOST:PORT."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's text, where to change it, and the order of that source: a smaller `rank` wins."""

    text: str
    source: str
    rank: int
    folder: Path = Path()
    place: str = ""
    """Where exactly it stands, if that is more or less than `source` says."""


def path(given: Given) -> Path:
    """A path; a relative one starts at the settings file it stands in."""
    try:
        return given.folder / Path(given.text).expanduser()
    except RuntimeError:
        raise Unusable(f"{given.source}: no such user in {given.text!r}") from None


def listen_address(given: Given, scheme: str = "") -> Address | None:
    """Where to listen; None for a port that is off."""
    if given.text == OFF:
        return None
    match = _ADDRESS.fullmatch(given.text.removeprefix(scheme)) if given.text.startswith(scheme) else None
    if match is None:
        raise Unusable(f"{given.source}: expected {scheme}HOST:PORT or {OFF}, got {given.text!r}")
    port = int(match["port"])
    if port > PORT_MAX:
        raise Unusable(f"{given.source}: port {port} is above {PORT_MAX}")
    return Address(match["host"], port)


def yes_no(given: Given) -> bool:
    """Whether something is to be."""
    if given.text.lower() not in (*_YES, *_NO):
        raise Unusable(f"{given.source}: expected true or false, got {given.text!r}")
    return given.text.lower() in _YES


def word(given: Given, words: Sequence[str]) -> str:
    """One of these words."""
    if given.text not in words:
        raise Unusable(f"{given.source}: expected one of {', '.join(words)}, got {given.text!r}")
    return given.text


def rm_ids(given: Given) -> tuple[str, ...]:
    """Ids of resource managers with commas between, `*` in them for any text; blanks around them do not count."""
    try:
        return parse_rm_ids(given.text)
    except RmIdError:
        expected = "expected ids with commas between, as in 'rm-1,test-*'"
        raise Unusable(f"{given.source}: {expected}, got {given.text!r}") from None


def rm_id(given: Given, allowed: Given) -> str:
    """The id of one resource manager, which may register."""
    if not RM_ID.fullmatch(given.text):
        raise Unusable(f"{given.source}: expected the id of a resource manager, such as rm-1, got {given.text!r}")
    if not compile_rm_ids(rm_ids(allowed)).fullmatch(given.text):
        raise Unusable(f"{given.source}: {given.text!r} may not register: {allowed.source} does not name it")
    return given.text


def plugin_names(given: Given) -> tuple[str, ...]:
    """Names of plug-ins with commas between; blanks around them do not count."""
    found = tuple(name.strip() for name in given.text.split(","))
    if not all(_PLUGIN.fullmatch(name) for name in found):
        raise Unusable(f"{given.source}: expected names of plug-ins with commas between, got {given.text!r}")
    return found


def acl(given: Given) -> str:
    """An access control list. Names that nobody can have are refused here: in a queue they are left out without a
    word, but who mistypes an administrator should hear of it.
    """
    try:
        listed = parse_acl(given.text)
    except AclError as error:
        raise Unusable(f"{given.source}: {error}; expected 'user,user group,group'") from None
    written = {name for field in given.text.split(" ") for name in field.split(",")} - {"*"}
    if given.text[:1] == " ":
        written.discard("")  # no users, only groups
    if not listed.everybody and (odd := sorted(written - listed.users - listed.groups)):
        what = f"{odd[0]!r} can be no name" if odd[0] else "a name is missing"
        raise Unusable(f"{given.source}: {what} in {given.text!r}; expected 'user,user group,group'")
    return given.text


def percent(given: Given) -> int:
    """A whole number from 0 to 100; a sign `%` may follow."""
    text = given.text.removesuffix("%").strip()
    if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) > PERCENT_MAX:
        raise Unusable(f"{given.source}: expected a whole number from 0 to {PERCENT_MAX}, got {given.text!r}")
    return int(text)


def duration_s(given: Given) -> float:
    """A time that is longer than none, in seconds."""
    found = parse_duration(given.text)
    if found is None or found <= 0:
        raise Unusable(f"{given.source}: expected a duration such as 500ms, 15s or 1m30s, got {given.text!r}")
    return found


def count(given: Given, *, maximum: int, minimum: int = 0) -> int:
    """A whole number within these bounds."""
    if not re.fullmatch(r"[0-9]{1,9}", given.text) or not minimum <= int(given.text) <= maximum:
        raise Unusable(f"{given.source}: expected a whole number from {minimum} to {maximum}, got {given.text!r}")
    return int(given.text)


def size_bytes(given: Given, *, minimum: int) -> int:
    """An amount of memory with its unit: B, kB, MB, GB, TB, or KiB, MiB, GiB, TiB."""
    match = _SIZE.fullmatch(given.text)
    if match is None:
        raise Unusable(f"{given.source}: expected bytes with a unit, such as 512MiB or 1GiB, got {given.text!r}")
    found = int(match[1]) * _BYTES[match[2]]
    if found < minimum:
        raise Unusable(f"{given.source}: {given.text} is too little, {minimum >> 20} MiB is the least")
    return found
