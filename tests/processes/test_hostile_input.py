"""What nobody should send, sent to the real system over ZeroMQ: the sender hears why it was refused, keeps its
connection, and no process dies. The same over gRPC is in `test_hostile_grpc.py`."""

import uuid
from collections.abc import Iterator
from typing import Any, Final

import msgpack
import pytest

from tests.processes.peer import CONFIG, QUEUES, Peer, connected
from tests.processes.system import System
from yunishard.common.messages.wire import BODY_BYTES_MAX, HEADER_BYTES_MAX

pytestmark = pytest.mark.processes

RM: Final = "hostile"
PARTITION: Final = "hostile_default"
MOST: Final = 2**63 - 1
DUPLICATE: Final = (
    "failure while adding new node, node rejected with error: \n"
    f"failed to add node n1 to partition {PARTITION}, error: partition {PARTITION} has an existing node n1, "
    "node name must be unique"
)
NOT_UTF8: Final = b"\xa2\xff\xfe"


@pytest.fixture(scope="module")
def furnished(system: System) -> Iterator[Peer]:
    """One connection for all tests: each must leave it as it found it."""
    with connected(system.native, RM) as peer:
        peer.furnish()
        yield peer


@pytest.fixture
def peer(system: System, furnished: Peer) -> Iterator[Peer]:
    """After each test the same connection still works and no process has died."""
    with system.unharmed():
        yield furnished
        furnished.works()


def header(**fields: Any) -> bytes:
    names = ("kind", "rm", "partition", "session", "seq", "ack", "epoch", "ref")
    values = {"kind": "NodeRequest", "rm": RM, "session": f"session-of-{RM}", "seq": 0, "ack": 0, "epoch": 0}
    return msgpack.packb([{**values, **fields}.get(name, "") for name in names])


# Frames -------------------------------------------------------------------------------------------------------------

GOOD = header()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b""], "expected 3 frames (protocol, header, body), got 1"),
        ([b"\x00\xff" * 500], "expected 3 frames (protocol, header, body), got 1"),
        ([b"YSH1", GOOD], "expected 3 frames (protocol, header, body), got 2"),
        ([b"YSH1", GOOD, b"\x80", b""], "expected 3 frames (protocol, header, body), got 4"),
        ([b"", b"YSH1", GOOD, b"\x80"], "expected 3 frames (protocol, header, body), got 4"),
        ([b"x"] * 1000, "expected 3 frames (protocol, header, body), got 1000"),
        ([b"YSH2", GOOD, b"\x80"], "expected protocol YSH1, got b'YSH2'"),
        ([b"GET / HTTP/1.1", GOOD, b"\x80"], "expected protocol YSH1, got b'GET / HTTP/1.1'"),
        ([b"YSH1", b"", b"\x80"], "header: Input data was truncated"),
        ([b"YSH1", b"\xc1\xc1", b"\x80"], "header: "),
        ([b"YSH1", b"\x80", b"\x80"], "header: Expected `array`, got `object`"),
        ([b"YSH1", msgpack.packb([7]), b"\x80"], "header: Expected `str`, got `int` - at `$[0]`"),
        ([b"YSH1", header(seq="seven"), b"\x80"], "header: Expected `int`, got `str` - at `$[4]`"),
        ([b"YSH1", b"\x91" + NOT_UTF8, b"\x80"], "header: "),
        ([b"YSH1", b"\x91" * 4000, b"\x80"], "header: "),
        ([b"YSH1", b"x" * 10_000, b"\x80"], f"header of 10000 bytes, at most {HEADER_BYTES_MAX} are allowed"),
    ],
    ids=range(16),
)
def test_frames_that_are_no_message(peer: Peer, frames: list[bytes], reason: str) -> None:
    peer.send_frames(*frames)
    code, text = peer.refused()
    assert code == "malformed"
    assert text.startswith(reason)


def test_a_body_over_the_limit(peer: Peer) -> None:
    size = BODY_BYTES_MAX + 1
    peer.send_frames(b"YSH1", GOOD, bytes(size))
    text = f"body of {size} bytes, at most {BODY_BYTES_MAX} are allowed: send fewer items at once"
    assert peer.refused() == ("malformed", text)


