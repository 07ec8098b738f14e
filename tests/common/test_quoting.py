"""Texts of others are shown in quotes, and in one way."""

import pytest

from common.text_formats import quote


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", '""'),
        ("a b'<é>", '"a b\'<é>"'),
        ('"\\', r'"\"\\"'),
        ("\n\r\t\a\b\f\v", r'"\n\r\t\a\b\f\v"'),
        ("\0\x1f\x7f", r'"\x00\x1f\x7f"'),
        ("\u200b\u00a0\ue000\U000e0001", r'"\u200b\u00a0\ue000\U000e0001"'),
        ("😀", '"😀"'),
        (b"z\xc3\xff\xc3\xa9", r'"z\xc3\xffé"'),
    ],
)
def test_a_text_is_shown_in_quotes(text: str | bytes, shown: str) -> None:
    assert quote(text) == shown
