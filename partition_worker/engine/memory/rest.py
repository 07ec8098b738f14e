"""What does not belong to queues, nodes, applications or users: the ledger of preemptions, submissions that wait, what
was learned about users, counters, rejections.

Not here: anything that refers to a thing; all of this is plain already.
"""

from collections import Counter

from common.rm_messages import AllocationRelease, SyncEnd
from partition_worker.engine.books import Books, Counters
from partition_worker.engine.memory.amounts import amounts_of, sums
from partition_worker.engine.memory.model import (
    CountersMemory,
    Learned,
    PreemptionMemory,
    PreemptionsMemory,
    RejectionMemory,
    ReportMemory,
    WaitingMemory,
)
from partition_worker.engine.preemptions import Preemption, Preemptions
from partition_worker.engine.rejection import Rejection
from partition_worker.engine.report import Report
from partition_worker.engine.users import User, Users
from partition_worker.engine.waiting import Waiting


def written_counters(counters: Counters) -> CountersMemory:
    """What has happened so far."""
    return CountersMemory(
        allocated=counters.allocated,
        released=counters.released,
        rejected=counters.rejected,
        errors=counters.errors,
        submitted=counters.submitted,
        refused=counters.refused,
        decommissioned=counters.decommissioned,
        reached=[(path, state, count) for (path, state), count in counters.reached.items()],
    )


def counters_of(memory: CountersMemory) -> Counters:
    """The same, read."""
    return Counters(
        allocated=memory.allocated,
        released=memory.released,
        rejected=memory.rejected,
        errors=memory.errors,
        submitted=memory.submitted,
        refused=memory.refused,
        decommissioned=memory.decommissioned,
        reached=Counter({(path, state): count for path, state, count in memory.reached}),
    )


def written_preemptions(preemptions: Preemptions) -> PreemptionsMemory:
    """The ledger, the oldest entry first."""
    return PreemptionsMemory(
        entries=[
            PreemptionMemory(*one[:8], resources=sums(one.resources), lost=sums(one.lost))
            for one in reversed(tuple(preemptions))
        ],
        pause_until=preemptions.pause_until,
        paused_for=preemptions.paused_for,
        turned_away=list(preemptions.turned_away),
        wins=[(winner, loser, at, for_s) for winner, loser, at, for_s in preemptions.truces.wins()],
    )


def restore_preemptions(preemptions: Preemptions, found: PreemptionsMemory) -> None:
    """Let it be the ledger."""
    preemptions.recall(
        Preemption(
            at=one.at,
            kind=one.kind,
            queue=one.queue,
            application_id=one.application_id,
            ask_key=one.ask_key,
            node_id=one.node_id,
            victims=one.victims,
            victim_count=one.victim_count,
            resources=amounts_of(one.resources),
            lost=amounts_of(one.lost),
        )
        for one in found.entries
    )
    preemptions.pause_until, preemptions.paused_for = found.pause_until, found.paused_for
    preemptions.turned_away = dict.fromkeys(found.turned_away)
    preemptions.truces.recall(found.wins)


def written_waiting(waiting: Waiting) -> WaitingMemory:
    """Submissions, and what was said about their applications, in the order in which both came."""
    return WaitingMemory(
        users=list(waiting.users()),
        submissions=list(waiting.submissions()),
        held=[
            (
                application_id,
                [(None, one) if isinstance(one, AllocationRelease) else (one, None) for one in said],
            )
            for application_id, said in waiting.held.items()
        ],
    )


def restore_waiting(waiting: Waiting, found: WaitingMemory) -> None:
    """Let them wait."""
    waiting.recall(found.users, found.submissions)
    for application_id, said in found.held:
        for allocation, release in said:
            one = allocation or release
            assert one is not None, application_id
            waiting.hold(application_id, one)


def written_users(users: Users) -> list[Learned]:
    """Whose groups are known, and who could not be looked up, the one that was learned first in front."""
    return [(name, None if user is None else list(user.groups), at) for name, (user, at) in users.learned.items()]


def restore_users(users: Users, found: list[Learned]) -> None:
    """Let them be known."""
    for name, groups, at in found:
        users.learned[name] = None if groups is None else User(name, tuple(groups)), at


def written_rejections(books: Books) -> list[RejectionMemory]:
    """Those that are remembered."""
    return [
        (one.application_id, one.queue_name, one.user, list(one.groups), one.at_ns, one.reason)
        for one in books.rejections.values()
    ]


def restore_rejections(books: Books, found: list[RejectionMemory]) -> None:
    """Let them be remembered."""
    for application_id, queue_name, user, groups, at_ns, reason in found:
        books.rejections[application_id] = Rejection(application_id, queue_name, user, tuple(groups), at_ns, reason)


def written_report(report: Report | None) -> ReportMemory | None:
    """What the resource manager has mentioned, while it reports everything anew."""
    if report is None:
        return None
    count = (report.count.nodes, report.count.applications, report.count.allocations)
    return count, list(report.nodes), list(report.applications), list(report.allocations)


def report_of(memory: ReportMemory | None) -> Report | None:
    """The same, read."""
    if memory is None:
        return None
    (nodes, applications, allocations), *ids = memory
    count = SyncEnd(nodes=nodes, applications=applications, allocations=allocations)
    return Report(count, *map(dict.fromkeys, ids))
