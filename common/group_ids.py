"""The numbers of a user's groups, looked up without blocking the other threads of the process.

`os.getgrouplist` holds the interpreter's lock, so one slow directory would stop the whole process; a function called by
`ctypes` does not.

Not here: the names of groups, and the timeout of a lookup.
"""

import ctypes
from typing import Final

GROUPS_MAX: Final = 65_536
"""The maximum that Linux allows for a user."""


def group_ids(user: str, primary: int) -> list[int]:
    """Return the numbers of all groups of a user.

    Raises:
        OSError: there are more than GROUPS_MAX.
    """
    library, size = ctypes.CDLL(None), 64
    while True:
        gids, count = (ctypes.c_uint * size)(), ctypes.c_int(size)
        if library.getgrouplist(user.encode(), ctypes.c_uint(primary), gids, ctypes.byref(count)) >= 0:
            return list(gids[: count.value])
        size = max(2 * size, count.value)  # the system returns the number that needs room
        if size > GROUPS_MAX:
            raise OSError(f"more than {GROUPS_MAX} groups")
