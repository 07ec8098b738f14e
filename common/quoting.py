"""A text of somebody else in quotes, inside a message of ours: nothing in it can be taken for the message, or cannot be
seen. The escapes are those that clients of the API know.
"""

from typing import Final

_NAMED: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_BYTE: Final = 0x7F
"""Up to here what cannot be seen is shown as a byte."""
_SHORT: Final = 0xFFFF


def quoted(text: str | bytes) -> str:
    """The text in double quotes; bytes that are no UTF-8 are shown one by one."""
    if isinstance(text, bytes):
        text = text.decode(errors="surrogateescape")
    return '"' + "".join(map(_shown, text)) + '"'


def _shown(letter: str) -> str:
    number = ord(letter)
    if letter in _NAMED:
        return _NAMED[letter]
    if letter.isprintable():
        return letter
    if number <= _BYTE:
        return f"\\x{number:02x}"
    if 0xDC80 <= number <= 0xDCFF:  # a byte that is no UTF-8
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if number <= _SHORT else f"\\U{number:08x}"
