import pytest

from tests.machines import PARTITION, RM, SESSION, header
from yunishard.common.messages.kinds import Header, Message, News, Reply
from yunishard.common.messages.rm_messages import (
    Ack,
    Allocation,
    AllocationRequest,
    AllocationResponse,
    ConfigurationUpdated,
    Goodbye,
    Heartbeat,
    Leave,
    Left,
    NodeResponse,
    PartitionRestarted,
    Received,
    Refused,
    Registered,
    RegisterResourceManager,
    Resume,
    ResumeWanted,
    SyncBegin,
    SyncDone,
    SyncEnd,
    UpdateConfiguration,
)
from yunishard.common.messages.session import OTHER_PARTITIONS_MAX, WINDOW_MESSAGES, EncodedMessage, Session
from yunishard.common.messages.wire import WireError, decode_body, encode_body

GPU = "rm-1_gpu"
REQUEST = RegisterResourceManager(rm_id=RM, config="partitions: []")


def ask(*partitions: str) -> AllocationRequest:
    return AllocationRequest(allocations=[Allocation(allocation_key="k", partition_name=name) for name in partitions])


def told(self: Session, message: Message, **fields: str | int) -> News | Reply | None:
    return self.receive(header(type(message).__name__, **fields), encode_body(message))


def news(key: str) -> AllocationResponse:
    return AllocationResponse(new=[Allocation(allocation_key=key)])


def opened() -> Session:
    session = Session(rm_id=RM, session=SESSION)
    session.register(REQUEST)
    told(session, Registered(partitions=[PARTITION, GPU]), ref="register")
    return session


def numbered(outgoing: list[EncodedMessage]) -> list[tuple[str, str, int, int]]:
    return [(one.header.kind, one.header.partition, one.header.seq, one.header.ack) for one in outgoing]


# Registration -------------------------------------------------------------------------------------------------------


def test_a_session_begins_with_a_registration_and_is_open_when_it_is_answered() -> None:
    session = Session(rm_id=RM, session=SESSION)
    assert session.state == "new"
    call = session.register(REQUEST)
    assert call == EncodedMessage(header("RegisterResourceManager", ref="register"), encode_body(REQUEST))
    assert session.state == "registering"
    answer = Registered(partitions=[PARTITION])
    assert told(session, answer) == answer
    assert session.state == "open"
    assert session.partitions == (PARTITION,)


def test_a_refused_registration_ends_the_session() -> None:
    session = Session(rm_id=RM, session=SESSION)
    session.register(REQUEST)
    refusal = Refused(code="registration", reason="no")
    assert told(session, refusal) == refusal
    assert session.state == "refused"


def test_an_update_that_is_refused_ends_nothing() -> None:
    session = opened()
    assert told(session, Refused(code="malformed", reason="no", seq=3)) == Refused(code="malformed", reason="no", seq=3)
    assert session.state == "open"


# Sending ------------------------------------------------------------------------------------------------------------


def test_updates_are_numbered_by_partition_from_one() -> None:
    session = opened()
    assert numbered(session.update(ask("", "gpu"))) == [
        ("AllocationRequest", PARTITION, 1, 0),
        ("AllocationRequest", GPU, 1, 0),
    ]
    assert numbered(session.update(ask("gpu"))) == [("AllocationRequest", GPU, 2, 0)]


def test_the_body_of_each_part_has_only_its_own_items() -> None:
    first, second = opened().update(ask("", "gpu"))
    assert decode_body(AllocationRequest, first.body) == ask("")
    assert decode_body(AllocationRequest, second.body) == ask("gpu")


def test_what_is_not_acknowledged_can_be_repeated_word_for_word() -> None:
    session = opened()
    sent = session.update(ask("")) + session.update(ask("")) + session.update(ask("gpu"))
    assert session.retransmissions() == sent
    told(session, Received(), partition=PARTITION, ack=1)
    assert session.retransmissions() == sent[1:]


def test_a_full_partition_makes_updates_of_it_wait_and_no_others() -> None:
    session = opened()
    for _ in range(WINDOW_MESSAGES):
        assert session.has_room(ask(""))
        session.update(ask(""))
    assert not session.has_room(ask(""))
    assert not session.has_room(ask("gpu", ""))
    assert session.has_room(ask("gpu"))
    told(session, Received(), partition=PARTITION, ack=1)
    assert session.has_room(ask(""))


