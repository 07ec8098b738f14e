""""""

import msgpack
import pytest

from yunishard.common.messages import wire
from yunishard.common.messages.control_messages import Hello
from yunishard.common.messages.kinds import INT64_MAX, Header
from yunishard.common.messages.rm_messages import AllocationRequest, NodeInfo, NodeRequest, Received, Registered
from yunishard.common.messages.wire import (
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    NEVER,
    PROTOCOL,
    Outgoing,
    WireError,
    decode_body,
    decode_header,
    encode_body,
    encode_frames,
    make_outgoing,
)

HEADER = Header(kind="NodeRequest", rm="rm-1", session="s", seq=7)
NOT_UTF8 = b"\xff\xfe"


def text_of_header_error(frames: list[bytes]) -> str:
    with pytest.raises(WireError) as error:
        decode_header(frames)
    return str(error.value)


def text_of_body_error(body: bytes, kind: type[NodeRequest | AllocationRequest] = AllocationRequest) -> str:
    with pytest.raises(WireError) as error:
        decode_body(kind, body)
    return str(error.value)


# Frames and header --------------------------------------------------------------------------------------------------


def test_what_goes_out_comes_in() -> None:
    frames = encode_frames(HEADER, b"body")
    assert frames[0] == PROTOCOL
    assert frames[2] == b"body"
    assert decode_header(frames) == HEADER


@pytest.mark.parametrize("count", [0, 1, 2, 4, 50])
def test_a_message_has_three_frames(count: int) -> None:
    frames = [PROTOCOL] * count
    assert text_of_header_error(frames) == f"expected 3 frames (protocol, header, body), got {count}"


@pytest.mark.parametrize("protocol", [b"", b"YSH2", b"ysh1", b"YSH1 ", b"GET / HTTP/1.1\r\n" * 100])
def test_another_protocol_is_named(protocol: bytes) -> None:
    text = text_of_header_error([protocol, *encode_frames(HEADER, b"")[1:]])
    assert text == f"expected protocol YSH1, got {protocol[:16]!r}"


def test_a_header_has_a_limit() -> None:
    fits = encode_frames(Header(kind="k" * (HEADER_BYTES_MAX - 12)), b"")
    assert len(fits[1]) == HEADER_BYTES_MAX
    assert decode_header(fits).kind.startswith("kkk")
    over = encode_frames(Header(kind="k" * HEADER_BYTES_MAX), b"")
    assert text_of_header_error(over) == f"header of {len(over[1])} bytes, at most {HEADER_BYTES_MAX} are allowed"


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (b"", "header: Input data was truncated"),
        (b"\xc1", "header: "),
        (msgpack.packb([]), "header: Expected `array` of at least length 1, got 0"),
        (msgpack.packb({"kind": "k"}), "header: Expected `array`, got `object`"),
        (msgpack.packb([5]), "header: Expected `str`, got `int` - at `$[0]`"),
        (msgpack.packb(["k", None]), "header: Expected `str`, got "),
        (msgpack.packb(["k", "", "", "", "7"]), "header: Expected `int`, got `str` - at `$[4]`"),
        (msgpack.packb(["k", "", "", "", 7.0]), "header: Expected `int`, got `float` - at `$[4]`"),
        (msgpack.packb(["k"]) + b"\x00", "header: MessagePack data is malformed: trailing characters"),
        (b"\x91" * 4000, "header: Expected `str`, got `array`"),
        (b"\x99" + b"\xa0" * 4 + b"\x00" * 3 + b"\xa0" + b"\x91" * 4000, "header: "),
    ],
)
def test_a_malformed_header_is_refused_with_the_place(header: bytes, text: str) -> None:
    assert text_of_header_error([PROTOCOL, header, b""]).startswith(text)


def test_text_in_a_header_that_is_no_text_is_refused() -> None:
    assert text_of_header_error([PROTOCOL, b"\x91\xa2" + NOT_UTF8, b""]).startswith("header: ")


def test_a_short_header_has_defaults_and_a_long_one_is_read_as_far_as_it_is_known() -> None:
    assert decode_header([PROTOCOL, msgpack.packb(["k"]), b""]) == Header(kind="k")
    assert decode_header([PROTOCOL, msgpack.packb(["k", "", "", "", 0, 0, 0, "", 0, {"new": 1}]), b""]) == Header(
        kind="k"
    )


