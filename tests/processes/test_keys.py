"""The real system with keys: who gets in, who does not, and that nothing secret comes out of it anywhere."""

import json
import os
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from tests.deploy.system import FREE_PORTS, WAIT_MAX_S, Up, eventually, up
from tests.processes.peer import CONFIG
from yunishard.cli.main import main
from yunishard.common.transport.curve_keys import fingerprint, read_pair, read_public
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from yunishard.sdk.blocking import BlockingResourceManager
from yunishard.sdk.exceptions import KeyRefused, RegistrationRefused, SessionLost
from yunishard.sdk.items import node

pytestmark = pytest.mark.processes

TAG = "a-tag-that-is-nobodys-business"
PAGES = ("settings", "fullstatedump", "partitions", "clusters", "events/batch", "config", "stack", "metrics")


@dataclass
class Keyed:
    """A system with keys, and the directory that its operator has them in."""

    up: Up
    folder: Path
    native: str
    rest: str
    grpc: str

    def keys(self, *words: str) -> None:
        assert main(["keys", words[0], "--dir", str(self.folder), *words[1:]]) == 0

    def secret(self, name: str) -> Path:
        return self.folder / f"{name}.key_secret"

    def public(self, name: str) -> str:
        return read_public(self.folder / f"{name}.key")

    def allows(self, name: str, ids: str) -> None:
        """Let a new key in, once the system has seen it."""
        before = self.up.errors.count("keys allowed now")
        self.keys("new", name)
        self.keys("allow", self.public(name), ids)
        self.up.until(lambda: self.up.errors.count("keys allowed now") > before)

    @contextmanager
    def manager(self, rm_id: str, key: str) -> Iterator[BlockingResourceManager]:
        with BlockingResourceManager(self.native, rm_id=rm_id, config=CONFIG, keys=self.secret(key)) as rm:
            yield rm


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keys")
    for words in (("new", "server"), ("new", "rm-1"), ("allow", str(folder / "rm-1.key"), "rm-1,test-*")):
        assert main(["keys", words[0], "--dir", str(folder), *words[1:]]) == 0
    options = ("--native-keys", str(folder), "--log-level", "debug")
    state = tmp_path_factory.mktemp("state")
    with up("--state", str(state), *options, *FREE_PORTS, folder=tmp_path_factory.mktemp("system")) as running:
        endpoints = running.announced()
        yield Keyed(running, folder, endpoints["native"], endpoints["rest"], endpoints["grpc"])
        assert running.stop() == 0


def test_a_listed_key_works_and_for_its_resource_managers_only(keyed: Keyed) -> None:
    with keyed.manager("test-7", "rm-1") as rm:
        rm.update_nodes([node("n1", {"vcore": "1"})])
        assert rm.partitions == ("test-7_default",)
    ours = fingerprint(keyed.public("rm-1"))
    with (
        pytest.raises(RegistrationRefused, match=f"key {ours} may not speak for RM 'rm-2'"),
        keyed.manager("rm-2", "rm-1"),
    ):
        pass


def test_a_key_that_is_not_listed_is_told_so_at_once(keyed: Keyed) -> None:
    keyed.keys("new", "stranger")
    with pytest.raises(KeyRefused, match="is not on its allow-list"), keyed.manager("rm-1", "stranger"):
        pass
    stranger = fingerprint(keyed.public("stranger"))
    keyed.up.until(lambda: keyed.up.says(f"key {stranger} from 127.0.0.1 is not on the allow-list"))


def test_without_keys_nobody_gets_in(keyed: Keyed) -> None:
    with pytest.raises(KeyRefused, match="it takes only connections with keys"):
        BlockingResourceManager(keyed.native, rm_id="rm-1", config=CONFIG, keys="")


def test_a_key_is_let_in_and_revoked_while_everything_runs(keyed: Keyed) -> None:
    keyed.allows("late", "late-1")
    lost = pytest.raises(SessionLost, match="is not on the allow-list any more")
    with keyed.manager("rm-1", "rm-1") as beside, lost, keyed.manager("late-1", "late") as rm:
        keyed.keys("revoke", "late-1")
        keyed.up.until(lambda: keyed.up.says(f"no longer {fingerprint(keyed.public('late'))}"))
        beside.update_nodes([node("n1", {"vcore": "1"})])
        rm.update_nodes([node("n1", {"vcore": "1"})])
        rm.wait(WAIT_MAX_S)


