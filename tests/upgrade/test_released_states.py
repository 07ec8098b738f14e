"""This build starts on the state directories that releases have left, and nothing is lost."""

import json
import signal
from pathlib import Path

import pytest

from tests.conformance.rest import Rest
from tests.deploy.system import FREE_PORTS, up
from tests.upgrade.builds import Build
from tests.upgrade.content import Position, go_on, managers, picture
from tests.upgrade.write import ARCHIVES, NOTE, extract, name_archive

pytestmark = pytest.mark.processes

REFUSING = '''
class Plugin:
    """Reads no tags, and refuses every node."""

    name = "refusing"

    def read(self, tags):
        raise ValueError("no tags are read")

    def refuses(self, demand, node):
        return "no node is accepted"
'''
STRICT = Build(
    name="strict",
    arguments=(
        *("--asks-max", "1", "--journal-max", "16MiB", "--preemption-threshold", "99", "--disable-reservation"),
        *("--interpreted", "--history", "false", "--default-rm", "rm-1", "--silence", "60s"),
    ),
    plugins={"refusing": REFUSING},
)
OTHER_DATE = '''
from yunishard.common.transport import event_loop

event_loop._STARTED_WALL += {seconds}


class Plugin:
    """Refuses nothing. Its module sets the clock of the worker to another date."""

    name = "other-date"

    def read(self, tags):
        return None

    def refuses(self, demand, node):
        return ""
'''
BROKEN = Build(name="broken", plugins={"broken": "raise RuntimeError('it was written for another release')"})


@pytest.mark.parametrize("archive", ARCHIVES, ids=name_archive)
def test_a_state_opens_with_nothing_lost(archive: Path, tmp_path: Path) -> None:
    """Settings and plug-ins that would not have let it come about change nothing of it; then the work goes on, also
    where the clock shows a much earlier or later date.
    """
    state = extract(archive, tmp_path)
    written = json.loads((state / NOTE).read_text())
    arguments, variables = STRICT.install(tmp_path / "plugins")
    with up("--state", str(state), *FREE_PORTS, *arguments, folder=tmp_path, variables=variables) as system:
        assert picture(Rest(system.announced()["rest"])) == written["rest"]
        system.stop(signal.SIGKILL)
    is_later = "stopped" in archive.name
    plugin = OTHER_DATE.format(seconds=(500 if is_later else -500) * 24 * 3600)
    later = Build(name="later", arguments=("--silence", "60s"), plugins={"other-date": plugin})
    arguments, variables = later.install(tmp_path / "later")
    with up("--state", str(state), *FREE_PORTS, *arguments, folder=tmp_path, variables=variables) as system:
        endpoints = system.announced()
        assert picture(Rest(endpoints["rest"])) == written["rest"]
        with managers(endpoints["native"], {rm: Position(*one) for rm, one in written["positions"].items()}) as rms:
            go_on(*rms, is_later=is_later)
    assert not list((state / "journals").glob("*.damaged"))


def test_a_plugin_that_cannot_be_loaded_changes_nothing(tmp_path: Path) -> None:
    state = extract(ARCHIVES[0], tmp_path)
    before = {path: path.read_bytes() for path in state.glob("journals/*.sqlite*")}
    with up("--state", str(state), *FREE_PORTS, "--predicates", "gone", folder=tmp_path) as system:
        assert system.process.wait() != 0
        assert system.says("no plug-in 'gone' is installed")
    arguments, variables = BROKEN.install(tmp_path / "plugins")
    with up("--state", str(state), *FREE_PORTS, *arguments, folder=tmp_path, variables=variables) as system:
        system.until(lambda: system.says("it was written for another release"))
    assert {path: path.read_bytes() for path in state.glob("journals/*.sqlite*")} == before
