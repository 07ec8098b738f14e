"""An RM id that has a native key is taken over gRPC only with a certificate for it, also when the key comes later."""

import asyncio

import pytest

from common.query_messages import Answer
from rmproxy.admin import admin_pb2 as admin
from rmproxy.admin.admin_pb2_grpc import AdminStub
from rmproxy.grpc_authz import Authorizer
from rmproxy.grpc_endings import EndedError
from rmproxy.si import scheduler_pb2 as pb
from tests.rmproxy.world import BOUND, PARTITION, RM, Code, accepted, end_of, play, running

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
    with pytest.raises(EndedError, match=refusal):
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
