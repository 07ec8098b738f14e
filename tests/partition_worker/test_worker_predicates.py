"""Where the RM has a say in what runs where: what it is asked and how its answer arrives."""

import pytest

from tests.machines import PARTITION, arrives, said
from tests.partition_worker.bench import APP, EPOCH, NODES, NOW, Bench, ask, placed
from tests.partition_worker.engine.predicates.plugins import Broken
from yunishard.common.messages.control_messages import Settings
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.rm_messages import (
    PREDICATES,
    PREEMPTION_PREDICATES,
    NodeInfo,
    NodeRequest,
    PredicatesAnswered,
    PredicatesAsked,
    Refused,
    Verdict,
)
from yunishard.common.names import BROKER
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker

YES = Verdict(allocation_key="k", node_id="n1", allocate=True)


def asking() -> tuple[Bench, PredicatesAsked]:
    """A worker that has asked about `k` on `n1`."""
    bench = Bench()
    bench.hear(Settings(values={}, capabilities=[PREDICATES]))
    bench.furnish()
    bench.tell(ask("k"))
    sends = bench.schedule()
    [question] = [one for one in sends if one.header.kind == "PredicatesAsked"]
    assert (question.header.seq, question.header.session, question.header.epoch) == (0, "session-1", EPOCH)
    [asked] = [one for one in said(sends) if isinstance(one, PredicatesAsked)]
    assert [(one.allocation_key, one.node_id, one.allocate) for one in asked.asked] == [("k", "n1", True)]
    assert asked.deadline_milli_seconds == 200
    return bench, asked


def answered(bench: Bench, message: Message, **fields: str | int) -> list[str]:
    """What is placed after that."""
    bench.hear(message, **fields)
    return placed(bench.schedule())


def test_a_question_goes_out_and_its_answer_counts() -> None:
    bench, asked = asking()
    assert answered(bench, PredicatesAnswered(question=asked.question, verdicts=[YES])) == ["k"]


def test_an_answer_of_another_session_or_life_means_nothing() -> None:
    bench, asked = asking()
    answer = PredicatesAnswered(question=asked.question, verdicts=[YES])
    assert answered(bench, answer, session="session-0") == []
    assert answered(bench, answer, life=1) == []
    assert answered(bench, answer) == ["k"]


def test_an_answer_acknowledges_what_its_header_says() -> None:
    bench, asked = asking()
    before = len(bench.worker.host.channel.outbox)
    assert before
    bench.hear(PredicatesAnswered(question=asked.question), ack=before)
    assert len(bench.worker.host.channel.outbox) == 0


def test_a_malformed_answer_is_refused() -> None:
    bench, _ = asking()
    incoming = arrives(BROKER, PredicatesAnswered(question=1), partition=PARTITION)
    [refused] = said(bench.worker.handle(type(incoming)(BROKER, incoming.header, b"\x93"), NOW))
    assert isinstance(refused, Refused)
    assert refused.code == "malformed"


def test_a_worker_that_runs_nothing_hears_no_answer() -> None:
    worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH))
    assert worker.handle(arrives(BROKER, PredicatesAnswered(question=1), partition=PARTITION), NOW) == []


def test_an_rm_without_the_capability_is_not_asked() -> None:
    bench = Bench()
    bench.hear(Settings(values={}, capabilities=["flight"]))
    bench.furnish()
    bench.tell(ask("k"))
    sends = bench.schedule()
    assert placed(sends) == ["k"]
    assert "PredicatesAsked" not in [one.header.kind for one in sends]


@pytest.mark.parametrize(
    ("capabilities", "asks"),
    [([PREDICATES, PREEMPTION_PREDICATES], True), ([PREDICATES], False), ([PREEMPTION_PREDICATES], False)],
)
def test_an_rm_is_asked_about_victims_only_if_it_evaluates_predicates_as_well(
    capabilities: list[str], asks: bool
) -> None:
    bench = Bench()
    bench.hear(Settings(values={}, capabilities=capabilities))
    assert bench.worker.partition is not None
    assert bench.worker.partition.nodes.predicates.asks_about_victims == asks


def test_a_plug_in_that_breaks_is_a_warning() -> None:
    bench = Bench(running=False)
    host = PartitionHost(partition=PARTITION, epoch=EPOCH, plugins=[Broken(answer=KeyError("x"))])
    bench.worker = Worker(host)
    bench.configure()
    bench.tell(NODES)
    bench.tell(APP)
    request = ask("k")
    request.allocations[0].allocation_tags["broken"] = "yes"
    bench.tell(request)
    assert placed(bench.schedule()) == []
    [warning] = bench.worker.host.warnings
    assert warning.startswith("predicate broken failed: KeyError: 'x'")


def test_a_plug_in_that_breaks_on_a_node_is_a_warning_too() -> None:
    class Strict(Broken):
        def refuses(self, demand: object, node: object) -> str:
            raise ValueError("no rack")

    bench = Bench(running=False)
    bench.worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH, plugins=[Strict()]))
    bench.configure()
    bench.tell(NodeRequest(nodes=[NodeInfo(node_id="n1", action=1, schedulable_resource={"vcore": 10})]))
    assert len(bench.worker.host.warnings) == 1
