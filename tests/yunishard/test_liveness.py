from yunishard.common.messages.wire import NEVER
from yunishard.sdk.session import BACKOFF_MAX_S, JITTER, Action, Liveness

HEARTBEAT_MS, SILENCE_MS = 1000, 3000


def opened(now: float = 0.0, *, chance: float = 0.0) -> Liveness:
    liveness = Liveness(lambda: chance)
    liveness.open(HEARTBEAT_MS, SILENCE_MS, now)
    return liveness


def run(liveness: Liveness, until: float, *, heard: bool = False, reading: bool = True) -> list[tuple[float, Action]]:
    """Everything that falls due until then; the core answers heartbeats if it is `heard`."""
    dues: list[tuple[float, Action]] = []
    while (now := liveness.deadline) <= until:
        due = liveness.next_action(now, reading=reading)
        dues.append((now, due))
        if due == "reconnect":
            return dues
        liveness.sent_at = now
        if heard:
            liveness.received_at = now
    return dues


def test_who_has_nothing_to_say_says_that_it_is_here_each_heartbeat() -> None:
    assert run(opened(), 3.5, heard=True) == [(1.0, "heartbeat"), (2.0, "heartbeat"), (3.0, "heartbeat")]


def test_who_talks_and_hears_needs_no_heartbeats() -> None:
    liveness = opened()
    for tenth in range(100):
        now = tenth / 10
        assert liveness.next_action(now) == "nothing"
        liveness.sent_at = now
        liveness.received_at = now


def test_who_talks_and_hears_nothing_asks_with_a_heartbeat_before_it_gives_up() -> None:
    liveness, dues = opened(), []
    for tenth in range(31):
        liveness.sent_at = tenth / 10
        dues.append(liveness.next_action(tenth / 10))
    assert [due for due in dues if due != "nothing"] == ["heartbeat", "heartbeat", "reconnect"]


def test_a_silent_core_is_given_up_after_the_silence() -> None:
    assert run(opened(10.0), 100.0) == [(11.0, "heartbeat"), (12.0, "heartbeat"), (13.0, "reconnect")]


def test_who_does_not_read_cannot_call_the_core_silent() -> None:
    dues = run(opened(), 20.0, reading=False)
    assert {due for _, due in dues} == {"heartbeat"}
    assert len(dues) == 20


def test_who_was_stopped_for_a_while_does_not_call_the_core_silent() -> None:
    liveness = opened()
    assert liveness.next_action(600.0) == "heartbeat"
    assert liveness.next_action(600.5) == "nothing"
    assert [due for _, due in run(liveness, 700.0)][-1] == "reconnect", "but time goes on"


def test_a_core_that_asks_for_no_heartbeats_hears_none_and_is_never_silent() -> None:
    liveness = Liveness(lambda: 0.0)
    liveness.open(0, 0, 0.0)
    assert liveness.deadline == NEVER
    assert liveness.next_action(1e9) == "nothing"


def test_attempts_are_further_and_further_apart_up_to_a_limit() -> None:
    liveness, now, pauses = opened(), 100.0, []
    for _ in range(8):
        liveness.start_attempt(now)
        pauses.append(liveness.deadline - now)
        now = liveness.deadline
        assert liveness.next_action(now) == "reconnect"
    assert pauses == [1, 2, 4, 8, 16, 32, 32, 32]


def test_chance_makes_a_pause_longer_but_not_by_much() -> None:
    liveness = opened(chance=1.0)
    for _ in range(20):
        liveness.start_attempt(0.0)
    assert liveness.deadline == BACKOFF_MAX_S * (1 + JITTER)


def test_an_answer_lets_the_next_attempts_begin_close_together_again() -> None:
    liveness = opened()
    for _ in range(5):
        liveness.start_attempt(0.0)
    liveness.open(HEARTBEAT_MS, SILENCE_MS, 50.0)
    liveness.start_attempt(60.0)
    assert liveness.deadline == 61.0


def test_a_pause_that_the_core_asked_for_is_kept_and_then_the_same_connection_is_tried() -> None:
    liveness = opened()
    liveness.pause(20.0, 100.0)
    assert liveness.state == "paused"
    assert liveness.next_action(119.0) == "nothing"
    assert liveness.next_action(120.0) == "retry"
    liveness.start_attempt(120.0)
    assert liveness.state == "attempting"


def test_a_call_that_may_take_as_long_as_it_likes_is_not_repeated() -> None:
    liveness = opened()
    liveness.suspend()
    assert liveness.deadline == NEVER
