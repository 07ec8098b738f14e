"""What the scheduler interface has no call for, over gRPC and through the whole system."""

import grpc
import pytest

from tests.processes.peer import CONFIG, QUEUES
from tests.processes.system import System
from tests.processes.test_hostile_grpc import PARTITION, RM, Code, node, play, registered
from yunishard.rmproxy.admin import admin_pb2 as admin
from yunishard.rmproxy.admin.admin_pb2_grpc import AdminStub
from yunishard.rmproxy.si import scheduler_pb2 as pb
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub

pytestmark = pytest.mark.processes

TWO = f"partitions: [{{name: default, {QUEUES}}}, {{name: gpu, {QUEUES}}}]"


def test_a_configuration_is_changed_and_one_that_cannot_be_is_not(system: System) -> None:
    async def story() -> None:
        async with registered(system), grpc.aio.insecure_channel(system.grpc) as channel:
            stub = AdminStub(channel)
            answer = await stub.UpdateConfiguration(pb.UpdateConfigurationRequest(rmID=RM, config=TWO))
            assert list(answer.partitions) == [PARTITION, "grpc-1_gpu"]
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await stub.UpdateConfiguration(pb.UpdateConfigurationRequest(rmID=RM, config="partitions: [{name: 3}]"))
            assert error.value.code() == Code.INVALID_ARGUMENT
            assert str(error.value.details()).startswith("update of configuration failed: ")
            again = await stub.UpdateConfiguration(pb.UpdateConfigurationRequest(rmID=RM, config=CONFIG))
            assert list(again.partitions) == [PARTITION]
            assert again.checksum not in ("", answer.checksum)

    play(story)


def test_events_of_the_rm_are_told_as_they_happen(system: System) -> None:
    async def story() -> None:
        async with registered(system) as client, grpc.aio.insecure_channel(system.grpc) as channel:
            wanted = admin.EventsRequest(rm_id=RM, partition="default", types=[pb.EventRecord.NODE])
            events = AdminStub(channel).Events(wanted)
            begin = await events.read()
            await client.nodes.write(pb.NodeRequest(nodes=[node("n7")], rmID=RM))
            await client.nodes.read()
            told = await events.read()
            assert {one.record.objectID for one in told.events} == {"n7"}
            assert told.events[0].number >= begin.next
            everything = AdminStub(channel).Events(admin.EventsRequest(rm_id=RM, partition="default", begin=0))
            assert (await everything.read()).next == 0
            assert [one.number for one in (await everything.read()).events][:2] == [0, 1]
            events.cancel()
            everything.cancel()

    play(story)


def test_an_rm_that_leaves_is_gone(system: System) -> None:
    async def story() -> None:
        async with grpc.aio.insecure_channel(system.grpc) as channel:
            stub = SchedulerStub(channel)
            await stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID="leaver", config=CONFIG))
            stream = stub.UpdateNode(metadata=(("yk-rm-id", "leaver"),))
            await AdminStub(channel).Leave(admin.LeaveRequest(rm_id="leaver", reason="moved"))
            assert await stream.code() == Code.OK
            late = stub.UpdateNode(metadata=(("yk-rm-id", "leaver"),))
            assert await late.code() == Code.FAILED_PRECONDITION
            await stub.RegisterResourceManager(pb.RegisterResourceManagerRequest(rmID="leaver", config=CONFIG))

    play(story)
