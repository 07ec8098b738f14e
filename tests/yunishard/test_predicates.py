"""A resource manager of the SDK that has a say in what runs where."""

import asyncio

import pytest

from common.rm_messages import (
    NodeRequest,
    NodeResponse,
    PredicatesAnswered,
    PredicatesArgs,
    PredicatesAsked,
    Registered,
    RegisterResourceManager,
    Verdict,
)
from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, play
from yunishard.manager import Predicate
from yunishard.parts import node
from yunishard.predicates import answer

ASKED = PredicatesAsked(
    question=7,
    deadline_milli_seconds=200,
    asked=[
        PredicatesArgs(allocation_key="a1", node_id="n1", allocate=True),
        PredicatesArgs(allocation_key="a1", node_id="n2"),
    ],
)


def only_n1(key: str, node: str, allocate: bool) -> str | None:
    return None if node == "n1" else f"{key} needs n1" + (" now" if allocate else "")


def test_every_pair_gets_its_verdict() -> None:
    assert answer(ASKED, only_n1) == PredicatesAnswered(
        question=7,
        verdicts=[
            Verdict(allocation_key="a1", node_id="n1", allocate=True),
            Verdict(allocation_key="a1", node_id="n2", refusal="a1 needs n1"),
        ],
    )


def fails(key: str, node: str, allocate: bool) -> str | None:
    raise KeyError(node)


@pytest.mark.parametrize(
    ("predicate", "refusal"),
    [
        (fails, "predicate of the resource manager failed: KeyError: 'n1'"),
        (lambda key, node, allocate: "\ud800", "?"),
        (
            lambda key, node, allocate: True,
            "predicate of the resource manager failed: TypeError: it must return the reason (str) or None, got True",
        ),
        (lambda key, node, allocate: "", ""),
    ],
)
def test_there_is_an_answer_whatever_the_predicate_does(predicate: Predicate, refusal: str) -> None:
    assert answer(ASKED, predicate).verdicts[0].refusal == refusal


def test_it_is_asked_and_answers_at_once_though_nobody_reads_results() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1", predicate=only_n1))
            _, request = await core.hears(RegisterResourceManager)
            assert isinstance(request, RegisterResourceManager)
            assert request.capabilities == ["predicates"]
            await core.says(Registered(partitions=[PARTITION]), partition="")
            async with await connecting:
                await core.says(ASKED)
                header, answered = await core.hears(PredicatesAnswered)
                assert answered == answer(ASKED, only_n1)
                assert (header.partition, header.seq) == (PARTITION, 0)

    play(story)


def test_without_a_predicate_it_says_that_it_has_none_and_answers_nothing() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(Kept.connect(core.address, rm_id="rm-1"))
            _, request = await core.hears(RegisterResourceManager)
            assert isinstance(request, RegisterResourceManager)
            assert request.capabilities == []
            await core.says(Registered(partitions=[PARTITION]), partition="")
            async with await connecting as rm:
                await core.says(ASKED)
                await core.says(NodeResponse(), seq=1)
                await anext(rm.results())  # so the question has arrived, too
                await rm.update_nodes([node("n1", {"vcore": 1})])
                await core.hears(NodeRequest)  # and not an answer

    play(story)
