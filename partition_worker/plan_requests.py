"""Queries for plans: the worker's machine passes them to a forked process, one at a time, and answers with its result.

    Query(what="plan") --PlanWanted--> planner: forks, plays --PlanMade--> Answer

The machine continues meanwhile. A plan changes nothing in the partition, so the journal has no record of it; if the
worker ends, the process ends with it, and the broker answers the query. `answer_plan` is what the process computes
(`plan_process.py` forks it).
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import DecodeError, Struct, ValidationError, field, msgpack
from msgspec.json import decode
from msgspec.structs import replace

from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Actor, Answer, Query
from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.messages.rm_messages import PREDICATES
from yunishard.common.messages.wire import Incoming, Outgoing, WireError, decode_body
from yunishard.common.names import PLANNER
from yunishard.common.rest.plan import PlanOrder
from yunishard.common.rest.views import encode_view
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.plan_views import build_plan_view, check_rights
from yunishard.partition_worker.planning import Course, check_ready, play
from yunishard.partition_worker.redaction import Visibility

PLAN: Final = "plan"
"""The name of the query. Its argument `order` is a `PlanOrder` in JSON."""

ANSWER_BYTES_MAX: Final = 16 << 20
"""Bytes of a report; a longer one is answered with 503."""

OK: Final = 200


class PlanWanted(Struct, frozen=True):
    """The worker's machine to its shell: make a plan with the present state, which an `Answer` has.

    It stays in the process, so it is no message of `common/`.
    """

    order: PlanOrder
    at: float
    """The present time, in Unix seconds."""
    name: str = ""
    """The partition's name for the report."""
    viewer: Actor | None = None
    notes: list[str] = field(default_factory=list)
    """Assumptions that follow from the state of the worker."""


class PlanRequests:
    """The query for a plan that waits, of which there is one at most."""

    def __init__(self) -> None:
        self._ref = ""
        """The `ref` of the query."""

    def request(
        self, host: PartitionHost, partition: Partition, query: Query, ref: str, now: float, stalls: Sequence[Reason]
    ) -> list[Outgoing]:
        """Pass a query on; or answer it at once, if it cannot be. One that is repeated while it waits is ignored."""
        if ref and ref == self._ref:
            return []
        if self._ref:
            text = b"another plan is being made for this partition, and there is one at a time: try again in a moment"
            return [host.make_reply(Answer(status=503, body=text), ref=ref)]
        try:
            order = decode(query.args.get("order", ""), type=PlanOrder)
            check_rights(order, Visibility(partition, query.viewer))
        except (DecodeError, ValidationError, RecursionError) as error:
            return [host.make_reply(Answer(status=400, body=f"the plan is malformed: {error}".encode()), ref=ref)]
        except NotDone as error:
            return [host.make_reply(Answer(status=error.status, body=str(error).encode()), ref=ref)]
        self._ref = ref
        wanted = PlanWanted(order=order, at=now, name=query.name, viewer=query.viewer, notes=_list_notes(host, stalls))
        return [Outgoing(PLANNER, Header(kind="PlanWanted", ref=ref), msgpack.encode(wanted))]

    def finish(self, host: PartitionHost, incoming: Incoming) -> list[Outgoing]:
        """Answer the query whose plan is made."""
        ref, self._ref = self._ref, ""
        try:
            answer = decode_body(Answer, incoming.body)
        except WireError as error:
            answer = Answer(status=503, body=f"the plan cannot be read: {error}".encode())
        return [host.make_reply(answer, ref=ref)] if ref else []


def _list_notes(host: PartitionHost, stalls: Sequence[Reason]) -> list[str]:
    found = []
    for reason in stalls:
        meaning = MEANINGS[reason].rstrip(".")
        found.append(f"The partition decides, although it does not at present: {meaning[0].lower()}{meaning[1:]}.")
    if PREDICATES in host.session.capabilities:
        found.append("The resource manager accepts every node that has room; it is not asked.")
    return found


# In the forked process ------------------------------------------------------------------------------------------------


def answer_plan(partition: Partition, wanted: PlanWanted, play_baseline: Callable[[PlanOrder], Course]) -> Answer:
    """Make the plan on this copy of a partition, and return the answer; `play_baseline` plays another copy."""
    try:
        check_ready(partition)
        baseline = play_baseline(replace(wanted.order, changes=[]))
        planned = play(partition, wanted.order, now=wanted.at, viewer=wanted.viewer)
    except NotDone as error:
        return Answer(status=error.status, body=str(error).encode(errors="replace"))
    view = build_plan_view(
        partition, wanted.order, baseline, planned, name=wanted.name, viewer=wanted.viewer, notes=wanted.notes
    )
    body = encode_view(view)
    if len(body) > ANSWER_BYTES_MAX:
        text = f"the report has {len(body)} bytes, at most {ANSWER_BYTES_MAX} can be sent: plan with a nearer horizon"
        return Answer(status=503, body=text.encode())
    return Answer(status=OK, body=body)
