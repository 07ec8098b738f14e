"""The allow-list: which public key may speak for which resource managers.

A line for each key, other lines are empty or begin with `#`:

    rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7  rm-1,test-*  # 2026-11-21 the cluster upstairs

The ids are as in `rm_ids.py`. The comment may begin with the day on which the key was allowed. Not here: the file
and its changes (`rmproxy/zap_authenticator.py` follows it, `yunishard keys` writes it).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from common.names import RM_ID
from common.rm_ids import RmIdError, matching, rm_ids_of

KEYS_MAX: Final = 10_000
"""Lines with keys in a list; one with more is refused as a whole."""

LIST_BYTES_MAX: Final = 4 << 20

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_KEY: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_LINE: Final = re.compile(r"(?P<key>\S{40})[ \t]+(?P<ids>[^#]+?)(?:[ \t]+#[ \t]*(?P<comment>.*))?")
_SINCE: Final = re.compile(r"(?P<since>\d{4}-\d{2}-\d{2})(?:[ \t]+|$)")


class AllowListError(ValueError):
    """A list that cannot be used; the text begins with the number of the line."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """A key, and whom it may speak for."""

    key: str
    rm_ids: tuple[str, ...]
    comment: str = ""
    since: str = ""
    """The day on which it was allowed, as in 2026-11-21; empty if the line does not say."""

    def line(self) -> str:
        """As it stands in the list."""
        about = " ".join(filter(None, (self.since, self.comment)))
        return f"{self.key}  {','.join(self.rm_ids)}" + (f"  # {about}" if about else "")


@dataclass(frozen=True, slots=True)
class AllowList:
    """All that are allowed, by key."""

    entries: Mapping[str, Allowed] = field(default_factory=dict)
    _patterns: dict[str, re.Pattern[str]] = field(default_factory=dict, repr=False)

    def admits(self, key: str, rm: str) -> bool:
        """Whether this key may speak for this resource manager."""
        pattern = self._patterns.get(key)
        return pattern is not None and RM_ID.fullmatch(rm) is not None and pattern.fullmatch(rm) is not None


def is_key(text: str) -> bool:
    """Whether this can be a public or secret key: Z85, of which not every text stands for a number."""
    return _KEY.fullmatch(text) is not None and all(
        _number(text[start : start + 5]) < 1 << 32 for start in range(0, len(text), 5)
    )


def allow_list(text: str) -> AllowList:
    """The list in a file's text.

    Raises:
        AllowListError: a line that is none, a key that is there twice, too many.
    """
    entries: dict[str, Allowed] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        found = entry_of(line, number)
        if found is None:
            continue
        if found.key in entries:
            raise AllowListError(f"line {number}: this key is there already: put all its RM ids in one line")
        entries[found.key] = found
    if len(entries) > KEYS_MAX:
        raise AllowListError(f"line 1: {len(entries)} keys, at most {KEYS_MAX} are possible")
    return AllowList(entries, {key: matching(one.rm_ids) for key, one in entries.items()})


def entry_of(line: str, number: int = 1) -> Allowed | None:
    """What a line says; None for one that says nothing.

    Raises:
        AllowListError: it is neither.
    """
    text = line.strip()
    if not text or text.startswith("#"):  # no key begins so: it would be too large a number
        return None
    match = _LINE.fullmatch(text)
    if match is None or not is_key(match["key"]):
        raise AllowListError(f"line {number}: expected a public key of 40 characters, RM ids, and maybe # a comment")
    try:
        rm_ids = rm_ids_of(match["ids"])
    except RmIdError as error:
        raise AllowListError(f"line {number}: {error}") from None
    comment = match["comment"] or ""
    since = _SINCE.match(comment)
    return Allowed(
        match["key"],
        rm_ids,
        comment=comment[since.end() :] if since else comment,
        since=since["since"] if since else "",
    )


def _number(five: str) -> int:
    number = 0
    for character in five:
        number = number * len(_Z85) + _Z85.index(character)
    return number