# Bodies -------------------------------------------------------------------------------------------------------------

WRONG_TYPE: Final = {"allocations": [{}, {}, {}, {"priority": "high"}]}
ASK: Final = "AllocationRequest"


@pytest.mark.parametrize("partition", ["", PARTITION, "hostile_zzz"], ids=["split", "passed on", "unknown"])
@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (ASK, WRONG_TYPE, "AllocationRequest: Expected `int`, got `str` - at `$.allocations[3].priority`"),
        (ASK, {"allocations": [{"priority": 2**31}]}, "AllocationRequest: Expected `int` <= 2147483647 - at "),
        (ASK, {"allocations": [{"resourcePerAlloc": {"vcore": MOST + 1}}]}, "AllocationRequest: Expected `int` <= "),
        (ASK, b"\x81\xa3odd" + b"\x91" * 100_000, "AllocationRequest: nested too deeply"),
        (ASK, b"\x81\xa3odd" + b"\x81\xa0" * 100_000, "AllocationRequest: nested too deeply"),
        (ASK, b"", "AllocationRequest: Input data was truncated"),
        (ASK, b"\xdd\xff\xff\xff\xff", "AllocationRequest: "),
        (ASK, b"\x81\xaballocations\x91\x81\xadallocationKey" + NOT_UTF8, "AllocationRequest: "),
        ("NodeRequest", {"nodes": {}}, "NodeRequest: Expected `array`, got `object` - at `$.nodes`"),
        ("NodeRequest", {"nodes": [{"action": "CREATE"}]}, "NodeRequest: Expected `int`, got `str` - at "),
        ("ApplicationRequest", {"new": [{"ugi": []}]}, "ApplicationRequest: Expected `object`, got `array` - at "),
    ],
    ids=range(11),
)  # fmt: skip
def test_bodies_that_are_no_update(peer: Peer, partition: str, kind: str, body: Any, reason: str) -> None:
    peer.send(kind, body, partition=partition)
    code, text = peer.refused()
    assert code == "malformed"
    assert text.startswith(reason)


def test_a_reference_that_looks_like_an_address_sends_nothing_astray(system: System, peer: Peer) -> None:
    with connected(system.native, "bystander") as other:
        other.furnish()
        for ref in ("x y", "native:zz y", "broker y", "grpc:hostile y", "r" * 3900):
            peer.send(ASK, WRONG_TYPE, partition=PARTITION, ref=ref)
            assert peer.refused()[0] == "malformed"
        other.works()


# Who and what -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["", "Nonsense", "Hello", "PrepareConfig", "Query", "Registered", "Malformed", "News"])
def test_kinds_that_no_rm_sends(peer: Peer, kind: str) -> None:
    peer.send(kind, {}, partition=PARTITION)
    code, text = peer.refused()
    assert code in ("unknown-kind", "malformed")
    assert kind == "Malformed" or text == f"an RM does not send {kind!r}"


@pytest.mark.parametrize("kind", ["NodeRequest", "ApplicationRequest", "AllocationRequest"])
@pytest.mark.parametrize("who", [{"rm": "nobody"}, {"session": "another"}], ids=["rm", "session"])
def test_an_unknown_rm_or_session(peer: Peer, kind: str, who: dict[str, str]) -> None:
    peer.send(kind, {}, partition=PARTITION, **who)
    reason = f'received {kind}, but RmID="{who.get("rm", RM)}" not registered'
    assert peer.refused() == ("unknown-session", reason)


def test_a_resumption_of_nothing(peer: Peer) -> None:
    peer.send("Resume", {"received": {PARTITION: 2**64 - 1}}, session="another")
    assert peer.refused() == ("unknown-session", f"RM '{RM}' has no such session, register again")
    peer.send("Resume", {"received": ["a"]})
    assert peer.refused()[1].startswith("Resume: Expected `object`, got `array`")


@pytest.mark.parametrize("seq", [-1, 7, 2**64 - 1])
def test_numbers_out_of_order(peer: Peer, seq: int) -> None:
    peer.send(ASK, {"allocations": []}, partition=PARTITION, seq=seq, ack=2**64 - 1)
    if seq > 0:
        assert peer.refused()[0] == "gap"


