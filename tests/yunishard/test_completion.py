"""Completion scripts, tried in the shells that are installed. shtab writes them; this tests what it is told."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from tests.yunishard.terminal import Terminal
from yunishard.cli.main import COMMANDS, main


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
    ("", {name for name, command in COMMANDS.items() if command.about}),
    ("hosts dr", {"drain"}),
    ("hosts drain a --w", {"--wait"}),
    ("keys allow q", {"q u.yaml"}),
    ("keys re", {"revoke"}),
    ("cluster ro", {"rotate"}),
    ("cluster prune q", set[str]()),
    ("up --e", {"--ephemeral"}),
    ("up --sim", {"--simulated-nodes", "--simulated-load"}),
    ("fake-rm --no", {"--nodes", "--node-resources"}),
    ("fake-rm --config q", {"q u.yaml"}),
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
    text = f'autoload -Uz compinit; compinit -D -u; eval "$(cat {script})"; print $_comps[yunishard]'
    assert said("zsh", text, script.parent) == {"_shtab_yunishard"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_has_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    assert "--same-hierarchy" in script


# Names of the running system ------------------------------------------------------------------------------------------


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeWeb]:
    """A system with some names, at the address in the environment; `yunishard` is in the path."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    with web() as fake:
        monkeypatch.setenv("YUNISHARD_URL", "http://127.0.0.1:1")  # --rest overrides it
        fake.says("GET clusters", [{"partition": "default"}])
        fake.says_table("queues", [{"queue": "root"}, {"queue": "root.a"}, {"queue": "root.b"}], query="limit=2000")
        fake.says_table("queues", [{"queue": "root.a"}, {"queue": "root.b"}], query="text=root.&limit=2000")
        fake.says_table("applications", [{"application": "spark-17"}], query="text=sp&limit=2000")
        fake.says_table("applications", [{"application": "spark-18"}], query="text=sp&limit=2000", partition="gpu")
        yield fake


NAMES = [
    ("app show --rest {url} sp", {"spark-17"}),
    ("app list --rest {url} --queue root.", {"root.a", "root.b"}),
    ("app move --rest {url} spark-17 root.", {"root.a", "root.b"}),
    ("app kill --rest {url} --partition gpu sp", {"spark-18"}),
    ("queue show --rest {url} --partition ", {"default"}),
    ("app show sp", set[str]()),  # nothing listens there
]


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(("typed", "offered"), NAMES)
def test_bash_completes_names_of_the_running_system(script: Path, typed: str, offered: set[str], fake: FakeWeb) -> None:
    words = " ".join(f"'{word}'" for word in ("yunishard " + typed.format(url=fake.url)).split(" "))
    ask = 'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_yunishard; printf "%s\\n" "${COMPREPLY[@]}"'
    assert said("bash", f"source {script}; COMP_WORDS=({words}); {ask}", script.parent) - {""} == offered


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(("typed", "offered"), NAMES)
def test_fish_completes_names_of_the_running_system(script: Path, typed: str, offered: set[str], fake: FakeWeb) -> None:
    line = f"yunishard {typed.format(url=fake.url)}"
    answer = said("fish", f"source {script}; complete -C {shlex.quote(line)}", script.parent)
    assert {one.split("\t")[0] for one in answer} == offered


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
@pytest.mark.parametrize(("typed", "offered"), [NAMES[0], NAMES[4]])
def test_zsh_completes_names_of_the_running_system(script: Path, typed: str, offered: set[str], fake: FakeWeb) -> None:
    """zsh completes only in an interactive shell, so this presses Tab in one; a unique name is inserted."""
    line = f"yunishard {typed.format(url=fake.url)}"
    with Terminal("zsh", "-f", "-i", folder=script.parent) as shell:
        shell.types(f"autoload -Uz compinit; compinit -D -u; eval \"$(cat {script})\"; PS1='>'; print rea''dy\n")
        shell.waits_for("ready")
        shell.types(f"{line}\t")
        shell.waits_for(offered.copy().pop())
