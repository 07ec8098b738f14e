"""Tables: plain where a program reads, drawn in a terminal."""

import io
import sys

import pytest

from yunishard.common.process.terminal import print_table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_program_gets_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "value"), [("a", "1"), ("longer", "")])
    assert capsys.readouterr().out == "name    value\na       1\nlonger\n"


def test_a_table_may_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "value"), [])
    assert capsys.readouterr().out == "name  value\n"


def test_a_terminal_gets_a_drawn_one_and_markup_is_only_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_table(("name",), [("[red]x",)])
    assert "[red]x" in terminal.getvalue()
    assert "\u2500" in terminal.getvalue()
