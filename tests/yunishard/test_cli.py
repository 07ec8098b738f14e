"""The command line as a whole: what it says, what it loads, and how it ends."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from yunishard.cli import main as cli


def test_help_names_every_command_with_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(command.about in text for command in cli.COMMANDS.values())
    assert "examples:" in text
    assert all(f"\n  {code:<5}" in text for code in (0, 1, 2, 130, 141))


def test_help_loads_nothing_of_the_system() -> None:
    seen = "import sys; print(sorted(sys.modules))"
    script = f"from yunishard.cli import main\ntry: main.main(['--help'])\nexcept SystemExit: pass\n{seen}"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert "'argparse'" in loaded
    others = ("asyncio", "yunishard.common", "yunishard.deploy", "yunishard.sdk", "msgspec", "yaml", "zmq")
    assert not [name for name in others if f"'{name}'" in loaded]


HEAVY = (
    "asyncio",
    "csv",
    "rich",
    "shtab",
    "shutil",
    "textual",
    "yaml",
    "yunishard.common.config.parse",
    "yunishard.deploy",
    "yunishard.sdk.client",
    "zmq",
)


@pytest.mark.parametrize(
    "words",
    ["queue list", "app list", "app show app-1", "ask list", "node list", "user list", "group list", "config history",
     "rm list", "event list", "status", "explain app-1", "explain app app-1", "history app", "history queue root",
     "complete queue root"],
)  # fmt: skip
def test_commands_start_without_what_takes_long_to_load(words: str) -> None:
    """A command starts in less than 150 ms; each of these takes 5 to 100 ms."""
    command = [*words.split(), *(["--"] if words.startswith("complete") else []), "--rest", "http://127.0.0.1:1"]
    script = f"import sys; from yunishard.cli.main import main; main({command}); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    assert "'http.client'" in loaded
    assert not [name for name in HEAVY if f"'{name}'" in loaded]


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out in [
        f"yunishard {version('yunishard')} ({engine} engine)\n" for engine in ("compiled", "interpreted")
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--rest", "x", "config", "get"],
            "--rest: options come after the command: yunishard config get --rest x",
        ),
        (
            ["--json", "config", "get"],
            "--json: options come after the command: yunishard config get --json",
        ),
        (["-x"], "-x: options come after the command; see yunishard --help"),
    ],
)
def test_options_before_the_command_are_told_where_they_belong(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"yunishard: {message}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["config", "--rest", "http://x", "get"],
            "config: --rest: options come after the action: yunishard config get --rest http://x",
        ),
        (
            ["keys", "--dir", "d", "new", "rm-1"],
            "keys: --dir: options come after the action: yunishard keys new rm-1 --dir d",
        ),
        (["journal", "--last"], "journal: --last: options come after the action; see yunishard journal --help"),
    ],
)
def test_options_before_the_action_are_told_where_they_belong(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"yunishard {message}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["apps"], "yunishard: error: unknown command 'apps': did you mean 'app'?"),
        (["complotion"], "yunishard: error: unknown command 'complotion': did you mean 'completion'?"),
        (["xyzzy"], "yunishard: error: unknown command 'xyzzy': there are up, "),
        (["app", "lits"], "yunishard app: error: unknown action 'lits': did you mean 'list'?"),
        (["queue", "xyzzy"], "yunishard queue: error: unknown action 'xyzzy': there are list, "),
        (["app", "list", "--quue", "root.a"], "unknown option --quue: did you mean '--queue'?"),
        (["up", "--log-levle=debug"], "unknown option --log-levle=debug: did you mean '--log-level'?"),
        (["app", "list", "--xyzzy"], "unknown option --xyzzy; see yunishard app list --help"),
    ],
)
def test_misspelt_words_are_reported_with_the_nearest_one(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


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
    assert capsys.readouterr().err == "yunishard up: --rest: expected HOST:PORT or off, got 'nowhere'\n"


def test_a_wrong_value_that_looks_like_an_option_is_told_as_a_wrong_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--ephemeral", "--preemption-pause", "-1s"]) == 2
    told = capsys.readouterr().err
    assert told == "yunishard up: --preemption-pause: expected a duration such as 500ms, 15s or 1m30s, got '-1s'\n"


@pytest.mark.parametrize("words", [["settings"], ["validate", os.devnull], ["--version"]])
def test_a_full_disk_is_told_in_one_line(words: list[str]) -> None:
    script = f"import sys; from yunishard.cli.main import main; sys.exit(main({words}))"
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-P", "-c", script], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == cli.NOT_DONE
    assert done.stderr == b"yunishard: standard output cannot be written: no space left on device\n"


def test_a_standard_output_that_was_closed_is_no_error() -> None:
    validate = f"main(['validate', {os.devnull!r}])"
    script = f"import os, sys; sys.stdout = None; from yunishard.cli.main import main; sys.exit({validate})"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_reader_that_has_gone_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    script = "import sys; from yunishard.cli.main import main; sys.exit(main(['settings']))"
    done = subprocess.run([sys.executable, "-P", "-c", script], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (cli.READER_GONE, b"")
