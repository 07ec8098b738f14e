"""The doorkeeper before a real socket with keys, and resource managers of plain pyzmq that want in."""

import asyncio
import logging
import subprocess
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import grpc
import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from tests.deploy.certificates import self_signed
from tests.rmproxy.port import ONE, OTHER, PATIENCE_S, SERVER, Port
from tests.rmproxy.port import play as play_with_keys
from tests.rmproxy.world import BOUND, PARTITION, RM, Code, FakeCore, accepted, end_of, nodes, play, port_of, running
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer
from yunishard.common.messages.wire import FORBIDDEN, MALFORMED, Outgoing, encode_frames
from yunishard.common.transport.curve_keys import ClientKeys, KeyPair, fingerprint
from yunishard.rmproxy.admin import admin_pb2 as admin
from yunishard.rmproxy.admin.admin_pb2_grpc import AdminStub
from yunishard.rmproxy.authentication import Authorizer, RmAuthenticator, make_credentials
from yunishard.rmproxy.grpc_streams import StatusError, read_rm_ids
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub


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

    play_with_keys(tmp_path, story)


def test_only_listed_keys_get_in(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        assert await kept_out(port, OTHER)
        assert await kept_out(port, None)
        assert await kept_out(port, ONE, server=OTHER.public)
        assert not await kept_out(port, ONE)

    play_with_keys(tmp_path, story)


def test_an_answer_reaches_the_connection_it_is_for(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE) as socket:
            socket.send_multipart(hello("rm-1"))
            peer = (await port.hears()).source
            assert peer.endswith(f"@{fingerprint(ONE.public)}")
            port.wire.send(Outgoing(peer, Header(kind="Echo"), b"back"))
            assert await asyncio.to_thread(socket.poll, PATIENCE_S * 1000)
            assert socket.recv_multipart()[2] == b"back"

    play_with_keys(tmp_path, story)


def test_nobody_chooses_a_routing_id_under_which_to_wait_for_what_is_meant_for_another(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE, name=b"rm-1") as socket:
            socket.send_multipart(hello("rm-1"))
            incoming = await port.hears()
            assert incoming.header.kind == FORBIDDEN
            assert incoming.body.startswith(b"at a port with keys a connection may not choose its routing id")

    play_with_keys(tmp_path, story)


def test_a_message_that_cannot_be_read_is_malformed_whoever_sends_it(tmp_path: Path) -> None:
    async def story(port: Port) -> None:
        with manager(port, ONE) as socket:
            for frames in ([b"x"], [b""] * 9, [b"YSH1", b"\xc1", b""]):
                socket.send_multipart(frames)
                assert (await port.hears()).header.kind == MALFORMED

    play_with_keys(tmp_path, story)


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

    play_with_keys(tmp_path, story)


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
    play_with_keys(tmp_path, story)
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

    play_with_keys(tmp_path, story)
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

    play_with_keys(tmp_path, story)


def test_there_is_no_beginning_without_a_list(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(FileNotFoundError):
            RmAuthenticator(SERVER, tmp_path / "none")
        (tmp_path / "broken").write_text("nonsense\n")
        with pytest.raises(OSError, match="broken: line 1: expected a public key"):
            RmAuthenticator(SERVER, tmp_path / "broken")

    asyncio.run(story())


TEXT = (
    f'RM "{RM}" has a native key: connect to the native port with that key, or over gRPC with a client certificate '
    "for this RM id (the core needs --grpc-tls-client-ca)"
)
REFUSED = (Code.UNAUTHENTICATED, TEXT)


@pytest.mark.parametrize(
    ("rm_id", "certified", "refusal"),
    [
        ("plain", None, ""),
        ("plain", ("plain",), ""),
        ("plain", ("keyed",), 'this certificate is for RM "keyed", not for "plain"'),
        ("plain", (), 'this certificate is for RM nobody, not for "plain"'),
        ("keyed", None, 'RM "keyed" has a native key: '),
        ("keyed", ("keyed",), ""),
        ("keyed", ("plain",), 'this certificate is for RM "plain", not for "keyed"'),
    ],
)
def test_a_caller_needs_a_proof_as_strong_as_the_rm_has(
    rm_id: str, certified: tuple[str, ...] | None, refusal: str
) -> None:
    authorizer = Authorizer(lambda rm: rm == "keyed")
    if not refusal:
        authorizer.check(rm_id, certified)
        return
    with pytest.raises(StatusError, match=refusal):
        authorizer.check(rm_id, certified)


def test_every_call_needs_the_certificate() -> None:
    async def scenario() -> None:
        async with running(keyed={RM}) as world:
            people = AdminStub(world.channel)
            unnamed = world.stub.UpdateAllocation()
            await unnamed.write(pb.AllocationRequest(rmID=RM))
            for call in (
                world.stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID=RM)),
                *(sort(metadata=BOUND) for sort in (world.stub.UpdateNode, world.stub.UpdateApplication)),
                unnamed,
                people.UpdateConfiguration(pb.UpdateConfigurationRequest(rmID=RM)),
                people.UpdateConfiguration(pb.UpdateConfigurationRequest(), metadata=BOUND),
                people.Leave(admin.LeaveRequest(rm_id=RM)),
                people.Events(admin.EventsRequest(rm_id=RM)),
            ):
                assert await end_of(call) == REFUSED
            assert world.core.registrations.empty()
            await world.register("other")

    play(scenario)


