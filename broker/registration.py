"""An RM joins the core: from its call to running partitions.

A new session of a known RM takes the place of the old one: its partitions begin empty, those that it no longer has end.

Not here: the vote (`rollout.py`), and going on in the same session after a break (`presence.py`).
"""

import hashlib
from dataclasses import dataclass, replace

from broker.books import BAD_REQUEST, FORBIDDEN, Books, Refused
from broker.changes import Change, Changes
from broker.rollout import REGISTRATION_MAX_S, ROLLOUT_MAX_S, Rollout
from broker.roster import Registration
from broker.said import first_settings, not_registered, refusal_of, registered
from broker.versions import FROM_FILE
from common.config.checksum import checksum_of
from common.config.model import Configuration
from common.control_messages import ConfigVersion
from common.machine import Delivery, Send
from common.messages import Header
from common.rm_messages import RegisterResourceManager


@dataclass(frozen=True, slots=True)
class _Beginning:
    """What an RM begins with."""

    text: str
    configuration: Configuration
    base: str
    """Checksum of the owner's text that it stands on."""


class Registering(Change):
    """A registration under way."""

    what = "a registration"

    def __init__(self, rollout: Rollout, version: ConfigVersion | None, registration: Registration, call: Header):
        super().__init__(rollout, version)
        self.registration = registration
        self.call = call
        """The header of the call to answer."""

    def outcome(self, books: Books) -> Registration:
        return self.registration.ordered(books.roster.registrations.get(self.registration.rm), self.order)

    def carried_out(self, books: Books, now: float) -> list[Send]:
        roster, new = books.roster, self.outcome(books)
        before = roster.registrations.get(new.rm)
        roster.put(new)
        books.tally.granted += 1
        roster.away.pop(new.rm, None)
        for partition in new.configs:
            roster.seats[partition].begun = roster.seats[partition].inherited = False
        books.notes.append(f"RM {new.rm} registered, with partitions {', '.join(new.configs) or 'none'}")
        if ":" in new.rm:
            books.warnings.append(
                f"the id of RM {new.rm} has a colon, at which YuniKorn's web UI splits names of partitions: it cannot "
                "show a partition under its full name, which it has if another RM registered the plain name first; "
                "choose an id without a colon, or name this RM with the setting default-rm"
            )
        superseded = [] if before is None else _superseded(before, new)
        settings = first_settings(books, new, new.configs)
        return [*superseded, *self.rollout.commit(roster), *settings, registered(new, self.call.ref)]

    def refused(self, books: Books, refusal: Refused) -> list[Send]:
        books.tally.refused += 1
        books.notes.append(f"registration of RM {self.rollout.rm} refused: {refusal}")
        if refusal.code == "busy":
            return [refusal_of(self.registration.proxy, self.call, refusal.code, str(refusal))]
        return [not_registered(self.registration.proxy, self.call, str(refusal))]


def register(
    books: Books, changes: Changes, delivery: Delivery, request: RegisterResourceManager, now: float
) -> list[Send]:
    """Begin a registration, of a session that is not known yet."""
    header = delivery.header
    under_way = changes.of(header.rm)
    if isinstance(under_way, Registering):
        registration = under_way.registration
        if (registration.session, registration.call) == (header.session, hash_of(delivery.body)):
            # it asks again, on a new connection
            under_way.registration, under_way.call = replace(registration, proxy=delivery.source), header
            return []
    if under_way is not None:
        reason = f"{under_way.what} of RM {header.rm!r} is under way, try again when it is done"
        return [refusal_of(delivery.source, header, "busy", reason)]
    try:
        return changes.begin(_registering(books, delivery, request, now))
    except Refused as refusal:
        books.tally.refused += 1
        return [not_registered(delivery.source, header, str(refusal))]


def _registering(books: Books, delivery: Delivery, request: RegisterResourceManager, now: float) -> Registering:
    header, rm = delivery.header, delivery.header.rm
    if request.rm_id not in ("", rm):
        raise Refused(BAD_REQUEST, f"RM id {request.rm_id!r} in a message of {rm!r}")
    if not books.admits(rm):
        raise Refused(FORBIDDEN, f"RM {rm!r} may not register here: the setting allowed-rms does not name it")
    own = request.config or books.core_text
    chosen = _chosen(books, rm, own, follows_core=not request.config)
    configs = books.roster.by_full_name(rm, chosen.configuration)
    number = books.next_number()
    registration = Registration(
        rm=rm,
        session=header.session,
        proxy=delivery.source,
        configs=configs,
        build_info={**request.build_info, "rmId": rm},
        call=hash_of(delivery.body),
        registered_ns=int(now * 1e9),
        text=chosen.text,
        checksum=checksum_of(chosen.text),
        extra=dict(request.extra_config),
        capabilities=list(request.capabilities),
        follows_core=not request.config,
        passed_over="" if chosen.base == checksum_of(own) else checksum_of(own),
        rollout=number,
    )
    rollout = Rollout(
        number=number,
        rm=rm,
        session=header.session,
        configs=configs,
        deadline=now + ROLLOUT_MAX_S,
        extensible_until=now + REGISTRATION_MAX_S,
    )
    latest = books.versions.history(rm).latest
    version = None
    if latest is None or latest.checksum != registration.checksum or latest.base != chosen.base:
        origin = FROM_FILE if registration.follows_core and books.watched else "registration"
        version = books.versions.next(
            rm, chosen.text, at_ns=int(now * 1e9), author=f"RM {rm}", origin=origin, base=chosen.base
        )
    return Registering(rollout, version, registration, header)


def _chosen(books: Books, rm: str, own: str, *, follows_core: bool) -> _Beginning:
    """What an RM begins with. A file that is wrong at this moment changes nothing for an RM that had its configuration
    from it before, as it would not while the RM is registered.
    """
    before = books.versions.history(rm)
    known = follows_core and bool(books.watched) and before.from_file
    try:
        if known and books.file_empty:
            raise Refused(BAD_REQUEST, "it is empty")
        return _Beginning(*_own_or_changed(books, rm, own), base=checksum_of(own))
    except Refused as refusal:
        if not known or before.latest is None:
            raise
        try:
            configuration = books.checked(rm, before.text)
        except Refused:
            raise refusal from None
        books.warnings.append(
            f"RM {rm} begins with version {before.latest.number} of its configuration, the latest one, as the file of "
            f"queues {books.watched} is refused: {refusal.in_one_line}"
        )
        return _Beginning(before.text, configuration, base=before.latest.base)


def _own_or_changed(books: Books, rm: str, own: str) -> tuple[str, Configuration]:
    """The owner's text, or what was changed on top of it. That must not keep the RM out, if it cannot be any more: it
    could neither see nor change it.
    """
    text = books.versions.chosen(rm, own)
    try:
        return text, books.checked(rm, text)
    except Refused as refusal:
        if text == own:
            raise
        books.warnings.append(
            f"RM {rm} begins with its own configuration, as its changed one is not valid: {refusal.in_one_line}"
        )
        return own, books.checked(rm, own)


def _superseded(before: Registration, after: Registration) -> list[Send]:
    """A new session takes the place of the old one, which is told."""
    if before.session == after.session or not before.proxy:
        return []
    header = Header(kind="Refused", rm=before.rm, session=before.session)
    return [refusal_of(before.proxy, header, "superseded", f"RM {before.rm!r} registered again elsewhere")]


def hash_of(call: bytes) -> str:
    """What tells one call of a registration from another."""
    return hashlib.sha256(call).hexdigest()
