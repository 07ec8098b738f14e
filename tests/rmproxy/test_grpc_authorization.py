"""An RM id that has a native key is taken over gRPC only with a certificate for it, also when the key comes later."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from common.query_messages import Answer
from rmproxy.admin import admin_pb2 as admin
from rmproxy.admin.admin_pb2_grpc import AdminStub
from rmproxy.authentication import Authorizer, TlsFiles, read_rm_ids
from rmproxy.grpc_status import StatusError
from rmproxy.si import scheduler_pb2 as pb
from rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from tests.deploy.certificates import self_signed
from tests.rmproxy.world import BOUND, PARTITION, RM, Code, Front, accepted, end_of, nodes, play, port_of, running

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
            assert world.front.registrations.empty()
            await world.register("other")

    play(scenario)


def test_a_key_that_comes_later_ends_the_streams_without_a_certificate() -> None:
    async def scenario() -> None:
        keyed: set[str] = set()
        async with running(keyed=keyed) as world:
            await world.register("other")
            await world.register()
            world.front.say(accepted("n1"))
            stream = world.stub.UpdateNode(metadata=BOUND)
            assert (await stream.read()).accepted[0].nodeID == "n1"
            others = world.stub.UpdateNode(metadata=(("yk-rm-id", "other"),))
            await others.initial_metadata()
            events = AdminStub(world.channel).Events(admin.EventsRequest(rm_id=RM, partition=PARTITION))
            question, _ = await world.front.others.get()
            keyed.add(RM)
            world.front.reply(question, Answer(status=503, body=b""))
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
    port = port_of(Front(), keyed=keyed)
    tls = TlsFiles(folder / "server.pem", folder / "server.key", folder / "client.pem")
    address = await port.start("127.0.0.1:0", tls.credentials())
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
