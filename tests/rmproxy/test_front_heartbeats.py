"""Who is still there: RMs, the broker, and the proxy itself."""

from common.control_messages import Hello, ManagerAway
from common.machine import NEVER, Send
from common.messages import Header, Message
from common.rm_messages import (
    AllocationResponse,
    Goodbye,
    Heartbeat,
    Leave,
    Left,
    Refused,
    Registered,
    Resume,
    ResumeWanted,
)
from common.wire import decoded
from rmproxy.front import BROKER, RETRY_AFTER_MS, Front
from tests.machines import PARTITION, RM, SESSION, arrives, said, sent
from tests.rmproxy.test_front import ASK, GPU, OTHER, PEER, answered, called, one_refusal, seated

BEAT_S = 1.0
SILENCE_S = 3.0


def beating(*peers: str) -> Front:
    """With an RM for each peer: the first is `rm-1`, the others are called by their peers."""
    front = Front(heartbeat_s=BEAT_S, silence_s=SILENCE_S)
    for number, peer in enumerate(peers):
        seated(front, peer, rm=peer if number else RM)
    return front


def kinds(sends: list[Send], to: str | None = None) -> list[str]:
    return [one.header.kind for one in sends if to in (None, one.to)]


def quiet(front: Front, until: float, since: float = 0.0) -> list[Send]:
    """Time passes, tick by tick, and nobody says anything; what the proxy says besides its heartbeats."""
    sends, now = [], since
    while now <= until:
        sends += front.tick(now)
        now += BEAT_S
    return [one for one in sends if one.header.kind != "Heartbeat"]


# The broker ---------------------------------------------------------------------------------------------------------


def test_the_broker_is_told_that_the_proxy_is_here_each_second() -> None:
    front = beating()
    assert front.hello() == Send(BROKER, Header(kind="Hello"), front.hello().body)
    assert decoded(Hello, front.hello().body).role == "rmproxy"
    assert kinds(front.tick(0.0)) == ["Heartbeat"]
    assert front.deadline == BEAT_S
    assert front.tick(0.5) == []
    assert kinds(front.tick(BEAT_S)) == ["Heartbeat"]


def test_without_heartbeats_the_proxy_waits_for_nothing_but_messages() -> None:
    front = Front()
    assert front.deadline == NEVER
    assert front.tick(1e9) == []


def heard_from_broker(front: Front, incarnation: str) -> list[Send]:
    return front.handle(arrives(BROKER, Heartbeat(incarnation=incarnation), rm="", session=""), 0)


def test_when_the_broker_began_anew_it_is_greeted_and_every_rm_is_told_to_resume() -> None:
    front = beating()
    assert heard_from_broker(front, "7") == [], "the first that is heard of it"
    seated(front, PEER)
    seated(front, OTHER, rm=OTHER)
    assert heard_from_broker(front, "7") == []
    wanted = ResumeWanted(reason="the core began anew")
    assert heard_from_broker(front, "8") == [front.hello(), sent(PEER, wanted), sent(OTHER, wanted, rm=OTHER)]
    assert heard_from_broker(front, "8") == []


def test_who_registered_before_the_broker_was_heard_resumes_as_that_may_have_been_an_earlier_broker() -> None:
    front = beating(PEER)
    assert kinds(heard_from_broker(front, "7")) == ["Hello", "ResumeWanted"]
    assert heard_from_broker(front, "7") == []


def test_who_waited_for_an_answer_of_the_broker_that_died_is_told_to_ask_again() -> None:
    front = beating()
    heard_from_broker(front, "7")
    call = called(front, PEER, ref="mine")
    _, told = heard_from_broker(front, "8")
    assert told == sent(PEER, Refused(code="busy", reason="the core began anew: try again"), ref="mine")
    assert answered(front, call) == [], "nobody waits for it any more"


# RMs ----------------------------------------------------------------------------------------------------------------


def test_an_rm_is_told_how_often_to_say_something() -> None:
    [told] = seated(beating())
    registered = decoded(Registered, told.body)
    assert (registered.heartbeat_milli_seconds, registered.silence_milli_seconds) == (1000, 3000)


def test_a_heartbeat_is_answered_but_not_each_of_a_flood() -> None:
    front = beating(PEER)
    beat = arrives(PEER, Heartbeat())
    assert front.handle(beat, 10.0) == [sent(PEER, Heartbeat())]
    assert front.handle(beat, 10.1) == []
    assert front.handle(beat, 11.0) == [sent(PEER, Heartbeat())]


def test_a_heartbeat_of_a_stranger_is_not_answered_as_it_may_be_registering() -> None:
    assert beating(PEER).handle(arrives(OTHER, Heartbeat()), 0) == []


def test_a_silent_rm_is_away_which_is_said_once() -> None:
    front = beating(PEER, OTHER)
    assert quiet(front, 2.0) == []
    front.handle(arrives(OTHER, Heartbeat(), rm=OTHER), 2.0)
    assert quiet(front, 3.0, since=3.0) == [sent(BROKER, ManagerAway())]
    assert quiet(front, 4.0, since=4.0) == []
    assert quiet(front, 5.0, since=5.0) == [sent(BROKER, ManagerAway(), rm=OTHER)]


