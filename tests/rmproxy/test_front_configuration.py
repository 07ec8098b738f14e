"""Partitions that come and go in front of the proxy, with another configuration."""

from common.machine import Send
from common.rm_messages import (
    Ack,
    AllocationRelease,
    AllocationResponse,
    ConfigurationUpdated,
    Refused,
    Resume,
    UpdateConfiguration,
)
from common.wire import decoded
from rmproxy.front import BROKER, Front
from tests.machines import PARTITION, RM, SESSION, arrives, sent
from tests.rmproxy.test_front import ASK, GPU, OTHER, PEER, answered, open_front

UPDATE = UpdateConfiguration(rm_id=RM)


def reconfigured(front: Front, *partitions: str, ref: str = "", session: str = SESSION, **lives: int) -> list[Send]:
    """The broker says which partitions there are from now on; `gpu=2` is a partition's life."""
    told = ConfigurationUpdated(
        checksum="c", partitions=list(partitions), lives={f"rm-1_{name}": life for name, life in lives.items()}
    )
    return front.handle(arrives(BROKER, told, ref=ref, session=session), 0)


def passes(front: Front, partition: str, **fields: int) -> bool:
    """Whether an ask reaches the core."""
    [one] = front.handle(arrives(PEER, ASK, partition=partition, **fields), 0)
    return one.to == BROKER


def test_a_call_for_another_configuration_goes_to_the_broker_and_its_answer_finds_back() -> None:
    front = open_front()
    [call] = front.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    assert (call.to, call.header.kind) == (BROKER, "UpdateConfiguration")
    [answer] = reconfigured(front, PARTITION, GPU, ref=call.header.ref)
    assert answer == sent(PEER, ConfigurationUpdated(checksum="c", partitions=[PARTITION, GPU]), ref="mine")


def test_a_refused_one_finds_back_and_the_session_goes_on() -> None:
    front = open_front()
    [call] = front.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    refusal = Refused(code="busy", reason="later")
    assert front.handle(arrives(BROKER, refusal, ref=call.header.ref), 0) == [sent(PEER, refusal, ref="mine")]
    assert passes(front, GPU)


def test_an_rm_hears_of_what_somebody_else_changed() -> None:
    front = open_front()
    [told] = reconfigured(front, PARTITION)
    assert told == sent(PEER, ConfigurationUpdated(checksum="c", partitions=[PARTITION]))


def test_a_configuration_of_an_earlier_session_or_of_a_stranger_changes_nothing() -> None:
    front = open_front()
    assert reconfigured(front, PARTITION, session="earlier") == []
    assert reconfigured(Front(), PARTITION) == []
    assert passes(front, GPU)


def test_the_answer_comes_on_the_connection_that_the_rm_has_by_then() -> None:
    front = open_front()
    [call] = front.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    [again] = front.handle(arrives(OTHER, Resume(), ref="again"), 0)
    answered(front, again)
    [answer] = reconfigured(front, PARTITION, ref=call.header.ref)
    assert (answer.to, answer.header.ref) == (OTHER, "mine")


def test_what_is_sent_to_a_partition_that_went_is_refused_item_by_item_and_acknowledged() -> None:
    front = open_front()
    reconfigured(front, PARTITION)
    [answer] = front.handle(arrives(PEER, ASK, partition=GPU, seq=4), 0)
    assert (answer.to, answer.header.ack) == (PEER, 4)
    reason = "Failed to find partition rm-1_gpu, for application a and allocation k"
    assert decoded(AllocationResponse, answer.body).rejected_allocations[0].reason == reason
    assert passes(front, PARTITION, seq=4)


def test_what_was_on_its_way_when_the_partition_went_is_refused_alike() -> None:
    front = open_front()
    reconfigured(front, PARTITION)
    [answer] = front.handle(arrives(BROKER, ASK, partition=GPU, seq=4, life=1), 0)
    assert (answer.to, answer.header.ack, answer.header.life) == (PEER, 4, 1)
    assert decoded(AllocationResponse, answer.body).rejected_allocations


def test_news_of_a_partition_that_is_being_taken_down_pass_and_their_acknowledgements_too() -> None:
    front = open_front()
    reconfigured(front, PARTITION)
    news = AllocationResponse(released=[AllocationRelease(allocation_key="k")])
    assert front.handle(arrives(BROKER, news, partition=GPU, seq=9), 0) == [sent(PEER, news, partition=GPU, seq=9)]
    assert front.handle(arrives(PEER, Ack(), partition=GPU, ack=9), 0) == [sent(BROKER, Ack(), partition=GPU, ack=9)]


def test_a_partition_that_comes_can_be_spoken_to_in_its_own_life() -> None:
    front = open_front()
    reconfigured(front, PARTITION, GPU, "rm-1_new", new=1)
    assert passes(front, "rm-1_new", seq=1, life=1)
    assert passes(front, PARTITION, seq=1)


def test_what_was_numbered_before_it_came_is_refused_in_its_own_life_and_takes_no_number_there() -> None:
    front = open_front()
    reconfigured(front, PARTITION, GPU, "rm-1_new", new=1)
    [answer] = front.handle(arrives(PEER, ASK, partition="rm-1_new", seq=3), 0)
    assert (answer.to, answer.header.seq, answer.header.ack, answer.header.life) == (PEER, 0, 0, 1)
    reason = "Failed to find partition rm-1_new, for application a and allocation k"
    assert decoded(AllocationResponse, answer.body).rejected_allocations[0].reason == reason


def test_a_partition_that_restarted_meanwhile_does_not_change_which_lives_are_too_early() -> None:
    front = open_front()
    reconfigured(front, PARTITION, GPU, gpu=3)
    assert front.handle(arrives(PEER, ASK, partition=GPU, seq=1), 0) == [], "the RM will report everything again"
    assert passes(front, GPU, seq=1, life=3)


def test_an_answer_to_a_call_of_a_proxy_that_died_is_nobodys_and_ends_no_session() -> None:
    before, front = Front("a."), Front("b.")
    [lost] = before.handle(arrives(PEER, UPDATE, ref="mine"), 0)
    [again] = front.handle(arrives(PEER, Resume(), ref="again"), 0)
    assert lost.header.ref != again.header.ref
    refusal = Refused(code="configuration", reason="no")
    assert front.handle(arrives(BROKER, refusal, ref=lost.header.ref), 0) == []
    [back] = answered(front, again)
    assert back.header.ref == "again"
    assert front.handle(arrives(BROKER, refusal, ref=lost.header.ref), 0) == []
    assert passes(front, GPU)
    [told] = reconfigured(front, PARTITION, ref=lost.header.ref)
    assert (told.to, told.header.ref) == (PEER, "")
