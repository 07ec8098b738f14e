"""Completion scripts, tried in the shells that are installed. shtab writes them; this tests what it is told."""

import shutil
import subprocess
from pathlib import Path

import pytest

from yunishard.cli import COMMANDS, main


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
            *("up", "replay", "validate", "config", "app", "hosts", "schedule", "store"),
            *("event", "history", "rm"),
            *("keys", "cluster", "journal", "settings", "token", "completion"),
        },
    ),
    ("hosts dr", {"drain"}),
    ("hosts drain a --w", {"--wait"}),
    ("keys allow q", {"q u.yaml"}),
    ("keys re", {"revoke"}),
    ("cluster ro", {"rotate"}),
    ("cluster prune q", set[str]()),
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
    ("config diff --s", {"--summary"}),
    ("config diff current q", {"q u.yaml"}),
    ("settings --rest ", {"off"}),
    ("token --sc", {"--scope"}),
    ("token --scope ", {"read"}),
    ("token --keys q", {"q u.yaml"}),
    ("up --history ", {"true", "false"}),
    ("app kill --token-file q", {"q u.yaml"}),
    ("journal ver", {"verify"}),
    ("journal steps --k", {"--kind"}),
    ("journal show --as", {"--asks"}),
    ("journal trace --st", {"--state", "--store"}),
    ("journal verify q", {"q u.yaml"}),
]


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(("typed", "offered"), CASES)
def test_bash_completes(script: Path, typed: str, offered: set[str]) -> None:
    (script.parent / "q u.yaml").touch()
    words = " ".join(f"'{word}'" for word in ("yunishard " + typed).split(" "))
    ask = 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_yunishard; printf "%s\\n" "${COMPREPLY[@]}"'
    answer = said("bash", f"source {script}; COMP_WORDS=({words}); {ask}", script.parent)
    assert {word for word in answer if word and not (word.startswith("-") and not typed)} == offered


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_takes_the_script(script: Path) -> None:
    text = f"autoload -Uz compinit; compinit -D -u; source {script}; print $_comps[yunishard]"
    assert said("zsh", text, script.parent) == {"_shtab_yunishard"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_has_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    assert "--same-hierarchy" in script
