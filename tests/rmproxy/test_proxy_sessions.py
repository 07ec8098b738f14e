"""Who is still there: RMs, the broker, and the proxy itself."""

from tests.machines import PARTITION, RM, SESSION, arrives, header, said, sent
from tests.rmproxy.test_proxy import ASK, GPU, OTHER, PEER, answered, called, one_refusal, open_proxy, seated
from yunishard.common.messages.control_messages import Hello, ManagerAway, SessionMoved
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import Query
from yunishard.common.messages.rm_messages import (
    Ack,
    AllocationRelease,
    AllocationResponse,
    ConfigurationUpdated,
    Goodbye,
    Heartbeat,
    Leave,
    Left,
    Received,
    Refused,
    Registered,
    Resume,
    ResumeWanted,
    SyncBegin,
    SyncDone,
    SyncEnd,
    UpdateConfiguration,
)
from yunishard.common.messages.session import WINDOW_MESSAGES
from yunishard.common.messages.wire import (
    FORBIDDEN,
    LINK_LOST,
    MALFORMED,
    NEVER,
    Incoming,
    Outgoing,
    decode_body,
    encode_body,
)
from yunishard.rmproxy.proxy import BROKER, RETRY_AFTER_MS, Proxy
from yunishard.rmproxy.rate_limit import CALLS_AT_ONCE, REFUSALS_MAX

BEAT_S = 1.0
SILENCE_S = 3.0


def beating(*peers: str) -> Proxy:
    """With an RM for each peer: the first is `rm-1`, the others are called by their peers."""
    proxy = Proxy(heartbeat_s=BEAT_S, silence_s=SILENCE_S)
    for number, peer in enumerate(peers):
        seated(proxy, peer, rm=peer if number else RM)
    return proxy


def kinds(sends: list[Outgoing], to: str | None = None) -> list[str]:
    return [one.header.kind for one in sends if to in (None, one.to)]


def quiet(proxy: Proxy, until: float, since: float = 0.0) -> list[Outgoing]:
    """Time passes, tick by tick, and nobody says anything; what the proxy says besides its heartbeats."""
    sends, now = [], since
    while now <= until:
        sends += proxy.tick(now)
        now += BEAT_S
    return [one for one in sends if one.header.kind != "Heartbeat"]


# The broker ---------------------------------------------------------------------------------------------------------


def test_the_broker_is_told_that_the_proxy_is_here_each_second() -> None:
    proxy = beating()
    assert proxy.hello() == Outgoing(BROKER, Header(kind="Hello"), proxy.hello().body)
    assert decode_body(Hello, proxy.hello().body).role == "rmproxy"
    assert kinds(proxy.tick(0.0)) == ["Heartbeat"]
    assert proxy.deadline == BEAT_S
    assert proxy.tick(0.5) == []
    assert kinds(proxy.tick(BEAT_S)) == ["Heartbeat"]


def test_without_heartbeats_the_proxy_waits_for_nothing_but_messages() -> None:
    proxy = Proxy()
    assert proxy.deadline == NEVER
    assert proxy.tick(1e9) == []


def heard_from_broker(proxy: Proxy, incarnation: str) -> list[Outgoing]:
    return proxy.handle(arrives(BROKER, Heartbeat(incarnation=incarnation), rm="", session=""), 0)


def test_when_the_broker_began_anew_it_is_greeted_and_every_rm_is_told_to_resume() -> None:
    proxy = beating()
    assert heard_from_broker(proxy, "7") == [], "the first that is heard of it"
    seated(proxy, PEER)
    seated(proxy, OTHER, rm=OTHER)
    assert heard_from_broker(proxy, "7") == []
    wanted = ResumeWanted(reason="the core restarted")
    assert heard_from_broker(proxy, "8") == [proxy.hello(), sent(PEER, wanted), sent(OTHER, wanted, rm=OTHER)]
    assert heard_from_broker(proxy, "8") == []


def test_who_registered_before_the_broker_was_heard_resumes_as_that_may_have_been_an_earlier_broker() -> None:
    proxy = beating(PEER)
    assert kinds(heard_from_broker(proxy, "7")) == ["Hello", "ResumeWanted"]
    assert heard_from_broker(proxy, "7") == []


