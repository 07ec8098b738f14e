from common.wire import NEVER
from yunishard.liveness import BACKOFF_MAX_S, JITTER, Due, Pulse

HEARTBEAT_MS, SILENCE_MS = 1000, 3000


def talking(now: float = 0.0, *, chance: float = 0.0) -> Pulse:
    pulse = Pulse(lambda: chance)
    pulse.talking(HEARTBEAT_MS, SILENCE_MS, now)
    return pulse


def played(pulse: Pulse, until: float, *, heard: bool = False, reading: bool = True) -> list[tuple[float, Due]]:
    """Everything that falls due until then; the core answers heartbeats if it is `heard`."""
    dues: list[tuple[float, Due]] = []
    while (now := pulse.deadline) <= until:
        due = pulse.due(now, reading=reading)
        dues.append((now, due))
        if due == "renew":
            return dues
        pulse.said(now)
        if heard:
            pulse.heard(now)
    return dues


def test_who_has_nothing_to_say_says_that_it_is_here_each_heartbeat() -> None:
    assert played(talking(), 3.5, heard=True) == [(1.0, "heartbeat"), (2.0, "heartbeat"), (3.0, "heartbeat")]


def test_who_talks_and_hears_needs_no_heartbeats() -> None:
    pulse = talking()
    for tenth in range(100):
        now = tenth / 10
        assert pulse.due(now) == "nothing"
        pulse.said(now)
        pulse.heard(now)


def test_who_talks_and_hears_nothing_asks_with_a_heartbeat_before_it_gives_up() -> None:
    pulse, dues = talking(), []
    for tenth in range(31):
        pulse.said(tenth / 10)
        dues.append(pulse.due(tenth / 10))
    assert [due for due in dues if due != "nothing"] == ["heartbeat", "heartbeat", "renew"]


def test_a_silent_core_is_given_up_after_the_silence() -> None:
    assert played(talking(10.0), 100.0) == [(11.0, "heartbeat"), (12.0, "heartbeat"), (13.0, "renew")]


def test_who_does_not_read_cannot_call_the_core_silent() -> None:
    dues = played(talking(), 20.0, reading=False)
    assert {due for _, due in dues} == {"heartbeat"}
    assert len(dues) == 20


def test_who_was_stopped_for_a_while_does_not_call_the_core_silent() -> None:
    pulse = talking()
    assert pulse.due(600.0) == "heartbeat"
    assert pulse.due(600.5) == "nothing"
    assert [due for _, due in played(pulse, 700.0)][-1] == "renew", "but time goes on"


def test_a_core_that_asks_for_no_heartbeats_hears_none_and_is_never_silent() -> None:
    pulse = Pulse(lambda: 0.0)
    pulse.talking(0, 0, 0.0)
    assert pulse.deadline == NEVER
    assert pulse.due(1e9) == "nothing"


def test_attempts_are_further_and_further_apart_up_to_a_limit() -> None:
    pulse, now, pauses = talking(), 100.0, []
    for _ in range(8):
        pulse.trying(now)
        pauses.append(pulse.deadline - now)
        now = pulse.deadline
        assert pulse.due(now) == "renew"
    assert pauses == [1, 2, 4, 8, 16, 32, 32, 32]


def test_chance_makes_a_pause_longer_but_not_by_much() -> None:
    pulse = talking(chance=1.0)
    for _ in range(20):
        pulse.trying(0.0)
    assert pulse.deadline == BACKOFF_MAX_S * (1 + JITTER)


def test_an_answer_lets_the_next_attempts_begin_close_together_again() -> None:
    pulse = talking()
    for _ in range(5):
        pulse.trying(0.0)
    pulse.talking(HEARTBEAT_MS, SILENCE_MS, 50.0)
    pulse.trying(60.0)
    assert pulse.deadline == 61.0


def test_a_pause_that_the_core_asked_for_is_kept_and_then_the_same_connection_is_tried() -> None:
    pulse = talking()
    pulse.pause(20.0, 100.0)
    assert pulse.pausing
    assert pulse.due(119.0) == "nothing"
    assert pulse.due(120.0) == "again"
    pulse.trying(120.0)
    assert not pulse.pausing


def test_a_call_that_may_take_as_long_as_it_likes_is_not_repeated() -> None:
    pulse = talking()
    pulse.calling()
    assert pulse.deadline == NEVER
