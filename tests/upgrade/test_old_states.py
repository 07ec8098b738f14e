"""The present release starts on state directories of earlier ones, and nothing is lost."""

import json
import signal
import tarfile
from pathlib import Path

import msgpack
import pytest

from tests.conformance.rest import Rest
from tests.deploy.system import FREE_PORTS, up
from tests.processes.peer import Peer, connected
from tests.upgrade.builds import Build
from tests.upgrade.content import Position, go_on, managers, picture
from tests.upgrade.write import NOTE

pytestmark = pytest.mark.processes

FOLDER = Path(__file__).parent
FORMAT_1 = sorted(FOLDER.glob("format-1-*.tar.gz"))
READABLE = sorted({*FOLDER.glob("format-*.tar.gz")} - {*FORMAT_1})

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
from common import transport

transport._STARTED_WALL += {seconds}


class Plugin:
    """Refuses nothing. Its module sets the clock of the worker to another date."""

    name = "other-date"

    def read(self, tags):
        return None

    def refuses(self, demand, node):
        return ""
'''
BROKEN = Build(name="broken", plugins={"broken": "raise RuntimeError('it was written for another release')"})


def extracted(archive: Path, folder: Path) -> Path:
    state = folder / "state"
    state.mkdir(mode=0o700)
    with tarfile.open(archive) as opened:
        opened.extractall(state, filter="tar")
    return state


def report(peer: Peer, life: int) -> None:
    """Report everything in a generation: the node, the application, and all asks, allocated or not."""
    asks = [
        {"allocationKey": f"k{number}", "applicationID": "app", "resourcePerAlloc": {"vcore": 1}}
        | ({"nodeID": "n1"} if number < 10 else {})
        for number in range(12)
    ]
    app = {"applicationID": "app", "queueName": "root.batch", "ugi": {"user": "alice"}}
    commands = [
        ("SyncBegin", {}),
        ("NodeRequest", {"nodes": [{"nodeID": "n1", "action": 1, "schedulableResource": {"vcore": 10}}]}),
        ("ApplicationRequest", {"new": [app]}),
        ("AllocationRequest", {"allocations": asks}),
        ("SyncEnd", {"nodes": 1, "applications": 1, "allocations": 12}),
    ]
    for seq, (kind, body) in enumerate(commands, 1):
        header = [kind, "rm-1", "rm-1_default", peer.session, seq, 0, 0, "", life]
        peer.send_frames(b"YSH1", msgpack.packb(header), msgpack.packb(body))


def named(archive: Path) -> str:
    return archive.name.partition(".")[0]


@pytest.mark.parametrize("archive", READABLE, ids=named)
def test_a_state_opens_with_nothing_lost(archive: Path, tmp_path: Path) -> None:
    """Settings and plug-ins that would not have let it come about change nothing of it; then the work goes on, also
    where the clock shows a much earlier or later date.
    """
    state = extracted(archive, tmp_path)
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
    state = extracted(READABLE[0], tmp_path)
    before = {path: path.read_bytes() for path in state.glob("journals/*.sqlite*")}
    with up("--state", str(state), *FREE_PORTS, "--predicates", "gone", folder=tmp_path) as system:
        assert system.process.wait() != 0
        assert system.says("no plug-in 'gone' is installed")
    arguments, variables = BROKEN.install(tmp_path / "plugins")
    with up("--state", str(state), *FREE_PORTS, *arguments, folder=tmp_path, variables=variables) as system:
        system.until(lambda: system.says("it was written for another release"))
    assert {path: path.read_bytes() for path in state.glob("journals/*.sqlite*")} == before


@pytest.mark.parametrize("archive", FORMAT_1, ids=named)
def test_an_rm_of_a_journal_of_inputs_reports_again_and_keeps_what_runs(archive: Path, tmp_path: Path) -> None:
    """Format 1 cannot be read: the journal is put aside, the session of the RM continues, and it reports everything."""
    state = extracted(archive, tmp_path)
    with up("--state", str(state), *FREE_PORTS, folder=tmp_path) as system:
        native = system.announced()["native"]
        with connected(native, "rm-1") as peer:
            peer.send("Resume", {"received": {"rm-1_default": 5}})
            assert peer.hears("Registered")["partitions"] == ["rm-1_default"]
            while (answer := peer.hear())[0][0] != "PartitionRestarted":
                pass
            life = answer[0][8]
            assert life > 0
            report(peer, life)
            placed: list[str] = []
            while (answer := peer.hear())[0][0] != "SyncDone":
                placed += [one["allocationKey"] for one in answer[1].get("new", ())]
            assert "problem" not in answer[1]
            assert sorted(placed) == sorted(f"k{number}" for number in range(10))  # what runs, confirmed once
        assert system.says("it has format 1, and this release reads formats from 2 on")
    assert list((state / "journals").glob("rm-1_default.damaged/*"))
