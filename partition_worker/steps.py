"""Decisions one at a time, for tests and teaching: made when somebody asks for them, and told what each was.

A step is one decision: an ask gets a node, a placeholder makes place for a real ask, a node is kept for an ask, others
are asked to make room for one. Each sees the effects of those before, exactly as when a worker decides by itself.

Not here: what a decision is (`engine/cycle/cycle.py`), and who may ask (`webservice/partition_routes.py`).
"""

from msgspec.json import encode

from common.names import external
from common.query_messages import Answer, Schedule
from common.rest_records import DecisionView, StepsView
from common.rm_messages import AllocationRelease
from partition_worker.engine.cycle.cycle import Decision
from partition_worker.engine.decisions import Release
from partition_worker.engine.effects import Effect
from partition_worker.engine.partition import Partition


def make(partition: Partition, rm: str, wanted: Schedule, now: float, *, manual: bool) -> tuple[Answer, list[Effect]]:
    """Make the decisions: what the asker is answered, and what follows for everybody else."""
    name = wanted.name or external(rm, partition.name)
    if not manual:
        reason = f"partition {name} decides by itself: steps are for a system started with `yunishard up --manual`"
        return Answer(status=409, body=reason.encode()), []
    made = partition.schedule_each(now, wanted.steps)
    decisions = [described(decision, follows) for decision, follows in made]
    effects = [effect for _, follows in made for effect in follows]
    view = StepsView(partition=name, made=len(decisions), idle=partition.idle, decisions=decisions)
    return Answer(status=200, body=encode(view)), effects


def described(decision: Decision, effects: list[Effect]) -> DecisionView:
    """A decision, and which releases the RM is told to make for it."""
    return DecisionView(
        kind=type(decision).__name__.lower(),
        application_id=decision.application.application_id,
        allocation_key=decision.ask.key,
        node_id="" if isinstance(decision, Release) else decision.node.node_id,
        releases=[part.allocation_key for _, part in effects if isinstance(part, AllocationRelease)],
    )
