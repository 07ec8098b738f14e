"""Whether an RM is there: one that is away keeps all it has for a while, one that leaves or stays away loses it.

    there --ManagerAway, or its proxy is silent or begins anew--> away --Resume--> there
      |                                                             |
      +--------------------Leave--------> gone <--pause timeout-----+

While it is away nothing new is placed for it. Not here: who is silent (`watch.py`).
"""

from dataclasses import replace

from broker.books import NOT_FOUND, Books, Refused
from broker.changes import Changes
from broker.revival import restarted
from broker.roster import Registration
from broker.said import left, pause, refusal_of, registered, repetition
from common.machine import Delivery, Send
from common.messages import Header
from common.names import usual_name
from common.rm_messages import Resume


def went_away(books: Books, registration: Registration, reason: str, now: float) -> list[Send]:
    """Nothing is heard of an RM, for this reason: for the time being it is told nothing new."""
    if registration.rm in books.roster.away:
        return []
    books.roster.away[registration.rm] = now
    books.notes.append(
        f"RM {registration.rm} is away, {reason}: nothing new is placed for it until it is back, and its partitions end"
        f" if it is not within {books.policy.pause_s:g} s"
    )
    return pause(books, registration)


def proxy_began(books: Books, proxy: str, now: float) -> list[Send]:
    """A proxy that says hello knows none of its RMs: each is away until it speaks, as those that died with the last
    proxy would never be missed otherwise.
    """
    through = [one for one in books.roster.registrations.values() if one.proxy == proxy]
    return [send for one in through for send in went_away(books, one, "its proxy has begun anew", now)]


def resumed(books: Books, delivery: Delivery, request: Resume) -> list[Send]:
    """An RM goes on in its session; what it does not have is sent again, and its partitions place again."""
    header = delivery.header
    before = books.roster.registration(header.rm, header.session)
    if before is None:
        reason = f"RM {header.rm!r} has no such session, register again"
        return [refusal_of(delivery.source, header, "unknown-session", reason)]
    if any(life > before.latest_life(before.full_name(partition)) for partition, life in request.lives.items()):
        reason = f"the core's record of RM {header.rm!r} is older than this session's last state, register again"
        books.warnings.append(f"RM {header.rm} has to register anew: its record has gone back to an earlier state")
        return [refusal_of(delivery.source, header, "unknown-session", reason)]
    registration = replace(before, proxy=delivery.source)
    books.roster.put(registration)
    if books.roster.away.pop(header.rm, None) is not None:
        books.notes.append(f"RM {header.rm} is back")
    sends = [registered(registration, header.ref)]
    for partition in registration.partitions:
        name = usual_name(partition)
        received = request.received.get(name)
        same_life = request.lives.get(name, 0) == registration.life(partition)
        if received is not None and not same_life and partition in registration.configs:
            sends.append(restarted(registration, partition, "it began anew meanwhile"))
        if same_life:
            # commands for a partition that is being taken down are acknowledged by the proxy, and never reach it
            acknowledged = request.acknowledged.get(name, 0) if partition in registration.configs else 0
            repeat = repetition(books, registration, partition, received=received or 0, acknowledged=acknowledged)
        else:
            repeat = repetition(books, registration, partition)
        sends.append(repeat)
    return sends


def leaves(books: Books, changes: Changes, delivery: Delivery) -> list[Send]:
    """An RM goes for good. That it has gone already is as good."""
    header = delivery.header
    sends: list[Send] = []
    if books.roster.registration(header.rm, header.session) is not None:
        sends = _ended(books, changes, header.rm)
        books.notes.append(f"RM {header.rm} has left, its partitions end")
    return [*sends, left(delivery.source, header)]


def gave_up(books: Books, changes: Changes, rm: str) -> list[Send]:
    """An RM has been away for too long. Its proxy forgets it, and tells it if that is there after all."""
    registration = books.roster.registrations[rm]
    sends = _ended(books, changes, rm)
    if not registration.proxy:
        return sends
    return [*sends, left(registration.proxy, Header(kind="Left", rm=rm, session=registration.session))]


def _ended(books: Books, changes: Changes, rm: str) -> list[Send]:
    """Nothing is left of an RM's session, and nobody acknowledges anything: its workers end at once. A change that is
    under way ends first; a registration, which is another session's, is worth another attempt.
    """
    change, sends = changes.of(rm), []
    if change is not None:
        sends = changes.abort(change, Refused(NOT_FOUND, f"RM {rm!r} has just ended, try again", code="busy"), "ended")
    books.roster.remove(rm)
    books.tally.astray.pop(rm, None)
    return sends
