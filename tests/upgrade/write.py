"""`python -m tests.upgrade.write`: write the state directories that later releases have to open.

Run it with the release whose format is to be kept, once for each new format of the journal or of the broker's record.
For each way of ending it starts a system, lets two resource managers build up the content (`content.py`), notes what
REST shows and where the sessions are, ends the system, and packs its state directory.
"""

import argparse
import json
import signal
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tests.conformance.rest import Rest
from tests.deploy.system import FREE_PORTS, up
from tests.upgrade.builds import Build
from tests.upgrade.content import HANGING_LOOKUP, build_up, managers, picture
from yunishard.partition_worker.journal.database import FORMAT

ENDINGS: Final = {"stopped": signal.SIGTERM, "crashed": signal.SIGKILL}
NOTE: Final = "written.json"
"""The file in an archive with the picture over REST and the positions of the sessions."""

LEFT_OUT: Final = ("lock", "run", "history")
BUILD: Final = Build(
    name="writer",
    arguments=("--silence", "60s", "--heartbeat", "2s", "--preemption-pause", "500ms"),
    plugins={"hanging-lookup": HANGING_LOOKUP},
)


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
                note = {"rest": picture(rest), "positions": {rm.rm_id: rm.position for rm in rms}}
                if how is signal.SIGTERM:
                    assert system.stop() == 0, system.errors
        (state / NOTE).write_text(json.dumps(note, indent=1, sort_keys=True) + "\n")
        with tarfile.open(archive, "w:gz") as packed:
            for path in sorted(state.iterdir()):
                if path.name not in LEFT_OUT:
                    packed.add(path, path.name)


def main() -> int:
    """Write an archive for each way of ending."""
    parser = argparse.ArgumentParser(prog="python -m tests.upgrade.write", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parent, help="default: tests/upgrade")
    folder = parser.parse_args().folder
    for ending, how in ENDINGS.items():
        archive = folder / f"format-{FORMAT}-{ending}.tar.gz"
        write(archive, how)
        sys.stdout.write(f"{archive}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
