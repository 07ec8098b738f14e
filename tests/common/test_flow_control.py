""""""

import random
from functools import partial

import pytest

from yunishard.common.messages.rm_messages import (
    Ack,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    RemoveApplicationRequest,
    SyncBegin,
)
from yunishard.common.messages.session import (
    ACK_EVERY_MESSAGES,
    WINDOW_BYTES,
    WINDOW_MESSAGES,
    EncodedMessage,
    Outbox,
    Session,
    Window,
    split_by_partition,
)
from yunishard.common.messages.wire import decode_body
from yunishard.common.names import NODE_PARTITION, normalise_partition_name
from yunishard.partition_worker.rm_channel import RMChannel

normalise = partial(normalise_partition_name, "rm")


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
    assert not outbox.is_full
    outbox.add("kind", b"")
    assert outbox.is_full
    outbox.acknowledge(1)
    assert not outbox.is_full


def test_a_receiver_acknowledges_well_before_the_window_is_full() -> None:
    assert ACK_EVERY_MESSAGES < WINDOW_MESSAGES


def test_what_is_read_while_it_changes_stays_as_it_was() -> None:
    outbox = filled(3)
    reading = outbox.unacknowledged()
    outbox.acknowledge(3)
    assert [seq for seq, _, _ in reading] == [1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_each_message_takes_effect_once_whatever_is_lost_or_repeated(seed: int) -> None:
    rng = random.Random(seed)
    sender = Session(rm_id="rm", session="one")
    receiver = RMChannel(partition="rm_default", epoch=1, rm="rm", session="one")
    taken: list[str] = []

    def deliver(message: EncodedMessage) -> None:
        assert receiver.accept(message.header)
        if receiver.check_order(message.header) is None:
            receiver.received = message.header.seq
            taken.append(decode_body(SyncBegin, message.body).reason)

    for number in range(100):
        sender.number("rm_default", SyncBegin(reason=str(number)))
        if rng.random() < 0.3:
            continue
        for message in sender.retransmissions():
            if rng.random() >= 0.2:
                deliver(message)
        if rng.random() < 0.7:
            sender.receive_acknowledgement(receiver.make_header("Received"))
    for message in sender.retransmissions():
        deliver(message)
    assert taken == [str(number) for number in range(100)]


def test_it_is_full_when_the_bytes_of_the_window_are_reached() -> None:
    outbox = Outbox()
    outbox.add("kind", bytes(WINDOW_BYTES - 1))
    assert not outbox.is_full
    outbox.add("kind", b"1")
    assert outbox.is_full
    outbox.acknowledge(1)
    assert not outbox.is_full


def test_a_message_of_any_size_may_go_when_nothing_else_is_under_way() -> None:
    outbox = Outbox()
    assert not outbox.is_full
    outbox.add("kind", bytes(2 * WINDOW_BYTES))
    assert outbox.is_full
    outbox.acknowledge(1)
    assert not outbox.is_full


def test_one_that_goes_on_with_what_waits_knows_its_size() -> None:
    outbox = Outbox(7, [(6, "kind", bytes(WINDOW_BYTES)), (7, "kind", b"")])
    assert (outbox.is_full, outbox.acknowledged) == (True, 5)
    outbox.acknowledge(6)
    assert (outbox.is_full, len(outbox)) == (False, 1)


def test_the_receiver_may_give_another_window() -> None:
    outbox = filled(3)
    outbox.window = Window(messages=3, size=100)
    assert outbox.is_full
    outbox.window = Window(messages=4, size=3)
    assert outbox.is_full
    outbox.window = Window(messages=4, size=4)
    assert not outbox.is_full


def node(name: str, partition: str | None = None) -> NodeInfo:
    return NodeInfo(node_id=name, attributes={} if partition is None else {NODE_PARTITION: partition})


def ask(key: str, partition: str) -> Allocation:
    return Allocation(allocation_key=key, partition_name=partition)


def releases(*items: AllocationRelease) -> AllocationReleasesRequest:
    return AllocationReleasesRequest(allocations_to_release=list(items))


def test_nodes_go_by_their_attribute_and_without_one_to_default() -> None:
    first, second, third = node("n1"), node("n2", "gpu"), node("n3", "")
    assert split_by_partition(normalise, NodeRequest(nodes=[first, second, third], rm_id="rm")) == {
        "rm_default": NodeRequest(nodes=[first, third], rm_id="rm"),
        "rm_gpu": NodeRequest(nodes=[second], rm_id="rm"),
    }


def test_applications_that_come_and_go_stay_together_by_partition() -> None:
    come = [AddApplicationRequest(application_id=name, partition_name=name[0]) for name in ("b1", "a1", "b2")]
    go = [RemoveApplicationRequest(application_id=name, partition_name=name[0]) for name in ("c1", "a2")]
    parts = split_by_partition(normalise, ApplicationRequest(new=come, remove=go))
    assert parts == {
        "rm_b": ApplicationRequest(new=[come[0], come[2]]),
        "rm_a": ApplicationRequest(new=[come[1]], remove=[go[1]]),
        "rm_c": ApplicationRequest(remove=[go[0]]),
    }
    assert list(parts) == ["rm_b", "rm_a", "rm_c"]


def test_asks_and_releases_stay_together_by_partition_and_in_order() -> None:
    asks = [ask("1", "gpu"), ask("2", ""), ask("3", "gpu")]
    gone = [AllocationRelease(allocation_key="4", partition_name="rm_gpu"), AllocationRelease(allocation_key="5")]
    assert split_by_partition(normalise, AllocationRequest(allocations=asks, releases=releases(*gone))) == {
        "rm_gpu": AllocationRequest(allocations=[asks[0], asks[2]], releases=releases(gone[0])),
        "rm_default": AllocationRequest(allocations=[asks[1]], releases=releases(gone[1])),
    }


def test_all_spellings_of_a_partition_are_one() -> None:
    asks = [ask(str(number), name) for number, name in enumerate(("gpu", "rm_gpu", "[rm]gpu", "gpu"))]
    assert split_by_partition(normalise, AllocationRequest(allocations=asks)) == {
        "rm_gpu": AllocationRequest(allocations=asks)
    }


def test_a_name_in_the_form_of_another_rm_stays_with_the_sender() -> None:
    assert list(
        split_by_partition(normalise, AllocationRequest(allocations=[ask("1", "[other]gpu"), ask("2", "other_gpu")]))
    ) == [
        "rm_[other]gpu",
        "rm_other_gpu",
    ]


@pytest.mark.parametrize("nothing", [NodeRequest(), ApplicationRequest(), AllocationRequest()])
def test_an_update_without_items_has_no_parts(nothing: NodeRequest | ApplicationRequest | AllocationRequest) -> None:
    assert split_by_partition(normalise, nothing) == {}


def test_what_carries_no_items_cannot_be_split() -> None:
    with pytest.raises(TypeError):
        split_by_partition(normalise, Ack())
