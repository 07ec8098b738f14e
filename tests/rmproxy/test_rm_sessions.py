import pytest

from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import QUESTIONS
from yunishard.common.messages.session import WINDOW_BYTES, WINDOW_MESSAGES
from yunishard.rmproxy.proxy import HEADER_BYTES, UNNUMBERED_BYTES, PartitionWindow, make_ref


def command(seq: int = 0) -> Header:
    return Header(kind="AllocationRequest", seq=seq)


def news(**fields: int | str) -> Header:
    return Header(**{"kind": "AllocationResponse", **fields})  # type: ignore[arg-type]


def spent(credit: PartitionWindow, count: int = WINDOW_MESSAGES) -> PartitionWindow:
    for seq in range(1, count + 1):
        assert credit.admit_command(command(seq), 1)
    return credit


def test_a_window_of_messages_may_be_under_way_and_an_acknowledgement_makes_room() -> None:
    credit = spent(PartitionWindow())
    assert not credit.admit_command(command(WINDOW_MESSAGES + 1), 1)
    credit.count_message(news(ack=2))
    assert [credit.admit_command(command(WINDOW_MESSAGES + n), 1) for n in (1, 2, 3)] == [True, True, False]


def test_a_window_of_bytes_may_be_under_way_and_the_last_message_may_be_of_any_size() -> None:
    credit = PartitionWindow()
    assert credit.admit_command(command(1), WINDOW_BYTES - 1)
    assert credit.admit_command(command(2), 3 * WINDOW_BYTES)
    assert not credit.admit_command(command(3), 0)
    credit.count_message(news(ack=2))
    assert credit.admit_command(command(3), WINDOW_BYTES)


def test_an_old_acknowledgement_or_one_of_another_life_makes_no_room() -> None:
    credit = spent(PartitionWindow(life=1))
    credit.count_message(news(ack=5))
    credit.count_message(news(life=1))
    assert not credit.admit_command(command(WINDOW_MESSAGES + 1), 1)


def test_a_resumption_begins_a_new_account() -> None:
    credit = spent(PartitionWindow())
    credit.admit_command(command(), UNNUMBERED_BYTES)
    credit.resume()
    spent(credit)
    assert credit.admit_command(command(), UNNUMBERED_BYTES)


def test_updates_without_a_number_have_a_credit_of_their_own_until_their_marks_come_back() -> None:
    credit, size = spent(PartitionWindow()), UNNUMBERED_BYTES // 4
    marks = []
    while credit.admit_command(command(), size):
        marks.append(make_ref(command(), size))
    assert len(marks) == 3
    credit.count_message(news(ack=1, ref="something else"))
    assert not credit.admit_command(command(), size)
    credit.count_message(news(ref=marks[0]))
    assert credit.admit_command(command(), size)
    assert not credit.admit_command(command(), size)


def test_many_small_ones_are_bounded_too() -> None:
    credit, count = PartitionWindow(), 0
    while credit.admit_command(command(), 0):
        count += 1
    assert count == UNNUMBERED_BYTES // HEADER_BYTES


def test_one_that_is_larger_than_the_credit_goes_alone() -> None:
    credit = PartitionWindow()
    assert credit.admit_command(command(), 9 * UNNUMBERED_BYTES)
    assert not credit.admit_command(command(), 1)
    credit.count_message(news(ref=make_ref(command(), 9 * UNNUMBERED_BYTES)))
    assert credit.admit_command(command(), 1)


def test_a_numbered_command_needs_no_mark() -> None:
    assert make_ref(command(7), 100) == ""


@pytest.mark.parametrize(("ack", "passes"), [(0, False), (3, False), (4, True), (9, True), (10, False)])
def test_an_acknowledgement_passes_if_it_is_new_and_of_something_that_came_by(ack: int, passes: bool) -> None:
    credit = PartitionWindow()
    credit.count_message(news(seq=9))
    assert credit.admit_ack(3)
    assert credit.admit_ack(ack) == passes


def test_after_a_resumption_what_came_by_may_be_acknowledged_again() -> None:
    credit = PartitionWindow()
    credit.count_message(news(seq=9))
    assert credit.admit_ack(9)
    credit.resume()
    assert credit.admit_ack(9)


@pytest.mark.parametrize("kind", sorted(QUESTIONS))
def test_each_question_may_be_answered_once(kind: str) -> None:
    credit = PartitionWindow()
    assert not credit.admit_answer()
    credit.count_message(news(kind=kind))
    assert [credit.admit_answer(), credit.admit_answer()] == [True, False]


@pytest.mark.parametrize("text", ["x", "-5", "", "9" * 5_000, "1e3", "\u00b2"])
def test_a_mark_that_is_none_changes_nothing(text: str) -> None:
    credit = spent(PartitionWindow())
    assert credit.admit_command(command(), UNNUMBERED_BYTES)
    credit.count_message(news(ref=f"unnumbered {text}"))
    assert not credit.admit_command(command(), 1)