def test_a_key_that_comes_later_ends_the_streams_without_a_certificate() -> None:
    async def scenario() -> None:
        keyed: set[str] = set()
        async with running(keyed=keyed) as world:
            await world.register("other")
            await world.register()
            world.core.say(accepted("n1"))
            stream = world.stub.UpdateNode(metadata=BOUND)
            assert (await stream.read()).accepted[0].nodeID == "n1"
            others = world.stub.UpdateNode(metadata=(("yk-rm-id", "other"),))
            await others.initial_metadata()
            events = AdminStub(world.channel).Events(admin.EventsRequest(rm_id=RM, partition=PARTITION))
            question, _ = await world.core.others.get()
            keyed.add(RM)
            world.core.reply(question, Answer(status=503, body=b""))
            world.port.authorize_again()
            assert await end_of(stream) == REFUSED
            assert await end_of(events) == REFUSED
            assert not others.done()
            await asyncio.wait_for(others.done_writing(), 20)
            assert await others.code() == Code.OK

    play(scenario)


FOREIGN = 'this certificate is for RM "rm-1", "rm-2", not for "rm-3"'

# Names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        ({}, None),
        ({"transport_security_type": [b"ssl"]}, None),
        ({"x509_pem_cert": [b"-"], "peer_dns": [b"a", b"b"], "x509_common_name": [b"c"]}, ("a", "b")),
        ({"x509_pem_cert": [b"-"], "peer_uri": [b"prod:eu"], "peer_dns": [b"a"]}, ("a", "prod:eu")),
        ({"x509_pem_cert": [b"-"], "x509_common_name": [b"c"]}, ("c",)),
        ({"x509_pem_cert": [b"-"], "peer_ip": [b"1.2.3.4"]}, ()),
    ],
    ids=["plain", "no client certificate", "DNS", "URI", "common name", "nothing that is a name"],
)
def test_a_certificate_is_for_its_alternative_names_or_else_its_common_name(
    shown: dict[str, list[bytes]], names: tuple[str, ...] | None
) -> None:
    assert read_rm_ids(shown) == names


# Over a connection --------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with the certificate of a port, and one of a client that is for two RMs."""
    self_signed(tmp_path)
    names = "subjectAltName=DNS:rm-1,DNS:rm-2"
    command = (
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=c -addext {names}"
    )
    subprocess.run(
        [*command.split(), "-keyout", tmp_path / "client.key", "-out", tmp_path / "client.pem"],
        check=True,
        capture_output=True,
    )
    return tmp_path


