"""A session of the client: what it sends, buffers and acknowledges, and how reports end."""

import pytest

from yunishard.common.messages.kinds import Header, Message, News
from yunishard.common.messages.rm_messages import (
    NODE_DECOMMISSION,
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    ConfigurationUpdated,
    EventRecord,
    EventResponse,
    Goodbye,
    Left,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    RemoveApplicationRequest,
    Resume,
    ResumeWanted,
    SchedulingStateResponse,
    SyncDone,
    SyncEnd,
    UpdateContainerSchedulingState,
    UpdatedApplication,
)
from yunishard.common.messages.session import WINDOW_MESSAGES
from yunishard.common.messages.wire import decode_body, encode_body, encode_frames
from yunishard.sdk.exceptions import Closed, ResyncFailed, SessionLost
from yunishard.sdk.items import Callbacks, Result, application, ask, node, release
from yunishard.sdk.session import READ_AHEAD_MESSAGES, ClientSession, Sync

SESSION = "s1"
ONE, TWO = "rm-1_one", "rm-1_two"


def opened() -> ClientSession:
    session = ClientSession(RegisterResourceManager(rm_id="rm-1"), session=SESSION)
    session.start()
    hears(session, Registered(partitions=[ONE, TWO]), partition="")
    assert said(session) == ["RegisterResourceManager"]
    return session


def hears(
    session: ClientSession,
    message: Message,
    *,
    partition: str = ONE,
    seq: int = 0,
    ack: int = 0,
    life: int = 0,
    ref: str = "",
) -> None:
    kind = type(message).__name__
    header = Header(kind=kind, partition=partition, session=SESSION, seq=seq, ack=ack, life=life, ref=ref)
    session.receive(encode_frames(header, encode_body(message)))


def said(session: ClientSession) -> list[str]:
    return [outgoing.header.kind for outgoing in session.take_outgoing()]


def allocated(number: int, partition: str = ONE) -> AllocationResponse:
    return AllocationResponse(new=[Allocation(allocation_key=f"k{number}", partition_name=partition)])


def all_taken(session: ClientSession) -> list[Result]:
    return list(iter(session.next_result, None))


def test_only_what_was_taken_counts_as_received() -> None:
    session = opened()
    for number in (1, 2, 3):
        hears(session, allocated(number), seq=number)
    session.next_result()
    session.acknowledge()
    assert [(outgoing.header.kind, outgoing.header.ack) for outgoing in session.take_outgoing()] == [("Ack", 1)]
    session.start()
    (resume,) = session.take_outgoing()
    assert decode_body(Resume, resume.body) == Resume(received={ONE: 1})
    assert len(session.buffer) == 0, "the core sends these again"


EVERY_KIND: list[News | Refused] = [
    AllocationResponse(new=[Allocation(allocation_key="k1")]),
    AllocationResponse(released=[AllocationRelease(allocation_key="k1")]),
    AllocationResponse(rejected_allocations=[RejectedAllocation(allocation_key="k1")]),
    ApplicationResponse(
        accepted=[AcceptedApplication(application_id="a")],
        rejected=[RejectedApplication(application_id="b")],
        updated=[UpdatedApplication(application_id="a", state="Running")],
    ),
    NodeResponse(accepted=[AcceptedNode(node_id="n")], rejected=[RejectedNode(node_id="m")]),
    EventResponse(events=[EventRecord(type=1, object_id="a")]),
    SchedulingStateResponse(updated=[UpdateContainerSchedulingState(application_id="a", allocation_key="k")]),
    ReleasesIgnored(ignored=[AllocationRelease(allocation_key="k9")]),
    Refused(code="malformed", reason="r", seq=1),
]


@pytest.mark.parametrize("news", EVERY_KIND, ids=lambda news: type(news).__name__)
def test_every_item_that_reaches_a_callback_names_its_partition(news: News | Refused) -> None:
    session = opened()
    hears(session, news, partition=TWO, seq=0 if isinstance(news, Refused | ReleasesIgnored) else 1)
    (result,) = all_taken(session)
    items: list[object] = []
    names = "allocated released allocation_rejected application_accepted application_rejected application_updated"
    names += " node_accepted node_rejected event scheduling_state_updated release_ignored refused"
    list(Callbacks(**dict.fromkeys(names.split(), items.append)).dispatch(result))
    assert items
    assert [getattr(item, "partition_name", "has none") for item in items] == [TWO] * len(items)


