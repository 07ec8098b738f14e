"""A resource manager without any of this project's code: ZeroMQ and MessagePack, as every language has them.

    .venv/bin/pip install msgpack
    .venv/bin/python examples/plain_rm.py tcp://127.0.0.1:9090

It leaves `partition` empty and `seq` 0 in what it sends: then the core splits its updates by partition and delivers
them at most once. Messages of the core are numbered, and this program acknowledges them. It sends heartbeats when idle.
"""
# ruff: noqa: T201 - an example prints its progress

import sys
import uuid
from collections.abc import Mapping

import msgpack
import zmq

RM_ID = "plain"
SESSION = uuid.uuid4().hex  # a new one for each start of the program
QUEUES = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"

HEARTBEAT_MS = 1000
received: dict[str, int] = {}  # partition to the number of the last message received

Map = Mapping[str, object]


def send(socket: zmq.Socket[bytes], kind: str, body: Map, *, partition: str = "", ack: int = 0, life: int = 0) -> None:
    """Send the protocol, the header [kind, rm, partition, session, seq, ack, epoch, ref, life], and the body."""
    header = [kind, RM_ID, partition, SESSION, 0, ack, 0, "", life]
    socket.send_multipart([b"YSH1", msgpack.packb(header), msgpack.packb(body)])


def receive(socket: zmq.Socket[bytes]) -> tuple[str, dict[str, list[dict[str, str]]]]:
    """Return kind and body of the next message, and acknowledge it."""
    while True:
        silent_ms = 0
        while not socket.poll(HEARTBEAT_MS):
            silent_ms += HEARTBEAT_MS
            if silent_ms > 30_000:
                sys.exit("the core does not answer")
            send(socket, "Heartbeat", {})
        _, header, body = socket.recv_multipart()
        kind, _, partition, _, seq, _, _, _, life, *_ = msgpack.unpackb(header)
        if kind == "ResumeWanted":  # a part of the core restarted: it retransmits everything that is not in `received`
            send(socket, "Resume", {"received": received})
        elif kind == "PartitionRestarted":
            sys.exit("a partition lost its state: start this program again, which reports everything")
        elif seq == received.get(partition, 0) + 1:
            received[partition] = seq
            send(socket, "Ack", {}, partition=partition, ack=seq, life=life)
            return kind, msgpack.unpackb(body)
        elif not seq and kind not in ("Heartbeat", "Received"):
            return kind, msgpack.unpackb(body)


def main(address: str) -> None:
    """Register, report a node, submit an application with three asks, release what is allocated, remove it."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 1000
    socket.connect(address)

    send(socket, "RegisterResourceManager", {"rmID": RM_ID, "policyGroup": "queues", "config": QUEUES})
    kind, answer = receive(socket)
    print(kind, answer)
    if kind != "Registered":
        sys.exit(1)

    capacity = {"vcore": 4000, "memory": 8 << 30}  # thousandths, bytes
    send(socket, "NodeRequest", {"nodes": [{"nodeID": "node-1", "action": 1, "schedulableResource": capacity}]})
    app = {"applicationID": "app-1", "queueName": "root.batch", "ugi": {"user": "alice", "groups": ["dev"]}}
    send(socket, "ApplicationRequest", {"new": [app]})
    keys = ["task-1", "task-2", "task-3"]
    asks = [{"allocationKey": key, "applicationID": "app-1", "resourcePerAlloc": {"vcore": 1000}} for key in keys]
    send(socket, "AllocationRequest", {"allocations": asks})

    running = set(keys)
    while running:
        kind, news = receive(socket)
        print(kind, news)
        if kind == "Refused":
            sys.exit(1)
        if kind == "AllocationResponse":
            ended = [{"applicationID": "app-1", "allocationKey": one["allocationKey"]} for one in news.get("new", [])]
            if ended:
                send(socket, "AllocationRequest", {"releases": {"allocationsToRelease": ended}})
            running -= {one["allocationKey"] for one in news.get("released", [])}

    send(socket, "ApplicationRequest", {"remove": [{"applicationID": "app-1"}]})
    send(socket, "Leave", {})
    while kind != "Left":
        kind, _ = receive(socket)
    socket.close()
    zmq.Context.instance().term()


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:9090")
    except KeyboardInterrupt:
        sys.exit(130)