def test_who_waited_for_an_answer_of_the_broker_that_died_is_told_to_ask_again() -> None:
    proxy = beating()
    heard_from_broker(proxy, "7")
    call = called(proxy, PEER, ref="mine")
    _, told = heard_from_broker(proxy, "8")
    assert told == sent(PEER, Refused(code="busy", reason="the core restarted: try again"), ref="mine")
    assert answered(proxy, call) == [], "nobody waits for it any more"


def test_on_a_new_connection_the_broker_is_greeted_and_every_rm_is_told_to_resume_once() -> None:
    proxy = beating()
    heard_from_broker(proxy, "7")
    seated(proxy, PEER)
    call = called(proxy, PEER, ref="mine")
    lost = Incoming(BROKER, Header(kind=LINK_LOST), b"")
    wanted = ResumeWanted(reason="the connection to the core was lost")
    busy = Refused(code="busy", reason="the connection to the core was lost: try again")
    assert proxy.handle(lost, 0) == [proxy.hello(), sent(PEER, busy, ref="mine"), sent(PEER, wanted)]
    assert answered(proxy, call) == [], "nobody waits for it any more"
    assert heard_from_broker(proxy, "8") == [], "it received the Hello"
    assert kinds(heard_from_broker(proxy, "9")) == ["Hello", "ResumeWanted"]


def test_one_partition_resumes_with_an_empty_window_and_the_others_keep_theirs() -> None:
    proxy = beating(PEER)
    for partition in (PARTITION, GPU):
        proxy.handle(arrives(PEER, ASK, partition=partition, seq=1), 0)
    [call] = proxy.handle(arrives(PEER, Resume(received={PARTITION: 0}), partition=PARTITION, ref="mine"), 0)
    assert (call.to, call.header.kind, call.header.partition) == (BROKER, "Resume", PARTITION)
    confirmed = Registered(partitions=[PARTITION])
    answer = arrives(BROKER, confirmed, partition=PARTITION, ref=call.header.ref)
    assert proxy.handle(answer, 0) == [sent(PEER, confirmed, partition=PARTITION, ref="mine")]
    windows = proxy.sessions[RM].windows
    assert [windows[name].in_flight for name in (PARTITION, GPU)] == [0, 1]


# RMs ----------------------------------------------------------------------------------------------------------------


def test_an_rm_whose_resumption_waits_for_the_broker_is_not_reported_as_away() -> None:
    proxy = beating(PEER)
    [call] = proxy.handle(arrives(PEER, Resume(), ref="mine"), 1.0)
    assert quiet(proxy, 2 * SILENCE_S) == [], "the broker would read that it is away after it has resumed"
    proxy.handle(arrives(BROKER, Registered(partitions=[PARTITION]), ref=call.header.ref), 7.0)
    assert kinds(quiet(proxy, 20.0, since=7.0)) == ["ManagerAway"]


def test_an_rm_is_told_how_often_to_say_something() -> None:
    [told] = seated(beating())
    registered = decode_body(Registered, told.body)
    assert (registered.heartbeat_milli_seconds, registered.silence_milli_seconds) == (1000, 3000)


def test_a_heartbeat_is_answered_but_not_each_of_a_flood() -> None:
    proxy = beating(PEER)
    beat = arrives(PEER, Heartbeat())
    assert proxy.handle(beat, 10.0) == [sent(PEER, Heartbeat())]
    assert proxy.handle(beat, 10.1) == []
    assert proxy.handle(beat, 11.0) == [sent(PEER, Heartbeat())]


def test_a_heartbeat_of_a_stranger_is_not_answered_as_it_may_be_registering() -> None:
    assert beating(PEER).handle(arrives(OTHER, Heartbeat()), 0) == []


def test_a_silent_rm_is_away_which_is_said_once() -> None:
    proxy = beating(PEER, OTHER)
    assert quiet(proxy, 2.0) == []
    proxy.handle(arrives(OTHER, Heartbeat(), rm=OTHER), 2.0)
    assert quiet(proxy, 3.0, since=3.0) == [sent(BROKER, ManagerAway())]
    assert quiet(proxy, 4.0, since=4.0) == []
    assert quiet(proxy, 5.0, since=5.0) == [sent(BROKER, ManagerAway(), rm=OTHER)]


def test_any_word_counts_as_a_sign_of_life() -> None:
    proxy = beating(PEER)
    for second in range(20):
        proxy.handle(arrives(PEER, ASK, partition=PARTITION), float(second))
        assert kinds(proxy.tick(float(second))) == ["Heartbeat"]


