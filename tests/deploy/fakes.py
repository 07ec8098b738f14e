"""Tiny stand-ins for the processes, to see what the supervisor does with them: `python -m tests.deploy.fakes ROLE
...`.

They share a folder (the environment's FAKES) with the test. A fake adds a line about itself to `started`; a file
`fails.ROLE`, `mute.ROLE`, `stubborn.ROLE` or `garbled.ROLE` makes it report a failure, never be ready, ignore SIGTERM,
or say what is no line of the lifeline. The broker wants the workers in `wanted.json`, and looks again all the time.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

import zmq

from yunishard.common.messages.control_messages import Hello, WorkersWanted
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import decode_body, decode_header, encode_body, encode_frames
from yunishard.common.process.main import make_parser, write_line

POLL_S = 0.02
FOLDER = Path(os.environ.get("FAKES", "."))


def main(role: str, arguments: list[str]) -> int:
    args = make_parser(role, "a fake").parse_args(arguments)

    def stop(number: int, frame: FrameType | None) -> None:
        if not (FOLDER / f"stubborn.{role}").exists():
            with (FOLDER / "stopped").open("a") as stopped:
                stopped.write(f"{role}\n")
            os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    with (FOLDER / "started").open("a") as started:
        started.write(json.dumps({"role": role, "pid": os.getpid(), "arguments": arguments}) + "\n")
    if (FOLDER / f"fails.{role}").exists():
        write_line(args.lifeline, {"failed": "its knee hurts"})
        return 2
    threading.Thread(target=follow, args=(args.lifeline,), daemon=True).start()
    if (FOLDER / f"garbled.{role}").exists():
        os.write(args.lifeline, (FOLDER / f"garbled.{role}").read_bytes() + b"\n")
    endpoints = {name: bound(value) for name in ("native", "grpc", "rest") if (value := getattr(args, name))}
    if args.rest:
        endpoints["rest"] = f"http://{endpoints['rest']}"
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
    if role == "broker":
        socket.bind(args.broker)
    if not (FOLDER / f"mute.{role}").exists():
        write_line(args.lifeline, {"ready": endpoints})
        if role == "broker":
            write_line(args.lifeline, {"leader": {"address": args.broker}})
    while True:
        if role == "broker":
            serve(socket)
        write_line(args.lifeline, {"alive": 1})
        time.sleep(POLL_S)


def bound(address: str) -> str:
    """The address with a made-up port for 0."""
    return f"{address[:-1]}4711" if address.endswith(":0") else address


def serve(socket: "zmq.Socket[bytes]", told: dict[str, str] = {}) -> None:  # noqa: B006 - one broker per process
    wanted = (FOLDER / "wanted.json").read_text()
    while socket.poll(0):
        peer, *frames = socket.recv_multipart()
        if decode_header(frames).kind in ("Figures", "WorkerEnded"):  # they mean nothing to the fake
            continue
        assert decode_header(frames).kind == "Hello"
        assert decode_body(Hello, frames[2]).role == "supervisor"
        told[peer.decode()] = ""
    message = WorkersWanted(**json.loads(wanted))
    for name in [name for name, last in told.items() if last != wanted]:
        told[name] = wanted
        socket.send_multipart([name.encode(), *encode_frames(Header(kind="WorkersWanted"), encode_body(message))])


def follow(lifeline: int) -> None:
    with contextlib.suppress(ConnectionResetError):  # the other end is gone and has not read our last line
        os.read(lifeline, 1)
    os._exit(70)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