# Receiving ----------------------------------------------------------------------------------------------------------


def test_news_are_heard_once_and_acknowledged_once() -> None:
    session = opened()
    assert told(session, news("a"), partition=PARTITION, seq=1) == news("a")
    assert told(session, news("a"), partition=PARTITION, seq=1) is None
    assert told(session, news("b"), partition=PARTITION, seq=2) == news("b")
    expected = EncodedMessage(header("Ack", partition=PARTITION, ack=2), encode_body(Ack()))
    assert session.acknowledgements() == [expected]
    assert session.acknowledgements() == []


def test_news_that_come_again_are_acknowledged_again() -> None:
    session = opened()
    told(session, news("a"), partition=PARTITION, seq=1)
    session.acknowledgements()
    told(session, news("a"), partition=PARTITION, seq=1)
    assert numbered(session.acknowledgements()) == [("Ack", PARTITION, 0, 1)]


def test_every_message_carries_the_acknowledgement_of_its_partition() -> None:
    session = opened()
    told(session, news("a"), partition=PARTITION, seq=1)
    assert numbered(session.update(ask("", "gpu"))) == [
        ("AllocationRequest", PARTITION, 1, 1),
        ("AllocationRequest", GPU, 1, 0),
    ]


def test_a_gap_is_an_error_and_leaves_the_numbering_as_it_was() -> None:
    session = opened()
    with pytest.raises(WireError, match="rm-1_default: news 2 came after 0"):
        told(session, news("b"), partition=PARTITION, seq=2)
    assert told(session, news("a"), partition=PARTITION, seq=1) == news("a")


def test_news_without_a_number_are_heard_whenever_they_come() -> None:
    session = opened()
    for _ in range(2):
        assert told(session, NodeResponse(), partition="rm-1_zzz", ack=1) == NodeResponse()


def test_an_acknowledgement_of_the_core_is_no_news() -> None:
    assert told(opened(), Received(), partition=PARTITION, ack=1) is None


def test_what_is_meant_for_another_session_is_not_heard() -> None:
    session = opened()
    assert told(session, news("a"), partition=PARTITION, seq=1, session="another") is None
    assert told(session, Refused(code="superseded", reason=""), session="another") is None
    assert session.acknowledgements() == []


@pytest.mark.parametrize("kind", ["AllocationRequest", "Hello", "PrepareConfig", "Ack", "", "Nonsense"])
def test_what_only_a_newer_core_says_is_passed_over(kind: str) -> None:
    assert opened().receive(header(kind), b"\x80") is None


def test_a_malformed_body_is_an_error_with_its_place() -> None:
    with pytest.raises(WireError, match="AllocationResponse: Expected `object`"):
        opened().receive(header("AllocationResponse", partition=PARTITION, seq=1), b"\x90")


# Breaks -------------------------------------------------------------------------------------------------------------


def test_a_resumption_says_what_was_received() -> None:
    session = opened()
    session.update(ask("gpu"))
    told(session, news("a"), partition=PARTITION, seq=1)
    call = session.resume()
    assert session.state == "resuming"
    assert (call.header.kind, call.header.ref) == ("Resume", "resume")
    assert decode_body(Resume, call.body).received == {PARTITION: 1, GPU: 0}
    told(session, Registered(partitions=[PARTITION, GPU]))
    assert session.state == "open"
    assert numbered(session.retransmissions()) == [("AllocationRequest", GPU, 1, 0)]


def test_a_resumption_says_which_commands_were_acknowledged() -> None:
    session = opened()
    for _ in range(3):
        session.update(ask("gpu"))
    told(session, news("a"), partition=GPU, seq=1, ack=2)
    assert decode_body(Resume, session.resume().body).acknowledged == {GPU: 2}
    told(session, PartitionRestarted(), partition=GPU, life=1)
    assert decode_body(Resume, session.resume().body).acknowledged == {}