def test_a_release_that_a_callback_builds_goes_to_the_partition_of_its_allocation() -> None:
    session = opened()
    hears(session, AllocationResponse(new=[Allocation(allocation_key="k1")]), partition=TWO, seq=1)
    (result,) = all_taken(session)
    assert isinstance(result.news, AllocationResponse)
    (one,) = result.news.new
    wanted = release(one.application_id, one.allocation_key, partition=one.partition_name)
    session.send_update(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=[wanted])))
    assert [outgoing.header.partition for outgoing in session.take_outgoing()][-1] == TWO


def test_reports_of_ignored_releases_do_not_fill_the_memory_of_a_slow_consumer() -> None:
    session = opened()
    for _ in range(READ_AHEAD_MESSAGES + 10):
        hears(session, ReleasesIgnored(ignored=[AllocationRelease(allocation_key="k")]))
    assert len(session.buffer) == READ_AHEAD_MESSAGES


def test_what_a_dead_worker_said_and_nobody_took_is_dropped() -> None:
    session = opened()
    hears(session, allocated(1), seq=1)
    hears(session, allocated(7, TWO), seq=1, partition=TWO)
    hears(session, PartitionRestarted(), life=1)
    hears(session, allocated(2), seq=1, life=1)
    assert all_taken(session) == [
        Result(TWO, allocated(7, TWO)),
        Result(ONE, PartitionRestarted()),
        Result(ONE, allocated(2)),
    ]


def test_a_restart_that_was_told_and_not_taken_survives_a_broken_connection() -> None:
    session = opened()
    hears(session, PartitionRestarted(), life=1)
    session.start()
    assert all_taken(session) == [Result(ONE, PartitionRestarted())]


def test_an_acknowledgement_in_news_makes_room_before_the_news_are_taken() -> None:
    session = opened()
    command = NodeRequest(nodes=[node("n1", partition="one")])
    for _ in range(WINDOW_MESSAGES):
        session.send_update(command)
    assert not session.protocol.has_room(command)
    hears(session, allocated(1), seq=1)
    assert not session.protocol.has_room(command)
    hears(session, allocated(2), seq=2, ack=5)
    assert session.protocol.has_room(command)


def test_while_it_resumes_updates_are_kept_for_later_and_sent_once_in_order() -> None:
    session = opened()
    session.send_update(NodeRequest(nodes=[node("n1", partition="one")]))
    session.start()
    session.send_update(NodeRequest(nodes=[node("n2", partition="one")]))
    assert said(session) == ["Resume"], "what was to be sent on the old connection comes again"
    hears(session, Registered(partitions=[ONE, TWO]), partition="")
    assert [outgoing.header.seq for outgoing in session.take_outgoing()] == [1, 2]


def test_a_gap_asks_once_and_what_is_behind_it_is_dropped() -> None:
    session = opened()
    hears(session, allocated(2), seq=2)
    hears(session, allocated(3), seq=3)
    assert session.next_result() is None
    assert said(session) == ["Resume"]
    hears(session, Registered(partitions=[ONE, TWO]), partition="")
    for number in (1, 2, 3):
        hears(session, allocated(number), seq=number)
    assert [result.news for result in all_taken(session)] == [allocated(1), allocated(2), allocated(3)]


def test_a_gap_that_the_core_found_is_mended_once_though_each_update_behind_it_is_refused() -> None:
    session = opened()
    for number in (3, 4, 5):
        hears(session, Refused(code="gap", reason=f"{number} came after 1", seq=number))
        assert said(session) == (["Resume"] if number == 3 else [])
    hears(session, Registered(partitions=[ONE]), ref=f"resume {ONE}")
    hears(session, Refused(code="gap", reason="9 came after 5", seq=9))
    assert said(session) == ["Resume"]


def test_a_restarted_worker_resumes_its_partition_and_interrupts_no_other() -> None:
    session = opened()
    both = NodeRequest(nodes=[node("n1", partition="one"), node("n1", partition="two")])
    hears(session, allocated(1), seq=1)
    hears(session, allocated(1, TWO), partition=TWO, seq=1)
    for _ in range(2):  # the second request is covered by the first answer
        hears(session, ResumeWanted(reason="the worker was started again"))
    session.send_update(both)
    [resume, other] = session.take_outgoing()
    assert (resume.header.kind, resume.header.partition) == ("Resume", ONE)
    assert decode_body(Resume, resume.body) == Resume(received={ONE: 0})
    assert (other.header.kind, other.header.partition) == ("NodeRequest", TWO)
    assert not session.protocol.has_room(both)
    assert [result.partition for result in all_taken(session)] == [TWO]
    assert [one.header.partition for one in session.take_outgoing()] == [TWO]
    hears(session, Registered(partitions=[ONE]), ref=f"resume {ONE}")
    [repeated] = session.take_outgoing()
    assert (repeated.header.kind, repeated.header.partition) == ("NodeRequest", ONE)
    hears(session, allocated(1), seq=1)
    assert [result.news for result in all_taken(session)] == [allocated(1)]