@pytest.mark.parametrize("name", ["zzz", "bystander_default", "[bystander]default"])
@pytest.mark.parametrize("named", ["in the header", "in the items"])
def test_an_unknown_partition(peer: Peer, name: str, named: str) -> None:
    partition, inside = (name, "") if named == "in the header" else ("", name)
    full = f"{RM}_{name}"
    attributes = {"si/node-partition": inside} if inside else {}
    peer.send("NodeRequest", {"nodes": [{"nodeID": "n2", "action": 1, "attributes": attributes}]}, partition=partition)
    [node] = peer.hears("NodeResponse", "rejected")["rejected"]
    assert node == {"nodeID": "n2", "reason": f"failed to find partition {full} for new node n2"}
    peer.send("ApplicationRequest", {"new": [{"applicationID": "a", "partitionName": inside}]}, partition=partition)
    [app] = peer.hears("ApplicationResponse", "rejected")["rejected"]
    assert app["reason"] == f"Failed to add application a to partition {full}, partition doesn't exist"
    ask = {"allocationKey": "k", "applicationID": "app", "partitionName": inside}
    peer.send(ASK, {"allocations": [ask]}, partition=partition)
    [rejected] = peer.hears("AllocationResponse", "rejectedAllocations")["rejectedAllocations"]
    assert rejected["reason"] == f"Failed to find partition {full}, for application app and allocation k"


# Items --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            {"nodeID": "n1"},
            DUPLICATE,
        ),
        ({"nodeID": "neg", "schedulableResource": {"vcore": -1}}, "invalid node: "),
        ({"nodeID": "neg", "schedulableResource": {"vcore": -MOST - 1}}, "invalid node: "),
        ({"nodeID": ""}, "invalid node: "),
        ({}, "invalid node: "),
    ],
    ids=["duplicate", "negative", "most negative", "empty id", "no id"],
)
def test_nodes_that_cannot_be(peer: Peer, node: dict[str, Any], reason: str) -> None:
    peer.send("NodeRequest", {"nodes": [{**node, "action": 1}]})
    [rejected] = peer.hears("NodeResponse", "rejected")["rejected"]
    assert rejected["reason"].startswith(reason)
    assert rejected.get("nodeID", "") == node.get("nodeID", "")


@pytest.mark.parametrize(
    ("app", "reason"),
    [
        (
            {"applicationID": "app", "queueName": "root.batch"},
            f"adding application app to partition {PARTITION}, but application already existed",
        ),
        ({"applicationID": "b", "ugi": {"user": ""}}, "empty user cannot resolve"),
        (
            {"applicationID": "b", "ugi": {"user": "\x00", "groups": ["dev"]}},
            "invalid username, it contains invalid characters",
        ),
        ({"applicationID": "b", "queueName": "root." + "a." * 20_000}, "failed to "),
        ({"applicationID": "b", "queueName": "\ud7ff.\x00.."}, "failed to "),
    ],
    ids=["duplicate", "no user", "bad user", "endless queue", "bad queue"],
)
def test_applications_that_cannot_be(peer: Peer, app: dict[str, Any], reason: str) -> None:
    peer.send("ApplicationRequest", {"new": [{"ugi": {"user": "alice"}, **app}]})
    [rejected] = peer.hears("ApplicationResponse", "rejected")["rejected"]
    assert rejected["reason"].startswith(reason)
    assert rejected["applicationID"] == app["applicationID"]


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        ({"resourcePerAlloc": {"vcore": -1}}, "allocation contains negative resources"),
        ({"resourcePerAlloc": {"vcore": 1, "memory": -MOST - 1}}, "allocation contains negative resources"),
        ({"resourcePerAlloc": {"vcore": 0}}, "allocation contains no resources"),
        ({}, "allocation contains no resources"),
        ({"applicationID": "nobody"}, "failed to find application nobody"),
        ({"applicationID": ""}, "failed to find application "),
        ({"nodeID": "n9"}, "failed to find node n9"),
        ({"placeholder": True}, "placeholder allocation k has no task group"),
        ({"allocationTags": {"foreign": "static"}}, "trying to add a foreign request (non-allocation) k"),
        (
            {"allocationTags": {"foreign": "static"}, "nodeID": "n9"},
            "failed to find node n9 for allocation k",
        ),
    ],
    ids=range(10),
)
def test_asks_that_cannot_be(peer: Peer, ask: dict[str, Any], reason: str) -> None:
    peer.send(ASK, {"allocations": [{"allocationKey": "k", "applicationID": "app", **ask}]})
    [rejected] = peer.hears("AllocationResponse", "rejectedAllocations")["rejectedAllocations"]
    assert (rejected["allocationKey"], rejected["reason"]) == ("k", reason)


