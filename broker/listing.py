"""What the broker answers about everybody: which RMs there are, with which partitions, and who is away.

Not here: anything about what partitions do (their workers are asked).
"""

from broker.books import Books
from common.query_messages import ManagerEntry, PartitionList


def listing(books: Books, started_ns: int, record_problem: str) -> PartitionList:
    """All RMs in order of registration."""
    roster, astray = books.roster, books.tally.astray
    managers = roster.managers()
    return PartitionList(
        partitions=list(roster.entries()),
        build_information={one.rm: one.build_info for one in managers},
        started_ns=started_ns,
        managers=[
            ManagerEntry(
                rm_id=one.rm,
                session=one.session,
                registered_ns=one.registered_ns,
                away_since_ns=int(roster.away.get(one.rm, 0) * 1e9),
                nodes_astray=astray[one.rm],
            )
            for one in managers
        ],
        record_problem=record_problem,
    )
