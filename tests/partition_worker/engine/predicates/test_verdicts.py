"""What the resource manager said, is asked, and does not answer."""

from collections.abc import Iterable

import pytest

from yunishard.common.messages.wire import NEVER
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.predicates.verdicts import (
    ASKS_MAX,
    COOL_DOWN_S,
    DEADLINE_S,
    FRESH_S,
    NO_ANSWER,
    NODES_MAX,
    PAUSE_MAX_S,
    PAUSE_S,
    VICTIMS_MAX,
    WIDE_PAIRS_MAX,
    WIDE_PAIRS_MIN,
    WIDE_RETRY_S,
    Pair,
    Removal,
    Verdicts,
)

NOW = 1000.0


def a_node(name: str = "n1", rank: int = 0) -> Node:
    return Node(name, rank, {"memory": 10}, {})


N1, N2 = a_node(), a_node("n2", 1)


def asked(verdicts: Verdicts, now: float = NOW) -> tuple[int, tuple[Pair, ...]]:
    question = verdicts.next_question(now)
    assert question is not None
    return question[0].number, tuple(question[0].pairs)


def answered(refusals: dict[Pair, str] | None = None, *, node: Node | None = None, key: str = "a1") -> Verdicts:
    """One pair that was asked at NOW, and answered."""
    verdicts = Verdicts()
    verdicts.request(key, node or N1, allocate=True)
    number, pairs = asked(verdicts)
    verdicts.apply_answer(number, dict.fromkeys(pairs, "") if refusals is None else refusals, NOW)
    return verdicts


def keys(woken: Iterable[str]) -> list[str]:
    return list(woken)


def test_nothing_is_known_before_it_is_asked() -> None:
    verdicts = Verdicts()
    assert verdicts.refusal("a1", N1, allocate=True) is None
    assert verdicts.next_question(NOW) is None
    assert verdicts.deadline == NEVER


def test_what_is_wanted_is_asked_at_once_and_only_once() -> None:
    verdicts = Verdicts()
    for _ in range(2):
        verdicts.request("a1", N1, allocate=True)
    verdicts.request("a1", N1, allocate=False)
    assert verdicts.deadline <= NOW
    _, pairs = asked(verdicts)
    assert pairs == (Pair("a1", "n1", True), Pair("a1", "n1", False))
    assert verdicts.deadline == NOW + DEADLINE_S
    verdicts.request("a1", N1, allocate=True)
    assert verdicts.next_question(NOW + 1) is None


def test_an_answer_is_a_verdict_and_wakes_the_ask() -> None:
    verdicts = Verdicts()
    verdicts.request("a1", N1, allocate=True)
    verdicts.request("a2", N1, allocate=True)
    number, _ = asked(verdicts)
    woken = verdicts.apply_answer(number, {Pair("a1", "n1", True): "", Pair("a2", "n1", True): "no disk"}, NOW)
    assert keys(woken) == ["a1", "a2"]
    assert verdicts.refusal("a1", N1, allocate=True) == ""
    assert verdicts.refusal("a2", N1, allocate=True) == "no disk"
    assert verdicts.refusal("a1", N1, allocate=False) is None


def test_what_an_answer_leaves_out_is_refused() -> None:
    assert answered({}).refusal("a1", N1, allocate=True) == NO_ANSWER


def test_an_answer_to_another_question_means_nothing() -> None:
    verdicts = Verdicts()
    verdicts.request("a1", N1, allocate=True)
    number, _ = asked(verdicts)
    assert not verdicts.apply_answer(number + 1, {Pair("a1", "n1", True): ""}, NOW)
    assert verdicts.refusal("a1", N1, allocate=True) is None


