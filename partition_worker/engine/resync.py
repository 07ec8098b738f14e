"""An RM reports everything that it has in the partition anew; what it does not mention goes: mark and sweep.

    SyncBegin --updates--> SyncEnd --the numbers agree--> SyncDone, and the partition places again
                              |--they do not------------> SyncDone with the problem; the RM begins once more

The RM owns the truth about nodes and about what runs. So a node or application that is reported again in other words is
brought to them, something that runs elsewhere than we thought runs there, and what we placed and the RM still asks for
is told once more. Nothing is placed meanwhile: what runs may not be reported yet. Because known things stay where they
are until the end, nothing that runs is ever unaccounted.

Not here: what an update does outside a report (`updates/`), and who wants one (the broker, for a lost journal).
"""

from collections.abc import Container, Iterable

from msgspec.structs import replace

from common.messages import Command
from common.reports import both, reported
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    NODE_DECOMMISSION,
    NODE_UPDATE,
    STOPPED_BY_RM,
    AcceptedApplication,
    AcceptedNode,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    ApplicationRequest,
    NodeInfo,
    NodeRequest,
    RemoveApplicationRequest,
    SyncBegin,
    SyncDone,
    SyncEnd,
    UpdatedApplication,
)
from partition_worker.engine.books import Books
from partition_worker.engine.report import Report
from partition_worker.engine.updates import allocation_updates, application_updates, node_updates, removal

_CREATIONS = (NODE_CREATE, NODE_CREATE_DRAIN)


def begin(books: Books, message: SyncBegin) -> None:
    """From here on everything that is mentioned is noted; a report that was not finished counts for nothing."""
    books.report = Report()
    books.tell_people(f"the RM reports everything anew: {message.reason or 'it does not say why'}")


def end(books: Books, message: SyncEnd) -> None:
    """The report is complete: what was not mentioned goes, unless something of the report has been lost."""
    report = books.report
    if report is None:
        books.emit(SyncDone(problem="there was no SyncBegin"))
        return
    problem = _problem(report.count, message)
    if problem:
        books.tell_people(f"the RM's report is not complete, nothing is removed: {problem}")
        books.emit(SyncDone(problem=problem))
        return
    books.report = None
    done = _swept(books, report)
    books.tell_people(
        f"the RM has reported everything; {len(done.nodes)} nodes, {len(done.applications)} applications and "
        f"{len(done.allocations)} allocations that it did not mention are gone"
    )
    books.emit(done)
    books.readiness.relieve()


def mentioned(books: Books, command: Command) -> Command:
    """Note what an update of a report mentions, and bring what is known to what it says; the rest of the update."""
    report = books.report
    assert report is not None
    report.count = both(report.count, reported(command))
    match command:
        case NodeRequest():
            report.nodes.update((one.node_id, None) for one in command.nodes if one.action in _CREATIONS)
            return replace(command, nodes=[one for one in command.nodes if not _node_again(books, one)])
        case ApplicationRequest():
            report.applications.update((one.application_id, None) for one in command.new)
            return replace(command, new=[one for one in command.new if not _application_again(books, one)])
        case AllocationRequest():
            report.allocations.update((one.allocation_key, None) for one in command.allocations)
            for one in command.allocations:
                _allocation_again(books, one)
    return command


def _problem(came: SyncEnd, said: SyncEnd) -> str:
    counted = (
        ("nodes", came.nodes, said.nodes),
        ("applications", came.applications, said.applications),
        ("allocations", came.allocations, said.allocations),
    )
    return "; ".join(f"{here} of {there} {what} came" for what, here, there in counted if here != there)


# Reported again -------------------------------------------------------------------------------------------------------


def _node_again(books: Books, info: NodeInfo) -> bool:
    """Whether this creates a node that is there: then it is as it says now."""
    node = books.fleet.get(info.node_id)
    if node is None or info.action not in _CREATIONS:
        return False
    node_updates.handle(books, NodeRequest(nodes=[replace(info, action=NODE_UPDATE)]))
    node_updates.set_schedulable(books, node, schedulable=info.action == NODE_CREATE)
    books.emit(AcceptedNode(node_id=info.node_id))
    return True


def _application_again(books: Books, new: AddApplicationRequest) -> bool:
    """Whether this submits an application that is there: it goes on as it is. One of another user is another one, and
    refused for its id like any.
    """
    if new.application_id in books.waiting:
        return True
    application = books.applications.get(new.application_id)
    if application is None or application.user.name != new.ugi.user:
        return False
    books.emit(AcceptedApplication(application_id=new.application_id))
    return True


def _allocation_again(books: Books, message: Allocation) -> None:
    """Something that we placed: where the RM says that it still waits for a node it is told the node again, and where
    it runs on another node it is taken from ours.
    """
    application = books.applications.get(message.application_id)
    known = None if application is None else application.allocations.get(message.allocation_key)
    if application is None or known is None or message.node_id == known.node_id:
        return
    if message.node_id:
        removal.remove(books, application, known, termination_type=None)
    else:
        books.emit(known.announced())


# What was not mentioned -----------------------------------------------------------------------------------------------


def _swept(books: Books, report: Report) -> SyncDone:
    """Take away what the RM does not have. It hears of that in one list, and of nothing else that follows for it."""
    allocations = [
        *_unmentioned(books.foreign, report.allocations),
        *_unmentioned(books.allocations, report.allocations),
    ]
    releases = [_release(books, key) for key in allocations]
    allocation_updates.handle(
        books, AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=releases))
    )
    applications = _unmentioned((*books.applications, *books.waiting.applications()), report.applications)
    gone = [RemoveApplicationRequest(application_id=name) for name in applications]
    application_updates.handle(books, ApplicationRequest(remove=gone))
    nodes = _unmentioned((node.node_id for node in books.fleet), report.nodes)
    gone_nodes = [NodeInfo(node_id=name, action=NODE_DECOMMISSION) for name in nodes]
    node_updates.handle(books, NodeRequest(nodes=gone_nodes))
    swept = frozenset(applications)
    told = frozenset(allocations)
    books.retract(
        lambda part: (
            (isinstance(part, AllocationRelease) and part.allocation_key in told)
            or (isinstance(part, UpdatedApplication) and part.application_id in swept)
        )
    )
    return SyncDone(nodes=nodes, applications=applications, allocations=allocations)


def _unmentioned(known: Iterable[str], report: Container[str]) -> list[str]:
    return [name for name in known if name not in report]


def _release(books: Books, key: str) -> AllocationRelease:
    allocation = books.allocations.get(key)
    return AllocationRelease(
        application_id="" if allocation is None else allocation.application_id,
        allocation_key=key,
        termination_type=STOPPED_BY_RM,
    )
