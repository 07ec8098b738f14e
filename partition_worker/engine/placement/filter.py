"""Whose applications a placement rule looks at: the filter of a rule.

A list with one entry may be a regular expression, a longer one holds names. `common/config/expressions.py` defines what
looks like an expression, and matches it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from common.config.expressions import Expression, looks_like_expression
from common.config.model import DENY, FilterConfig
from common.names import GROUP, USER
from partition_worker.engine.users import User
from partition_worker.engine.work import Work


class FilterDescription(NamedTuple):
    """What a filter does, for people: each list is either names or one expression, the other is empty."""

    allows: bool
    users: tuple[str, ...]
    groups: tuple[str, ...]
    user_expression: str
    group_expression: str


class Filter:
    """Admits those who are on one of its lists, or those who are on none, or without lists everybody or nobody."""

    def __init__(self, config: FilterConfig) -> None:
        """Read the lists. Raises ExpressionError for an only entry that is meant as an expression and is none."""
        self._allows = config.type != DENY
        self._for_all = not config.users and not config.groups
        self._users = _Names(config.users, USER)
        self._groups = _Names(config.groups, GROUP)

    def admits(self, user: User, work: Work) -> bool:
        """Whether the rule looks at applications of the user. Raises NameTooLongError and TooMuchWorkError if that
        cannot be said.
        """
        listed = self._for_all or self._users.have_any((user.name,), work) or self._groups.have_any(user.groups, work)
        return listed == self._allows

    def described(self) -> FilterDescription | None:
        """What is filtered, or None if nothing is."""
        if self._for_all and self._allows:
            return None
        users, groups = self._users, self._groups
        return FilterDescription(self._allows, users.listed, groups.listed, users.expression, groups.expression)


class _Names:
    """One list of a filter. Entries of a longer list that cannot be names are left out, and may leave nothing."""

    def __init__(self, entries: Sequence[str], legal: re.Pattern[str]) -> None:
        self._expression: Expression | None = None
        self.expression = ""
        """The text of the expression, empty for a list of names."""
        self.listed: tuple[str, ...] = ()
        """The names as they were written, once each."""
        if len(entries) == 1 and looks_like_expression(entries[0]):
            self.expression = entries[0]
            self._expression = Expression(entries[0])
        else:
            self.listed = tuple(dict.fromkeys(entry for entry in entries if legal.fullmatch(entry)))
        self._names = frozenset(self.listed)

    def have_any(self, names: Sequence[str], work: Work) -> bool:
        if self._expression is None:
            work.spend(1 + len(names))
            return not self._names.isdisjoint(names)
        return work.any_matches(self._expression, names)
