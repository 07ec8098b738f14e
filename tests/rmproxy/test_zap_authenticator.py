"""The doorkeeper before a real socket with keys, and resource managers of plain pyzmq that want in."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from common.curve_keys import ClientKeys, KeyPair, fingerprint
from common.messages import Header
from common.wire import FORBIDDEN, MALFORMED, Outgoing, encode_frames
from rmproxy.authentication import REFUSALS_LOGGED_MAX, RefusalLog, ZapAuthenticator
from tests.rmproxy.port import ONE, OTHER, PATIENCE_S, SERVER, Port, play


def hello(rm: str) -> list[bytes]:
    return encode_frames(Header(kind="Resume", rm=rm, session="s", ref="r"), b"body")


@contextmanager
def manager(
    port: Port, own: KeyPair | None, *, server: str = SERVER.public, name: bytes = b"", connect: bool = True
) -> Iterator["zmq.Socket[bytes]"]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    if name:
        socket.setsockopt(zmq.ROUTING_ID, name)
    if own is not None:
        ClientKeys(own, server).apply(socket)
    try:
        if connect:
            socket.connect(port.router.address)
        yield socket
    finally:
        socket.close()


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - what happens in the same loop, and tells nobody
        await asyncio.sleep(0)


async def kept_out(port: Port, own: KeyPair | None, *, server: str = SERVER.public) -> bool:
    """Whether a connection fails although others get in meanwhile."""
    with manager(port, own, server=server, connect=False) as socket:
        monitor = socket.get_monitor_socket(
            zmq.Event.HANDSHAKE_SUCCEEDED
            | zmq.Event.HANDSHAKE_FAILED_AUTH
            | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
            | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
        )
        try:
            socket.connect(port.router.address)
            assert await asyncio.to_thread(monitor.poll, PATIENCE_S * 1000)
            return bool(recv_monitor_message(monitor)["event"] != zmq.Event.HANDSHAKE_SUCCEEDED)
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)


def test_a_key_speaks_for_its_resource_managers_and_for_no_others(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE) as socket:
            for rm, kind in (("rm-1", "Resume"), ("test-7", "Resume"), ("rm-2", FORBIDDEN), ("rm-1", "Resume")):
                socket.send_multipart(hello(rm))
                incoming = await port.hears()
                assert (incoming.header.rm, incoming.header.kind) == (rm, kind)
                assert (incoming.header.session, incoming.header.ref) == ("s", "r"), "so that its answer finds back"
                if kind == FORBIDDEN:
                    reason = f"key {fingerprint(ONE.public)} may not speak for RM 'rm-2'"
                    assert incoming.body.decode() == reason

    play(tmp_path, story)


def test_only_listed_keys_get_in(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        assert await kept_out(port, OTHER)
        assert await kept_out(port, None)
        assert await kept_out(port, ONE, server=OTHER.public)
        assert not await kept_out(port, ONE)

    play(tmp_path, story)


def test_an_answer_reaches_the_connection_it_is_for(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE) as socket:
            socket.send_multipart(hello("rm-1"))
            peer = (await port.hears()).source
            assert peer.endswith(f"@{fingerprint(ONE.public)}")
            port.wire.send(Outgoing(peer, Header(kind="Echo"), b"back"))
            assert await asyncio.to_thread(socket.poll, PATIENCE_S * 1000)
            assert socket.recv_multipart()[2] == b"back"

    play(tmp_path, story)


def test_nobody_chooses_a_routing_id_under_which_to_wait_for_what_is_meant_for_another(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE, name=b"rm-1") as socket:
            socket.send_multipart(hello("rm-1"))
            incoming = await port.hears()
            assert incoming.header.kind == FORBIDDEN
            assert incoming.body.startswith(b"at a port with keys a connection may not choose its routing id")

    play(tmp_path, story)


def test_a_message_that_cannot_be_read_is_malformed_whoever_sends_it(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE) as socket:
            for frames in ([b"x"], [b""] * 9, [b"YSH1", b"\xc1", b""]):
                socket.send_multipart(frames)
                assert (await port.hears()).header.kind == MALFORMED

    play(tmp_path, story)


def test_a_key_that_is_revoked_is_refused_from_its_next_message_on(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE) as socket:
            socket.send_multipart(hello("rm-1"))
            assert (await port.hears()).header.kind == "Resume"
            port.allows((OTHER, "rm-1"))
            await until(lambda: not port.admits(ONE))
            socket.send_multipart(hello("rm-1"))
            incoming = await port.hears()
            assert incoming.header.kind == FORBIDDEN
            assert incoming.body.decode() == f"key {fingerprint(ONE.public)} is not on the allow-list any more"
            assert await kept_out(port, ONE)
            assert not await kept_out(port, OTHER)

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{OTHER.public} rm-1\n{ONE.public}\n", "line 2: expected a public key"),
        ("# fine\n\xff".encode("latin-1").decode("latin-1"), "line 2: expected a public key"),
        (f"{OTHER.public} rm-1\n{OTHER.public} rm-1\n", "line 2: this key is there already"),
    ],
    ids=["no-key", "not-utf-8", "twice"],  # the texts hold new keys, which would give the tests other names each time
)
def test_a_broken_list_changes_nothing_and_is_told_once(
    text: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(port: Port) -> None:
        port.writes(text)
        await until(lambda: bool(caplog.records))
        assert port.admits(ONE)
        assert await kept_out(port, OTHER)
        port.writes(text + "\n")
        port.allows((OTHER, "rm-1"))
        await until(lambda: port.admits(OTHER))

    caplog.set_level(logging.INFO)
    play(tmp_path, story)
    told = [record.getMessage() for record in caplog.records if "not usable" in record.getMessage()]
    assert len(told) == 1
    assert told[0].startswith(
        f"the allow-list is not usable, the previous one stays in force: {tmp_path / 'allowed'}: {reason}"
    )
    assert ONE.public not in caplog.text


def test_a_list_that_is_gone_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(port: Port) -> None:
        port.file.unlink()
        await until(lambda: bool(caplog.records))
        assert not await kept_out(port, ONE)

    play(tmp_path, story)
    assert "No such file" in caplog.records[0].getMessage()


def test_an_rm_id_that_had_a_key_is_not_free_because_the_list_is_empty(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        has_key = port.doorkeeper.has_key_for
        assert [rm for rm in ("rm-1", "rm-2", "test-", "test-7", "a test-7", "") if has_key(rm)] == [
            *("rm-1", "test-", "test-7"),
        ]
        port.writes("")
        await until(lambda: not port.admits(ONE))
        assert has_key("rm-1")
        assert has_key("test-7")
        assert not has_key("rm-2")
        port.allows((OTHER, "rm-2"))
        await until(lambda: has_key("rm-2"))
        assert has_key("rm-1")
        port.allows((OTHER, "*"))
        await until(lambda: has_key("anything"))
        assert not has_key("not an id")

    play(tmp_path, story)


def test_there_is_no_beginning_without_a_list(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(FileNotFoundError):
            ZapAuthenticator(SERVER, tmp_path / "none")
        (tmp_path / "broken").write_text("nonsense\n")
        with pytest.raises(OSError, match="broken: line 1: expected a public key"):
            ZapAuthenticator(SERVER, tmp_path / "broken")

    asyncio.run(story())


def test_strangers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog()
    for number in range(REFUSALS_LOGGED_MAX + 5):
        log.write(f"refused {number}", 100.0 + number / 1000)
    assert caplog.messages == [f"refused {number}" for number in range(REFUSALS_LOGGED_MAX)]
    log.write("refused", 161.0)
    log.write("refused", 161.0)
    assert caplog.messages[-2:] == ["refused (and 5 more)", "refused"]
