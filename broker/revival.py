"""A worker that lost what it knew runs its partition's configuration from the beginning, and its RM is told.

Not here: starting the process (the supervisor does).
"""

from broker.books import Books
from broker.rollout import Rollout
from broker.roster import Registration
from broker.said import first_settings
from common.machine import NEVER, Send, send
from common.messages import Header, PartitionRestarted


def recommit(books: Books, partition: str) -> list[Send]:
    """Let a worker that is there run what its RM registered; nothing, if no RM has such a partition."""
    owner = books.roster.owner(partition)
    if owner is None:
        return []
    books.notes.append(f"partition {partition} begins anew, its RM is told to report everything again")
    owner.lives[partition] = owner.lives.get(partition, 0) + 1
    again = Rollout(
        number=books.next_number(),
        rm=owner.rm,
        session=owner.session,
        configs={partition: owner.configs[partition]},
        deadline=NEVER,
        lives=owner.lives,
    )
    books.roster.seat(partition).committed = True
    sends = [*again.ask(partition), *again.commit(), *first_settings(owner, [partition])]
    return [*sends, restarted(owner, partition)]


def restarted(owner: Registration, partition: str) -> Send:
    """What the RM is told of a partition that began anew."""
    header = Header(
        kind="PartitionRestarted",
        rm=owner.rm,
        partition=partition,
        session=owner.session,
        life=owner.lives[partition],
    )
    return send(owner.proxy, PartitionRestarted(), header)
