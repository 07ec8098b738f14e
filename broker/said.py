"""What the broker says in several places: to workers, refusals, answers.

Not here: when it says so.
"""

from collections.abc import Iterable

from broker.books import Books
from broker.roster import Registration
from common.control_messages import Pause, Repeat, RetirePartition, Settings
from common.machine import Send, send
from common.messages import Control, Header
from common.names import usual_name
from common.query_messages import Answer
from common.rm_messages import Left, Refused, Registered, ResumeWanted

# To workers ---------------------------------------------------------------------------------------------------------


def to_worker(books: Books, registration: Registration, partition: str, message: Control, *, ack: int = 0) -> Send:
    """Something for the worker of one of an RM's partitions."""
    header = Header(
        kind=type(message).__name__,
        rm=registration.rm,
        partition=partition,
        session=registration.session,
        life=registration.life(partition),
        ack=ack,
    )
    return send(books.roster.seats[partition].worker, message, header)


def settings_for(books: Books, registration: Registration, partitions: Iterable[str]) -> list[Send]:
    """The RM's settings for the workers of these partitions, in place of those that they have."""
    message = Settings(values=registration.extra, capabilities=registration.capabilities)
    return [to_worker(books, registration, partition, message) for partition in partitions]


def first_settings(books: Books, registration: Registration, partitions: Iterable[str]) -> list[Send]:
    """The RM's settings for partitions that begin; none is how they begin anyway."""
    return settings_for(books, registration, partitions) if registration.extra or registration.capabilities else []


def retirement(books: Books, registration: Registration, partition: str) -> Send:
    """Tell a worker that its partition is no longer configured."""
    return to_worker(books, registration, partition, RetirePartition())


def pause(books: Books, registration: Registration) -> list[Send]:
    """Let nothing new be placed, as nobody is there to hear of it."""
    return [to_worker(books, registration, partition, Pause()) for partition in registration.partitions]


def repetition(
    books: Books, registration: Registration, partition: str, *, received: int = 0, acknowledged: int = 0
) -> Send:
    """The RM is back, has received so much, and has had so many of its commands acknowledged."""
    return to_worker(books, registration, partition, Repeat(acknowledged=acknowledged), ack=received)


# To RMs -------------------------------------------------------------------------------------------------------------


def registered(registration: Registration, ref: str) -> Send:
    """The RM is in. How often it shows that it is there, and how much it may send, says the proxy, which sees to it."""
    message = Registered(
        partitions=list(map(usual_name, registration.configs)),
        checksum=registration.checksum,
        lives=lives_told(registration),
    )
    header = Header(kind="Registered", rm=registration.rm, session=registration.session, ref=ref)
    return send(registration.proxy, message, header)


def lives_told(registration: Registration) -> dict[str, int]:
    """The lives of partitions that are not in their first."""
    lives = ((usual_name(name), registration.life(name)) for name in registration.configs)
    return {name: life for name, life in lives if life}


def resumption_wanted(registration: Registration, reason: str) -> list[Send]:
    """What is on its way to and from the RM may be lost. One that has not come back yet will resume anyway."""
    if not registration.proxy:
        return []
    header = Header(kind="ResumeWanted", rm=registration.rm, session=registration.session)
    return [send(registration.proxy, ResumeWanted(reason=reason), header)]


def left(to: str, call: Header) -> Send:
    """Nothing is left of the RM."""
    return send(to, Left(), Header(kind="Left", rm=call.rm, session=call.session, ref=call.ref))


def not_registered(to: str, call: Header, reason: str) -> Send:
    """The answer to a registration that came to nothing."""
    return refusal_of(to, call, "registration", f"registration of RM failed: {reason}")


def refusal_of(to: str, header: Header, code: str, reason: str) -> Send:
    """The answer to something that is not done, with the reason."""
    answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
    return send(to, Refused(code=code, reason=reason, seq=header.seq), answer)


# To front ends ------------------------------------------------------------------------------------------------------


def answer(to: str, ref: str, status: int, body: bytes) -> Send:
    """The answer to a front end."""
    return send(to, Answer(status=status, body=body), Header(kind="Answer", ref=ref))