def test_any_word_counts_as_a_sign_of_life() -> None:
    front = beating(PEER)
    for second in range(20):
        front.handle(arrives(PEER, ASK, partition=PARTITION), float(second))
        assert kinds(front.tick(float(second))) == ["Heartbeat"]


def test_words_of_strangers_and_calls_of_others_do_not() -> None:
    front = beating(PEER)
    for second in range(5):
        front.handle(arrives(OTHER, Heartbeat()), float(second))
        front.handle(arrives(PEER, ASK, session="another"), float(second))
    assert quiet(front, 5.0) == [sent(BROKER, ManagerAway())]


def test_one_that_speaks_again_is_told_to_resume_once_and_is_heard_all_the_same() -> None:
    front = beating(PEER)
    quiet(front, 5.0)
    wanted, passed = front.handle(arrives(PEER, ASK, partition=PARTITION, seq=1), 6.0)
    assert (wanted.to, wanted.header.kind, passed.to) == (PEER, "ResumeWanted", BROKER)
    assert kinds(front.handle(arrives(PEER, Heartbeat()), 7.0)) == ["Heartbeat"]


def test_one_that_resumed_is_watched_anew() -> None:
    front = beating(PEER)
    quiet(front, 5.0)
    [call] = front.handle(arrives(OTHER, Resume(), ref="again"), 6.0)
    answer = Registered(partitions=[PARTITION])
    front.handle(arrives(BROKER, answer, ref=call.header.ref), 6.0)
    assert kinds(front.handle(arrives(OTHER, Heartbeat()), 7.0)) == ["Heartbeat"]
    assert quiet(front, 12.0, since=7.0) == [sent(BROKER, ManagerAway())]


def test_the_seat_of_one_that_is_away_stays_its_own() -> None:
    front = beating(PEER)
    quiet(front, 60.0)
    news = AllocationResponse()
    assert front.handle(arrives(BROKER, news, partition=PARTITION, seq=1), 61.0) == [
        sent(PEER, news, partition=PARTITION, seq=1)
    ]


def test_a_proxy_that_was_stopped_for_a_while_holds_nobodys_silence_against_them() -> None:
    front = beating(PEER)
    quiet(front, 1.0)
    assert kinds(front.tick(600.0)) == ["Heartbeat"]
    assert kinds(front.tick(600.0 + 1.5)) == ["Heartbeat", "ManagerAway"], "but time goes on"


def test_an_rm_of_the_grpc_port_is_away_when_the_port_says_so() -> None:
    front = beating("grpc:rm-1")
    assert quiet(front, 100.0) == []
    away = arrives("grpc:rm-1", ManagerAway())
    assert front.handle(away, 100.0) == [sent(BROKER, ManagerAway())]
    assert one_refusal(front.handle(arrives(PEER, ManagerAway()), 100.0)).code == "unknown-kind"


# The end ------------------------------------------------------------------------------------------------------------


def test_everybody_is_told_when_the_proxy_stops() -> None:
    told = Goodbye(reason="the core is stopping", retry_after_milli_seconds=RETRY_AFTER_MS)
    assert beating(PEER, OTHER).goodbye() == [sent(PEER, told), sent(OTHER, told, rm=OTHER)]


def left(front: Front, message: Message) -> list[Send]:
    [call] = front.handle(arrives(PEER, Leave(), ref="bye"), 0)
    assert (call.to, call.header.kind) == (BROKER, "Leave")
    return front.handle(arrives(BROKER, message, ref=call.header.ref), 0)


def test_an_rm_that_left_has_no_seat_any_more() -> None:
    front = beating(PEER)
    assert left(front, Left()) == [sent(PEER, Left(), ref="bye")]
    assert one_refusal(front.handle(arrives(PEER, ASK, partition=GPU), 0)).code == "unknown-session"


def test_an_rm_that_may_not_leave_now_goes_on() -> None:
    front = beating(PEER)
    refusal = Refused(code="busy", reason="later")
    assert left(front, refusal) == [sent(PEER, refusal, ref="bye")]
    assert said(front.handle(arrives(PEER, ASK, partition=GPU), 0)) == [ASK]


def test_the_answer_to_a_leave_of_an_earlier_session_takes_nobodys_seat() -> None:
    front = beating(PEER)
    [call] = front.handle(arrives(OTHER, Leave(), session="earlier", ref="bye"), 0)
    front.handle(arrives(BROKER, Left(), session="earlier", ref=call.header.ref), 0)
    assert said(front.handle(arrives(PEER, ASK, partition=GPU), 0)) == [ASK]


def test_an_rm_whose_time_is_up_is_told_and_has_no_seat_any_more() -> None:
    front = beating(PEER)
    assert front.handle(arrives(BROKER, Left(), session=SESSION), 0) == [sent(PEER, Left())]
    assert one_refusal(front.handle(arrives(PEER, ASK, partition=GPU), 0)).code == "unknown-session"
