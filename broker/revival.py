"""A worker says hello: what it runs is compared with what it is meant to run, and made that.

    goes on    its journal has this session, this life, the latest roll-out
    behind     the same, but a roll-out that was committed has not reached it: it gets that, and goes on
    unbegun    it has another session or life, or none, and this broker has passed on nothing of the present one since
               that began; or it has lived through a restart of the broker between its vote and the commit. It begins
               empty, and the RM sends its commands again
    lost       the RM may know of something that the worker does not have: the worker has noticed that itself, or it has
               another session or life and something of the present one has been passed on, or may have been before the
               broker was restarted. The partition begins empty in another life, and the RM reports everything again

What a journal contains is no evidence that a partition has not begun: an operator may have restored an older one. The
worker compares what it has with what the RM knows when the RM resumes (`Lane.lost`).

Not here: starting the process (the supervisor does), and a configuration that is just being voted on (`changes.py`).
"""

from dataclasses import replace
from enum import Enum, auto

from broker.books import Books
from broker.roster import Registration, Seat
from broker.said import first_settings, resumption_wanted, settings_for, to_worker
from common.control_messages import AbortConfig, CommitConfig, Hello, Pause, PrepareConfig
from common.machine import Send, send
from common.messages import Header
from common.names import usual_name
from common.rm_messages import PartitionRestarted


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
    in_doubt = hello.prepared == owner.rollout and not hello.recovered
    return Found.LOST if seat.inherited and not in_doubt else Found.UNBEGUN


def revived(books: Books, owner: Registration, header: Header, hello: Hello) -> list[Send]:
    """Let a worker that is there run what its RM registered."""
    partition = header.partition
    seat = books.roster.seats[partition]
    state = found(owner, seat, header, hello)
    books.tally.recoveries[state.name.lower()] += 1
    seat.inherited, seat.begun = False, state in (Found.GOES_ON, Found.BEHIND)
    if state is Found.LOST:
        owner = _another_life(books, owner, header)
        reason = hello.problem or _mismatch(header)
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


def _mismatch(header: Header) -> str:
    """Why the RM's session cannot go on from what a worker has that did not notice anything itself."""
    if not header.session:
        return "what its worker kept is gone"
    return "what its worker has is from another time than the record of this resource manager's session"


def _another_life(books: Books, owner: Registration, header: Header) -> Registration:
    """The partition begins again, in a life above all that the record or the worker has known in this session."""
    known = header.life if header.session == owner.session else 0
    life = max(owner.lives_begun, known) + 1
    another = replace(owner, lives={**owner.lives, header.partition: life}, lives_begun=life)
    books.roster.put(another)
    return another


def restarted(owner: Registration, partition: str, reason: str) -> Send:
    """What the RM is told of a partition that began anew."""
    life = owner.life(partition)
    told = usual_name(partition)
    header = Header(kind="PartitionRestarted", rm=owner.rm, partition=told, session=owner.session, life=life)
    return send(owner.proxy, PartitionRestarted(reason=reason), header)
