"""A process that reads one text."""

import asyncio
import sys
from unittest.mock import patch

import msgspec

from broker import service
from broker.config_validation import analyze
from broker.service import ValidationProcess
from common.messages import Header
from common.names import READER
from common.wire import Incoming, Outgoing
from tests.deploy.system import eventually

TEXT = "partitions:\n- name: default\n  queues:\n  - name: root\n"
PATIENCE_S = 30.0


async def answer(*program: str, limit_s: float = PATIENCE_S) -> Incoming:
    """What is heard of the text."""
    came = asyncio.Event()
    reader = ValidationProcess(wake=came.set)
    with patch.multiple(service, VALIDATION=program or service.VALIDATION, VALIDATION_MAX_S=limit_s):
        reader.send(Outgoing(READER, Header(kind="ReadText", ref="5"), TEXT.encode()))
        assert reader.receive() is None
        async with asyncio.timeout(PATIENCE_S):
            await came.wait()
    found = reader.receive()
    assert found is not None
    reader.close()
    return found


def test_the_judgement_is_that_of_this_process() -> None:
    heard = asyncio.run(answer())
    assert (heard.source, heard.header.ref, heard.body) == (READER, "5", msgspec.msgpack.encode(analyze(TEXT)))


def test_a_process_that_breaks_gives_an_empty_answer() -> None:
    assert asyncio.run(answer(sys.executable, "-c", "raise SystemExit(3)")).body == b""


def test_no_process_gives_an_empty_answer() -> None:
    assert asyncio.run(answer("/there/is/no/such/program")).body == b""


def test_a_process_that_takes_too_long_is_ended() -> None:
    assert asyncio.run(answer(sys.executable, "-c", "import time; time.sleep(60)", limit_s=0.05)).body == b""


def test_who_closes_waits_for_nothing() -> None:
    async def closed() -> Incoming | None:
        came = asyncio.Event()
        reader = ValidationProcess(wake=came.set)
        with patch.object(service, "VALIDATION", (sys.executable, "-c", "import time; time.sleep(60)")):
            reader.send(Outgoing(READER, Header(kind="ReadText", ref="1"), b""))
            await asyncio.to_thread(eventually, lambda: reader._child is not None)
            reader.close()
            await came.wait()
        return reader.receive()

    heard = asyncio.run(closed())
    assert heard is not None
    assert heard.body == b""
