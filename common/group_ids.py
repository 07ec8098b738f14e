"""The groups of a user by number, asked in a way that lets the other threads of the process go on.

`os.getgrouplist` holds the interpreter's lock, so one slow directory would stop the whole process; a function called by
`ctypes` does not.

Not here: the names of groups, and how long somebody waits for them.
"""

import ctypes
from typing import Final

GROUPS_MAX: Final = 65_536
"""As many as Linux lets a user have."""

_ROOM: Final = 64
"""For so many groups at the first try."""


def group_ids(user: str, primary: int) -> list[int]:
    """All groups of a user. The system says how many there are when there is no room for them.

    Raises:
        OSError: there are more than GROUPS_MAX.
    """
    library, size = ctypes.CDLL(None), _ROOM
    while True:
        gids, count = (ctypes.c_uint * size)(), ctypes.c_int(size)
        if library.getgrouplist(user.encode(), ctypes.c_uint(primary), gids, ctypes.byref(count)) >= 0:
            return list(gids[: count.value])
        size = max(2 * size, count.value)
        if size > GROUPS_MAX:
            raise OSError(f"more than {GROUPS_MAX} groups")
