"""What the broker says in several places: refusals, settings, answers.

Not here: when it says so.
"""

from collections.abc import Iterable

from broker.roster import Registration
from common.machine import Send, send
from common.messages import Answer, Header, Refused, RetirePartition, Settings


def settings_for(registration: Registration, partitions: Iterable[str]) -> list[Send]:
    """The RM's settings for the workers of these partitions, in place of those that they have."""
    message = Settings(values=registration.extra, capabilities=registration.capabilities)
    return [
        send(partition, message, Header(kind="Settings", rm=registration.rm, partition=partition))
        for partition in partitions
    ]


def first_settings(registration: Registration, partitions: Iterable[str]) -> list[Send]:
    """The RM's settings for partitions that begin; none is how they begin anyway."""
    return settings_for(registration, partitions) if registration.extra or registration.capabilities else []


def not_registered(to: str, call: Header, reason: str) -> Send:
    """The answer to a registration that came to nothing."""
    return refusal_of(to, call, "registration", f"registration of RM failed: {reason}")


def refusal_of(to: str, header: Header, code: str, reason: str) -> Send:
    """The answer to something that is not done, with the reason."""
    answer = Header(kind="Refused", rm=header.rm, session=header.session, ref=header.ref)
    return send(to, Refused(code=code, reason=reason, seq=header.seq), answer)


def retirement(rm: str, session: str, partition: str) -> Send:
    """Tell a worker that its partition is no longer configured."""
    header = Header(kind="RetirePartition", rm=rm, partition=partition, session=session)
    return send(partition, RetirePartition(), header)


def answer(to: str, ref: str, status: int, body: bytes) -> Send:
    """The answer to a front end."""
    return send(to, Answer(status=status, body=body), Header(kind="Answer", ref=ref))