def test_two_restarted_workers_resume_all_partitions() -> None:
    session = opened()
    hears(session, ResumeWanted(reason="restarted"))
    hears(session, ResumeWanted(reason="restarted"), partition=TWO)
    assert [one.header.partition for one in session.take_outgoing()] == [""]
    hears(session, Registered(partitions=[ONE]), ref=f"resume {ONE}")
    assert session.protocol.state == "resuming"


def test_a_refused_resumption_of_one_partition_is_repeated_for_all() -> None:
    session = opened()
    hears(session, ResumeWanted(reason="restarted"))
    hears(session, Refused(code="busy", reason="resume all partitions"), partition="", ref=f"resume {ONE}")
    assert [(one.header.kind, one.header.partition) for one in session.take_outgoing()][-1] == ("Resume", "")
    assert (session.protocol.state, session.pause_s) == ("resuming", None)


def test_frames_that_are_no_message_are_answered_by_resuming() -> None:
    session = opened()
    session.receive([b"GET / HTTP/1.1"])
    assert said(session) == ["Resume"]


def test_a_bare_acknowledgement_is_no_result() -> None:
    session = opened()
    hears(session, Received(), ack=3)
    assert session.next_result() is None


@pytest.mark.parametrize("code", ["superseded", "forbidden"])
def test_the_core_may_end_the_session_at_any_time(code: str) -> None:
    session = opened()
    hears(session, Refused(code=code, reason="RM 'rm-1' registered again elsewhere"), partition="")
    assert isinstance(session.end_reason, SessionLost)
    assert "elsewhere" in str(session.end_reason)
    session.start()
    assert said(session) == [], "there is nothing left to say"


def test_updates_refused_for_want_of_acknowledgements_go_again_once_some_are_given() -> None:
    session = opened()
    hears(session, allocated(1), seq=1)
    hears(session, Refused(code="window", reason="acknowledge first", seq=1))
    assert said(session) == []
    assert all_taken(session) == [Result(ONE, allocated(1))]
    assert said(session) == ["Resume"], "it says what was received, and brings what was refused again"


def test_updates_refused_when_everything_is_acknowledged_already_go_again_at_once() -> None:
    session = opened()
    hears(session, Refused(code="window", reason="acknowledge first", seq=1))
    assert said(session) == ["Resume"]


def test_messages_of_a_newer_core_do_no_harm() -> None:
    session = opened()
    for _ in range(10):
        session.receive(encode_frames(Header(kind="Sparkle", partition=ONE, session=SESSION), b"\x80"))
    assert (session.end_reason, said(session)) == (None, [])


# Pauses and ends ----------------------------------------------------------------------------------------------------


def turned_away(session: ClientSession, code: str) -> None:
    hears(session, Refused(code=code, reason="later"), partition="")


def test_when_the_core_wants_it_the_session_is_resumed_once() -> None:
    session = opened()
    hears(session, ResumeWanted(reason="the core began anew"), partition="")
    hears(session, ResumeWanted(reason="the core began anew"), partition="")
    assert said(session) == ["Resume"]


def test_when_the_core_wants_a_resumption_what_nobody_took_is_dropped_as_it_comes_again() -> None:
    """A worker that recovered from an older journal may say something else under the same numbers."""
    session = opened()
    hears(session, allocated(1), seq=1)
    assert len(all_taken(session)) == 1
    session.take_outgoing()
    hears(session, allocated(2), seq=2)
    hears(session, ResumeWanted(reason="the worker was started again"), partition="")
    assert decode_body(Resume, session.take_outgoing()[0].body).received[ONE] == 1
    hears(session, Registered(partitions=[ONE, TWO]), partition="")
    hears(session, allocated(3), seq=2)
    assert [one.news for one in all_taken(session)] == [allocated(3)]


