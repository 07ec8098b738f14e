"""Effects become as few messages as keep the order."""

from yunishard.common.messages.control_messages import GroupsWanted
from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    EventRecord,
    EventResponse,
    NodeResponse,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    SchedulingStateResponse,
    UpdateContainerSchedulingState,
    UpdatedApplication,
)
from yunishard.partition_worker import rm_channel
from yunishard.partition_worker.engine.effects import Effect, LogLine, Part

NODE, NO_NODE = AcceptedNode(node_id="n1"), RejectedNode(node_id="n2", reason="no")
APP, NO_APP = AcceptedApplication(application_id="a"), RejectedApplication(application_id="b", reason="no")
STATE, LATER_STATE = (
    UpdatedApplication(application_id="a", state="Running"),
    UpdatedApplication(application_id="b", state="Accepted"),
)
ONE, OTHER = Allocation(allocation_key="k1"), Allocation(allocation_key="k2")
GONE = AllocationRelease(allocation_key="k3")
WAITING = UpdateContainerSchedulingState(application_id="a", allocation_key="k5", state=4)
REFUSED = RejectedAllocation(allocation_key="k4", reason="no")


def of(*parts: Part, cause: int = 1) -> list[Effect]:
    return [Effect(cause, part) for part in parts]


def test_neighbours_of_one_sort_are_one_message() -> None:
    assert list(rm_channel.build_messages(of(NODE, NO_NODE, NODE))) == [
        NodeResponse(accepted=[NODE, NODE], rejected=[NO_NODE], cause=1)
    ]
    assert list(rm_channel.build_messages(of(APP, NO_APP))) == [
        ApplicationResponse(accepted=[APP], rejected=[NO_APP], cause=1)
    ]
    assert list(rm_channel.build_messages(of(ONE, OTHER))) == [AllocationResponse(new=[ONE, OTHER], cause=1)]
    assert list(rm_channel.build_messages(of(GONE))) == [AllocationResponse(released=[GONE], cause=1)]
    assert list(rm_channel.build_messages(of(WAITING, WAITING))) == [
        SchedulingStateResponse(updated=[WAITING, WAITING], cause=1)
    ]
    assert list(rm_channel.build_messages(of(REFUSED))) == [AllocationResponse(rejected_allocations=[REFUSED], cause=1)]


def test_states_go_first_and_the_order_of_the_rest_is_kept() -> None:
    assert list(rm_channel.build_messages(of(STATE, ONE, LATER_STATE, GONE, OTHER))) == [
        ApplicationResponse(updated=[STATE, LATER_STATE], cause=1),
        AllocationResponse(new=[ONE], cause=1),
        AllocationResponse(released=[GONE], cause=1),
        AllocationResponse(new=[OTHER], cause=1),
    ]


def test_an_application_is_accepted_before_it_enters_a_state() -> None:
    """As when its user has been looked up: what was asked for it in the meantime follows at once."""
    assert list(rm_channel.build_messages(of(APP, STATE, NO_APP, ONE))) == [
        ApplicationResponse(accepted=[APP], rejected=[NO_APP], cause=1),
        ApplicationResponse(updated=[STATE], cause=1),
        AllocationResponse(new=[ONE], cause=1),
    ]


def test_a_thousand_applications_that_end_are_two_messages() -> None:
    assert len(list(rm_channel.build_messages(of(*[STATE, GONE] * 1000)))) == 2


def test_effects_of_different_causes_are_told_apart() -> None:
    assert list(rm_channel.build_messages([*of(ONE), *of(OTHER, cause=2)])) == [
        AllocationResponse(new=[ONE], cause=1),
        AllocationResponse(new=[OTHER], cause=2),
    ]


def test_notes_are_for_the_log_only_and_do_not_part_neighbours() -> None:
    effects = of(LogLine("first"), ONE, LogLine("second"), OTHER)
    assert list(rm_channel.build_messages(effects)) == [AllocationResponse(new=[ONE, OTHER], cause=1)]
    assert [note.text for note in rm_channel.select_parts(effects, LogLine)] == ["first", "second"]


def test_no_effects_are_no_message() -> None:
    assert list(rm_channel.build_messages([])) == []
    assert list(rm_channel.build_messages(of(LogLine("only")))) == []


def test_a_message_has_a_limited_number_of_entries() -> None:
    messages = list(rm_channel.build_messages(of(*[ONE] * (rm_channel.ITEMS_MAX + 1))))
    assert [len(message.new) for message in messages if isinstance(message, AllocationResponse)] == [
        rm_channel.ITEMS_MAX,
        1,
    ]


def test_events_are_a_message_of_their_own_in_their_place() -> None:
    event, other = EventRecord(type=4, object_id="root.a"), EventRecord(type=2, object_id="app-1")
    assert list(rm_channel.build_messages(of(GONE, event, other, STATE))) == [
        ApplicationResponse(updated=[STATE], cause=1),
        AllocationResponse(released=[GONE], cause=1),
        EventResponse(events=[event, other], cause=1),
    ]


def test_what_is_to_be_looked_up_is_not_for_the_rm() -> None:
    effects = of(GONE, GroupsWanted(user="bob"), GONE)
    assert list(rm_channel.build_messages(effects)) == [AllocationResponse(released=[GONE, GONE], cause=1)]
    assert rm_channel.select_parts(effects, GroupsWanted) == [GroupsWanted(user="bob")]


def test_many_events_are_several_messages() -> None:
    events = [EventRecord(type=4, object_id=str(number)) for number in range(rm_channel.ITEMS_MAX + 1)]
    assert [len(message.events) for message in rm_channel.build_messages(of(*events))] == [
        rm_channel.ITEMS_MAX,
        1,
    ]