def test_words_of_strangers_and_calls_of_others_do_not() -> None:
    proxy = beating(PEER)
    for second in range(5):
        proxy.handle(arrives(OTHER, Heartbeat()), float(second))
        proxy.handle(arrives(PEER, ASK, session="another"), float(second))
    assert quiet(proxy, 5.0) == [sent(BROKER, ManagerAway())]


def test_one_that_speaks_again_is_told_to_resume_once_and_is_heard_all_the_same() -> None:
    proxy = beating(PEER)
    quiet(proxy, 5.0)
    wanted, passed = proxy.handle(arrives(PEER, ASK, partition=PARTITION, seq=1), 6.0)
    assert (wanted.to, wanted.header.kind, passed.to) == (PEER, "ResumeWanted", BROKER)
    assert kinds(proxy.handle(arrives(PEER, Heartbeat()), 7.0)) == ["Heartbeat"]


def test_one_that_resumed_is_watched_anew() -> None:
    proxy = beating(PEER)
    quiet(proxy, 5.0)
    [call] = proxy.handle(arrives(OTHER, Resume(), ref="again"), 6.0)
    answer = Registered(partitions=[PARTITION])
    proxy.handle(arrives(BROKER, answer, ref=call.header.ref), 6.0)
    assert kinds(proxy.handle(arrives(OTHER, Heartbeat()), 7.0)) == ["Heartbeat"]
    assert quiet(proxy, 12.0, since=7.0) == [sent(BROKER, ManagerAway())]


def test_the_seat_of_one_that_is_away_stays_its_own() -> None:
    proxy = beating(PEER)
    quiet(proxy, 60.0)
    news = AllocationResponse()
    assert proxy.handle(arrives(BROKER, news, partition=PARTITION, seq=1), 61.0) == [
        sent(PEER, news, partition=PARTITION, seq=1)
    ]


def test_a_proxy_that_was_stopped_for_a_while_holds_nobodys_silence_against_them() -> None:
    proxy = beating(PEER)
    quiet(proxy, 1.0)
    assert kinds(proxy.tick(600.0)) == ["Heartbeat"]
    assert kinds(proxy.tick(600.0 + 1.5)) == ["Heartbeat", "ManagerAway"], "but time goes on"


def test_an_rm_of_the_grpc_port_is_away_when_the_port_says_so() -> None:
    proxy = beating("grpc:rm-1")
    assert quiet(proxy, 100.0) == []
    away = arrives("grpc:rm-1", ManagerAway())
    assert proxy.handle(away, 100.0) == [sent(BROKER, ManagerAway())]
    assert one_refusal(proxy.handle(arrives(PEER, ManagerAway()), 100.0)).code == "unknown-kind"


# The end ------------------------------------------------------------------------------------------------------------


def test_everybody_is_told_when_the_proxy_stops() -> None:
    told = Goodbye(reason="the core is stopping", retry_after_milli_seconds=RETRY_AFTER_MS)
    assert beating(PEER, OTHER).goodbye() == [sent(PEER, told), sent(OTHER, told, rm=OTHER)]


def left(proxy: Proxy, message: Message) -> list[Outgoing]:
    [call] = proxy.handle(arrives(PEER, Leave(), ref="bye"), 0)
    assert (call.to, call.header.kind) == (BROKER, "Leave")
    return proxy.handle(arrives(BROKER, message, ref=call.header.ref), 0)


def test_an_rm_that_left_has_no_seat_any_more() -> None:
    proxy = beating(PEER)
    assert left(proxy, Left()) == [sent(PEER, Left(), ref="bye")]
    assert one_refusal(proxy.handle(arrives(PEER, ASK, partition=GPU), 0)).code == "unknown-session"


def test_an_rm_that_may_not_leave_now_goes_on() -> None:
    proxy = beating(PEER)
    refusal = Refused(code="busy", reason="later")
    assert left(proxy, refusal) == [sent(PEER, refusal, ref="bye")]
    assert said(proxy.handle(arrives(PEER, ASK, partition=GPU), 0)) == [ASK]


def test_the_answer_to_a_leave_of_an_earlier_session_takes_nobodys_seat() -> None:
    proxy = beating(PEER)
    [call] = proxy.handle(arrives(OTHER, Leave(), session="earlier", ref="bye"), 0)
    proxy.handle(arrives(BROKER, Left(), session="earlier", ref=call.header.ref), 0)
    assert said(proxy.handle(arrives(PEER, ASK, partition=GPU), 0)) == [ASK]