def test_a_resumption_has_the_number_of_the_latest_configuration() -> None:
    session = opened()
    assert decode_body(Resume, session.resume().body).configuration_number == 0  # of a core that has no numbers
    told(session, Registered(partitions=[PARTITION, GPU], configuration_number=4))
    told(session, ConfigurationUpdated(checksum="", partitions=[PARTITION], configuration_number=7))
    assert decode_body(Resume, session.resume().body).configuration_number == 7


def test_an_unknown_session_cannot_be_resumed() -> None:
    session = opened()
    session.resume()
    told(session, Refused(code="unknown-session", reason="who?"))
    assert session.state == "refused"


def test_a_refusal_of_something_else_does_not_end_a_resumption() -> None:
    session = opened()
    session.resume()
    told(session, Refused(code="busy", reason="later"), ref="another call")
    assert session.state == "resuming"
    told(session, Refused(code="unknown-session", reason="who?"), ref="resume")
    assert session.state == "refused"


def test_a_partition_that_restarted_is_spoken_to_from_one_again_in_a_new_life() -> None:
    session = opened()
    session.update(ask("", "gpu"))
    told(session, news("a"), partition=PARTITION, seq=1)
    restarted = PartitionRestarted()
    assert told(session, restarted, partition=PARTITION, life=1) == restarted
    assert numbered(session.retransmissions()) == [("AllocationRequest", GPU, 1, 0)]
    [again] = session.update(ask(""))
    assert again.header == header("AllocationRequest", partition=PARTITION, seq=1, life=1)
    assert told(session, news("b"), partition=PARTITION, seq=1, life=1) == news("b")


def test_a_restart_is_told_once_and_the_words_of_an_earlier_life_are_not_heard() -> None:
    session = opened()
    told(session, PartitionRestarted(), partition=PARTITION, life=2)
    session.update(ask(""))
    assert told(session, PartitionRestarted(), partition=PARTITION, life=2) is None
    assert told(session, PartitionRestarted(), partition=PARTITION, life=1) is None
    assert told(session, news("old"), partition=PARTITION, seq=1, ack=1, life=1) is None
    assert told(session, Received(), partition=PARTITION, ack=1) is None
    assert numbered(session.retransmissions()) == [("AllocationRequest", PARTITION, 1, 0)]


def test_a_resumption_says_in_which_life_each_partition_was_heard() -> None:
    session = opened()
    told(session, PartitionRestarted(), partition=PARTITION, life=3)
    assert decode_body(Resume, session.resume().body).lives.get(PARTITION) == 3


def test_headers_of_a_session_name_it() -> None:
    [one] = opened().update(ask(""))
    assert one.header == Header(kind="AllocationRequest", rm=RM, partition=PARTITION, session=SESSION, seq=1)


# Another configuration ----------------------------------------------------------------------------------------------


UPDATE = UpdateConfiguration(rm_id=RM, config="partitions: []")
UPDATED = ConfigurationUpdated(checksum="c", partitions=[PARTITION])


def test_a_call_for_another_configuration_is_answered_with_the_partitions_from_then_on() -> None:
    session = opened()
    call = session.update_configuration(UPDATE, ref="7")
    assert call == EncodedMessage(header("UpdateConfiguration", ref="7"), encode_body(UPDATE))
    assert session.state == "open"
    assert told(session, UPDATED, ref="7") == UPDATED
    assert session.partitions == (PARTITION,)


def test_a_refused_one_changes_nothing_and_ends_nothing() -> None:
    session = opened()
    session.update_configuration(UPDATE, ref="7")
    refusal = Refused(code="configuration", reason="no")
    assert told(session, refusal, ref="7") == refusal
    assert (session.state, session.partitions) == ("open", (PARTITION, GPU))


def test_one_that_is_refused_during_a_break_does_not_refuse_the_resumption() -> None:
    session = opened()
    session.update_configuration(UPDATE, ref="7")
    session.resume(ref="8")
    told(session, Refused(code="configuration", reason="no"), ref="7")
    assert session.state == "resuming"
    told(session, Refused(code="unknown-session", reason="no"), ref="8")
    assert session.state == "refused"


def test_each_call_may_be_refused_once() -> None:
    session = opened()
    session.update_configuration(UPDATE, ref="7")
    told(session, UPDATED, ref="7")
    session.resume(ref="7")
    told(session, Refused(code="unknown-session", reason="no"), ref="7")
    assert session.state == "refused"