# Bodies -------------------------------------------------------------------------------------------------------------


def test_a_body_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BODY_BYTES_MAX == 64 << 20
    monkeypatch.setattr(wire, "BODY_BYTES_MAX", 10)
    assert decode_header(encode_frames(HEADER, b"x" * 10)) == HEADER
    assert (
        text_of_header_error(encode_frames(HEADER, b"x" * 11))
        == "body of 11 bytes, at most 10 are allowed: send fewer items at once"
    )


def test_a_wrong_type_is_refused_with_its_place() -> None:
    asks = [{"allocationKey": f"k{number}"} for number in range(3)]
    text = text_of_body_error(msgpack.packb({"allocations": [*asks, {"priority": "high"}]}))
    assert text == "AllocationRequest: Expected `int`, got `str` - at `$.allocations[3].priority`"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"allocations": [None]}, "$.allocations[0]"),
        ({"allocations": {}}, "$.allocations"),
        ({"allocations": [{"allocationKey": 5}]}, "$.allocations[0].allocationKey"),
        ({"allocations": [{"allocationKey": b"bytes"}]}, "$.allocations[0].allocationKey"),
        ({"allocations": [{"placeholder": 1}]}, "$.allocations[0].placeholder"),
        ({"allocations": [{"priority": 2**31}]}, "$.allocations[0].priority"),
        ({"allocations": [{"priority": -(2**31) - 1}]}, "$.allocations[0].priority"),
        ({"allocations": [{"priority": True}]}, "$.allocations[0].priority"),
        ({"allocations": [{"resourcePerAlloc": {"vcore": 1.5}}]}, "$.allocations[0].resourcePerAlloc[...]"),
        ({"allocations": [{"resourcePerAlloc": {"vcore": INT64_MAX + 1}}]}, "$.allocations[0].resourcePerAlloc[...]"),
        ({"allocations": [{"allocationTags": {"a": 1}}]}, "$.allocations[0].allocationTags[...]"),
        ({"releases": []}, "$.releases"),
        ({"allocations": msgpack.ExtType(5, b"")}, "$.allocations"),
    ],
)
def test_every_wrong_value_is_refused_with_its_place(value: dict[str, object], place: str) -> None:
    assert f"at `{place}" in text_of_body_error(msgpack.packb(value))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\xc0",
        b"\x81",
        b"\x80\x80",
        b"\x81\xa5nodes\xdd\xff\xff\xff\xff",
        b"\x81\xa5nodes\x91\x81\xa6nodeID\xdb\xff\xff\xff\xff",
        b"\x81\xa5nodes\x91\x81\xa6nodeID\xa2" + NOT_UTF8,
    ],
)
def test_bytes_that_are_no_body_are_refused(body: bytes) -> None:
    assert text_of_body_error(body, NodeRequest).startswith("NodeRequest: ")


def test_a_deeply_nested_body_is_refused_even_below_an_unknown_key() -> None:
    assert text_of_body_error(b"\x81\xa3odd" + b"\x91" * 100_000, NodeRequest) == "NodeRequest: nested too deeply"
    assert text_of_body_error(b"\x81\xa3odd" + b"\x81\xa0" * 100_000, NodeRequest) == "NodeRequest: nested too deeply"


def test_the_largest_and_smallest_amounts_pass() -> None:
    request = NodeRequest(nodes=[NodeInfo(schedulable_resource={"a": INT64_MAX, "b": -INT64_MAX - 1})])
    assert decode_body(NodeRequest, encode_body(request)) == request


def test_what_has_no_default_must_be_there() -> None:
    with pytest.raises(WireError, match="missing required field `partitions`"):
        decode_body(Registered, msgpack.packb({}))


def test_a_message_is_sent_under_its_class_name() -> None:
    assert make_outgoing("broker", Hello(role="worker")) == Outgoing(
        "broker", Header(kind="Hello"), encode_body(Hello(role="worker"))
    )


def test_a_header_may_say_more() -> None:
    header = Header(kind="Received", rm="rm-1", ack=7)
    assert make_outgoing("rmproxy", Received(), header) == Outgoing("rmproxy", header, b"\x80")


def test_never_is_later_than_any_time() -> None:
    assert NEVER > 1e18
