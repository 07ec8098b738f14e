"""The file that a command is given, read no further than a configuration may go.

Not here: what is said of one that cannot be used; each command has its own words.
"""

import sys
from pathlib import Path
from typing import Final

from common.config.nodes import TEXT_BYTES_MAX

STDIN: Final = "-"
"""In place of a file: standard input."""


def start_of(file: str) -> bytes:
    """All of a file that is not too large, and of another one enough to see that it is: some have no end.

    Raises OSError.
    """
    if file == STDIN:
        return sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    with Path(file).open("rb") as opened:
        return opened.read(TEXT_BYTES_MAX + 1)
