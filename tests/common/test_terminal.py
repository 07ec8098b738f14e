"""Texts from outside have no effect on a terminal; JSON keeps its meaning."""

import io
import json
import logging
import sys

import pytest

from tests.yunishard.hostile import HOSTILE, find_effects, find_invisible
from yunishard.common.process.logs import TextFormatter
from yunishard.common.process.terminal import CleanStream, clean, clean_output, protect_terminal


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("plain äß 中文 🙂", "plain äß 中文 🙂"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J\x85", "\\x9b2J\\x85"),
        ("a\r\nb\t\0\x7f", "a\\x0d\\x0ab\\x09\\x00\\x7f"),
        ("\u202etxt.exe\u2066", "\\u202etxt.exe\\u2066"),
        ("a\u200bb\ufeff\u2028", "a\\u200bb\\ufeff\\u2028"),
        ("\U000e0041", "\\U000e0041"),
        ("\udcff", "\\udcff"),
    ],
)
def test_a_field_has_only_visible_characters(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert not find_effects(clean(text))


def test_output_for_a_terminal_keeps_colours_and_the_meaning_of_json() -> None:
    document = {HOSTILE: [HOSTILE, "\U000e0041"]}
    text = json.dumps(document, ensure_ascii=False, indent=2)
    assert json.loads(clean_output(text)) == document
    assert not find_effects(clean_output(text))
    assert clean_output("\x1b[32mgood\x1b[0m\tx\n") == "\x1b[32mgood\x1b[0m\tx\n"
    assert not find_invisible(clean_output(HOSTILE))


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_streams_to_a_terminal_are_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, terminal = io.StringIO(), FakeTerminal()
    monkeypatch.setattr(sys, "stdout", pipe)
    monkeypatch.setattr(sys, "stderr", terminal)
    protect_terminal()
    once: object = sys.stderr
    protect_terminal()
    assert sys.stdout is pipe
    assert isinstance(once, CleanStream)
    assert sys.stderr is once
    sys.stderr.writelines([HOSTILE, "\n"])
    assert not find_invisible(terminal.getvalue())


def test_a_log_line_is_one_line_whatever_a_client_sent() -> None:
    record = logging.LogRecord("core", logging.INFO, "", 1, "RM %s", (HOSTILE,), None)
    line = TextFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("INFO RM ")
    assert "\n" not in line
    assert not find_effects(line)