def test_an_rm_whose_time_is_up_is_told_and_has_no_seat_any_more() -> None:
    proxy = beating(PEER)
    assert proxy.handle(arrives(BROKER, Left(), session=SESSION), 0) == [sent(PEER, Left())]
    assert one_refusal(proxy.handle(arrives(PEER, ASK, partition=GPU), 0)).code == "unknown-session"


def test_an_rm_that_has_resumed_at_another_proxy_has_no_seat_here_and_is_told_nothing() -> None:
    proxy = beating(PEER)
    assert proxy.handle(arrives(BROKER, SessionMoved(), session="earlier"), 0) == []
    assert said(proxy.handle(arrives(PEER, ASK, partition=GPU), 0)) == [ASK]
    assert proxy.handle(arrives(BROKER, SessionMoved()), 0) == []
    assert one_refusal(proxy.handle(arrives(PEER, ASK, partition=GPU), 0)).code == "unknown-session"


UPDATE = UpdateConfiguration(rm_id=RM)


def reconfigured(proxy: Proxy, *partitions: str, ref: str = "", session: str = SESSION, **lives: int) -> list[Outgoing]:
    """The broker says which partitions there are from now on; `gpu=2` is a partition's life."""
    told = ConfigurationUpdated(
        checksum="c", partitions=list(partitions), lives={f"rm-1_{name}": life for name, life in lives.items()}
    )
    return proxy.handle(arrives(BROKER, told, ref=ref, session=session), 0)


def passes(proxy: Proxy, partition: str, **fields: int) -> bool:
    """Whether an ask reaches the core."""
    [one] = proxy.handle(arrives(PEER, ASK, partition=partition, **fields), 0)
    return one.to == BROKER


def test_a_call_for_another_configuration_goes_to_the_broker_and_its_answer_finds_back() -> None:
    proxy = open_proxy()
    [call] = proxy.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    assert (call.to, call.header.kind) == (BROKER, "UpdateConfiguration")
    [answer] = reconfigured(proxy, PARTITION, GPU, ref=call.header.ref)
    assert answer == sent(PEER, ConfigurationUpdated(checksum="c", partitions=[PARTITION, GPU]), ref="mine")


def test_a_refused_one_finds_back_and_the_session_goes_on() -> None:
    proxy = open_proxy()
    [call] = proxy.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    refusal = Refused(code="busy", reason="later")
    assert proxy.handle(arrives(BROKER, refusal, ref=call.header.ref), 0) == [sent(PEER, refusal, ref="mine")]
    assert passes(proxy, GPU)


def test_an_rm_hears_of_what_somebody_else_changed() -> None:
    proxy = open_proxy()
    [told] = reconfigured(proxy, PARTITION)
    assert told == sent(PEER, ConfigurationUpdated(checksum="c", partitions=[PARTITION]))


def test_a_configuration_of_an_earlier_session_or_of_a_stranger_changes_nothing() -> None:
    proxy = open_proxy()
    assert reconfigured(proxy, PARTITION, session="earlier") == []
    assert reconfigured(Proxy(), PARTITION) == []
    assert passes(proxy, GPU)


def test_the_answer_comes_on_the_connection_that_the_rm_has_by_then() -> None:
    proxy = open_proxy()
    [call] = proxy.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    [again] = proxy.handle(arrives(OTHER, Resume(), ref="again"), 0)
    answered(proxy, again)
    [answer] = reconfigured(proxy, PARTITION, ref=call.header.ref)
    assert (answer.to, answer.header.ref) == (OTHER, "mine")


def test_what_is_sent_to_a_partition_that_went_is_refused_item_by_item_and_acknowledged() -> None:
    proxy = open_proxy()
    reconfigured(proxy, PARTITION)
    [answer] = proxy.handle(arrives(PEER, ASK, partition=GPU, seq=4), 0)
    assert (answer.to, answer.header.ack) == (PEER, 4)
    reason = "Failed to find partition rm-1_gpu, for application a and allocation k"
    assert decode_body(AllocationResponse, answer.body).rejected_allocations[0].reason == reason
    assert passes(proxy, PARTITION, seq=4)


