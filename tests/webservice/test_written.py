"""What others send cannot write lines into a log."""

import pytest

from webservice.written import LENGTH_MAX, written


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        (b"/ws/v1/config", b"", "/ws/v1/config"),
        (b"/a", b"b=c&d", "/a?b=c&d"),
        (b"/a%0Ab", b"", "/a%0Ab"),
        (b"/a\nb\x1b[2J\xff", b"", "/a\\nb\\x1b[2J\\xff"),
        ("10.0.0.7, \u202eevil", b"", "10.0.0.7, \\u202eevil"),
    ],
)
def test_it_is_one_line_of_ascii(text: bytes | str, query: bytes, shown: str) -> None:
    assert written(text, query) == shown


def test_only_so_much_of_it_is_kept() -> None:
    assert written(b"x" * 9999) == "x" * LENGTH_MAX
