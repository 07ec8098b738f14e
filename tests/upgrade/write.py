"""`python -m tests.upgrade.write`: write the state directories that later releases have to open.

Run it with a release that has a new format, once. For each way of ending it starts a system, lets two resource managers
build up the content (`content.py`), notes what REST shows and where the sessions are, ends the system, and packs its
state directory.
"""

import argparse
import json
import signal
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.conformance.rest import Rest
from tests.deploy.system import FREE_PORTS, eventually, up
from tests.upgrade.builds import Build
from tests.upgrade.content import HANGING_LOOKUP, build_up, managers, picture
from yunishard.cli.main import main as run_command

FOLDER: Final = Path(__file__).parent
ARCHIVES: Final = sorted(FOLDER.glob("*.tar.gz"))
"""The state directories that releases have left, named after release and ending."""

ENDINGS: Final = {"stopped": signal.SIGTERM, "crashed": signal.SIGKILL}
NOTE: Final = "written.json"
"""The file in an archive with the picture over REST, the positions of the sessions, and the recorded allocations."""

EXPORTED: Final = "rm-1_default.jsonl"
"""A file in an archive: one of the journals as `yunishard journal export --complete` wrote it."""

LEFT_OUT: Final = ("lock", "run")
LAST_ALLOCATED: Final = frozenset({"b0", "unheard-1", "v1"})
"""Keys of the allocations that each partition makes last."""
BUILD: Final = Build(
    name="writer",
    arguments=("--silence", "60s", "--heartbeat", "2s", "--preemption-pause", "500ms"),
    plugins={"hanging-lookup": HANGING_LOOKUP},
)


def name_archive(archive: Path) -> str:
    """The name of an archive without its suffix, for the name of a test."""
    return archive.name.removesuffix(".tar.gz")


def extract(archive: Path, folder: Path) -> Path:
    """Extract a state directory into a folder."""
    state = folder / "state"
    state.mkdir(mode=0o700)
    with tarfile.open(archive) as opened:
        opened.extractall(state, filter="tar")
    return state


def write(archive: Path, how: signal.Signals) -> None:
    """Write one state directory."""
    with tempfile.TemporaryDirectory(prefix="upgrade-") as name:
        folder = Path(name)
        arguments, variables = BUILD.install(folder / "plugins")
        state = folder / "state"
        command = ("--state", str(state), *arguments, *FREE_PORTS)
        with up(*command, folder=folder, variables=variables) as system:
            endpoints = system.announced()
            rest = Rest(endpoints["rest"])
            with managers(endpoints["native"]) as rms:
                build_up(*rms, rest)
                eventually(lambda: LAST_ALLOCATED.issubset(read_recorded(rest)))
                positions = {rm.rm_id: rm.position for rm in rms}
                note = {"rest": picture(rest), "positions": positions, "history": read_recorded(rest)}
                if how is signal.SIGTERM:
                    assert system.stop() == 0, system.errors
        journal = state / "journals" / "rm-1_default.sqlite"
        assert run_command(["journal", "export", str(journal), "--complete", "--output", str(state / EXPORTED)]) == 0
        (state / NOTE).write_text(json.dumps(note, indent=1, sort_keys=True) + "\n")
        with tarfile.open(archive, "w:gz") as packed:
            for path in sorted(state.iterdir()):
                if path.name not in LEFT_OUT:
                    packed.add(path, path.name)


def read_recorded(rest: Rest) -> list[str]:
    """The keys of the allocations that the history has."""
    page = rest.read("/ws/v1/history/allocations?limit=1000")
    return sorted(row["allocationKey"] for row in page["rows"])


def main() -> int:
    """Write an archive for each way of ending."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.write", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="default: tests/upgrade")
    folder = parser.parse_args().folder
    for ending, how in ENDINGS.items():
        archive = folder / f"{version('yunishard')}-{ending}.tar.gz"
        write(archive, how)
        sys.stdout.write(f"{archive}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
