"""A worker as a real process, with the test as its broker."""

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from benchmarks.recovery import Shape, write_journal
from tests.machines import PARTITION, RM, SESSION, header
from yunishard.common.config.validation import load
from yunishard.common.messages.control_messages import CommitConfig, Grant, Hello, PartitionRemoved, PrepareConfig
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    ApplicationRequest,
    ApplicationResponse,
    Heartbeat,
    UserGroupInformation,
)
from yunishard.common.messages.wire import decode_body, decode_header, encode_body, encode_frames
from yunishard.common.names import WORKER_PREFIX
from yunishard.common.settings import Settings, encode_settings
from yunishard.partition_worker.group_lookup import look_up_groups
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournal

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
PATIENCE_MS = 20_000
ME = pwd.getpwuid(os.getuid()).pw_name
CONFIG = """
partitions:
  - name: default
    usergroupresolver: {type: os}
    queues: [{name: root, submitacl: "*", queues: [{name: batch}]}]
"""


M = TypeVar("M", bound=Message)


class Broker:
    """What a worker has instead of a broker: a socket and somebody who says one thing after the other."""

    def __init__(self, socket: "zmq.Socket[bytes]", process: "subprocess.Popen[str]", epoch: int) -> None:
        self._socket = socket
        self._name = f"{WORKER_PREFIX}{epoch}".encode()
        self.process = process
        self.seq = 0
        self.registration = self.hears(Hello)
        self.says(Grant(), epoch=epoch)

    def hears(self, kind: type[M]) -> M:
        """The next message of this kind; what comes before it is not asked for."""
        return self.hears_all(kind)[1]

    def hears_all(self, kind: type[M]) -> tuple[Header, M]:
        """The same with its header."""
        while True:
            assert self._socket.poll(PATIENCE_MS), "the worker says nothing"
            name, *frames = self._socket.recv_multipart()
            if name == self._name and decode_header(frames).kind == kind.__name__:
                return decode_header(frames), decode_body(kind, frames[2])

    def hears_first(self) -> tuple[str, int]:
        """Kind and epoch of the first message that it sends with its lease."""
        while True:
            assert self._socket.poll(PATIENCE_MS), "the worker says nothing"
            _, *frames = self._socket.recv_multipart()
            if decode_header(frames).epoch:
                return decode_header(frames).kind, decode_header(frames).epoch

    def says(self, message: Message, **fields: str | int) -> None:
        said = header(type(message).__name__, partition=PARTITION, **fields)
        self._socket.send_multipart([self._name, *encode_frames(said, encode_body(message))])

    def configures(self) -> None:
        self.hears(Hello)
        self.says(PrepareConfig(rollout=1, config=load(CONFIG).partitions[0]))
        self.says(CommitConfig(rollout=1))

    def submits(self, *users: str) -> None:
        """An application for each user, called after them; their groups are not named."""
        self.seq += 1
        new = [
            AddApplicationRequest(
                application_id=f"of-{user}", queue_name="root.batch", ugi=UserGroupInformation(user=user)
            )
            for user in users
        ]
        self.says(ApplicationRequest(new=new), seq=self.seq)


