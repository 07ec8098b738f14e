"""The full report of the shim's state to the core: at the start, and when a partition lost its state.

The core allocates nothing until a report is complete, so that it never allocates what running pods use. A report has
all nodes, all live applications, all pods that run, and the asks that the core had. Pods that were not asked for yet
follow when their applications have been accepted.
"""

from typing import Final

from yunishard.common.messages import rm_messages
from yunishard.common.messages.rm_messages import AddApplicationRequest, Allocation, NodeInfo
from yunishard.kubernetes_shim.actions import SendReport
from yunishard.kubernetes_shim.applications import build_request
from yunishard.kubernetes_shim.asks import build_allocation, build_ask
from yunishard.kubernetes_shim.nodes import build_node
from yunishard.kubernetes_shim.state import Application, ApplicationState, ShimState, TaskState
from yunishard.kubernetes_shim.tasks import IN_CORE, place

RETRY_S: Final = 1.0
"""Seconds after which a report that failed is repeated."""


def begin_report(state: ShimState, reason: str) -> None:
    """Report everything; messages to the core follow when the report has ended."""
    state.report_due = float("inf")
    nodes = _list_nodes(state)
    applications = _list_applications(state)
    allocations = _list_allocations(state)
    state.outbox.begin_report(SendReport(reason, nodes, applications, allocations))


def _list_nodes(state: ShimState) -> list[NodeInfo]:
    nodes = []
    for name, record in state.nodes.items():
        record.is_in_core = True
        action = rm_messages.NODE_CREATE if record.is_schedulable else rm_messages.NODE_CREATE_DRAIN
        nodes.append(build_node(name, record, action))
    return nodes


def _list_applications(state: ShimState) -> list[AddApplicationRequest]:
    found: list[AddApplicationRequest] = []
    for application in state.applications.values():
        if application.state is ApplicationState.NEW and application.tasks:
            application.enter(ApplicationState.SUBMITTED)
        if application.state in IN_CORE:
            found.append(build_request(application))
        elif application.state is ApplicationState.FAILING:  # a core without it reports no end
            application.enter(ApplicationState.FAILED)
            state.changed[application.application_id] = None
    return found


def _list_allocations(state: ShimState) -> list[Allocation]:
    """Return what runs, then the asks, both in order of creation."""
    running: list[Allocation] = []
    asks: list[Allocation] = []
    for foreign in state.foreign.values():
        foreign.is_in_core = state.has_node(foreign.allocation.node_id)
        if foreign.is_in_core:
            running.append(foreign.allocation)
    for application in state.applications.values():
        for task in application.tasks.values():
            task.is_in_core, task.is_unconfirmed, task.releases_due = False, False, 0
        if application.state in IN_CORE:
            _add_allocations(state, application, running, asks)
    return running + asks


def _add_allocations(
    state: ShimState, application: Application, running: list[Allocation], asks: list[Allocation]
) -> None:
    for task in sorted(application.tasks.values(), key=lambda one: one.rank):
        node = task.used_node
        if node and state.has_node(node):
            place(state, task, node)
            task.is_unconfirmed = True
            running.append(build_allocation(state, task, node))
        elif not node and task.state is TaskState.SCHEDULING:
            asks.append(build_ask(state, task))