@asynccontextmanager
async def guarded(folder: Path, keyed: Collection[str] = ()) -> AsyncIterator[str]:
    """A port that lets in only who has the client's certificate; its address."""
    port = port_of(FakeCore(), keyed=keyed)
    credentials = make_credentials(folder / "server.pem", folder / "server.key", folder / "client.pem")
    address = await port.start("127.0.0.1:0", credentials)
    try:
        yield address
    finally:
        await port.stop(0)


def channel_to(address: str, folder: Path) -> grpc.aio.Channel:
    read = [(folder / name).read_bytes() for name in ("server.pem", "client.key", "client.pem")]
    options = (("grpc.use_local_subchannel_pool", 1),)
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(*read), options=options)


def test_an_rm_may_be_who_its_certificate_is_for(files: Path) -> None:
    async def scenario() -> None:
        async with guarded(files) as address, channel_to(address, files) as channel:
            stub = SchedulerStub(channel)
            for name in ("rm-1", "rm-2"):
                await stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID=name))
            call = stub.UpdateNode(metadata=BOUND)
            await call.write(nodes("n1"))
            await call.done_writing()
            assert await call.code() == Code.OK

    play(scenario)


def test_a_certificate_is_as_good_as_a_native_key(files: Path) -> None:
    async def scenario() -> None:
        async with guarded(files, keyed=("rm-1",)) as address, channel_to(address, files) as channel:
            stub = SchedulerStub(channel)
            await stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID="rm-1"))
            call = stub.UpdateNode(metadata=BOUND)
            await call.done_writing()
            assert await call.code() == Code.OK

    play(scenario)


def test_an_rm_may_be_nobody_else_in_any_call(files: Path) -> None:
    async def scenario() -> None:
        async with guarded(files) as address, channel_to(address, files) as channel:
            stub, people = SchedulerStub(channel), AdminStub(channel)
            for call in (
                stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID="rm-3")),
                stub.UpdateNode(metadata=(("yk-rm-id", "rm-3"),)),
                people.UpdateConfiguration(pb.UpdateConfigurationRequest(rmID="rm-3")),
                people.Leave(admin.LeaveRequest(rm_id="rm-3")),
                people.Events(admin.EventsRequest(rm_id="rm-3")),
            ):
                assert await end_of(call) == (Code.PERMISSION_DENIED, FOREIGN)
            named_later = stub.UpdateAllocation()
            await named_later.write(pb.AllocationRequest(rmID="rm-3"))
            assert await end_of(named_later) == (Code.PERMISSION_DENIED, FOREIGN)

    play(scenario)


def test_a_new_certificate_is_used_without_a_restart(files: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    async def scenario() -> None:
        async with guarded(files) as address:
            request = pb.RegisterResourceManagerRequest(rmID="rm-1")
            async with channel_to(address, files) as before:
                await SchedulerStub(before).RegisterResourceManager(request)
                newer = tmp_path_factory.mktemp("newer")
                self_signed(newer)
                for name in ("server.pem", "server.key"):
                    (newer / name).rename(files / name)
                async with channel_to(address, files) as after:  # which trusts nothing but the new one
                    await SchedulerStub(after).RegisterResourceManager(request)
                await SchedulerStub(before).RegisterResourceManager(request)

    play(scenario)


def test_files_that_do_not_belong_together_leave_the_old_ones_in_use(
    files: Path, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with guarded(files) as address:
            trusted = tmp_path_factory.mktemp("trusted")
            for name in ("server.pem", "client.key", "client.pem"):
                (trusted / name).write_bytes((files / name).read_bytes())
            newer = tmp_path_factory.mktemp("newer")
            self_signed(newer)
            (newer / "server.key").rename(files / "server.key")
            for _ in range(2):
                async with channel_to(address, trusted) as channel:
                    request = pb.RegisterResourceManagerRequest(rmID="rm-1")
                    await SchedulerStub(channel).RegisterResourceManager(request)

    play(scenario)
    complaints = [record.getMessage() for record in caplog.records if "not usable" in record.getMessage()]
    assert len(complaints) == 1, "it is said once, and not for each connection"
    assert complaints[0].startswith("the TLS files of the gRPC port are not usable, the previous ones stay in force: ")