def test_a_goodbye_is_told_and_updates_wait_until_the_pause_is_over() -> None:
    session = opened()
    goodbye = Goodbye(reason="stopping", retry_after_milli_seconds=1500)
    hears(session, goodbye, partition="")
    assert (session.pause_s, session.pause_reason) == (1.5, "stopping")
    session.send_update(NodeRequest(nodes=[node("n1", partition="one")]))
    assert said(session) == []
    assert all_taken(session) == [Result("", goodbye)]
    session.start()
    assert said(session) == ["Resume"]
    hears(session, Registered(partitions=[ONE, TWO]), partition="")
    assert said(session) == ["NodeRequest"]


@pytest.mark.parametrize("code", ["busy", "flood"])
def test_a_registration_that_comes_at_a_bad_time_is_made_again(code: str) -> None:
    session = ClientSession(RegisterResourceManager(rm_id="rm-1"), session=SESSION)
    session.start()
    said(session)
    turned_away(session, code)
    assert (session.end_reason, session.pause_s, session.pause_reason) == (None, 0.0, "later")
    session.start()
    assert said(session) == ["RegisterResourceManager"]
    hears(session, Registered(partitions=[ONE]), partition="")
    assert (session.protocol.state, session.pause_reason) == ("open", "")


def test_a_resumption_that_comes_at_a_bad_time_is_made_again_and_updates_are_kept() -> None:
    session = opened()
    session.start()
    turned_away(session, "busy")
    assert session.end_reason is None
    session.send_update(NodeRequest(nodes=[node("n1", partition="one")]))
    session.start()
    assert said(session) == ["Resume"]
    hears(session, Registered(partitions=[ONE, TWO]), partition="")
    assert said(session) == ["NodeRequest"]


def test_who_is_unknown_where_it_speaks_asks_the_core_before_it_gives_up() -> None:
    session = opened()
    turned_away(session, "unknown-session")
    turned_away_again = Refused(code="unknown-session", reason="never heard of it")
    assert said(session) == ["Resume"]
    hears(session, turned_away_again, partition="")
    assert isinstance(session.end_reason, SessionLost)


def test_a_late_refusal_of_a_call_that_was_answered_since_is_no_result() -> None:
    session = opened()
    turned_away(session, "busy")
    assert all_taken(session) == []


def test_who_leaves_is_gone_once_the_core_says_so() -> None:
    session = opened()
    session.leave("done")
    session.send_update(NodeRequest(nodes=[node("n1", partition="one")]))
    assert said(session) == ["Leave"]
    hears(session, Left(), partition="")
    assert isinstance(session.end_reason, Closed)
    assert isinstance(session.end_reason, Closed)


def test_who_leaves_says_so_again_on_the_next_connection() -> None:
    session = opened()
    session.leave("")
    session.start()
    assert said(session) == ["Leave"]
    turned_away(session, "busy")
    session.start()
    assert said(session) == ["Leave"]
    hears(session, Left(), partition="")
    assert isinstance(session.end_reason, Closed)


def test_who_was_away_for_too_long_hears_that_nothing_is_left() -> None:
    session = opened()
    hears(session, Left(), partition="")
    assert isinstance(session.end_reason, SessionLost)


# Full reports -------------------------------------------------------------------------------------------------------


def test_a_report_is_said_in_order_and_counted() -> None:
    session = opened()
    sync = session.begin_sync(ONE, "because")
    session.send_update(NodeRequest(nodes=[node("n1", partition="one"), node("n2", partition="two")]))
    session.end_sync(sync)
    begin, first, _, end = session.take_outgoing()
    assert [(one.header.kind, one.header.partition, one.header.seq) for one in (begin, first, end)] == [
        ("SyncBegin", ONE, 1),
        ("NodeRequest", ONE, 2),
        ("SyncEnd", ONE, 3),
    ]
    assert decode_body(SyncEnd, end.body) == SyncEnd(nodes=1)


def test_its_answer_is_known_before_the_consumer_has_taken_what_came_before_and_counts_as_received_after() -> None:
    session = opened()
    sync = session.begin_sync(ONE, "")
    session.end_sync(sync)
    said(session)
    hears(session, allocated(1), seq=1)
    hears(session, SyncDone(nodes=["n9"]), seq=2)
    assert sync.swept == SyncDone(nodes=["n9"])
    assert all_taken(session) == [Result(ONE, allocated(1))]
    assert [(one.header.kind, one.header.ack) for one in session.take_outgoing()] == [("Ack", 2)]


def test_an_answer_from_an_earlier_life_is_not_heard() -> None:
    session = opened()
    hears(session, PartitionRestarted(), life=1)
    sync = session.begin_sync(ONE, "")
    session.end_sync(sync)
    hears(session, SyncDone(), seq=7)
    assert sync.outcome is None


