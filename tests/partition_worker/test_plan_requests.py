"""Queries for plans in the worker's machine: one at a time, and refusals before a process is forked."""

import msgspec

from tests.partition_worker.desk import Desk
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Actor, Answer, Query
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import PLANNER
from yunishard.common.rest.plan import NewJob, NodeDrain, PlanOrder

ORDER = PlanOrder([NodeDrain("n1")])
JOB = NewJob("", "root.default", "bob", ["dev"], {}, {}, {"memory": 1}, 1, None, 0, False)


def ask(desk: Desk, ref: str = "r1", order: PlanOrder = ORDER, viewer: Actor | None = None) -> list[Outgoing]:
    args = {"order": msgspec.json.encode(order).decode()}
    return desk.hear(Query(what="plan", name="default", args=args, viewer=viewer), ref=ref)


def answer_of(one: Outgoing) -> Answer:
    assert one.header.kind == "Answer"
    return decode_body(Answer, one.body)


def finish(desk: Desk, ref: str = "r1") -> list[Outgoing]:
    body = encode_body(Answer(status=200, body=b"{}"))
    return desk.worker.handle(Incoming(PLANNER, Header(kind="PlanMade", ref=ref), body), desk.now)


def test_a_plan_is_made_outside_the_machine_and_answers_its_query() -> None:
    desk = Desk()
    [wanted] = ask(desk)
    assert (wanted.to, wanted.header.ref) == (PLANNER, "r1")
    [made] = finish(desk)
    assert (made.header.ref, answer_of(made).status) == ("r1", 200)


def test_there_is_one_plan_at_a_time_and_a_repeated_query_is_the_same_one() -> None:
    desk = Desk()
    ask(desk)
    assert ask(desk) == []
    [busy] = ask(desk, "r2")
    assert (answer_of(busy).status, b"one at a time" in answer_of(busy).body) == (503, True)
    finish(desk)
    assert [one.to for one in ask(desk, "r3")] == [PLANNER]


def test_a_malformed_order_is_refused() -> None:
    [refused] = Desk().hear(Query(what="plan", args={"order": "{"}), ref="r1")
    assert answer_of(refused).status == 400


def test_users_plan_jobs_of_their_own_only() -> None:
    bob = Actor("bob", ["dev"])
    [refused] = ask(Desk(), viewer=bob)
    assert answer_of(refused).status == 403
    [refused] = ask(Desk(), order=PlanOrder([JOB]), viewer=Actor("eve", ["dev"]))
    assert (answer_of(refused).status, b"user bob" in answer_of(refused).body) == (403, True)
    assert [one.to for one in ask(Desk(), order=PlanOrder([JOB]), viewer=bob)] == [PLANNER]
