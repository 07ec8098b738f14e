"""A worker says hello: what it runs is compared with what it is meant to run, and made that.

    goes on    its journal has this session, this life, the latest roll-out
    behind     the same, but a roll-out that was committed has not reached it: it gets that, and goes on
    unbegun    an intact journal without this session and life, perhaps with its vote for it: it begins empty, as nobody
               can have heard of anything
    lost       whatever the RM knows of the partition may be lost, or some of it is, as the worker itself has noticed:
               it begins empty in another life, and the RM reports everything again

Not here: starting the process (the supervisor does), and a configuration that is just being voted on (`changes.py`).
"""

from dataclasses import replace
from enum import Enum, auto

from broker.books import Books
from broker.roster import Registration, Seat
from broker.said import first_settings, resumption_wanted, settings_for, to_worker
from common.machine import Send, send
from common.messages import AbortConfig, CommitConfig, Header, Hello, PartitionRestarted, Pause, PrepareConfig
from common.names import usual_name


class Found(Enum):
    """What a worker that says hello has of its partition."""

    GOES_ON = auto()
    BEHIND = auto()
    UNBEGUN = auto()
    LOST = auto()


def found(owner: Registration, seat: Seat, header: Header, hello: Hello) -> Found:
    """What this worker has of a partition that its owner configured."""
    if (header.rm, header.session, header.life) == (owner.rm, owner.session, owner.life(header.partition)):
        if hello.problem:
            return Found.LOST
        return Found.GOES_ON if hello.rollout == owner.rollout else Found.BEHIND
    if seat.begun or (hello.problem and seat.inherited):
        return Found.LOST
    in_doubt = hello.prepared == owner.rollout
    return Found.LOST if seat.inherited and not (header.session or in_doubt) else Found.UNBEGUN


def revived(books: Books, owner: Registration, header: Header, hello: Hello) -> list[Send]:
    """Let a worker that is there run what its RM registered."""
    partition = header.partition
    seat = books.roster.seats[partition]
    state = found(owner, seat, header, hello)
    books.tally.recoveries[state.name.lower()] += 1
    seat.inherited, seat.begun = False, state in (Found.GOES_ON, Found.BEHIND)
    if state is Found.LOST:
        owner = _another_life(books, owner, partition)
        reason = hello.problem or "what its worker kept is gone"
        books.warnings.append(f"partition {partition} begins anew, its RM is told to report everything again: {reason}")
    if state is Found.GOES_ON:
        sends = settings_for(books, owner, [partition])
        if hello.prepared:  # for a change that nobody knows any more; one that is under way is prepared anew
            sends.insert(0, to_worker(books, owner, partition, AbortConfig(rollout=hello.prepared)))
    else:
        live = state is Found.BEHIND
        prepare = PrepareConfig(rollout=owner.rollout, config=owner.configs[partition], live=live)
        commit = CommitConfig(rollout=owner.rollout)
        sends = [to_worker(books, owner, partition, one) for one in (prepare, commit)]
        sends += (settings_for if live else first_settings)(books, owner, [partition])
    if owner.rm in books.roster.away:
        sends.append(to_worker(books, owner, partition, Pause()))
    if state is Found.LOST:
        return [*sends, restarted(owner, partition, reason)]
    return [*sends, *missed(owner, partition)]


def missed(owner: Registration, partition: str) -> list[Send]:
    """What was on its way to and from the worker before this one may be lost: its RM is to resume."""
    return resumption_wanted(owner, f"the worker of partition {usual_name(partition)} was started again")


def _another_life(books: Books, owner: Registration, partition: str) -> Registration:
    life = owner.lives_begun + 1
    another = replace(owner, lives={**owner.lives, partition: life}, lives_begun=life)
    books.roster.put(another)
    return another


def restarted(owner: Registration, partition: str, reason: str) -> Send:
    """What the RM is told of a partition that began anew."""
    life = owner.life(partition)
    told = usual_name(partition)
    header = Header(kind="PartitionRestarted", rm=owner.rm, partition=told, session=owner.session, life=life)
    return send(owner.proxy, PartitionRestarted(reason=reason), header)
