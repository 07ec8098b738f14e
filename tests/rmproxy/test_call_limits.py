"""Calls that wait for their client keep no other client out; other calls are limited for each peer, below the whole."""

from contextlib import ExitStack

import pytest

from yunishard.rmproxy.rate_limit import OpenCalls, WaitingCalls


@pytest.mark.parametrize(
    ("waiting", "newcomer", "ended"),
    [
        (["a", "b"], "a", []),
        (["a", "a", "a", "b"], "a", ["a 1"]),
        (["a", "b", "b", "c", "c", "d"], "e", ["b 1"]),
        (["a", "b", "c", "d", "e", "f"], "g", ["a 1"]),
    ],
    ids=["there is room", "a peer has its most", "the peer with the most loses one", "the oldest of equal peers"],
)
def test_the_oldest_waiting_call_ends_for_a_further_one(waiting: list[str], newcomer: str, ended: list[str]) -> None:
    calls = WaitingCalls(most=6, most_of_peer=3)
    seen: list[str] = []
    with ExitStack() as stack:
        for place, peer in enumerate([*waiting, newcomer]):
            number = waiting[:place].count(peer) + 1
            stack.enter_context(calls.hold(peer, lambda name=f"{peer} {number}": seen.append(name)))
        assert seen == ended
        assert len(calls) == len(waiting) + 1 - len(ended)
    assert len(calls) == 0


def test_a_peer_may_not_use_all_calls() -> None:
    calls = OpenCalls(most=3, most_of_peer=2)
    assert [calls.enter("a"), calls.enter("a"), calls.enter("a")] == [True, True, False]
    assert [calls.enter("b"), calls.enter("c")] == [True, False]
    calls.leave("a")
    assert [calls.enter("c"), calls.enter("a"), len(calls)] == [True, False, 3]
