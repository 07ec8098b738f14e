import random

import pytest

from common.session import ACK_EVERY_MESSAGES, WINDOW_BYTES, WINDOW_MESSAGES, Arrival, Inbox, Outbox, Window


def filled(count: int) -> Outbox:
    outbox = Outbox()
    for number in range(1, count + 1):
        assert outbox.add("kind", b"%d" % number) == number
    return outbox


def numbers(outbox: Outbox) -> list[int]:
    return [seq for seq, _, _ in outbox.unacknowledged()]


def test_messages_are_numbered_from_one_and_kept_until_they_are_acknowledged() -> None:
    outbox = filled(3)
    assert list(outbox.unacknowledged()) == [(1, "kind", b"1"), (2, "kind", b"2"), (3, "kind", b"3")]
    outbox.acknowledge(2)
    assert numbers(outbox) == [3]
    assert outbox.add("kind", b"4") == 4
    assert len(outbox) == 2


@pytest.mark.parametrize("seq", [0, 1, 2, -1])
def test_an_old_or_repeated_acknowledgement_changes_nothing(seq: int) -> None:
    outbox = filled(3)
    outbox.acknowledge(2)
    outbox.acknowledge(seq)
    assert numbers(outbox) == [3]


def test_an_acknowledgement_of_what_was_never_sent_does_not_disturb_the_numbering() -> None:
    outbox = filled(3)
    outbox.acknowledge(2**64 - 1)
    assert len(outbox) == 0
    assert outbox.add("kind", b"") == 4


def test_it_is_full_at_the_window_and_an_acknowledgement_makes_room() -> None:
    outbox = filled(WINDOW_MESSAGES - 1)
    assert not outbox.full
    outbox.add("kind", b"")
    assert outbox.full
    outbox.acknowledge(1)
    assert not outbox.full


def test_a_receiver_acknowledges_well_before_the_window_is_full() -> None:
    assert ACK_EVERY_MESSAGES < WINDOW_MESSAGES


def test_what_is_read_while_it_changes_stays_as_it_was() -> None:
    outbox = filled(3)
    reading = outbox.unacknowledged()
    outbox.acknowledge(3)
    assert [seq for seq, _, _ in reading] == [1, 2, 3]


def test_an_inbox_takes_each_number_once_and_in_order() -> None:
    inbox = Inbox()
    assert [inbox.arrival(seq) for seq in (-1, 0, 1, 2)] == [Arrival.SEEN, Arrival.SEEN, Arrival.NEXT, Arrival.GAP]
    inbox.took(1)
    assert [inbox.arrival(seq) for seq in (1, 2, 3)] == [Arrival.SEEN, Arrival.NEXT, Arrival.GAP]


@pytest.mark.parametrize("seq", [0, 2, 5])
def test_taking_anything_but_the_next_is_a_defect(seq: int) -> None:
    with pytest.raises(AssertionError):
        Inbox().took(seq)


@pytest.mark.parametrize("seed", range(20))
def test_each_message_takes_effect_once_whatever_is_lost_or_repeated(seed: int) -> None:
    rng = random.Random(seed)
    outbox, inbox = Outbox(), Inbox()
    taken: list[bytes] = []
    for number in range(100):
        outbox.add("kind", b"%d" % number)
        if rng.random() < 0.3:
            continue
        for seq, _, body in outbox.unacknowledged():
            if rng.random() < 0.2:
                continue  # lost
            if inbox.arrival(seq) is Arrival.NEXT:
                inbox.took(seq)
                taken.append(body)
        if rng.random() < 0.7:
            outbox.acknowledge(inbox.last)
    for seq, _, body in outbox.unacknowledged():
        if inbox.arrival(seq) is Arrival.NEXT:
            inbox.took(seq)
            taken.append(body)
    assert taken == [b"%d" % number for number in range(100)]


def test_it_is_full_when_the_bytes_of_the_window_are_reached() -> None:
    outbox = Outbox()
    outbox.add("kind", bytes(WINDOW_BYTES - 1))
    assert not outbox.full
    outbox.add("kind", b"1")
    assert outbox.full
    outbox.acknowledge(1)
    assert not outbox.full


def test_a_message_of_any_size_may_go_when_nothing_else_is_under_way() -> None:
    outbox = Outbox()
    assert not outbox.full
    outbox.add("kind", bytes(2 * WINDOW_BYTES))
    assert outbox.full
    outbox.acknowledge(1)
    assert not outbox.full


def test_one_that_goes_on_with_what_waits_knows_its_size() -> None:
    outbox = Outbox(7, [(6, "kind", bytes(WINDOW_BYTES)), (7, "kind", b"")])
    assert (outbox.full, outbox.acknowledged) == (True, 5)
    outbox.acknowledge(6)
    assert (outbox.full, len(outbox)) == (False, 1)


def test_the_receiver_may_give_another_window() -> None:
    outbox = filled(3)
    outbox.window = Window(messages=3, size=100)
    assert outbox.full
    outbox.window = Window(messages=4, size=3)
    assert outbox.full
    outbox.window = Window(messages=4, size=4)
    assert not outbox.full
