"""What came over the network, as it may stand in a log: escapes and all, so that nobody can write lines into it."""

from typing import Final

LENGTH_MAX: Final = 500
"""Characters of it that are kept."""


def written(text: bytes | str, query: bytes = b"", *, length_max: int = LENGTH_MAX) -> str:
    """A path or a query or both, or the text of a header, in one line of ASCII."""
    shown = text if isinstance(text, str) else text.decode("latin-1")
    if query:
        shown += "?" + query.decode("latin-1")
    return ascii(shown)[1:-1][:length_max]
