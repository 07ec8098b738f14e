import pytest

from rmproxy.patience import (
    CALLS_AT_ONCE,
    CALLS_PER_S,
    LINES_MAX,
    LOG_EVERY_S,
    PEERS_MAX,
    QUIET_S,
    REFUSALS_MAX,
    Answer,
    Patience,
)

PEER = "native:01"


def wrong(patience: Patience, count: int, *, now: float = 0.0, peer: str = PEER) -> list[Answer]:
    return [patience.wrong(peer, "no", now) for _ in range(count)]


def test_a_few_wrong_messages_are_answered_then_one_more_and_nothing_after_that() -> None:
    answers = wrong(Patience(), REFUSALS_MAX + 10)
    assert answers == [Answer.REASON] * REFUSALS_MAX + [Answer.FLOOD] + [Answer.NONE] * 9


def test_who_has_been_quiet_is_answered_again_and_who_goes_on_is_not() -> None:
    patience = Patience()
    wrong(patience, REFUSALS_MAX + 1, now=10)
    almost = 10 + QUIET_S * 0.9
    assert wrong(patience, 1, now=almost) == [Answer.NONE]
    assert wrong(patience, 1, now=almost + QUIET_S * 0.9) == [Answer.NONE]
    assert wrong(patience, 1, now=almost + QUIET_S * 2) == [Answer.REASON]


def test_what_is_right_in_between_lets_a_peer_be_answered_again() -> None:
    patience = Patience()
    for _ in range(10):
        assert wrong(patience, REFUSALS_MAX) == [Answer.REASON] * REFUSALS_MAX
        patience.right(PEER)
    wrong(patience, REFUSALS_MAX + 1)
    patience.right("native:of another")
    assert wrong(patience, 1) == [Answer.NONE]


def test_one_peer_does_not_use_up_the_patience_for_another() -> None:
    patience = Patience()
    wrong(patience, 1000)
    assert wrong(patience, 1, peer="native:02") == [Answer.REASON]


def test_a_flood_is_logged_once_a_minute() -> None:
    patience = Patience()
    for second in range(int(LOG_EVERY_S) + 1):
        wrong(patience, 1000, now=1000.0 + second * QUIET_S * 0.5)
    assert len(patience.complaints) == 1
    assert PEER in patience.complaints[0]
    wrong(patience, 1000, now=1000.0 + LOG_EVERY_S)
    assert len(patience.complaints) == 2


def test_a_thousand_connections_do_not_fill_the_log() -> None:
    patience = Patience()
    for number in range(1000):
        wrong(patience, REFUSALS_MAX + 1, now=1000.0, peer=f"native:{number}")
    assert len(patience.complaints) == LINES_MAX


def test_so_many_peers_are_remembered_and_the_one_not_heard_of_for_longest_is_forgotten() -> None:
    patience = Patience()
    wrong(patience, REFUSALS_MAX + 1)
    for number in range(PEERS_MAX - 1):
        wrong(patience, 1, peer=f"native:x{number}")
    assert wrong(patience, 1) == [Answer.NONE], "still known"
    for number in range(PEERS_MAX):
        wrong(patience, 1, peer=f"native:y{number}")
    assert wrong(patience, 1) == [Answer.REASON]


@pytest.mark.parametrize("pause_s", [1.0, 5.0])
def test_calls_have_a_pace(pause_s: float) -> None:
    patience = Patience()
    assert [patience.may_call(PEER, 100.0) for _ in range(CALLS_AT_ONCE + 1)] == [True] * CALLS_AT_ONCE + [False]
    again = int(pause_s * CALLS_PER_S)
    assert [patience.may_call(PEER, 100.0 + pause_s) for _ in range(again + 1)] == [True] * again + [False]


def test_a_clock_that_stands_still_or_goes_back_gives_no_calls() -> None:
    patience = Patience()
    for _ in range(CALLS_AT_ONCE):
        patience.may_call(PEER, 100.0)
    assert not patience.may_call(PEER, 50.0)
    assert not patience.may_call(PEER, 50.0)
