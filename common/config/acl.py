"""Access control lists: the users and groups that may submit to a queue, or administer it.

Not here: the inheritance of rights from the queues above (the queue tree).
"""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from yunishard.common.names import WHITE_SPACE

# Narrower than the names in limits and filters, as in YuniKorn.
_USER: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_.@-]*[$]?")
_GROUP: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_-]*")
_WORD: Final = re.compile(f"[^{WHITE_SPACE}]+")
_FIELDS_MAX: Final = 2  # users, then groups


class AclError(ValueError):
    """The text has more parts than a list of users and a list of groups."""


class Acl(msgspec.Struct, frozen=True, kw_only=True):
    """All users, or these users and the members of these groups. The empty value is no user."""

    everybody: bool = False
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def allows(self, user: str, groups: Iterable[str]) -> bool:
        """Whether a user who is in these groups is on the list; names are case sensitive."""
        return self.everybody or user in self.users or not self.groups.isdisjoint(groups)

    def describe_entry(self, user: str, groups: Iterable[str]) -> str:
        """Return the entry that allows it: `*`, `user NAME` or `group NAME`; empty if none does."""
        if self.everybody:
            return "*"
        if user in self.users:
            return f"user {user}"
        return next((f"group {group}" for group in groups if group in self.groups), "")


NOBODY: Final = Acl()
EVERYBODY: Final = Acl(everybody=True)


def parse_acl(text: str) -> Acl:
    """Parse `users groups`, each separated by commas; `*` is all users, an empty text none.

    Exactly one blank separates the two lists. Names that no user or group can have are ignored, as in YuniKorn. Raises
    AclError if there is a second blank.
    """
    if not text:
        return NOBODY
    fields = text.split(" ")
    if len(fields) > _FIELDS_MAX:
        raise AclError(describe_multiple_spaces(text))
    names = [field.split(",") for field in fields]
    if text.strip(WHITE_SPACE) == "*" or ["*"] in names:
        return EVERYBODY
    return Acl(
        users=frozenset(name for name in names[0] if _USER.fullmatch(name)),
        groups=frozenset(name for field in names[1:] for name in field if _GROUP.fullmatch(name)),
    )


def may_be_parsed(text: str) -> bool:
    """Whether `parse_acl` accepts the text."""
    return text.count(" ") < _FIELDS_MAX


def find_ignored_entries(text: str) -> tuple[str, ...]:
    """Return the entries that `parse_acl` ignores, in their order, each once, without empty ones. Raises AclError."""
    if parse_acl(text).everybody:
        return ()
    users, *groups = [field.split(",") for field in text.split(" ")]
    names = [name for name in users if name and not _USER.fullmatch(name)]
    names += [name for field in groups for name in field if name and not _GROUP.fullmatch(name)]
    return tuple(dict.fromkeys(names))


def has_too_many_fields(text: str) -> bool:
    """Whether validation refuses the text. `parse_acl` is stricter and refuses some accepted texts later."""
    return len(_WORD.findall(text)) > _FIELDS_MAX


def describe_multiple_spaces(text: str) -> str:
    """Return the message about a text with too many parts."""
    return f"multiple spaces found in ACL: '{text}'"
