""""""

import msgpack
import msgspec
import pytest

from tests.builders import apps, asks, foreign, released
from yunishard.common.messages.kinds import Command, Control, Header, Message, News, interface_name
from yunishard.common.messages.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    PreemptionPolicy,
    Refused,
    RegisterResourceManager,
    RemoveApplicationRequest,
    SyncBegin,
    SyncEnd,
    UserGroupInformation,
    count_reported,
)
from yunishard.common.messages.wire import decode_body, encode_body, encode_frames
from yunishard.rmproxy.si import scheduler_pb2 as pb

OURS = {"cause"}
"""Keys that the scheduler interface does not have."""

FULL = AllocationRequest(
    allocations=[
        Allocation(
            allocation_key="k",
            application_id="a",
            partition_name="p",
            resource_per_alloc={"vcore": 5},
            node_id="n",
            priority=-7,
            allocation_tags={"t": "v"},
            task_group_name="g",
            placeholder=True,
            originator=True,
            preemption_policy=PreemptionPolicy(allow_preempt_self=True, allow_preempt_other=True),
        )
    ],
    releases=AllocationReleasesRequest(
        allocations_to_release=[
            AllocationRelease(
                partition_name="p", application_id="a", allocation_key="k", termination_type=3, message="m"
            )
        ]
    ),
    rm_id="rm",
)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("application_id", "applicationID"),
        ("rm_id", "rmID"),
        ("queue_name", "queueName"),
        ("resource_per_alloc", "resourcePerAlloc"),
        ("execution_timeout_milli_seconds", "executionTimeoutMilliSeconds"),
        ("nodes", "nodes"),
    ],
)
def test_fields_are_spelled_as_in_the_scheduler_interface(ours: str, theirs: str) -> None:
    assert interface_name(ours) == theirs


def test_every_key_is_a_field_of_the_message_of_that_name_in_the_scheduler_interface() -> None:
    known = pb.DESCRIPTOR.message_types_by_name
    parts = [kind for kind in Message.kinds.values() if kind.__name__ in known]
    parts += [Allocation, AllocationRelease, AddApplicationRequest, NodeInfo, PreemptionPolicy, UserGroupInformation]
    assert len(parts) >= 12
    for kind in parts:
        theirs = {field.name for field in known[kind.__name__].fields}
        ours = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert ours - OURS <= theirs, kind


def test_a_message_is_known_by_its_class_name() -> None:
    assert Message.kinds["NodeRequest"] is NodeRequest
    assert all(name == kind.__name__ for name, kind in Message.kinds.items())


def test_no_message_travels_in_two_directions() -> None:
    for kind in Message.kinds.values():
        assert sum(issubclass(kind, direction) for direction in (Command, News, Control)) <= 1


def test_a_plain_messagepack_reader_sees_the_keys_of_the_interface() -> None:
    read = msgpack.unpackb(encode_body(FULL))
    assert list(read) == ["allocations", "releases", "rmID"]
    assert read["allocations"][0]["preemptionPolicy"] == {"allowPreemptSelf": True, "allowPreemptOther": True}
    assert read["releases"]["allocationsToRelease"][0]["terminationType"] == 3


def test_what_was_written_is_read_again() -> None:
    assert decode_body(AllocationRequest, encode_body(FULL)) == FULL


def test_default_values_do_not_travel() -> None:
    assert encode_body(NodeRequest()) == msgpack.packb({})
    assert msgpack.unpackb(encode_body(AllocationResponse(new=[Allocation(allocation_key="k")]))) == {
        "new": [{"allocationKey": "k"}]
    }


def test_everything_in_an_update_may_be_left_out() -> None:
    for kind in (NodeRequest, ApplicationRequest, AllocationRequest, RegisterResourceManager):
        assert decode_body(kind, msgpack.packb({})) == kind()


def test_unknown_keys_are_ignored_so_that_later_versions_can_add_some() -> None:
    body = msgpack.packb({"nodes": [{"nodeID": "n", "colour": "red"}], "mood": 7})
    assert decode_body(NodeRequest, body) == NodeRequest(nodes=[NodeInfo(node_id="n")])


def test_unknown_numbers_of_an_enumeration_arrive_as_numbers() -> None:
    body = msgpack.packb({"nodes": [{"nodeID": "n", "action": 77}]})
    assert decode_body(NodeRequest, body).nodes[0].action == 77


def test_a_header_is_an_array_in_the_documented_order() -> None:
    header = Header(kind="k", rm="r", partition="p", session="s", seq=1, ack=2, epoch=3, ref="f", life=4)
    assert msgpack.unpackb(encode_frames(header, b"")[1]) == ["k", "r", "p", "s", 1, 2, 3, "f", 4]


def test_messages_are_values() -> None:
    assert Refused(code="c", reason="r") == Refused(code="c", reason="r", seq=0)
    with pytest.raises(AttributeError):
        Refused(code="c", reason="r").code = "d"  # type: ignore[misc]


def nodes(*actions: int) -> NodeRequest:
    return NodeRequest(nodes=[NodeInfo(node_id="n", action=action) for action in actions])


@pytest.mark.parametrize(
    ("command", "counts"),
    [
        (nodes(NODE_CREATE, NODE_CREATE_DRAIN), SyncEnd(nodes=2)),
        (nodes(0, 2, 3, 4, 5, 99), SyncEnd()),
        (apps("a root.q", "b root.q"), SyncEnd(applications=2)),
        (ApplicationRequest(remove=[RemoveApplicationRequest(application_id="a")]), SyncEnd()),
        (asks("a k1 memory=1", "a k1 memory=1", "a k2 memory=1 on=n"), SyncEnd(allocations=3)),
        (foreign("f n memory=1"), SyncEnd(allocations=1)),
        (released("a k1"), SyncEnd()),
        (AllocationRequest(), SyncEnd()),
        (SyncBegin(), SyncEnd()),
    ],
)
def test_what_comes_or_is_there_counts_each_time_it_is_said_and_what_goes_does_not(
    command: Command, counts: SyncEnd
) -> None:
    assert count_reported(SyncEnd(), command) == counts
    before = SyncEnd(nodes=10, applications=20, allocations=30)
    assert count_reported(before, command) == SyncEnd(
        nodes=10 + counts.nodes, applications=20 + counts.applications, allocations=30 + counts.allocations
    )
