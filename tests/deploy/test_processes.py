"""Lifelines of child processes."""

import asyncio
import socket

from yunishard.deploy.processes import Lifeline


def test_who_never_stops_talking_does_not_keep_the_others_waiting() -> None:
    heard: list[bytes] = []

    async def run() -> None:
        ours, theirs = socket.socketpair()

        def hear(line: bytes) -> None:
            heard.append(line)
            assert len(heard) < 10_000, "it listens for ever"
            theirs.send(b"and\n")

        lifeline = Lifeline(ours, hear)
        theirs.send(b"so\n")
        lifeline.read()
        lifeline.close()
        theirs.close()

    asyncio.run(run())
    assert heard[:3] == [b"so", b"and", b"and"]