def test_what_was_on_its_way_when_the_partition_went_is_refused_alike() -> None:
    proxy = open_proxy()
    reconfigured(proxy, PARTITION)
    [answer] = proxy.handle(arrives(BROKER, ASK, partition=GPU, seq=4, life=1), 0)
    assert (answer.to, answer.header.ack, answer.header.life) == (PEER, 4, 1)
    assert decode_body(AllocationResponse, answer.body).rejected_allocations


def test_news_of_a_partition_that_is_being_taken_down_pass_and_their_acknowledgements_too() -> None:
    proxy = open_proxy()
    reconfigured(proxy, PARTITION)
    news = AllocationResponse(released=[AllocationRelease(allocation_key="k")])
    assert proxy.handle(arrives(BROKER, news, partition=GPU, seq=9), 0) == [sent(PEER, news, partition=GPU, seq=9)]
    assert proxy.handle(arrives(PEER, Ack(), partition=GPU, ack=9), 0) == [sent(BROKER, Ack(), partition=GPU, ack=9)]


def test_a_partition_that_comes_can_be_spoken_to_in_its_own_life() -> None:
    proxy = open_proxy()
    reconfigured(proxy, PARTITION, GPU, "rm-1_new", new=1)
    assert passes(proxy, "rm-1_new", seq=1, life=1)
    assert passes(proxy, PARTITION, seq=1)


def test_what_was_numbered_before_it_came_is_refused_in_its_own_life_and_takes_no_number_there() -> None:
    proxy = open_proxy()
    reconfigured(proxy, PARTITION, GPU, "rm-1_new", new=1)
    [answer] = proxy.handle(arrives(PEER, ASK, partition="rm-1_new", seq=3), 0)
    assert (answer.to, answer.header.seq, answer.header.ack, answer.header.life) == (PEER, 0, 0, 1)
    reason = "Failed to find partition rm-1_new, for application a and allocation k"
    assert decode_body(AllocationResponse, answer.body).rejected_allocations[0].reason == reason


def test_a_partition_that_restarted_meanwhile_does_not_change_which_lives_are_too_early() -> None:
    proxy = open_proxy()
    reconfigured(proxy, PARTITION, GPU, gpu=3)
    assert proxy.handle(arrives(PEER, ASK, partition=GPU, seq=1), 0) == [], "the RM will report everything again"
    assert passes(proxy, GPU, seq=1, life=3)


def test_an_answer_to_a_call_of_a_proxy_that_died_is_nobodys_and_ends_no_session() -> None:
    before, proxy = Proxy("a."), Proxy("b.")
    [lost] = before.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    [again] = proxy.handle(arrives(PEER, Resume(), ref="again"), 0)
    assert lost.header.ref != again.header.ref
    refusal = Refused(code="configuration", reason="no")
    assert proxy.handle(arrives(BROKER, refusal, ref=lost.header.ref), 0) == []
    [back] = answered(proxy, again)
    assert back.header.ref == "again"
    assert proxy.handle(arrives(BROKER, refusal, ref=lost.header.ref), 0) == []
    assert passes(proxy, GPU)
    [told] = reconfigured(proxy, PARTITION, ref=lost.header.ref)
    assert (told.to, told.header.ref) == (PEER, "")


def full_front() -> Proxy:
    """One partition has a whole window under way."""
    proxy = open_proxy()
    for seq in range(1, WINDOW_MESSAGES + 1):
        assert passed(proxy.handle(arrives(PEER, ASK, partition=PARTITION, seq=seq), 0))
    return proxy


def passed(sends: list[Outgoing]) -> bool:
    return [one.to for one in sends] == [BROKER]


def test_what_exceeds_the_window_of_a_partition_is_refused_with_its_number_and_goes_no_further() -> None:
    proxy = full_front()
    refused = one_refusal(proxy.handle(arrives(PEER, ASK, partition=PARTITION, seq=WINDOW_MESSAGES + 1), 0))
    assert (refused.code, refused.seq) == ("window", WINDOW_MESSAGES + 1)
    assert passed(proxy.handle(arrives(PEER, ASK, partition=GPU, seq=1), 0)), "each partition has its own"


def test_an_acknowledgement_on_its_way_back_makes_room() -> None:
    proxy = full_front()
    proxy.handle(arrives(BROKER, Received(), partition=PARTITION, ack=1), 0)
    assert passed(proxy.handle(arrives(PEER, ASK, partition=PARTITION, seq=WINDOW_MESSAGES + 1), 0))


