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

from common.config.check import load
from common.messages import (
    AddApplicationRequest,
    Answer,
    ApplicationRequest,
    ApplicationResponse,
    CommitConfig,
    Hello,
    Message,
    PrepareConfig,
    Query,
    UserGroupInformation,
)
from common.wire import body_of, decoded, frames_of, header_of
from partition_worker.groups import groups_of
from tests.machines import PARTITION, header

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

    def __init__(self, socket: "zmq.Socket[bytes]") -> None:
        self._socket = socket
        self.seq = 0

    def hears(self, kind: type[M]) -> M:
        """The next message of this kind; what comes before it is not asked for."""
        while True:
            assert self._socket.poll(PATIENCE_MS), "the worker says nothing"
            _, *frames = self._socket.recv_multipart()
            if header_of(frames).kind == kind.__name__:
                return decoded(kind, frames[2])

    def says(self, message: Message, **fields: str | int) -> None:
        said = header(type(message).__name__, partition=PARTITION, **fields)
        self._socket.send_multipart([PARTITION.encode(), *frames_of(said, body_of(message))])

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
def worker(folder: Path) -> Iterator[Broker]:
    address = f"ipc://{folder}/broker"
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.bind(address)
    command = ["partition_worker", "--broker", address, "--partition", PARTITION, "--epoch", "5"]
    process = subprocess.Popen([sys.executable, "-P", "-m", *command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        yield Broker(socket)
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_MS / 1000)
        socket.close()
    assert (process.returncode, "Traceback" in errors) == (0, False), errors


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
        assert json.loads(answer.body)["groups"] == groups_of(ME)