def test_a_partition_that_loses_what_it_knew_meanwhile_or_goes_has_taken_nothing() -> None:
    session = opened()
    one, two = session.begin_sync(ONE, ""), session.begin_sync(TWO, "")
    hears(session, PartitionRestarted(), life=1)
    hears(session, ConfigurationUpdated(checksum="c", partitions=[ONE]), partition="")
    assert "lost its state" in str(one.outcome)
    assert "not configured" in str(two.outcome)


ONE, TWO = "rm-1_one", "rm-1_two"


def reported(session: ClientSession, partition: str = ONE) -> Sync:
    """Report nothing, completely."""
    sync = session.begin_sync(partition, "")
    session.end_sync(sync)
    return sync


def failure(sync: Sync) -> str:
    assert isinstance(sync.outcome, ResyncFailed), sync
    return str(sync.outcome)


def test_the_items_of_a_report_are_counted_by_partition() -> None:
    session = opened()
    sync, other = session.begin_sync(ONE, ""), session.begin_sync(TWO, "")
    changed = node("n0", partition="one", action=NODE_DECOMMISSION)
    session.send_update(NodeRequest(nodes=[node("n1", partition="one"), node("n2", partition="one"), changed]))
    gone = RemoveApplicationRequest(application_id="gone", partition_name="one")
    new = application("a", "root.q", user="u", partition="one")
    session.send_update(ApplicationRequest(new=[new], remove=[gone]))
    for _ in range(2):
        session.send_update(AllocationRequest(allocations=[ask("k", "a", {"vcore": 1}, partition="one")]))
    session.send_update(NodeRequest(nodes=[node("n3", partition="two")]))
    session.end_sync(sync)
    session.send_update(NodeRequest(nodes=[node("late", partition="one")]))
    assert sync.counts == SyncEnd(nodes=2, applications=1, allocations=2)
    assert other.counts == SyncEnd(nodes=1)


def test_releases_are_not_counted() -> None:
    session = opened()
    sync = session.begin_sync(ONE, "")
    request = AllocationRequest()
    request.releases.allocations_to_release.append(release("a", "k", partition="one"))
    session.send_update(request)
    assert sync.counts == SyncEnd()


def test_the_answer_of_the_partition_is_the_outcome() -> None:
    session = opened()
    sync, other = reported(session), reported(session, TWO)
    done = SyncDone(nodes=["n9"])
    hears(session, done, seq=5)
    assert (sync.outcome, sync.swept, other.outcome) == (done, done, None)


def test_a_problem_is_a_failure() -> None:
    session = opened()
    sync = reported(session)
    hears(session, SyncDone(problem="2 nodes of 3 arrived"), seq=5)
    assert failure(sync) == "rm-1_one: 2 nodes of 3 arrived"
    assert sync.swept is None


def test_a_repeated_answer_is_not_that_of_the_next_report() -> None:
    session = opened()
    reported(session)
    hears(session, SyncDone(), seq=5)
    second = reported(session)
    hears(session, SyncDone(), seq=5)
    assert second.outcome is None
    hears(session, SyncDone(), seq=6)
    assert second.swept == SyncDone()


def test_the_answer_to_an_abandoned_report_is_not_that_of_the_next_one() -> None:
    session = opened()
    reported(session)
    second = reported(session)
    hears(session, SyncDone(nodes=["of the first"]), seq=5)
    assert second.outcome is None


def test_an_answer_without_a_number_counts_once_for_each_report() -> None:
    session = opened()
    for _ in range(2):
        sync = reported(session)
        hears(session, SyncDone(problem="no such partition"))
        assert "no such partition" in failure(sync)


def test_a_restarted_partition_has_received_no_report() -> None:
    session = opened()
    first, second = reported(session), session.begin_sync(ONE, "")
    hears(session, PartitionRestarted(), life=1)
    session.end_sync(second)
    assert failure(first) == failure(second)
    assert "lost its state" in failure(second)
    third = reported(session)
    hears(session, SyncDone(), seq=1, life=1)
    assert third.swept == SyncDone()


def test_a_report_that_another_one_replaced_has_failed() -> None:
    session = opened()
    first, second = session.begin_sync(ONE, ""), session.begin_sync(ONE, "")
    session.end_sync(first)
    assert "another report" in failure(first)
    session.end_sync(second)
    hears(session, SyncDone(), seq=1)
    assert second.swept == SyncDone()
