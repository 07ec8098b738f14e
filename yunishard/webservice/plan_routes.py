"""The REST route of plans: what would happen after a change, and whether and when a job would run.

The worker makes the plan with its present state, in a process of its own, so plans are not cached. This module reads
the request, and makes configurations of it: the text in force with other limits, or the text of the request.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.json import decode, encode

from yunishard.common.config.difference import find_differences
from yunishard.common.config.model import Configuration, PartitionConfig, normalise
from yunishard.common.config.problems import ConfigError
from yunishard.common.config.validation import load
from yunishard.common.messages.kinds import Resources
from yunishard.common.messages.query_messages import Query, ReadConfig
from yunishard.common.resources import QuantityError, parse_quantity
from yunishard.common.rest.plan import (
    ConfigChange,
    JobView,
    NewJob,
    NewNodes,
    NodeDrain,
    NodeRemoval,
    PlannedChange,
    PlannedChangeView,
    PlanOrder,
    PlanRequestView,
    PlanView,
)
from yunishard.common.text_formats import format_count, parse_duration
from yunishard.webservice import parameters
from yunishard.webservice.broker_client import read_document
from yunishard.webservice.calls import Call, NamedPartition, Reply, find_partition
from yunishard.webservice.config_edit import EditError, LimitChange, edit_queue
from yunishard.webservice.config_routes import make_invalid, read_version
from yunishard.webservice.parameters import RM
from yunishard.webservice.router import Access, Content, Route, RouteGroup
from yunishard.webservice.views import RequestError

PLANS: Final = RouteGroup(
    "plans", "The effects of a change before it is made, played ahead on a copy of the present state."
)

PLAN_BYTES_MAX: Final = 16 << 20
"""Bytes of a request; a longer one is refused. A configuration is the largest part."""


@Route(
    PLANS,
    "POST",
    "/ws/v1/partition/{partition}/plan",
    Access.SEEN,
    (PlanView,),
    parameters=(RM,),
    body=(Content(PlanRequestView),),
    statuses={
        403: "The caller is no administrator, and plans more than jobs of the caller's own.",
        409: "The change cannot be made.",
    },
    is_private=True,
    only_examines=True,
)
async def plan(call: Call) -> Reply:
    """Play the near future of a partition with changes and without; nothing is changed.

    Reports what would start and when, wait and why, be evicted, and exceed a maximum, and the use of the nodes. Users
    may plan their own jobs, administrators everything. There is one plan at a time for each partition.
    """
    request = _read_request(await call.body())
    if call.viewer is not None and any(one.kind != "submit" for one in request.changes):
        raise RequestError(403, "Only administrators may plan changes of the configuration and of nodes")
    partition = await find_partition(call)
    order = PlanOrder(changes=await _read_changes(call, partition, request.changes), horizon_s=request.horizon)
    args = {"order": encode(order).decode()}
    query = Query(what="plan", name=partition.shown, args=args, viewer=call.viewer)
    answer = await call.services.broker.ask(partition.entry.full_name, query)
    return Reply(read_document(answer).strip() + b"\n")


def _read_request(body: bytes) -> PlanRequestView:
    if len(body) > PLAN_BYTES_MAX:
        raise RequestError(413, f"The body has at most {PLAN_BYTES_MAX} bytes")
    try:
        return decode(body, type=PlanRequestView)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(400, f"The body is no plan: {error}") from None


# Changes --------------------------------------------------------------------------------------------------------------


async def _read_changes(
    call: Call, partition: NamedPartition, wanted: Sequence[PlannedChangeView]
) -> list[PlannedChange]:
    """The changes as the worker applies them. Each configuration replaces those before it."""
    found: list[PlannedChange] = []
    before = ""
    """The configuration that the next change begins with; empty for the one in force."""
    for one in wanted:
        match one.kind:
            case "drain-node":
                found.append(NodeDrain(_require(one.node, one.kind, "node")))
            case "remove-node":
                found.append(NodeRemoval(_require(one.node, one.kind, "node")))
            case "add-nodes":
                resources = _parse_resources(one.resources, "resources of a new node")
                found.append(NewNodes(one.count, resources, one.attributes))
            case "submit":
                found.append(_read_job(call, one.job))
            case "config" | "limit-queue":
                change, before = await _read_config_change(call, partition, one, before)
                found.append(change)
    return found


def _require(value: str, kind: str, key: str) -> str:
    if not value:
        raise RequestError(400, f"A change of kind {kind} needs the key {key}")
    return value


def _parse_resources(texts: dict[str, str | int], what: str) -> Resources:
    if not texts:
        raise RequestError(400, f"The {what} are missing: give them as in a configuration, vcore 4 and memory 16Gi")
    found: Resources = {}
    for kind, text in texts.items():
        try:
            found[kind] = parse_quantity(str(text), resource_type=kind)
        except QuantityError as error:
            raise RequestError(400, f"The {what}: {kind} {str(text)[:32]!r}: {error}") from None
    return found


def _read_job(call: Call, job: JobView | None) -> NewJob:
    if job is None:
        raise RequestError(400, "A change of kind submit needs the key job")
    user, groups = job.user, job.groups
    if call.viewer is not None and user in ("", call.viewer.user):
        user, groups = call.viewer.user, groups or call.viewer.groups
    if not user:
        raise RequestError(400, "The job needs the key user, as this request is not authenticated as one")
    run_s = parse_duration(job.run_time) if job.run_time else None
    if job.run_time and (run_s is None or run_s <= 0):
        raise RequestError(
            400, f"The run time of the job is a duration such as 90s or 1h30m, not {job.run_time[:32]!r}"
        )
    return NewJob(
        id=job.id,
        queue=job.queue,
        user=user,
        groups=list(groups),
        tags=job.tags,
        task_tags=job.task_tags,
        resources=_parse_resources(job.resources, "resources of a task"),
        tasks=job.tasks,
        run_s=run_s,
        priority=job.priority,
        gang=job.gang,
    )


# Configurations -------------------------------------------------------------------------------------------------------


async def _read_config_change(
    call: Call, partition: NamedPartition, one: PlannedChangeView, before: str
) -> tuple[ConfigChange, str]:
    """A change of the configuration, and the text of the new one."""
    services, entry = call.services, partition.entry
    if services.validations.locked():
        raise RequestError(503, "Several configurations are being validated already, try again later")
    async with services.validations:
        current = before or (await read_version(call, entry.rm_id, ReadConfig(what="current"))).config
        async with services.validation_lock:
            return await asyncio.to_thread(_build_config_change, current, entry.name, one)


def _build_config_change(current: str, name: str, one: PlannedChangeView) -> tuple[ConfigChange, str]:
    try:
        if one.kind == "limit-queue":
            text = _edit_limits(current, name, one)
        else:
            text = one.config
            if not text.strip():
                raise RequestError(400, "A change of kind config needs the key config, with the whole configuration")
        in_force, wanted = load(current), load(text)
        differences = find_differences(in_force, wanted)
    except EditError as error:
        raise RequestError(409, str(error)) from None
    except ConfigError as error:
        raise make_invalid(list(error.problems)) from None
    what = f"limit {one.queue}" if one.kind == "limit-queue" else "configuration"
    about = f"{what}: {format_count(len(differences), 'difference')}"
    if len(differences) == 1:
        about = f"{what}: {differences[0]}"
    return ConfigChange(_find_partition_config(wanted, name), about), text


def _edit_limits(current: str, name: str, one: PlannedChangeView) -> str:
    path = parameters.queue_name(_require(one.queue, one.kind, "queue"))
    change = LimitChange(maximum=one.max, guaranteed=one.guaranteed, max_applications=one.max_applications)
    if change.is_empty:
        raise RequestError(400, "The change names no limit: give max, guaranteed or maxApplications")
    return edit_queue(current, name, path, change)


def _find_partition_config(configuration: Configuration, name: str) -> PartitionConfig | None:
    """The configuration of a partition; None if it is removed."""
    found = (one for one in normalise(configuration).partitions if one.name.lower() == name.lower())
    return next(found, None)