def test_a_change_by_somebody_else_is_heard_too() -> None:
    session = opened()
    changed = ConfigurationUpdated(checksum="c", partitions=[GPU], author="alice")
    assert told(session, changed) == changed
    assert session.partitions == (GPU,)


def test_a_partition_that_went_is_heard_to_the_end_and_acknowledged() -> None:
    session = opened()
    told(session, UPDATED)
    assert told(session, news("k"), partition=GPU, seq=1) == news("k")
    assert [(one.header.partition, one.header.ack) for one in session.acknowledgements()] == [(GPU, 1)]


def test_a_partition_that_comes_back_is_spoken_to_from_one_again_in_its_new_life() -> None:
    session = opened()
    session.update(ask("gpu"))
    told(session, news("k"), partition=GPU, seq=1)
    told(session, UPDATED)
    back = ConfigurationUpdated(checksum="d", partitions=[PARTITION, GPU], lives={GPU: 1})
    told(session, back)
    assert session.retransmissions() == []
    [sent] = session.update(ask("gpu"))
    assert (sent.header.seq, sent.header.ack, sent.header.life) == (1, 0, 1)
    assert told(session, news("late"), partition=GPU, seq=2) is None
    assert told(session, news("k"), partition=GPU, seq=1, life=1) == news("k")


def test_what_is_said_of_a_life_again_changes_no_numbers() -> None:
    session = opened()
    back = ConfigurationUpdated(checksum="d", partitions=[PARTITION, GPU], lives={GPU: 1})
    for number in (1, 2):
        told(session, back)
        assert numbered(session.update(ask("gpu"))) == [("AllocationRequest", GPU, number, 0)]


def test_partitions_that_stay_keep_their_numbers() -> None:
    session = opened()
    session.update(ask(""))
    told(session, UPDATED)
    assert numbered(session.update(ask(""))) == [("AllocationRequest", PARTITION, 2, 0)]


def test_a_configuration_of_another_session_is_not_heard() -> None:
    session = opened()
    assert told(session, UPDATED, session="another") is None
    assert session.partitions == (PARTITION, GPU)


# What the core asks for ---------------------------------------------------------------------------------------------


def test_the_core_may_ask_for_a_resumption() -> None:
    session = opened()
    wanted = ResumeWanted(reason="the core began anew")
    assert told(session, wanted) == wanted
    session.resume()
    assert session.state == "resuming"


def test_one_partition_resumes_and_the_other_goes_on() -> None:
    session = opened()
    for _ in range(2):
        session.update(ask(PARTITION, GPU))
    for partition in (PARTITION, GPU):
        told(session, news("k"), partition=partition, seq=1, ack=1)
    call = session.resume(GPU, ref="one")
    assert (call.header.partition, call.header.ref) == (GPU, "one")
    assert decode_body(Resume, call.body) == Resume(received={GPU: 1}, acknowledged={GPU: 1})
    assert (session.state, session.is_open(GPU), session.is_open(PARTITION)) == ("open", False, True)
    assert [session.is_full(one) for one in (PARTITION, GPU)] == [False, True]
    assert [one.header.partition for one in session.acknowledgements()] == [PARTITION]
    confirmed = Registered(partitions=[GPU])
    assert told(session, confirmed, partition=GPU, ref="one") == confirmed
    assert session.partitions == (PARTITION, GPU)
    assert numbered(session.retransmissions(GPU)) == [("AllocationRequest", GPU, 2, 1)]
    assert session.is_open(GPU)
    assert told(session, confirmed, partition=GPU, ref="one") is None


def test_a_partition_that_resumes_in_another_generation_is_reported_as_restarted() -> None:
    session = opened()
    session.update(ask(GPU))
    session.resume(GPU, ref="one")
    told(session, Registered(partitions=[GPU], lives={GPU: 2}), partition=GPU, ref="one")
    assert session.retransmissions(GPU) == []
    restarted = PartitionRestarted(reason="it restarted meanwhile")
    assert told(session, restarted, partition=GPU, life=2) == restarted


@pytest.mark.parametrize("state", ["away", "resuming"])
def test_all_partitions_resume_if_the_session_is_not_open(state: str) -> None:
    session = opened()
    told(session, Goodbye()) if state == "away" else session.resume()
    assert session.resume(GPU).header.partition == ""