@contextmanager
def worker(
    folder: Path, *more: str, epoch: int = 5, ending: signal.Signals = signal.SIGTERM, status: int = 0
) -> Iterator[Broker]:
    address = f"ipc://{folder}/broker"
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(address)
    command = ["partition_worker", "--broker", address, "--instance", str(epoch)]
    command += ["--state", str(folder), *more]
    process = subprocess.Popen([sys.executable, "-P", "-m", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        yield Broker(socket, process, epoch)
    finally:
        process.send_signal(ending)
        _, errors = process.communicate(timeout=PATIENCE_MS / 1000)
        socket.close()
    expected = -ending if ending == signal.SIGKILL else status
    assert (process.returncode, "Traceback" in errors) == (expected, False), errors


def test_the_groups_of_a_submission_come_from_the_operating_system(tmp_path: Path) -> None:
    with worker(tmp_path) as broker:
        broker.configures()
        broker.submits(ME, "no-such-user-anywhere")
        answers = [broker.hears(ApplicationResponse) for _ in range(2)]
        accepted = [app.application_id for one in answers for app in one.accepted]
        rejected = [app.reason for one in answers for app in one.rejected]
        assert accepted == [f"of-{ME}"]
        assert rejected == ["user: unknown user no-such-user-anywhere"]
        broker.says(Query(what="application", name="default", args={"application": f"of-{ME}"}), ref="q")
        answer = broker.hears(Answer)
        assert json.loads(answer.body)["groups"] == look_up_groups(ME)


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_told_is_still_so_after_a_worker_has_ended_in_whatever_way(
    tmp_path: Path, ending: signal.Signals
) -> None:
    with worker(tmp_path, epoch=5, ending=ending) as broker:
        broker.configures()
        broker.submits(ME)
        assert broker.hears(ApplicationResponse).accepted
    with worker(tmp_path, epoch=6) as broker:
        told, hello = broker.hears_all(Hello)
        assert (told.partition, told.epoch, told.rm, told.session) == (PARTITION, 6, RM, SESSION)
        assert (hello.rollout, hello.problem) == (1, "")
        broker.says(Query(what="application", name="default", args={"application": f"of-{ME}"}), ref="q")
        assert broker.hears(Answer).status == 200


def test_a_journal_that_is_damaged_is_put_aside_and_the_worker_says_so(tmp_path: Path) -> None:
    with worker(tmp_path, epoch=5) as broker:
        broker.configures()
        broker.submits(ME)
        broker.hears(ApplicationResponse)
    journal = tmp_path / "journals" / f"{PARTITION}.sqlite"
    journal.write_bytes(b"no journal" * 1000)
    with worker(tmp_path, epoch=6) as broker:
        told, hello = broker.hears_all(Hello)
        assert (told.session, hello.rollout) == ("", 0)
        assert hello.problem == "its journal cannot be used: file is not a database"
        broker.says(PrepareConfig(rollout=2, config=load(CONFIG).partitions[0]))
        broker.says(CommitConfig(rollout=2))
        broker.submits(ME)
        assert broker.hears(ApplicationResponse).accepted
    assert (tmp_path / "journals" / f"{PARTITION}.damaged" / journal.name).read_bytes().startswith(b"no journal")
    with worker(tmp_path, epoch=7) as broker:
        assert broker.hears(Hello).rollout == 2


def test_a_worker_whose_partition_was_removed_deletes_its_journal(tmp_path: Path) -> None:
    with worker(tmp_path, epoch=5) as broker:
        broker.configures()
        broker.submits(ME)
        broker.hears(ApplicationResponse)
        assert (tmp_path / "journals" / f"{PARTITION}.sqlite").exists()
        broker.says(PartitionRemoved())
        broker.says(Query(what="application", name="default", args={"application": f"of-{ME}"}), ref="q")
        assert broker.hears(Answer).status == 200
    assert list((tmp_path / "journals").iterdir()) == []


def test_a_worker_whose_partition_another_one_has_ends(tmp_path: Path) -> None:
    with worker(tmp_path, epoch=5, status=2) as old:
        old.configures()
        old.submits(ME)
        old.hears(ApplicationResponse)
        files = Files(tmp_path / "journals", PARTITION)
        SqliteJournal(files, 6).close()
        old.submits("no-such-user-anywhere")
        old.process.wait(PATIENCE_MS / 1000)


def test_a_worker_says_that_it_lives_while_it_still_reads_its_journal(tmp_path: Path) -> None:
    files = Files(tmp_path / "journals", PARTITION)
    files.folder.mkdir()
    write_journal(files, Shape("long", nodes=10, allocations=2000, applications=5, tail=0))
    settings = tmp_path / "settings.json"
    settings.write_bytes(encode_settings(Settings(heartbeat_s=0.001)))
    with worker(tmp_path, "--settings", str(settings)) as broker:
        assert broker.hears_first() == (Heartbeat.__name__, 5)
        assert broker.hears(Hello).problem == ""