def test_what_is_repeated_after_a_resumption_passes() -> None:
    proxy = full_front()
    [call] = proxy.handle(arrives(OTHER, Resume(), ref="again"), 0)
    answered(proxy, call)
    for seq in range(1, WINDOW_MESSAGES + 1):
        assert passed(proxy.handle(arrives(OTHER, ASK, partition=PARTITION, seq=seq), 0))


def test_updates_without_a_number_wait_for_their_marks() -> None:
    proxy, large = open_proxy(), Incoming(PEER, header("AllocationRequest", partition=PARTITION), bytes(1 << 20))
    [first] = proxy.handle(large, 0)
    assert one_refusal(proxy.handle(large, 0)).code == "window"
    [told] = proxy.handle(arrives(BROKER, Received(), partition=PARTITION, ref=first.header.ref), 0)
    assert told == sent(PEER, Received(), partition=PARTITION), "the mark is our own"
    assert passed(proxy.handle(large, 0))


def test_a_synchronisation_passes_like_an_update_and_is_refused_where_there_is_no_partition() -> None:
    proxy = open_proxy()
    assert passed(proxy.handle(arrives(PEER, SyncBegin(), partition=PARTITION, seq=1), 0))
    assert passed(proxy.handle(arrives(PEER, SyncEnd(), partition=PARTITION, seq=2), 0))
    began = proxy.handle(arrives(PEER, SyncBegin(), partition="rm-1_zzz", seq=1), 0)
    assert began == [sent(PEER, Received(), partition="rm-1_zzz", ack=1)]
    [ended] = proxy.handle(arrives(PEER, SyncEnd(), partition="rm-1_zzz", seq=2), 0)
    assert decode_body(SyncDone, ended.body).problem == "failed to find partition rm-1_zzz"
    assert one_refusal(proxy.handle(arrives(PEER, SyncBegin()), 0)).code == "no-partition"


def test_a_flood_of_what_cannot_be_read_is_answered_a_few_times_and_then_no_more() -> None:
    proxy = open_proxy()
    nonsense = Incoming(PEER, Header(kind=MALFORMED), b"no")
    codes = [decode_body(Refused, one.body).code for _ in range(1000) for one in proxy.handle(nonsense, 0)]
    assert codes == ["malformed"] * REFUSALS_MAX + ["flood"]
    assert passed(proxy.handle(arrives(PEER, ASK, partition=PARTITION), 0)), "what is right passes all the same"
    assert one_refusal(proxy.handle(nonsense, 0)).code == "malformed", "and is a new beginning"
    assert len(proxy.rate_limiter.log_lines) == 1


def test_an_rm_that_does_nothing_but_resume_is_slowed_down() -> None:
    proxy = open_proxy()
    sends = [one for _ in range(100) for one in proxy.handle(arrives(PEER, Resume(), ref="r"), 0)]
    assert len([one for one in sends if one.to == BROKER]) == CALLS_AT_ONCE - 1, "it has registered, too"
    [*_, refused] = [one for one in sends if one.to == PEER]
    assert decode_body(Refused, refused.body).code == "flood"
    assert passed(proxy.handle(arrives(PEER, Resume(), ref="r"), 60.0))


def test_who_may_not_speak_for_the_rm_hears_why() -> None:
    proxy = open_proxy()
    forbidden = Incoming(PEER, header(FORBIDDEN, seq=3), b"key x may not speak for RM 'rm-1'")
    assert one_refusal(proxy.handle(forbidden, 0)) == Refused(
        code="forbidden", reason="key x may not speak for RM 'rm-1'", seq=3
    )


def test_a_question_of_the_grpc_port_about_a_partition_finds_its_answer() -> None:
    proxy = Proxy()
    peer = "grpc:rm-1"
    [call] = proxy.handle(arrives(peer, Resume(), ref="r"), 0)
    answered(proxy, call)
    query = Query(what="queues")
    [asked] = proxy.handle(arrives(peer, query, partition=PARTITION, ref="q"), 0)
    assert asked == sent(BROKER, query, partition=PARTITION, ref=asked.header.ref)
    back = Incoming(BROKER, Header(kind="Answer", partition=PARTITION, ref=asked.header.ref), b"body")
    assert proxy.handle(back, 0) == [Outgoing(peer, header("Answer", partition=PARTITION, ref="q"), b"body")]
    assert one_refusal(proxy.handle(Incoming(PEER, header("Query"), encode_body(query)), 0)).code == "unknown-kind"