def test_after_a_goodbye_the_session_is_resumed_and_nothing_else_ends_the_wait() -> None:
    session = opened()
    goodbye = Goodbye(reason="stopping", retry_after_milli_seconds=100)
    assert told(session, goodbye) == goodbye
    assert session.state == "away"
    told(session, Registered(partitions=[PARTITION]))
    assert session.state == "away"
    session.resume()
    told(session, Registered(partitions=[PARTITION]))
    assert session.state == "open"


def test_a_call_that_was_made_twice_is_answered_once() -> None:
    session = opened()
    session.update(ask(""))
    for _ in range(2):
        session.resume()
    answer = Registered(partitions=[PARTITION, GPU])
    assert told(session, answer) == answer
    assert told(session, answer) is None


def test_heartbeats_name_the_session_and_say_nothing() -> None:
    session = opened()
    assert session.heartbeat() == EncodedMessage(header("Heartbeat"), encode_body(Heartbeat()))
    assert told(session, Heartbeat(incarnation="7")) is None


def test_who_leaves_has_left_when_the_core_says_so() -> None:
    session = opened()
    assert session.leave("done") == EncodedMessage(header("Leave", ref="leave"), encode_body(Leave(reason="done")))
    assert session.state == "leaving"
    told(session, Registered(partitions=[PARTITION]))
    assert session.state == "leaving"
    assert told(session, Left()) == Left()
    assert session.state == "left"


def test_a_refused_leave_leaves_the_session_refused() -> None:
    session = opened()
    session.leave()
    told(session, Refused(code="unknown-session", reason="who?"))
    assert session.state == "refused"


def test_a_refused_call_may_be_made_again() -> None:
    session = opened()
    session.resume()
    told(session, Refused(code="busy", reason="later"))
    assert session.state == "refused"
    session.resume()
    told(session, Registered(partitions=[PARTITION]))
    assert session.state == "open"


def test_a_full_report_is_numbered_like_what_it_is_about() -> None:
    session = opened()
    begin, [update] = session.number(GPU, SyncBegin(reason="because")), session.update(ask("gpu"))
    end = session.number(GPU, SyncEnd(allocations=1))
    assert numbered([begin, update, end]) == [
        ("SyncBegin", GPU, 1, 0),
        ("AllocationRequest", GPU, 2, 0),
        ("SyncEnd", GPU, 3, 0),
    ]
    assert session.retransmissions() == [begin, update, end]
    assert told(session, SyncDone(nodes=["n1"]), partition=GPU, seq=1, ack=3) == SyncDone(nodes=["n1"])


# Windows and lives --------------------------------------------------------------------------------------------------


def test_the_core_says_how_much_may_be_on_its_way() -> None:
    session = Session(rm_id=RM, session=SESSION)
    session.register(REQUEST)
    told(session, Registered(partitions=[PARTITION, GPU], window_messages=2))
    session.update(ask(""))
    assert not session.is_full(PARTITION)
    session.update(ask(""))
    assert session.is_full(PARTITION)
    session.resume()
    told(session, Registered(partitions=[PARTITION, GPU], window_messages=3))
    assert not session.is_full(PARTITION)
    session.update(ask(""))
    assert session.is_full(PARTITION)


def test_bytes_count_as_well() -> None:
    session = Session(rm_id=RM, session=SESSION)
    session.register(REQUEST)
    told(session, Registered(partitions=[PARTITION], window_bytes=1))
    session.update(ask(""))
    assert not session.has_room(ask(""))
    told(session, Received(), partition=PARTITION, ack=1)
    assert session.has_room(ask(""))


def test_a_first_registration_says_in_which_lives_the_partitions_are() -> None:
    session = Session(rm_id=RM, session=SESSION)
    session.register(REQUEST)
    told(session, Registered(partitions=[PARTITION, GPU], lives={GPU: 4}))
    [sent] = session.update(ask("gpu"))
    assert (sent.header.seq, sent.header.life) == (1, 4)
    assert session.generation(GPU) == 4
    assert told(session, PartitionRestarted(), partition=GPU, life=4) is None, "it knows"