def test_a_wide_verdict_holds_until_anything_changes_and_is_asked_again_at_intervals() -> None:
    verdicts = Verdicts()
    for key in ("a1", "a2"):
        verdicts.request(key, N1, allocate=True, is_wide=key == "a1")
    number, pairs = asked(verdicts)
    verdicts.apply_answer(number, dict.fromkeys(pairs, "zone is full"), NOW)
    assert verdicts.refusal("a1", N1, allocate=True) == "zone is full"
    assert keys(verdicts.elapse(NOW)) == []
    verdicts.moment += 1  # something is placed on another node
    assert verdicts.refusal("a1", N1, allocate=True) is None
    assert verdicts.refusal("a2", N1, allocate=True) == "zone is full"
    assert verdicts.deadline <= NOW
    assert keys(verdicts.elapse(NOW)) == ["a1"]
    verdicts.request("a1", N1, allocate=True, is_wide=True)
    number, pairs = asked(verdicts)
    verdicts.apply_answer(number, dict.fromkeys(pairs, "zone is full"), NOW)
    verdicts.moment += 1
    assert keys(verdicts.elapse(NOW + WIDE_RETRY_S / 2)) == []
    assert verdicts.deadline == NOW + WIDE_RETRY_S
    assert keys(verdicts.elapse(NOW + WIDE_RETRY_S)) == ["a1"]


def test_a_wide_verdict_about_an_ask_that_is_gone_is_not_asked_again() -> None:
    verdicts = Verdicts()
    verdicts.request("a1", N1, allocate=True, is_wide=True)
    number, pairs = asked(verdicts)
    verdicts.apply_answer(number, dict.fromkeys(pairs, "no"), NOW)
    verdicts.moment += 1
    verdicts.drop("a1")
    assert keys(verdicts.elapse(NOW)) == []


def request_wide(verdicts: Verdicts, asks: int, nodes: int) -> list[str]:
    """Request verdicts about asks on nodes as searches do; return the asks for which there was room."""
    requested = []
    for name in (f"w{number}" for number in range(asks)):
        if not verdicts.defer(name, is_wide=True):
            requested.append(name)
            for number in range(nodes):
                if not verdicts.request(name, a_node(f"n{number}"), allocate=True, is_wide=True):
                    break
    return requested


def test_a_question_has_few_wide_pairs_as_long_as_answers_accept_them() -> None:
    verdicts, sizes = Verdicts(), []
    for refusal in ("no", "no", "no", "no", "", "", "", ""):
        assert request_wide(verdicts, asks=100, nodes=600)[0] == "w0"
        number, pairs = asked(verdicts)
        sizes.append((len(pairs), len({pair.key for pair in pairs})))
        verdicts.apply_answer(number, dict.fromkeys(pairs, refusal), NOW)
        verdicts.known.clear()
    assert sizes == [(16, 1), (64, 2), (256, 2), (1024, 2), (1024, 2), (256, 2), (64, 2), (16, 1)]
    assert sizes[0][0] == WIDE_PAIRS_MIN
    assert max(sizes)[0] == WIDE_PAIRS_MAX


def test_answers_that_accept_some_wide_pairs_keep_the_size_of_the_question() -> None:
    verdicts = Verdicts()
    verdicts.wide_pairs_max = 64
    request_wide(verdicts, asks=2, nodes=32)
    number, pairs = asked(verdicts)
    verdicts.apply_answer(number, {pair: "no" if index else "" for index, pair in enumerate(pairs)}, NOW)
    assert verdicts.wide_pairs_max == 64


def test_wide_asks_that_have_no_room_in_the_question_wait_and_leave_room_for_others() -> None:
    verdicts = Verdicts()
    assert request_wide(verdicts, asks=10, nodes=20) == ["w0"]
    assert keys(verdicts.deferred_wide) == [f"w{number}" for number in range(1, 10)]
    assert not verdicts.defer("a1")
    assert verdicts.request("a1", N1, allocate=True)
    for key in ("w0", "w1"):
        verdicts.drop(key)
    assert request_wide(verdicts, asks=3, nodes=20) == ["w0"]
    question = verdicts.next_question(NOW)
    assert question is not None
    assert keys(question[1]) == ["w2", "w3", "w4", "w5"]


