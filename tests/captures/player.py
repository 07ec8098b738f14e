"""Plays the recorded scenario, step by step; each is completely done before the next one begins.

A cycle of the reference makes at most one decision, and so does a step here.

Not here: what is asked for at the end of a phase (`answers.py`), and what is compared (`test_captures.py`).
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.captures import scenario as words
from tests.captures.past import RecordedPast
from tests.captures.system import ScenarioManager, System, SystemLink
from yunishard.common.messages import query_messages, rm_messages
from yunishard.common.messages.kinds import Command, Header
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    PreemptionPolicy,
    RemoveApplicationRequest,
    UserGroupInformation,
)
from yunishard.common.messages.wire import decode_body

_ACTIONS: Final = {
    "CREATE": rm_messages.NODE_CREATE,
    "CREATE_DRAIN": rm_messages.NODE_CREATE_DRAIN,
    "UPDATE": rm_messages.NODE_UPDATE,
    "DRAIN_NODE": rm_messages.NODE_DRAIN,
    "DRAIN_TO_SCHEDULABLE": rm_messages.NODE_DRAIN_TO_SCHEDULABLE,
    "DECOMISSION": rm_messages.NODE_DECOMMISSION,
}
_TERMINATIONS: Final = {
    "STOPPED_BY_RM": rm_messages.STOPPED_BY_RM,
    "TIMEOUT": rm_messages.TIMEOUT,
    "PLACEHOLDER_REPLACED": rm_messages.PLACEHOLDER_REPLACED,
}

OUTSTANDING_S: Final = 1.0
"""How long after a change the partition looks for asks that only a larger cluster would help."""


class Player:
    """Plays a scenario in a system of its own."""

    def __init__(self, played: words.Scenario, file: Path) -> None:
        self.system = System(_refusals(played))
        self.link = SystemLink(self.system)
        self.past: RecordedPast | None = None
        """None before the scenario says that there is a history, which is kept in the file."""
        self._file = file
        self._scenario = played
        self._rm = ScenarioManager(played.rm)
        self._partition = f"{played.rm.id}_default"

    def play(self) -> Iterator[str]:
        """Play everything, and stop at each group of requests, whose name is told."""
        for step in self._scenario.steps:
            if isinstance(step, words.Capture):
                yield step.group
            else:
                self._do(step)
                self.system.settle()

    def _do(self, step: words.Step) -> None:
        match step:
            case words.Register():
                self._rm.config, self._rm.extra = self._scenario.configs[step.config], step.extra
                self.system.join(self._rm)
            case words.UpdateConfig():
                self._rm.extra = step.extra
                self.system.carry(self._rm.peer, self._rm.reconfigure(self._scenario.configs[step.config]))
            case words.Schedule():
                for _ in range(step.cycles):
                    self._decide()
            case words.Sleep():
                self.system.pass_by(step.ms / 1000)
            case words.InspectOutstanding():
                self.system.pass_by(OUTSTANDING_S)
            case words.WaitApplication():  # as long as it takes here; nothing else happens meanwhile
                self.system.until(lambda: self._state_of(step.app) == step.state)
            case words.CompletingTimeout():
                pass  # here it is always the same, and time costs nothing
            case words.EnableHistory():
                self.past = RecordedPast(self._file, self.link)
            case words.StoreHistory():
                assert self.past is not None
                asyncio.run(self.past.add())
            case _:
                self.system.carry(self._rm.peer, self._rm.update(_command(step)))

    def _decide(self) -> None:
        """One cycle: at most one decision."""
        header, body = self.system.question(
            Header(kind="", partition=self._partition), query_messages.Schedule(steps=1)
        )
        assert decode_body(query_messages.Answer, body).status == 200, header
        self.system.settle()

    def _state_of(self, name: str) -> str:
        partition = self.system.workers[self._partition].partition
        assert partition is not None
        living = partition.applications.get(name)
        ended = [one.state for one in partition.ended.values() if one.application_id == name]
        return living.state if living is not None else (*ended, "")[0]


def _command(step: words.Step) -> Command:
    """An update as the resource manager says it."""
    match step:
        case words.Nodes():
            return NodeRequest(nodes=[_node(one) for one in step.nodes])
        case words.Applications():
            return ApplicationRequest(new=[_application(one) for one in step.apps])
        case words.RemoveApplications():
            gone = [RemoveApplicationRequest(application_id=name, partition_name="default") for name in step.apps]
            return ApplicationRequest(remove=gone)
        case words.Allocations():
            return AllocationRequest(allocations=[_allocation(one) for one in step.allocations])
        case words.Releases():
            gone = [_release(one) for one in step.releases]
            return AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=gone))
    raise TypeError(step)


def _node(one: words.Node) -> NodeInfo:
    return NodeInfo(
        node_id=one.id,
        action=_ACTIONS[one.action],
        attributes={"si/node-partition": "default", **one.attributes},
        schedulable_resource=one.resources,
    )


def _application(one: words.Application) -> AddApplicationRequest:
    return AddApplicationRequest(
        application_id=one.id,
        queue_name=one.queue,
        partition_name="default",
        ugi=UserGroupInformation(user=one.user, groups=one.groups),
        tags=one.tags,
        execution_timeout_milli_seconds=one.timeout_ms,
        placeholder_ask=one.placeholder_ask,
        gang_scheduling_style=one.gang_style,
    )


def _allocation(one: words.Allocation) -> rm_messages.Allocation:
    created = {"creationTime": str(one.created)} if one.created else {}
    policy = PreemptionPolicy(allow_preempt_self=one.preempt_self, allow_preempt_other=one.preempt_other)
    return rm_messages.Allocation(
        allocation_key=one.key,
        application_id=one.app,
        partition_name="default",
        node_id=one.node,
        resource_per_alloc=one.resources,
        priority=one.priority,
        allocation_tags={**one.tags, **created},
        task_group_name=one.task_group,
        placeholder=one.placeholder,
        originator=one.originator,
        preemption_policy=policy if one.preempt_self or one.preempt_other else None,
    )


def _release(one: words.Release) -> AllocationRelease:
    return AllocationRelease(
        partition_name="default",
        application_id=one.app,
        allocation_key=one.key,
        termination_type=_TERMINATIONS[one.type],
    )


def _refusals(played: words.Scenario) -> dict[str, str]:
    """Why asks are refused on each node, by their creation times."""
    refusals = played.rm.predicate_errors
    told = [one for step in played.steps if isinstance(step, words.Allocations) for one in step.allocations]
    return {str(one.created): refusals[one.key] for one in told if one.key in refusals}
