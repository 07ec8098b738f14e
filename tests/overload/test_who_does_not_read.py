"""A resource manager that sends and does not read what it is told: only its own partitions stand still."""

import time
from statistics import median
from typing import Final

import msgpack
import pytest

from tests.conformance.rest import Rest
from tests.deploy.system import eventually
from tests.processes.peer import Peer, connected
from tests.processes.system import System
from tests.processes.test_flood import bounded, furnished
from yunishard.common.messages.session import BACKLOG_MAX_MESSAGES

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

TAKEN: Final = BACKLOG_MAX_MESSAGES
"""Commands that are taken, each of which is answered by one message."""

AT_ONCE: Final = 512
"""Less than what may be on its way."""

USUAL_MAX_S: Final = 0.5
"""What an ask and a release of somebody else take meanwhile; the median."""


def rejected(rest: Rest) -> int:
    """Asks of the deaf one that its partition has dealt with."""
    _, text = rest.ask("/ws/v1/metrics")
    series = 'allocation_attempt_total{partition="deaf_default",state="rejected"} '
    return sum(int(float(line.rpartition(" ")[2])) for line in text.splitlines() if series in line)


def flood(deaf: Peer, beside: Peer, rest: Rest) -> list[float]:
    """Send all and hear nothing; how long the other one waits for its results meanwhile."""
    waits = []
    wrong = msgpack.packb({"allocations": [{"allocationKey": "k", "applicationID": "none"}]})
    for sent in range(0, TAKEN + AT_ONCE, AT_ONCE):
        for number in range(sent + 1, sent + AT_ONCE + 1):
            deaf.send("AllocationRequest", wrong, partition="deaf_default", seq=number)
        begun = time.monotonic()
        beside.works()
        waits.append(time.monotonic() - begun)
        taken = min(TAKEN, sent + AT_ONCE)
        eventually(lambda taken=taken: rejected(rest) == taken)
    return waits


def test_who_does_not_read_is_told_no_more_and_costs_nobody_else_anything(system: System) -> None:
    with furnished(system, "beside") as beside, connected(system.native, "deaf") as deaf, bounded(system):
        assert deaf.register()[0][0] == "Registered"
        waits = flood(deaf, beside, Rest(f"http://{system.rest}"))
        assert median(waits) < USUAL_MAX_S, waits
        told, refused = heard(deaf)
        assert (told, refused) == (TAKEN, {"window"})
        beside.works()


def heard(deaf: Peer) -> tuple[int, set[str]]:
    """How much it was told in the end, and why its commands were refused."""
    told, codes = 0, set()
    deaf.send("Query", {})  # an RM does not send that: the refusal comes after everything else
    while "unknown-kind" not in codes:
        header, body = deaf.hear()
        told += header[0] == "AllocationResponse"
        if header[0] == "Refused":
            codes.add(body["code"])
    return told, codes - {"unknown-kind"}
