"""Resynchronization: the RM reports everything it has, and the partition removes what it did not mention (mark and
sweep).

    SyncBegin --updates--> SyncEnd --the numbers agree--> SyncDone, and the partition schedules again
                              |--they differ------------> SyncDone with the problem; the RM starts again
             |--REPORT_MAX_S without an update----------> SyncDone with the problem; the partition schedules again

The RM is the authority on nodes and running allocations. Reported nodes and applications are updated, an allocation
reported on another node moves there, and an allocation that the RM still reports as an ask is announced again. Nothing
is scheduled meanwhile, as running allocations may not have been reported yet; known objects stay until the end, so that
everything that runs stays accounted for.
"""

from collections.abc import Container, Iterable
from typing import Final

from msgspec.structs import asdict, replace

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import Command
from yunishard.partition_worker.engine import allocation_updates, application_updates, node_updates
from yunishard.partition_worker.engine.allocation_updates import end_allocation
from yunishard.partition_worker.engine.state import PartitionState, Report

REPORT_MAX_S: Final = 600.0
"""Seconds without an update after which a report is given up. The partition then continues with what it had, as an RM
that never ends its report would stop it for ever.
"""

_CREATIONS = (rm_messages.NODE_CREATE, rm_messages.NODE_CREATE_DRAIN)


def begin(state: PartitionState, message: rm_messages.SyncBegin) -> None:
    """Start to collect the report; an unfinished one is discarded."""
    state.report = Report(deadline=state.now + REPORT_MAX_S)
    state.changes.report = True
    state.log_info(f"the RM reports everything again: {message.reason or 'without a reason'}")


def end(state: PartitionState, message: rm_messages.SyncEnd) -> None:
    """End the report: remove what was not mentioned, unless part of the report was lost."""
    report = state.report
    if report is None:
        state.emit(rm_messages.SyncDone(problem="there was no SyncBegin"))
        return
    came, sent = asdict(report.count), asdict(message)
    problem = "; ".join(f"{came[name]} of {sent[name]} {name} came" for name in sent if came[name] != sent[name])
    if report.is_interrupted:
        problem = "the worker of the partition was started again during the report"
    if problem:
        state.log_info(f"the RM's report is not complete, nothing is removed: {problem}")
        state.emit(rm_messages.SyncDone(problem=problem))
        return
    state.report = None
    state.changes.report = True
    done = _sweep(state, report)
    state.log_info(
        f"the RM has reported everything; {len(done.nodes)} nodes, {len(done.applications)} applications and "
        f"{len(done.allocations)} allocations that it did not mention are gone"
    )
    state.emit(done)
    state.readiness.retry_parked()


def handle_report_timeout(state: PartitionState) -> None:
    """End a report that the RM does not continue: nothing is removed, and the partition schedules again. The time of a
    report that was recovered begins with the first step after it.
    """
    if state.report is not None and not state.report.deadline:
        state.report.deadline = state.now + REPORT_MAX_S
        return
    problem = f"the report is given up, as it had no update for {REPORT_MAX_S:g} s"
    state.log_warning(problem)
    state.report, state.changes.report = None, True
    state.emit(rm_messages.SyncDone(problem=problem))
    state.readiness.retry_parked()


def collect(state: PartitionState, command: Command) -> Command:
    """Collect what an update mentions, and apply it to known objects; returns the rest of the update."""
    report = state.report
    assert report is not None
    report.count, report.deadline = rm_messages.count_reported(report.count, command), state.now + REPORT_MAX_S
    match command:
        case rm_messages.NodeRequest():
            report.nodes.update((one.node_id, None) for one in command.nodes if one.action in _CREATIONS)
            return replace(command, nodes=[one for one in command.nodes if not _node_again(state, one)])
        case rm_messages.ApplicationRequest():
            report.applications.update((one.application_id, None) for one in command.new)
            return replace(command, new=[one for one in command.new if not _application_again(state, one)])
        case rm_messages.AllocationRequest():
            report.allocations.update((one.allocation_key, None) for one in command.allocations)
            for one in command.allocations:
                _allocation_again(state, one)
    return command


# Reported again -------------------------------------------------------------------------------------------------------


def _node_again(state: PartitionState, info: rm_messages.NodeInfo) -> bool:
    """Whether this creates a known node, which then takes the reported values."""
    node = state.nodes.get(info.node_id)
    if node is None or info.action not in _CREATIONS:
        return False
    node_updates.handle(state, rm_messages.NodeRequest(nodes=[replace(info, action=rm_messages.NODE_UPDATE)]))
    node_updates.set_attributes(state, node, info.attributes)  # also if the node has none
    node_updates.set_schedulable(state, node, schedulable=info.action == rm_messages.NODE_CREATE)
    state.emit(rm_messages.AcceptedNode(node_id=info.node_id))
    return True


def _application_again(state: PartitionState, new: rm_messages.AddApplicationRequest) -> bool:
    """Whether this submits a known application, which continues. Another user is refused like any duplicate id."""
    if new.application_id in state.pending_submissions:
        return True
    application = state.applications.get(new.application_id)
    if application is None or application.user.name != new.ugi.user:
        return False
    state.emit(rm_messages.AcceptedApplication(application_id=new.application_id))
    return True


def _allocation_again(state: PartitionState, message: rm_messages.Allocation) -> None:
    """Announce a known allocation again that the RM still reports as an ask; remove it if the RM reports it on another
    node.
    """
    application = state.applications.get(message.application_id)
    known = None if application is None else application.allocations.get(message.allocation_key)
    if application is None or known is None or message.node_id == known.node_id:
        return
    if message.node_id:
        end_allocation(state, application, known, termination_type=None)
    else:
        state.emit(known.make_announcement())


# What was not mentioned -----------------------------------------------------------------------------------------------


def _sweep(state: PartitionState, report: Report) -> rm_messages.SyncDone:
    """Remove what the RM does not have. The RM receives one list, and no further messages about it."""
    allocations = _unmentioned((*state.foreign, *state.allocations), report.allocations)
    releases = [
        rm_messages.AllocationRelease(
            application_id=state.allocations[key].application_id if key in state.allocations else "",
            allocation_key=key,
            termination_type=rm_messages.STOPPED_BY_RM,
        )
        for key in allocations
    ]
    release_all = rm_messages.AllocationReleasesRequest(allocations_to_release=releases)
    allocation_updates.handle(state, rm_messages.AllocationRequest(releases=release_all))
    applications = _unmentioned((*state.applications, *state.pending_submissions.submissions), report.applications)
    gone = [rm_messages.RemoveApplicationRequest(application_id=name) for name in applications]
    application_updates.handle(state, rm_messages.ApplicationRequest(remove=gone))
    simulated = state.tuning.simulated_nodes
    own = (node.node_id for node in state.nodes if node.node_id not in simulated)
    nodes = _unmentioned(own, report.nodes)
    gone_nodes = [rm_messages.NodeInfo(node_id=name, action=rm_messages.NODE_DECOMMISSION) for name in nodes]
    node_updates.handle(state, rm_messages.NodeRequest(nodes=gone_nodes))
    swept = frozenset(applications)
    told = frozenset(allocations)
    state.retract_effects(
        lambda part: (
            (isinstance(part, rm_messages.AllocationRelease) and part.allocation_key in told)
            or (isinstance(part, rm_messages.UpdatedApplication) and part.application_id in swept)
        )
    )
    return rm_messages.SyncDone(nodes=nodes, applications=applications, allocations=allocations)


def _unmentioned(known: Iterable[str], report: Container[str]) -> list[str]:
    return [name for name in known if name not in report]
