"""Builds of the system with their settings and plug-ins, to be started one after the other on one state directory.

A build of an earlier commit is an export of that commit, started with the present environment: the folder comes first
in PYTHONPATH, so all of its processes run its sources.
"""

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from yunishard.common.names import PREDICATE_PLUGINS

ROOT: Final = Path(__file__).parents[2]

EVEN_NODES: Final = '''
class Plugin:
    """Accepts nodes whose number is even."""

    name = "even-nodes"

    def read(self, tags):
        return None

    def refuses(self, demand, node):
        return "the number is odd" if int(node.node_id.rpartition("-n")[2]) % 2 else ""
'''

ODD_NODES: Final = '''
class Plugin:
    """Accepts nodes whose number is odd."""

    name = "odd-nodes"

    def read(self, tags):
        return None

    def refuses(self, demand, node):
        return "" if int(node.node_id.rpartition("-n")[2]) % 2 else "the number is even"
'''

SMALL_SNAPSHOTS: Final = '''
from yunishard.partition_worker import rm_channel
from yunishard.partition_worker.journal import sqlite_journal

assert hasattr(rm_channel, "SNAPSHOT_BYTES") and hasattr(sqlite_journal, "SLICE_STEPS")
rm_channel.SNAPSHOT_BYTES, rm_channel.REST, sqlite_journal.SLICE_STEPS = 20_000, 1, 16


class Plugin:
    """Refuses nothing. Its module makes workers take a snapshot, and trim the journal, after 20 kB of steps."""

    name = "small-snapshots"

    def read(self, tags):
        return None

    def refuses(self, demand, node):
        return ""
'''


@dataclass(frozen=True, kw_only=True)
class Build:
    """Sources with the settings that they are started with."""

    name: str
    arguments: tuple[str, ...] = ()
    plugins: Mapping[str, str] = field(default_factory=dict)
    """The sources of the plug-ins that are installed and enabled, by name; each has a class `Plugin`."""
    sources: Path | None = None
    """Of an earlier commit; None for the present ones."""

    def install(self, folder: Path) -> tuple[tuple[str, ...], dict[str, str]]:
        """Install the plug-ins into a folder; return the arguments and the environment variables of `up`."""
        for name, source in self.plugins.items():
            module = name.replace("-", "_")
            about = folder / f"{module}-1.0.dist-info"
            about.mkdir(parents=True)
            (folder / f"{module}.py").write_text(source)
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            (about / "entry_points.txt").write_text(f"[{PREDICATE_PLUGINS}]\n{name} = {module}:Plugin\n")
        enabled = ("--predicates", ",".join(self.plugins)) if self.plugins else ()
        paths = [str(self.sources)] if self.sources is not None else []
        paths += [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        return (*self.arguments, *enabled), {"PYTHONPATH": os.pathsep.join(paths)}


class CommitUnavailable(Exception):
    """The sources of a commit cannot be exported; the text is the reason."""


def export_commit(commit: str, folder: Path) -> tuple[Path, str]:
    """Export the sources of a commit into a folder; return it with the short hash and subject of the commit.

    Raises:
        CommitUnavailable: this is no git checkout, or a shallow one without that commit.
    """
    archive, subject = _git("archive", commit), _git("log", "-1", "--format=%h %s", commit).decode().strip()
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        opened.extractall(folder, filter="data")
    if not (folder / "yunishard" / "broker").exists():
        raise CommitUnavailable(f"the processes of {subject} are no modules of yunishard")
    command = [sys.executable, "-P", "-c", "from yunishard import broker; print(broker.__file__)"]
    variables = {**os.environ, "PYTHONPATH": str(folder)}
    used = subprocess.run(command, env=variables, capture_output=True, text=True, check=True, cwd=folder).stdout
    assert Path(used.strip()) == folder / "yunishard" / "broker" / "__init__.py", used
    return folder, subject


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise CommitUnavailable("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise CommitUnavailable(error.stderr.decode().strip()) from None
