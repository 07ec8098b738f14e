"""A resource manager of plain pyzmq and msgpack, which can say anything: also what nobody should say."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgpack
import zmq

PATIENCE_MS: Final = 20_000
HEARTBEAT_MS: Final = 1_000
QUEUES: Final = "queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]"
CONFIG: Final = f"partitions: [{{name: default, {QUEUES}}}]"

Body = dict[str, Any]
Answer = tuple[list[Any], Body]
"""Header and body."""


class Peer:
    """One connection. What it hears that a question did not ask for is kept for the next question."""

    def __init__(self, socket: "zmq.Socket[bytes]", rm_id: str) -> None:
        self.rm_id = rm_id
        self.session = f"session-of-{rm_id}"
        self._socket = socket
        self._keys = itertools.count(1)
        self._received: dict[str, int] = {}

    # Frames and messages --------------------------------------------------------------------------------------------

    def header(self, kind: str, *, partition: str = "", seq: int = 0, ack: int = 0, **other: str) -> list[Any]:
        rm, session, ref = other.get("rm", self.rm_id), other.get("session", self.session), other.get("ref", "")
        return [kind, rm, partition, session, seq, ack, 0, ref]

    def send_frames(self, *frames: bytes) -> None:
        self._socket.send_multipart(frames)

    def send(self, kind: str, body: Body | bytes, **header: Any) -> None:
        packed = body if isinstance(body, bytes) else msgpack.packb(body)
        self.send_frames(b"YSH1", msgpack.packb(self.header(kind, **header)), packed)

    def hear(self) -> Answer:
        """The next message, acknowledged. What keeps a session alive is done on the way, and not heard."""
        for _ in range(PATIENCE_MS // HEARTBEAT_MS):
            if not self._socket.poll(HEARTBEAT_MS):
                self.send("Heartbeat", {})
                continue
            protocol, header, body = self._socket.recv_multipart()
            assert protocol == b"YSH1"
            kind, _, partition, _, seq, *_ = read = msgpack.unpackb(header)
            if kind == "ResumeWanted":  # we were silent for too long
                self.send("Resume", {"received": self._received})
            elif seq:
                if seq <= self._received.get(partition, 0):
                    continue
                self._received[partition] = seq
                self.send("Ack", {}, partition=partition, ack=seq)
            if kind not in ("Heartbeat", "ResumeWanted"):
                assert kind
                return read, msgpack.unpackb(body)
        raise AssertionError("the core says nothing")

    def hears(self, kind: str, key: str = "") -> Body:
        """The next message of this kind that has this key; what comes before it is not asked for."""
        while True:
            header, body = self.hear()
            if header[0] == kind and (not key or key in body):
                return body

    # Conversations --------------------------------------------------------------------------------------------------

    def register(self, config: str = CONFIG, **header: str) -> Answer:
        """Register; the answer."""
        rm = header.get("rm", self.rm_id)
        self.send("RegisterResourceManager", {"rmID": rm, "config": config}, **header)
        while True:
            answer = self.hear()
            if answer[0][0] in ("Registered", "Refused"):
                return answer

    def furnish(self) -> None:
        """Register with a node and an application."""
        header, body = self.register()
        assert header[0] == "Registered", body
        self.send("NodeRequest", {"nodes": [{"nodeID": "n1", "action": 1, "schedulableResource": {"vcore": 10}}]})
        app = {"applicationID": "app", "queueName": "root.batch", "ugi": {"user": "alice"}}
        self.send("ApplicationRequest", {"new": [app]})
        assert self.hears("NodeResponse")["accepted"] == [{"nodeID": "n1"}]
        assert self.hears("ApplicationResponse", "accepted")["accepted"] == [{"applicationID": "app"}]

    def works(self) -> None:
        """A good ask is still placed, and its release still confirmed."""
        key = f"good-{next(self._keys)}"
        ask = {"allocationKey": key, "applicationID": "app", "resourcePerAlloc": {"vcore": 1}}
        self.send("AllocationRequest", {"allocations": [ask]})
        [placed] = self.hears("AllocationResponse", "new")["new"]
        assert (placed["allocationKey"], placed["nodeID"]) == (key, "n1")
        release = {"allocationKey": key, "applicationID": "app"}
        self.send("AllocationRequest", {"releases": {"allocationsToRelease": [release]}})
        [released] = self.hears("AllocationResponse", "released")["released"]
        assert released["allocationKey"] == key

    def refused(self) -> tuple[str, str]:
        """Code and reason of the next refusal."""
        body = self.hears("Refused")
        return body["code"], body["reason"]


@contextmanager
def connected(address: str, rm_id: str) -> Iterator[Peer]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(address)
    try:
        yield Peer(socket, rm_id)
    finally:
        socket.close()