def test_a_partition_that_restarted_during_a_break_is_told_once_and_what_was_said_to_it_is_forgotten() -> None:
    session = opened()
    session.update(ask("gpu"))
    session.resume()
    told(session, Registered(partitions=[PARTITION, GPU], lives={GPU: 4}))
    assert session.retransmissions() == []
    [sent] = session.update(ask("gpu"))
    assert told(session, PartitionRestarted(), partition=GPU, life=4) == PartitionRestarted()
    assert session.retransmissions() == [sent], "what was said in the new life counts"
    assert told(session, PartitionRestarted(), partition=GPU, life=4) is None


def test_a_partition_that_came_during_a_break_has_lost_nothing() -> None:
    session = opened()
    session.resume()
    told(session, Registered(partitions=[PARTITION, GPU, "rm-1_new"], lives={"rm-1_new": 1}))
    [sent] = session.update(ask("new"))
    assert sent.header.life == 1
    assert decode_body(Resume, session.resume().body).lives["rm-1_new"] == 1
    assert told(session, PartitionRestarted(), partition="rm-1_new", life=1) is None
    assert session.retransmissions() == [sent]


def test_names_of_partitions_that_were_never_there_do_not_pile_up() -> None:
    session = opened()
    kept = session.update(ask("gpu"))
    for number in range(3 * OTHER_PARTITIONS_MAX):
        [sent] = session.update(ask(f"x{number}"))
        told(session, NodeResponse(), partition=sent.header.partition, ack=1)
    received = decode_body(Resume, session.resume().body).received
    assert len(received) <= OTHER_PARTITIONS_MAX + 2
    assert GPU in received
    told(session, Registered(partitions=[PARTITION, GPU]))
    assert session.retransmissions() == kept


def test_what_was_not_refused_yet_is_not_forgotten() -> None:
    session = opened()
    sent = [one for number in range(2 * OTHER_PARTITIONS_MAX) for one in session.update(ask(f"x{number}"))]
    assert session.retransmissions() == sent


def test_last_words_of_a_partition_that_is_forgotten_already_are_passed_over() -> None:
    assert told(opened(), news("k"), partition="rm-1_gone", seq=7) is None


# Taken over from another process --------------------------------------------------------------------------------------


def taken_over(**lives: int) -> Session:
    session = Session(rm_id=RM, session=SESSION)
    call = session.take_over()
    assert decode_body(Resume, call.body) == Resume()
    told(session, Registered(partitions=[PARTITION, GPU], lives=lives), ref="resume")
    return session


def test_a_session_that_is_taken_over_continues_with_the_numbers_of_the_core() -> None:
    session = taken_over()
    assert session.state == "open"
    assert session.is_full(PARTITION), "the number of the last command is not known yet"
    told(session, Received(), partition=PARTITION, ack=17)
    assert not session.is_full(PARTITION)
    assert session.is_full(GPU)
    assert told(session, news("a"), partition=PARTITION, seq=40, ack=17) == news("a")
    assert told(session, news("a"), partition=PARTITION, seq=40, ack=17) is None
    with pytest.raises(WireError, match="came after 40"):
        told(session, news("c"), partition=PARTITION, seq=42, ack=17)
    assert numbered(session.update(ask(PARTITION))) == [("AllocationRequest", PARTITION, 18, 40)]


def test_a_partition_of_a_later_generation_is_taken_over_as_it_is() -> None:
    session = taken_over(**{PARTITION: 2})
    told(session, Received(), partition=PARTITION, ack=3)
    assert session.is_full(PARTITION), "that is of an earlier generation"
    told(session, Received(), partition=PARTITION, ack=3, life=2)
    assert not session.is_full(PARTITION)
    assert told(session, PartitionRestarted(), partition=PARTITION, life=2) is None, "the RM was told of it already"


def test_a_session_may_acknowledge_only_what_it_is_told_to() -> None:
    session = opened()
    session.acknowledges_late = True
    told(session, news("a"), partition=PARTITION, seq=1)
    assert numbered(session.update(ask(PARTITION))) == [("AllocationRequest", PARTITION, 1, 0)]
    assert numbered(session.acknowledgements()) == [("Ack", PARTITION, 0, 1)]
    assert numbered(session.update(ask(PARTITION))) == [("AllocationRequest", PARTITION, 2, 1)]
