""""""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from tests.yunishard.fake_core import PARTITION, FakeCore, Kept, play
from yunishard.common.messages.rm_messages import (
    AcceptedApplication,
    AcceptedNode,
    Allocation,
    AllocationRelease,
    AllocationResponse,
    ApplicationResponse,
    Goodbye,
    NodeRequest,
    NodeResponse,
    PartitionRestarted,
    PredicatesAnswered,
    PredicatesArgs,
    PredicatesAsked,
    PreemptionPredicatesArgs,
    PreemptionVerdict,
    Refused,
    Registered,
    RegisterResourceManager,
    RejectedAllocation,
    RejectedApplication,
    RejectedNode,
    ReleasesIgnored,
    SchedulingStateResponse,
    UpdateContainerSchedulingState,
    UpdatedApplication,
    Verdict,
)
from yunishard.sdk.items import Callbacks, Predicate, Result, Update, answer_predicates, node

IGNORED = AllocationRelease(allocation_key="k5", message="application a9 is unknown")
ALLOCATION = Allocation(allocation_key="k1")
RELEASE = AllocationRelease(allocation_key="k2")
REJECTED_ALLOCATION = RejectedAllocation(allocation_key="k3")
ACCEPTED = AcceptedApplication(application_id="a1")
REJECTED = RejectedApplication(application_id="a2")
UPDATED = UpdatedApplication(application_id="a1", state="Running")
NODE, NO_NODE = AcceptedNode(node_id="n1"), RejectedNode(node_id="n2")
WAITING = UpdateContainerSchedulingState(application_id="a1", allocation_key="k4", state=4)
REFUSED = Refused(code="c", reason="r")
GOODBYE = Goodbye(reason="r")


NEWS: list[Update] = [
    AllocationResponse(new=[ALLOCATION]),
    AllocationResponse(released=[RELEASE]),
    AllocationResponse(rejected_allocations=[REJECTED_ALLOCATION]),
    ReleasesIgnored(ignored=[IGNORED], more=1),
    ApplicationResponse(accepted=[ACCEPTED], rejected=[REJECTED], updated=[UPDATED]),
    NodeResponse(accepted=[NODE], rejected=[NO_NODE]),
    PartitionRestarted(),
    SchedulingStateResponse(updated=[WAITING]),
    GOODBYE,
    REFUSED,
]


def noting(name: str, book: list[tuple[str, object]]) -> Callable[[object], None]:
    return lambda item: book.append((name, item))


def test_every_item_goes_to_its_function() -> None:
    book: list[tuple[str, object]] = []
    callbacks = Callbacks(
        allocated=noting("allocated", book),
        released=noting("released", book),
        allocation_rejected=noting("allocation_rejected", book),
        release_ignored=noting("release_ignored", book),
        application_accepted=noting("application_accepted", book),
        application_rejected=noting("application_rejected", book),
        application_updated=noting("application_updated", book),
        node_accepted=noting("node_accepted", book),
        node_rejected=noting("node_rejected", book),
        partition_restarted=noting("partition_restarted", book),
        scheduling_state_updated=noting("scheduling_state_updated", book),
        goodbye=noting("goodbye", book),
        refused=noting("refused", book),
    )
    for news in NEWS:
        assert set(callbacks.dispatch(Result("rm-1_p", news))) == {None}
    assert book == [
        ("allocated", ALLOCATION),
        ("released", RELEASE),
        ("allocation_rejected", REJECTED_ALLOCATION),
        ("release_ignored", IGNORED),
        ("application_accepted", ACCEPTED),
        ("application_rejected", REJECTED),
        ("application_updated", UPDATED),
        ("node_accepted", NODE),
        ("node_rejected", NO_NODE),
        ("partition_restarted", "rm-1_p"),
        ("scheduling_state_updated", WAITING),
        ("goodbye", GOODBYE),
        ("refused", REFUSED),
    ]


def test_what_nobody_wants_to_hear_is_not_told() -> None:
    assert [answer for news in NEWS for answer in Callbacks().dispatch(Result("rm-1_p", news))] == []


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
    assert answer_predicates(ASKED, only_n1) == PredicatesAnswered(
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
    assert answer_predicates(ASKED, predicate).verdicts[0].refusal == refusal


PREEMPTING = PredicatesAsked(
    question=8,
    deadline_milli_seconds=200,
    asked=[],
    preemptions=[
        PreemptionPredicatesArgs(
            allocation_key="a1", node_id=name, preempt_allocation_keys=["b1", "b2", "b3"], start_index=1
        )
        for name in ("n1", "n2")
    ],
)


def last_on_n1(key: str, node: str, victims: Sequence[str], start: int) -> int | str:
    return len(victims) - 1 if node == "n1" else f"{key} needs n1, from {start}"


def test_every_preemption_gets_its_verdict_unless_the_rm_has_no_function_for_it() -> None:
    assert answer_predicates(PREEMPTING, only_n1, last_on_n1).preemptions == [
        PreemptionVerdict(allocation_key="a1", node_id="n1", index=2),
        PreemptionVerdict(allocation_key="a1", node_id="n2", refusal="a1 needs n1, from 1"),
    ]
    assert answer_predicates(PREEMPTING, only_n1).preemptions == []


@pytest.mark.parametrize("found", [0, 3, True, None, 1.0])
def test_an_index_that_cannot_be_is_a_refusal(found: object) -> None:
    [one, _] = answer_predicates(PREEMPTING, only_n1, lambda *_: found).preemptions  # type: ignore[arg-type,return-value]
    assert one.refusal == (
        "preemption_predicate of the resource manager failed: ValueError: "
        f"it must return an index from 1 to 2 or a reason, got {found!r}"
    )


def test_a_function_for_preemptions_that_fails_refuses_and_needs_a_predicate() -> None:
    [one, _] = answer_predicates(PREEMPTING, only_n1, lambda *_: 1 // 0).preemptions
    assert one.refusal == (
        "preemption_predicate of the resource manager failed: ZeroDivisionError: integer division or modulo by zero"
    )
    with pytest.raises(ValueError, match="preemption_predicate needs a predicate"):
        Kept.connect("tcp://127.0.0.1:1", rm_id="rm-1", preemption_predicate=last_on_n1)


def test_it_is_asked_about_preemptions_and_answers() -> None:
    async def story() -> None:
        async with FakeCore() as core:
            connecting = asyncio.create_task(
                Kept.connect(core.address, rm_id="rm-1", predicate=only_n1, preemption_predicate=last_on_n1)
            )
            _, request = await core.hears(RegisterResourceManager)
            assert isinstance(request, RegisterResourceManager)
            assert request.capabilities == ["predicates", "preemption-predicates"]
            await core.says(Registered(partitions=[PARTITION]), partition="")
            async with await connecting:
                await core.says(PREEMPTING)
                _, answered = await core.hears(PredicatesAnswered)
                assert answered == answer_predicates(PREEMPTING, only_n1, last_on_n1)

    play(story)


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
                assert answered == answer_predicates(ASKED, only_n1)
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
