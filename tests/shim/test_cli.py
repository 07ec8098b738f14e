"""The command line as a whole: what it says, what it loads, and how it ends."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from shim import cli


def test_help_names_every_command_with_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(command.about in text for command in cli.COMMANDS.values())
    assert "examples:" in text
    assert all(f"\n  {code:<5}" in text for code in (0, 1, 2, 130))


def test_help_loads_nothing_of_the_system() -> None:
    seen = "import sys; print(sorted({name.split('.')[0] for name in sys.modules}))"
    script = f"from shim import cli\ntry: cli.main(['--help'])\nexcept SystemExit: pass\n{seen}"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert "'argparse'" in loaded
    assert not [name for name in ("asyncio", "common", "deploy", "msgspec", "yaml", "zmq") if f"'{name}'" in loaded]


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"yunishard {version('yunishard')}\n"


def test_without_a_command_it_shows_help_and_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: yunishard" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["dance"], ["up", "--dance"], ["up", "--eph"], ["completion"], ["completion", "ksh"]]
)
def test_wrong_usage_is_status_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert "usage: yunishard" in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_describes_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: yunishard {command}" in capsys.readouterr().out


def test_a_command_that_refuses_gives_its_status_and_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--ephemeral", "--rest", "nowhere"]) == 2
    assert capsys.readouterr().err == "yunishard up: --rest: expected HOST:PORT, got 'nowhere'\n"
