"""The present release starts on state directories of earlier ones, and nothing is lost."""

import tarfile
from pathlib import Path

import msgpack
import pytest

from tests.deploy.system import FREE_PORTS, up
from tests.processes.peer import Peer, connected

pytestmark = pytest.mark.processes

FOLDER = Path(__file__).parent
FORMAT_1 = sorted(FOLDER.glob("format-1-*.tar.gz"))


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


@pytest.mark.parametrize("archive", FORMAT_1, ids=lambda one: one.name.partition(".")[0])
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