def test_a_wide_verdict_counts_what_was_placed_before_the_question() -> None:
    verdicts = Verdicts()
    verdicts.request("a1", N1, allocate=True, is_wide=True)
    verdicts.moment += 1
    number, pairs = asked(verdicts)
    verdicts.apply_answer(number, dict.fromkeys(pairs, ""), NOW)
    assert verdicts.refusal("a1", N1, allocate=True) == ""


def test_a_verdict_holds_as_long_as_the_node_is_as_it_was() -> None:
    node = a_node()
    verdicts = answered(node=node)
    assert verdicts.refusal("a1", node, allocate=True) == ""
    node.resize({"memory": 20})
    assert verdicts.refusal("a1", node, allocate=True) is None


def test_a_verdict_does_not_hold_for_another_node_of_this_name() -> None:
    assert answered().refusal("a1", a_node(rank=7), allocate=True) is None


def test_a_verdict_is_forgotten_after_a_while_and_a_refused_ask_is_tried_again() -> None:
    refused = answered({Pair("a1", "n1", True): "no"})
    assert refused.deadline == NOW + FRESH_S
    assert not refused.elapse(NOW + FRESH_S - 1)
    assert keys(refused.elapse(NOW + FRESH_S)) == ["a1"]
    assert refused.refusal("a1", N1, allocate=True) is None
    admitted = answered()
    assert not admitted.elapse(NOW + FRESH_S)  # it waits for something else
    assert admitted.refusal("a1", N1, allocate=True) is None
    assert admitted.deadline == NEVER


def test_an_old_verdict_does_not_take_a_newer_one_along() -> None:
    verdicts, other = answered(), a_node(rank=7)
    verdicts.elapse(NOW + 20)
    verdicts.request("a1", other, allocate=True)
    number, _ = asked(verdicts, NOW + 20)
    verdicts.apply_answer(number, {Pair("a1", "n1", True): "no"}, NOW + 20)
    assert not verdicts.elapse(NOW + FRESH_S)
    assert verdicts.refusal("a1", other, allocate=True) == "no"


def test_silence_is_a_refusal_for_twice_as_long_each_time() -> None:
    verdicts, now, pauses = Verdicts(), NOW, []
    for _ in range(8):
        verdicts.request("a1", N1, allocate=True)
        assert asked(verdicts, now)[1] == (Pair("a1", "n1", True),)
        now += DEADLINE_S
        assert keys(verdicts.elapse(now)) == ["a1"]
        assert verdicts.refusal("a1", N1, allocate=True) == NO_ANSWER
        verdicts.request("a2", N1, allocate=True)
        assert verdicts.next_question(now) is None  # nothing is asked meanwhile
        verdicts.drop("a2")
        pauses.append(round(verdicts.deadline - now, 3))
        now = verdicts.deadline
        assert keys(verdicts.elapse(now)) == ["a1"]
        assert verdicts.refusal("a1", N1, allocate=True) is None
    assert pauses == [PAUSE_S, 2.0, 4.0, 8.0, 16.0, PAUSE_MAX_S, PAUSE_MAX_S, PAUSE_MAX_S]


def test_after_an_answer_silence_is_new_again() -> None:
    verdicts = Verdicts()
    for now in (NOW, NOW + 10):
        verdicts.request("a1", N1, allocate=True)
        number, pairs = asked(verdicts, now)
        verdicts.elapse(now + DEADLINE_S)
        verdicts.apply_answer(number, dict.fromkeys(pairs, ""), now + 0.5)
        verdicts.drop("a1")
    verdicts.request("a1", N1, allocate=True)
    asked(verdicts, NOW + 20)
    verdicts.elapse(NOW + 20 + DEADLINE_S)
    verdicts.elapse(NOW + 20 + DEADLINE_S + PAUSE_S)
    assert verdicts.refusal("a1", N1, allocate=True) is None


