"""What must outlive the broker of each RM, as one value: its session, its configuration, and who has its partitions.

Everything else is found out again: by which proxy it speaks, whether it is there, which workers are. Not here: when it
becomes durable (`keeping.py`), and the file (`record.py`).
"""

import msgspec

from broker.judgement import understood
from broker.roster import Registration, Roster
from common.config.checksum import checksum_of
from common.config.problems import ConfigError
from common.names import distinct_name, normalised


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a `Registration` that are durable, and the leases. Unknown fields, of a later release, are
    ignored.
    """

    rm: str
    session: str
    registered_ns: int
    call: str
    text: str
    build_info: dict[str, str] = msgspec.field(default_factory=dict)
    extra: dict[str, str] = msgspec.field(default_factory=dict)
    capabilities: list[str] = msgspec.field(default_factory=list)
    follows_core: bool = False
    passed_over: str = ""
    rollout: int = 0
    lives: dict[str, int] = msgspec.field(default_factory=dict)
    lives_begun: int = 0
    leaving: list[str] = msgspec.field(default_factory=list)
    order: int = 0
    """0 in the records of releases that kept no order of registration."""
    partition_order: dict[str, int] = msgspec.field(default_factory=dict)
    leases: dict[str, int] = msgspec.field(default_factory=dict)
    """Full name of each partition to the epoch of its worker's lease."""


def facts_of(registration: Registration, roster: Roster) -> Facts:
    """What has to be durable of an RM that has this."""
    return Facts(
        rm=registration.rm,
        session=registration.session,
        registered_ns=registration.registered_ns,
        call=registration.call,
        text=registration.text,
        build_info=dict(registration.build_info),
        extra=dict(registration.extra),
        capabilities=list(registration.capabilities),
        follows_core=registration.follows_core,
        passed_over=registration.passed_over,
        rollout=registration.rollout,
        lives=dict(registration.lives),
        lives_begun=registration.lives_begun,
        leaving=list(registration.leaving),
        order=registration.order,
        partition_order=dict(registration.partition_order),
        leases={name: roster.seats[name].epoch for name in registration.partitions},
    )


def registration_of(facts: Facts) -> Registration:
    """What an RM has, its configuration read again. Raises ConfigError for a text that is none in this release."""
    judgement = understood(facts.text)
    if judgement.configuration is None:
        raise ConfigError(judgement.problems)
    return Registration(
        rm=facts.rm,
        session=facts.session,
        registered_ns=facts.registered_ns,
        call=facts.call,
        text=facts.text,
        checksum=checksum_of(facts.text),
        configs={_full_name(facts, one.name): one for one in judgement.configuration.partitions},
        build_info=facts.build_info,
        extra=facts.extra,
        capabilities=facts.capabilities,
        follows_core=facts.follows_core,
        passed_over=facts.passed_over,
        rollout=facts.rollout,
        lives=facts.lives,
        lives_begun=facts.lives_begun,
        leaving=tuple(facts.leaving),
        order=facts.order,
        partition_order=facts.partition_order,
    )


def _full_name(facts: Facts, name: str) -> str:
    """The full name that a partition had when this was recorded: its lease is under that name."""
    distinct = distinct_name(facts.rm, name)
    return distinct if distinct in facts.leases else normalised(facts.rm, name)


def recorded_order(facts: Facts) -> tuple[bool, int]:
    """Sorts records by their order of registration. Records without one follow, by the time of the RM's session."""
    return (False, facts.order) if facts.order else (True, facts.registered_ns)


def encoded(facts: Facts | None) -> bytes:
    """As the record keeps it, for people to read too; nothing at all once nothing is left of the RM."""
    return b"" if facts is None else msgspec.json.encode(facts)


def decoded_facts(data: bytes) -> Facts:
    """Raises msgspec.MsgspecError for what are no facts."""
    try:
        return msgspec.json.decode(data, type=Facts)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
