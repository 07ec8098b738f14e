"""A worker that waits for its partition."""

import argparse
import asyncio
import socket
from collections.abc import Callable

from common.process import Life
from partition_worker.spare import assigned


def waited(deed: Callable[[socket.socket, Life], object]) -> tuple[bool, argparse.Namespace, bytes]:
    """Whether it got one, what its arguments are then, and what it has said; `deed` happens while it waits."""
    ours, theirs = socket.socketpair()
    args = argparse.Namespace(partition=None, epoch=0)

    async def wait() -> bool:
        life = Life(theirs.fileno())
        asyncio.get_running_loop().call_soon(deed, ours, life)
        return await assigned(args, life)

    with ours, theirs:  # not closed before the loop has ended: then a process without a supervisor ends
        return asyncio.run(wait()), args, ours.recv(4096)


def test_it_becomes_the_worker_of_what_it_is_assigned() -> None:
    got, args, said = waited(lambda ours, _: ours.send(b'{"partition": "rm_a", "epoch": 7}\n'))
    assert (got, args) == (True, argparse.Namespace(partition="rm_a", epoch=7))
    assert said == b'{"ready": {}}\n', "to the supervisor, who gives partitions to those that are ready only"


def test_it_leaves_without_one_when_it_is_time_to_stop() -> None:
    got, args, _ = waited(lambda _, life: life.stop())
    assert (got, args.partition) == (False, None)
