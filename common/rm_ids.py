"""Which resource managers somebody means: ids with commas between, `*` in one for any text, as in `rm-1,test-*`.

Not here: which ids there can be (`names.py`), and what those who are meant may do.
"""

import re
from collections.abc import Iterable

from common.names import RM_ID


class RmIdError(ValueError):
    """A text in which one of the ids is none that a resource manager can have; it says which."""


def rm_ids_of(text: str) -> tuple[str, ...]:
    """The ids in a text; blanks around them do not count.

    Raises:
        RmIdError: one that no resource manager can have.
    """
    found = tuple(name.strip() for name in text.split(","))
    for name in found:
        if not RM_ID.fullmatch(name.replace("*", "x")):
            raise RmIdError(f"{name!r} is no RM id: expected ids with commas between, as in rm-1,test-*")
    return found


def matching(rm_ids: Iterable[str]) -> re.Pattern[str]:
    """What matches the whole id of every resource manager that one of these means."""
    return re.compile("|".join(".*".join(map(re.escape, one.split("*"))) for one in rm_ids) or "(?!)")