@pytest.mark.parametrize("created", ["", "nan", "1e400", "9" * 18, "9" * 400, "9" * 5000, "-1", "\u0661"])
def test_a_time_of_creation_that_makes_no_sense(peer: Peer, created: str) -> None:
    ask = {"allocationKey": "k", "applicationID": "app", "resourcePerAlloc": {"vcore": MOST}}
    peer.send(ASK, {"allocations": [{**ask, "allocationTags": {"creationTime": created}}]})
    release = {"allocationKey": "k", "applicationID": "app"}
    peer.send(ASK, {"releases": {"allocationsToRelease": [release, {"applicationID": "x"}, {}]}})


def test_changes_and_releases_of_what_is_not_there(peer: Peer) -> None:
    peer.send("NodeRequest", {"nodes": [{"nodeID": "n9", "action": action} for action in (0, 2, 3, 4, 5, 99, -1)]})
    peer.send("NodeRequest", {"nodes": [{"nodeID": "n1", "action": 2, "schedulableResource": {"vcore": -5}}]})
    peer.send("ApplicationRequest", {"remove": [{"applicationID": "nobody"}, {}]})
    kinds = [{"applicationID": "app", "allocationKey": "x", "terminationType": number} for number in range(-1, 9)]
    peer.send(ASK, {"releases": {"allocationsToRelease": kinds}})


# Registration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        "]",
        "\x00",
        "[" * 100_000,
        "partitions: &a [*a]",
        "partitions: 7",
        "partitions: [{name: default}]",
        "partitions: [{name: 'a b', " + QUEUES + "}]",
        "partitions: [{name: newcomer_x, " + QUEUES + "}]",
        "partitions: [{name: default, queues: [{name: root, maxapplications: -1}]}]",
        "partitions: [{name: default, queues: [{name: Root, submitacl: '*'}]}]",
        "partitions: [{name: default, queues: [" + "{name: q, queues: [" * 100 + "]}" * 100 + "]}]",
        "!!python/object/apply:os.abort []",
    ],
    ids=range(12),
)
def test_a_malformed_configuration(system: System, peer: Peer, config: str) -> None:
    with connected(system.native, "newcomer") as newcomer:
        session = uuid.uuid4().hex
        answer, body = newcomer.register(config, session=session, ref="mine")
        assert (answer[0], answer[7]) == ("Refused", "mine")
        assert body["code"] == "registration"
        assert body["reason"].startswith("registration of RM failed: ")
        answer, _ = newcomer.register(session=session)
        assert answer[0] == "Registered"


@pytest.mark.parametrize("rm", ["", "a b", "x" * 65, "x" * 1000, "ä", "grpc:x y"])
def test_an_rm_that_cannot_be_named_so(peer: Peer, rm: str) -> None:
    header, body = peer.register(CONFIG, rm=rm, session="another")
    assert header[0] == "Refused"
    assert body["code"] in ("registration", "malformed")


@pytest.mark.parametrize("fields", [{"ref": "r" * 4000}, {"session": "s" * 3900}, {"partition": "p" * 3900}])
def test_a_call_whose_header_is_just_short_enough(peer: Peer, fields: dict[str, str]) -> None:
    packed = msgpack.packb(peer.header("RegisterResourceManager", rm="y", **{"session": "z", **fields}))
    missing = HEADER_BYTES_MAX - len(packed)
    name, text = next(iter(fields.items()))
    whole = {"session": "z", **fields, name: text + "+" * missing}
    peer.send("RegisterResourceManager", {"config": "]"}, rm="y", **whole)
    assert peer.refused()[0] in ("registration", "malformed")
