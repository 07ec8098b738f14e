import pytest

from common.messages import Header
from common.outbox import WINDOW_BYTES, WINDOW_MESSAGES
from common.rm_messages import QUESTIONS
from rmproxy.credit import HEADER_BYTES, UNNUMBERED_BYTES, Credit, mark


def command(seq: int = 0) -> Header:
    return Header(kind="AllocationRequest", seq=seq)


def news(**fields: int | str) -> Header:
    return Header(**{"kind": "AllocationResponse", **fields})  # type: ignore[arg-type]


def spent(credit: Credit, count: int = WINDOW_MESSAGES) -> Credit:
    for seq in range(1, count + 1):
        assert credit.admits(command(seq), 1)
    return credit


def test_a_window_of_messages_may_be_under_way_and_an_acknowledgement_makes_room() -> None:
    credit = spent(Credit())
    assert not credit.admits(command(WINDOW_MESSAGES + 1), 1)
    credit.heard(news(ack=2))
    assert [credit.admits(command(WINDOW_MESSAGES + n), 1) for n in (1, 2, 3)] == [True, True, False]


def test_a_window_of_bytes_may_be_under_way_and_the_last_message_may_be_of_any_size() -> None:
    credit = Credit()
    assert credit.admits(command(1), WINDOW_BYTES - 1)
    assert credit.admits(command(2), 3 * WINDOW_BYTES)
    assert not credit.admits(command(3), 0)
    credit.heard(news(ack=2))
    assert credit.admits(command(3), WINDOW_BYTES)


def test_an_old_acknowledgement_or_one_of_another_life_makes_no_room() -> None:
    credit = spent(Credit(life=1))
    credit.heard(news(ack=5))
    credit.heard(news(life=1))
    assert not credit.admits(command(WINDOW_MESSAGES + 1), 1)


def test_a_resumption_begins_a_new_account() -> None:
    credit = spent(Credit())
    credit.admits(command(), UNNUMBERED_BYTES)
    credit.resume()
    spent(credit)
    assert credit.admits(command(), UNNUMBERED_BYTES)


def test_updates_without_a_number_have_a_credit_of_their_own_until_their_marks_come_back() -> None:
    credit, size = spent(Credit()), UNNUMBERED_BYTES // 4
    marks = []
    while credit.admits(command(), size):
        marks.append(mark(command(), size))
    assert len(marks) == 3
    credit.heard(news(ack=1, ref="something else"))
    assert not credit.admits(command(), size)
    credit.heard(news(ref=marks[0]))
    assert credit.admits(command(), size)
    assert not credit.admits(command(), size)


def test_many_small_ones_are_bounded_too() -> None:
    credit, count = Credit(), 0
    while credit.admits(command(), 0):
        count += 1
    assert count == UNNUMBERED_BYTES // HEADER_BYTES


def test_one_that_is_larger_than_the_credit_goes_alone() -> None:
    credit = Credit()
    assert credit.admits(command(), 9 * UNNUMBERED_BYTES)
    assert not credit.admits(command(), 1)
    credit.heard(news(ref=mark(command(), 9 * UNNUMBERED_BYTES)))
    assert credit.admits(command(), 1)


def test_a_numbered_command_needs_no_mark() -> None:
    assert mark(command(7), 100) == ""


@pytest.mark.parametrize(("ack", "passes"), [(0, False), (3, False), (4, True), (9, True), (10, False)])
def test_an_acknowledgement_passes_if_it_is_new_and_of_something_that_came_by(ack: int, passes: bool) -> None:
    credit = Credit()
    credit.heard(news(seq=9))
    assert credit.acknowledges(3)
    assert credit.acknowledges(ack) == passes


def test_after_a_resumption_what_came_by_may_be_acknowledged_again() -> None:
    credit = Credit()
    credit.heard(news(seq=9))
    assert credit.acknowledges(9)
    credit.resume()
    assert credit.acknowledges(9)


@pytest.mark.parametrize("kind", sorted(QUESTIONS))
def test_each_question_may_be_answered_once(kind: str) -> None:
    credit = Credit()
    assert not credit.answers()
    credit.heard(news(kind=kind))
    assert [credit.answers(), credit.answers()] == [True, False]


@pytest.mark.parametrize("text", ["x", "-5", "", "9" * 5_000, "1e3", "\u00b2"])
def test_a_mark_that_is_none_changes_nothing(text: str) -> None:
    credit = spent(Credit())
    assert credit.admits(command(), UNNUMBERED_BYTES)
    credit.heard(news(ref=f"unnumbered {text}"))
    assert not credit.admits(command(), 1)
