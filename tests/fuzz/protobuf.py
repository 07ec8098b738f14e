"""What a gRPC client that went mad sends: good requests with something wrong in them.

Protobuf has few rules to break: a field is a number, one of six wire types, and so many bytes. Not here: connections
(`senders.py`).
"""

import random
from typing import Final

from google.protobuf.message import Message

from tests.fuzz.examples import CONFIG, Voice
from tests.fuzz.words import TEXTS, bitten
from yunishard.rmproxy.admin import admin_pb2 as admin
from yunishard.rmproxy.si import scheduler_pb2 as si

VARINTS: Final = (0, 1, 7, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
WIRE_TYPES: Final = (0, 1, 2, 3, 4, 5, 6, 7)
"""The last two mean nothing."""


def requests(voice: Voice) -> dict[str, list[bytes]]:
    """By the path of the call: good requests."""
    amount = si.Resource(resources={"vcore": si.Quantity(value=1)})
    node = si.NodeInfo(nodeID="n1", action=si.NodeInfo.CREATE, schedulableResource=amount, attributes={"a": "b"})
    user = si.UserGroupInformation(user="alice", groups=["dev"])
    app = si.AddApplicationRequest(applicationID="app", queueName="root.batch", ugi=user, tags={"a": "b"})
    gone = si.RemoveApplicationRequest(applicationID="app")
    ask = si.Allocation(
        allocationKey="k1",
        applicationID="app",
        resourcePerAlloc=amount,
        allocationTags={"creationTime": "1"},
        preemptionPolicy=si.PreemptionPolicy(allowPreemptSelf=True),
    )
    release = si.AllocationRelease(applicationID="app", allocationKey="k1", terminationType=si.STOPPED_BY_RM)
    releases = si.AllocationReleasesRequest(allocationsToRelease=[release])
    rm = voice.rm
    made: dict[str, list[Message]] = {
        "/si.v1.Scheduler/RegisterResourceManager": [
            si.RegisterResourceManagerRequest(
                rmID=rm, version="1", policyGroup="queues", config=CONFIG, buildInfo={"a": "b"}, extraConfig={"a": "b"}
            )
        ],
        "/si.v1.Scheduler/UpdateNode": [si.NodeRequest(nodes=[node, node], rmID=rm)],
        "/si.v1.Scheduler/UpdateApplication": [
            si.ApplicationRequest(new=[app], rmID=rm),
            si.ApplicationRequest(new=[app], remove=[gone], rmID=rm),
        ],
        "/si.v1.Scheduler/UpdateAllocation": [
            si.AllocationRequest(allocations=[ask], rmID=rm),
            si.AllocationRequest(allocations=[ask], releases=releases, rmID=rm),
        ],
        "/yunishard.v1.Admin/UpdateConfiguration": [
            si.UpdateConfigurationRequest(rmID=rm, policyGroup="queues", config=CONFIG, extraConfig={"a": "b"})
        ],
        "/yunishard.v1.Admin/Events": [
            admin.EventsRequest(rm_id=rm),
            admin.EventsRequest(rm_id=rm, partition=voice.partition, types=[1, 2], begin=1, history="h"),
        ],
        "/yunishard.v1.Admin/Leave": [admin.LeaveRequest(rm_id=rm, reason="tired")],
    }
    return {path: [one.SerializeToString() for one in every] for path, every in made.items()}


def mutated(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """The same request with one to three things wrong."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        match rng.randrange(6):
            case 0 | 1:
                data = bitten(rng, data)
            case 2:
                other = rng.choice(others)
                data = data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]
            case 3:
                at = rng.randrange(len(data) + 1)
                data = data[:at] + field(rng) + data[at:]
            case 4:
                data = data + field(rng) * rng.randrange(1, 20)
            case _:
                data = nested(rng, data)
    return data


def field(rng: random.Random) -> bytes:
    """A field that may be known, of a type that it may have."""
    tag = varint(rng.choice((1, 2, 3, 4, 5, 8, 17, 200, 2**29 - 1)) << 3 | rng.choice(WIRE_TYPES))
    text = rng.choice(TEXTS).encode(errors="surrogatepass")
    return tag + rng.choice(
        (
            varint(rng.choice(VARINTS)),
            varint(len(text)) + text,
            varint(rng.choice(VARINTS)) + text,
            rng.randbytes(8),
            b"\xff" * 11,
            varint(3) + b"\xff\xfe\xc0",
        )
    )


def nested(rng: random.Random, data: bytes) -> bytes:
    """A message in a message in a message."""
    for _ in range(rng.choice((1, 2, 150))):
        data = varint(rng.randrange(1, 4) << 3 | 2) + varint(len(data)) + data
    return data


def varint(number: int) -> bytes:
    """As protobuf writes it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes(found) + bytes([number])
