"""What waits for what, and what does not."""

from broker.outgoing import HELD_MAX, OutboxBarrier
from common.messages import Header
from common.wire import Outgoing


def about(message: Outgoing) -> str:
    return message.header.rm


def say(rm: str, number: int = 0) -> Outgoing:
    return Outgoing("somebody", Header(kind="Answer", rm=rm, ref=str(number)), b"")


def test_an_open_gate_lets_everything_pass() -> None:
    assert OutboxBarrier(about).filter_sends([say("a"), say("")]) == [say("a"), say("")]


def test_what_is_about_one_thing_waits_for_it_and_nothing_else_does() -> None:
    gate = OutboxBarrier(about)
    gate.close("a")
    assert gate.filter_sends([say("a", 1), say("b"), say("", 2), say("a", 3)]) == [say("b"), say("", 2)]
    assert (gate.is_closed("a"), gate.is_closed("b")) == (True, False)
    assert gate.open("b") == []
    assert gate.open("a") == [say("a", 1), say("a", 3)]
    assert gate.filter_sends([say("a", 4)]) == [say("a", 4)]


def test_what_waits_goes_out_once_in_its_order_however_often_it_is_shut() -> None:
    gate = OutboxBarrier(about)
    for number in range(3):
        gate.close("a")
        gate.filter_sends([say("a", number)])
    assert gate.open("a") == [say("a", number) for number in range(3)]
    assert gate.open("a") == []


def test_only_so_much_waits_for_one_thing_and_the_latest_is_dropped() -> None:
    gate = OutboxBarrier(about)
    gate.close("a")
    gate.filter_sends([say("a", number) for number in range(HELD_MAX + 5)])
    assert gate.open("a") == [say("a", number) for number in range(HELD_MAX)]
