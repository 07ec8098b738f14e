"""Completion scripts, tried in the shells that are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from yunishard.cli import COMMANDS, main, parser_of
from yunishard.completion import Argument, bash, fish, tree, zsh


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The script for the shell that the test names."""
    shell: str = request.param
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    assert main(["completion", shell]) == 0
    file = tmp_path / f"yunishard.{shell}"
    file.write_text(capsys.readouterr().out)
    return file


def said(shell: str, text: str, folder: Path) -> set[str]:
    done = subprocess.run([shell, "-c", text], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.splitlines())


CASES = [
    (
        "",
        {
            *("up", "replay", "validate", "config", "app", "schedule"),
            *("keys", "journal", "settings", "token", "completion"),
        },
    ),
    ("keys allow q", {"q u.yaml"}),
    ("keys re", {"revoke"}),
    ("up --e", {"--ephemeral"}),
    ("up --log-level ", {"debug", "info", "warning", "error"}),
    ("up --config q", {"q u.yaml"}),
    ("up --native ", {"off"}),
    ("completion z", {"zsh"}),
    ("replay q", {"q u.yaml"}),
    ("config ro", {"rollback"}),
    ("config put q", {"q u.yaml"}),
    ("config put --if", {"--if-match"}),
    ("config --rm", set[str]()),
    ("app move --part", {"--partition"}),
    ("app get --if", set[str]()),
    ("validate --same-hierarchy ", {"off", "warn", "enforce"}),
    ("config diff c", {"current"}),
    ("config diff --s", {"--summary"}),
    ("config diff current q", {"q u.yaml"}),
    ("settings --rest ", {"off"}),
    ("token --sc", {"--scope"}),
    ("token --scope ", {"read"}),
    ("token --keys q", {"q u.yaml"}),
    ("up --history ", {"true", "false"}),
    ("app kill --token-file q", {"q u.yaml"}),
    ("journal ver", {"verify"}),
    ("journal show --k", {"--kind"}),
    ("journal verify q", {"q u.yaml"}),
]


SPLIT_CASES = [
    ("validate --same-hierarchy = e", {"enforce"}),
    ("validate --same-hierarchy =", {"off", "warn", "enforce"}),
    ("up --config = q", {"q u.yaml"}),
]
"""What bash makes of `--option=value`."""


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(("typed", "offered"), CASES + SPLIT_CASES)
def test_bash_completes(script: Path, typed: str, offered: set[str]) -> None:
    (script.parent / "q u.yaml").touch()
    words = " ".join(f"'{word}'" for word in ("yunishard " + typed).split(" "))
    ask = 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _yunishard; printf "%s\\n" "${COMPREPLY[@]}"'
    answer = said("bash", f"source {script}; COMP_WORDS=({words}); {ask}", script.parent)
    assert {word for word in answer if word and not (word.startswith("-") and not typed)} == offered


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(("typed", "offered"), CASES)
def test_fish_completes(script: Path, typed: str, offered: set[str]) -> None:
    (script.parent / "q u.yaml").touch()
    answer = said("fish", f"source {script}; complete -C 'yunishard {typed}'", script.parent)
    assert {line.split("\t")[0] for line in answer} == offered


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_takes_the_script(script: Path) -> None:
    text = f"autoload -Uz compinit; compinit -D -u; source {script}; print $_comps[yunishard]"
    assert said("zsh", text, script.parent) == {"_yunishard"}


def test_special_characters_in_help_texts_are_quoted() -> None:
    odd = Argument(("--odd",), "it's [so]: \\", "N", "text")
    commands = {"": [], "up": [odd]}
    assert "'--odd=[it'\\''s \\[so\\]\\: \\\\]:N: '" in "\n".join(zsh(commands))
    assert "-l odd -x -d 'it\\'s [so]: \\\\'" in "\n".join(fish(commands))
    assert '"up --odd") COMPREPLY=(); return ;;' in "\n".join(bash(commands))


def test_words_or_files_are_offered_together() -> None:
    side = Argument((), "one of two", "current|FILE", "word or file", ("current",))
    commands = {"": [], "config diff": [side], "config": []}
    told = "\n".join(zsh(commands))
    assert """':current|FILE:_alternative "words\\:word\\:(current)" "files\\:file\\:_files"'""" in told
    assert "-F -a 'current'" in "\n".join(fish(commands))


def test_the_tree_has_every_option_of_every_command() -> None:
    commands = tree(parser_of(COMMANDS))
    assert [name for name in commands if name in COMMANDS] == list(COMMANDS)
    assert [name for name in commands if name.startswith("app ")] == ["app kill", "app move"]
    assert Argument(("--settings",), commands["up"][1].about, "FILE", "file") == commands["up"][1]
    assert Argument((), "the application", "ID", "text") in commands["app kill"]
