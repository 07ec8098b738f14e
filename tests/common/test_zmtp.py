"""The bytes of ZMTP 3.0, whole and in any pieces. That ZeroMQ's library understands them, `test_links.py` shows."""

import pytest

from common import zmtp as zmtp_module
from common.wire import PROTOCOL
from common.zmtp import FRAMES_MAX, Incoming, ZmtpError, head_of, hello

SMALL = head_of(b"header", 4) + b"body"
LARGE = head_of(b"h" * 300, 70_000) + bytes(70_000)


def heard(*pieces: bytes) -> tuple[Incoming, list[list[bytes]]]:
    incoming = Incoming()
    messages = []
    for piece in pieces:
        incoming.feed(piece)
        while (frames := incoming.next()) is not None:
            messages.append(frames)
    return incoming, messages


def test_who_speaks_says_its_name_first() -> None:
    incoming, messages = heard(hello("DEALER", "worker-1"))
    assert (incoming.ready(), incoming.name, messages) == (True, b"worker-1", [])


def test_one_without_a_name_is_there_all_the_same() -> None:
    incoming, _ = heard(hello("ROUTER", ""))
    assert (incoming.ready(), incoming.name) == (True, b"")


def test_a_message_has_three_frames_of_any_length() -> None:
    _, messages = heard(hello("DEALER", "a") + SMALL + LARGE + head_of(b"", 0))
    assert messages == [[PROTOCOL, b"header", b"body"], [PROTOCOL, b"h" * 300, bytes(70_000)], [PROTOCOL, b"", b""]]


def test_it_does_not_matter_in_which_pieces_it_comes() -> None:
    data = hello("DEALER", "a" * 300) + SMALL + head_of(b"h" * 300, 1) + b"x" + SMALL
    whole = heard(data)[1]
    assert len(whole) == 3
    for size in (1, 2, 7, 64, 65):
        assert heard(*(data[at : at + size] for at in range(0, len(data), size)))[1] == whole


def test_other_commands_are_passed_over() -> None:
    assert heard(hello("DEALER", "a"), b"\x04\x07\x04PING\0\0", SMALL)[1] == [[PROTOCOL, b"header", b"body"]]


def test_of_too_many_frames_the_last_ones_only_count() -> None:
    [frames] = heard(hello("DEALER", "a"), b"\x01\x01x" * 20, b"\x00\x01x")[1]
    assert frames == [b"x"] * FRAMES_MAX + [b""] * (21 - FRAMES_MAX)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n" + bytes(64),
        b"\xff" + bytes(63),
        hello("DEALER", "a")[:10] + b"\x02" + bytes(53),
        hello("DEALER", "a").replace(b"NULL", b"CURV"),
        hello("DEALER", "a")[:64] + SMALL,
        hello("DEALER", "a")[:64] + b"\x04\x06\x05ERROR",
    ],
)
def test_what_does_not_begin_so_is_something_else(data: bytes) -> None:
    with pytest.raises(ZmtpError):
        heard(data)


def test_a_frame_without_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmtp_module, "FRAME_BYTES_MAX", 1000)
    assert heard(hello("DEALER", "a"), head_of(b"h", 1000))[1] == []
    with pytest.raises(ZmtpError, match="a frame of 1001 bytes"):
        heard(hello("DEALER", "a"), head_of(b"h", 1001))


def test_metadata_that_ends_early_says_what_is_there() -> None:
    said = hello("DEALER", "abc")
    cut = said[:65] + bytes([said[65] - 2]) + said[66:-2]
    assert heard(cut)[0].name == b"a"