def test_a_late_answer_counts_until_there_is_another_question() -> None:
    verdicts = Verdicts()
    verdicts.request("a1", N1, allocate=True)
    number, pairs = asked(verdicts)
    verdicts.elapse(NOW + DEADLINE_S)
    assert keys(verdicts.apply_answer(number, dict.fromkeys(pairs, ""), NOW + 0.5)) == ["a1"]
    assert verdicts.refusal("a1", N1, allocate=True) == ""
    verdicts.request("a2", N1, allocate=True)
    late, pairs = asked(verdicts, NOW + 1)
    verdicts.elapse(NOW + 2)
    verdicts.request("a3", N1, allocate=True)
    asked(verdicts, NOW + 4)
    assert not verdicts.apply_answer(late, dict.fromkeys(pairs, ""), NOW + 4)


def test_there_is_room_for_so_many_nodes_of_an_ask() -> None:
    verdicts = Verdicts()
    room = [verdicts.request("a1", a_node(f"n{number}", number), allocate=True) for number in range(NODES_MAX)]
    assert room == [True] * (NODES_MAX - 1) + [False]
    assert not verdicts.request("a1", a_node("late", 99), allocate=True)
    assert len(asked(verdicts)[1]) == NODES_MAX


def test_asks_that_find_no_room_are_tried_again_when_there_is() -> None:
    verdicts = Verdicts()
    for number in range(ASKS_MAX + 2):
        assert verdicts.request(f"a{number}", N1, allocate=True) == (number < ASKS_MAX)
    question = verdicts.next_question(NOW)
    assert question is not None
    first, woken = question
    assert len(first.pairs) == ASKS_MAX
    assert keys(woken) == [f"a{ASKS_MAX}", f"a{ASKS_MAX + 1}"]


def test_asks_that_found_no_room_are_tried_again_although_all_before_them_are_gone() -> None:
    verdicts = Verdicts()
    for number in range(ASKS_MAX):
        verdicts.request(f"a{number}", N1, allocate=True)
    assert not verdicts.defer("a0")
    assert verdicts.defer("late")
    for number in range(ASKS_MAX):
        verdicts.drop(f"a{number}")
    assert verdicts.next_question(NOW) is None
    assert verdicts.deadline <= NOW
    assert keys(verdicts.elapse(NOW)) == ["late"]
    assert verdicts.deadline == NEVER


def test_what_an_ask_that_is_gone_wanted_is_not_asked() -> None:
    verdicts = answered()
    verdicts.request("a1", N2, allocate=True)
    verdicts.request("a2", N2, allocate=True)
    verdicts.drop("a1")
    assert asked(verdicts)[1] == (Pair("a2", "n2", True),)
    assert verdicts.refusal("a1", N1, allocate=True) is None
    assert not verdicts.elapse(NOW + FRESH_S) - {"a2": None}.keys()


def test_a_node_where_an_ask_could_not_be_started_is_closed_to_it_for_a_while() -> None:
    verdicts, node = Verdicts(), a_node()
    verdicts.refuse("a1", "n1", "image is missing", NOW)
    node.resize({"memory": 20})
    verdicts.drop("a1")  # it gets another node
    assert verdicts.refusal("a1", node, allocate=True) == "image is missing"
    assert verdicts.refusal("a2", node, allocate=True) is None
    assert keys(verdicts.elapse(NOW + COOL_DOWN_S)) == ["a1"]
    assert verdicts.refusal("a1", node, allocate=True) is None


def test_the_nodes_that_admit_an_ask_are_known_until_they_change() -> None:
    node = a_node()
    verdicts = answered(node=node)
    assert list(verdicts.accepting("a1")) == [node]
    assert list(verdicts.accepting("a2")) == []
    assert list(answered({}).accepting("a1")) == []
    node.resize({"memory": 20})
    assert list(verdicts.accepting("a1")) == []


# Removals -------------------------------------------------------------------------------------------------------------


def a_removal(key: str = "a1", node: str = "n1", victims: int = 3, start: int = 0) -> Removal:
    return Removal(key, node, tuple(f"v{number}" for number in range(victims)), start)


def about_removals(*removals: Removal, nodes: dict[str, Node]) -> tuple[Verdicts, int]:
    """A question at NOW about removals, and its number."""
    verdicts = Verdicts()
    for removal in removals:
        verdicts.searching[removal.key] = None
        assert verdicts.request_removal(removal, nodes[removal.node_id])
    number, pairs = asked(verdicts)
    assert pairs == ()
    assert verdicts.question is not None
    assert tuple(verdicts.question.removals) == removals
    return verdicts, number