def test_grpc_without_a_certificate_cannot_take_an_rm_that_has_a_key(keyed: Keyed) -> None:
    with keyed.manager("rm-1", "rm-1") as rm, grpc.insecure_channel(keyed.grpc) as channel:
        rm.update_nodes([node("n1", {"vcore": "1"})])
        for rm_id in ("rm-1", "test-9"):
            with pytest.raises(grpc.RpcError) as refused:
                SchedulerStub(channel).RegisterResourceManager(
                    pb.RegisterResourceManagerRequest(rmID=rm_id), timeout=60
                )
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, refused.value.details()
            assert refused.value.details().startswith(f'RM "{rm_id}" has a native key')
        rm.update_nodes([node("n2", {"vcore": "1"})])
        eventually(lambda: _nodes(keyed, "rm-1_default") == ["n1", "n2"])


def test_grpc_takes_an_rm_without_a_key_until_it_gets_one(keyed: Keyed) -> None:
    request = pb.RegisterResourceManagerRequest(rmID="plain-1", config=CONFIG)
    with grpc.insecure_channel(keyed.grpc) as channel:
        stub = SchedulerStub(channel)
        stub.RegisterResourceManager(request, timeout=60)
        stream = stub.UpdateNode(iter(()), metadata=(("yk-rm-id", "plain-1"),))
        assert stream.code() is grpc.StatusCode.OK
        keyed.allows("plain", "plain-*")
        with pytest.raises(grpc.RpcError) as refused:
            stub.RegisterResourceManager(request, timeout=60)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    with keyed.manager("plain-1", "plain") as rm:
        assert rm.partitions == ("plain-1_default",)


def _nodes(keyed: Keyed, partition: str) -> list[str]:
    return sorted(one["nodeID"] for one in json.loads(_page(f"{keyed.rest}/ws/v1/partition/{partition}/nodes")))


def test_nothing_secret_is_in_a_log_a_command_line_an_environment_or_a_dump(keyed: Keyed) -> None:
    secrets = [read_pair(file).secret for file in sorted(keyed.folder.glob("*.key_secret"))]
    assert len(secrets) >= 2
    with keyed.manager("rm-1", "rm-1") as rm:
        rm.update_nodes([node("n1", {"vcore": "1"})])
        places = {"the log": keyed.up.errors}
        for number in (keyed.up.process.pid, *keyed.up.children):
            for file in ("cmdline", "environ"):
                places[f"{file} of {number}"] = Path(f"/proc/{number}/{file}").read_text()
        for page in PAGES:
            places[page] = _page(f"{keyed.rest}/ws/v1/{page}")
        for place, text in places.items():
            for secret in secrets:
                assert secret not in text, place
        assert str(keyed.folder) in places["settings"], "the files may be named"


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode(errors="replace"))
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace")


def test_configurations_and_tags_are_not_in_the_log_at_info(tmp_path: Path) -> None:
    config = CONFIG.replace("batch", "the-secret-project")
    with up("--ephemeral", *FREE_PORTS, folder=tmp_path) as running:
        native = running.announced()["native"]
        with BlockingResourceManager(native, rm_id="rm-1", config=config, extra_config={"password": TAG}) as rm:
            rm.update_nodes([node("n1", {"vcore": "1"}, attributes={"tag": TAG})])
        with pytest.raises(RegistrationRefused):
            BlockingResourceManager(native, rm_id="rm-2", config=f"partitions: [{TAG}]")
        assert running.stop() == 0
        assert TAG not in running.errors
        assert "the-secret-project" not in running.errors


def test_our_own_processes_do_not_meet_where_others_could_come_too() -> None:
    command = (sys.executable, "-P", "-m", "yunishard.broker", "--broker", "tcp://127.0.0.1:0")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "broker: tcp://127.0.0.1:0: the broker's port has no keys, so it must be an ipc:// address\n"
    )


def test_the_sockets_between_our_processes_are_behind_a_door_of_the_owner(keyed: Keyed) -> None:
    broker = next(command for command in keyed.up.children.values() if "-m broker" in command)
    socket = Path(broker.split("ipc://")[1].split()[0])
    folder = socket.parent.stat()
    assert socket.is_socket()
    assert stat.S_IMODE(folder.st_mode) == 0o700
    assert folder.st_uid == os.getuid() == socket.stat().st_uid
