"""Plans in a forked process: the same report as in this one, limits, and a partition that stays as it is."""

import asyncio
import os
import time

import msgspec
import pytest

from tests.properties.fingerprint import fingerprint
from tests.properties.remedying import Copy
from tests.properties.test_remedies import cluster
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer
from yunishard.common.messages.wire import Outgoing, decode_body
from yunishard.common.names import PLANNER
from yunishard.common.rest.plan import NewNodes, NodeDrain, PlanOrder, PlanView
from yunishard.partition_worker import plan_process
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.plan_process import Planner, fork, read_all
from yunishard.partition_worker.plan_requests import PlanWanted, answer_plan
from yunishard.partition_worker.planning import play

PATIENCE_S = 30.0


def make_plan(partition: Partition | None, order: PlanOrder, *, limit_s: float = PATIENCE_S) -> Answer:
    """The answer of a forked process."""

    async def run() -> Answer:
        woken = asyncio.Event()
        planner = Planner(wake=woken.set, find_partition=lambda: partition, limit_s=limit_s)
        wanted = PlanWanted(order, at=0.0, name="default")
        planner.send(Outgoing(PLANNER, Header(kind="PlanWanted", ref="r1"), msgspec.msgpack.encode(wanted)))
        async with asyncio.timeout(PATIENCE_S):
            await woken.wait()
        incoming = planner.receive()
        assert incoming is not None
        assert (incoming.source, incoming.header.ref, planner.receive()) == (PLANNER, "r1", None)
        return decode_body(Answer, incoming.body)

    return asyncio.run(run())


def test_the_report_is_that_of_a_copy_and_the_partition_stays_as_it_is() -> None:
    one = cluster(2)
    before = fingerprint(one)
    order = PlanOrder([NodeDrain("n1"), NewNodes(1, {"memory": 10}, {})])
    answer = make_plan(one, order)
    assert fingerprint(one) == before
    assert answer.status == 200
    view = msgspec.json.decode(answer.body, type=PlanView)
    expected = answer_plan(
        cluster(2), PlanWanted(order, at=0.0, name="default"), lambda order: play(cluster(2), order, now=0.0)
    )
    assert view == msgspec.json.decode(expected.body, type=PlanView)
    assert view.changes == ["drain node n1", "add 1 node with 10 B"]


def test_a_change_that_cannot_be_made_has_its_status_and_reason() -> None:
    answer = make_plan(cluster(2), PlanOrder([NodeDrain("n77")]))
    assert (answer.status, b"n77" in answer.body) == (404, True)


def test_without_a_partition_there_is_no_plan() -> None:
    assert make_plan(None, PlanOrder([])).status == 503


def test_a_plan_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_process, "answer_plan", lambda *_: time.sleep(PATIENCE_S))
    answer = make_plan(cluster(2), PlanOrder([]), limit_s=0.2)
    assert answer.status == 503
    assert b"longer than 0.2 s: plan with a nearer horizon" in answer.body


def test_a_plan_that_needs_too_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_process, "MEMORY_MAX", 64 << 20)
    monkeypatch.setattr(plan_process, "answer_plan", lambda *_: bytearray(1 << 30))
    answer = make_plan(cluster(2), PlanOrder([]))
    assert answer.status == 503
    assert b"more than 64 MiB" in answer.body


def test_a_defect_in_the_process_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_process, "answer_plan", lambda *_: 1 / 0)
    answer = make_plan(cluster(2), PlanOrder([]))
    assert (answer.status, b"standard error has the reason" in answer.body) == (503, True)


def test_the_process_has_no_descriptor_of_the_worker_but_its_pipe() -> None:
    inherited, other = os.pipe()

    def list_descriptors(output: int) -> None:
        found = [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
        os.write(output, repr([one for one in found if one not in (0, 1, 2, output)]).encode())

    found = fork(list_descriptors, PATIENCE_S)
    assert found is not None
    process, pipe = found
    assert read_all(pipe) == b"[]"
    assert os.waitpid(process, 0)[1] == 0
    os.close(inherited)
    os.close(other)


def test_a_copy_from_records_gives_the_same_totals() -> None:
    one = cluster(4)
    order = PlanOrder([], 600.0)
    answer = answer_plan(
        Copy(one).partition, PlanWanted(order, at=0.0), lambda order: play(Copy(one).partition, order, now=0.0)
    )
    view = msgspec.json.decode(answer.body, type=PlanView)
    assert view.planned == view.baseline