def test_an_answer_about_a_removal_holds_for_these_victims_and_this_node_as_it_is() -> None:
    node = a_node()
    verdicts, number = about_removals(a_removal(), nodes={"n1": node})
    assert verdicts.find_removal(a_removal(), node) is None
    assert keys(verdicts.apply_answer(number, {}, NOW, {("a1", "n1"): ("", 2)})) == ["a1"]
    verdict = verdicts.find_removal(a_removal(), node)
    assert verdict is not None
    assert (verdict.refusal, verdict.last) == ("", 2)
    assert verdicts.find_removal(a_removal(victims=2), node) is None
    assert list(verdicts.accepting("a1")) == [], "without the victims it may not run there"
    node.resize({"memory": 20})
    assert verdicts.find_removal(a_removal(), node) is None


@pytest.mark.parametrize("last", [-1, 0, 3])
def test_an_answer_outside_of_the_victims_is_a_refusal(last: int) -> None:
    verdicts, number = about_removals(a_removal(start=1), nodes={"n1": N1})
    verdicts.apply_answer(number, {}, NOW, {("a1", "n1"): ("", last)})
    verdict = verdicts.find_removal(a_removal(start=1), N1)
    assert verdict is not None
    assert verdict.refusal == f"the resource manager named victim {last}, which is not one of 1 to 2"


def test_a_removal_that_the_answer_leaves_out_is_refused() -> None:
    verdicts, number = about_removals(a_removal(), nodes={"n1": N1})
    verdicts.apply_answer(number, {}, NOW)
    verdict = verdicts.find_removal(a_removal(), N1)
    assert verdict is not None
    assert verdict.refusal == NO_ANSWER


def test_silence_refuses_the_node_whatever_the_victims_are() -> None:
    verdicts, _ = about_removals(a_removal(), nodes={"n1": N1})
    assert keys(verdicts.elapse(NOW + DEADLINE_S)) == ["a1"]
    verdict = verdicts.find_removal(a_removal(victims=9), N1)
    assert verdict is not None
    assert verdict.refusal == NO_ANSWER
    assert keys(verdicts.elapse(NOW + DEADLINE_S + PAUSE_S)) == ["a1"]
    assert verdicts.find_removal(a_removal(victims=9), N1) is None


def test_a_later_request_about_a_node_replaces_the_earlier_one() -> None:
    verdicts = Verdicts()
    assert verdicts.request_removal(a_removal(victims=5), N1)
    assert verdicts.request_removal(a_removal(victims=4), N1)
    assert verdicts.removal_keys == 4
    asked(verdicts)
    assert verdicts.question is not None
    assert list(verdicts.question.removals) == [a_removal(victims=4)]


def test_a_question_has_so_many_victims_and_other_asks_are_tried_again_for_the_next_one() -> None:
    verdicts = Verdicts()
    assert verdicts.request_removal(a_removal("a1", victims=VICTIMS_MAX - 1), N1)
    verdicts.searching["a2"] = None
    assert not verdicts.request_removal(a_removal("a2", victims=2), N1)
    assert verdicts.removal_keys == VICTIMS_MAX - 1
    question = verdicts.next_question(NOW)
    assert question is not None
    assert ([one.key for one in question[0].removals], keys(question[1])) == (["a1"], ["a2"])
    assert verdicts.searching == {}
    assert verdicts.request_removal(a_removal("a2", victims=2), N1)


def test_the_removals_of_an_ask_that_is_gone_are_not_asked_about() -> None:
    verdicts = Verdicts()
    verdicts.request_removal(a_removal(), N1)
    verdicts.searching["a1"] = None
    verdicts.drop("a1")
    assert (verdicts.removal_keys, verdicts.searching, verdicts.has_requests) == (0, {}, False)
    assert verdicts.next_question(NOW) is None
