"""A registered RM gets another configuration while it runs: by its own call, over REST, or from the watched file.

Partitions that stay go on with all they have; new ones get a worker before the vote; those that left the configuration
fail their applications, tell the RM, and end when it has acknowledged that, or after RETIRE_MAX_S.

Not here: the vote (`rollout.py`), and how each asker is answered (`askers.py`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from broker.askers import Asker, FrontEnd, WatchedFile
from broker.books import CHANGED, CONFLICT, NOT_FOUND, Books, Refused
from broker.changes import Change, Changes
from broker.rollout import ROLLOUT_MAX_S, Rollout
from broker.roster import Registration
from broker.said import first_settings, retirement
from common.config.checksum import checksum_of
from common.config.model import PartitionConfig
from common.control_messages import ConfigVersion, RebaseVersion, WriteFile
from common.machine import Send, send
from common.messages import Header
from common.names import FILE, RECORD, usual_name

RETIRE_MAX_S: Final = 30.0
"""How long an RM may take to acknowledge what became of a partition that is gone; then its worker ends all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A configuration that somebody wants an RM to have."""

    rm: str
    text: str
    asker: Asker
    expected: str = ""
    """Checksum of what is to be replaced; empty for whatever it is."""
    overwrite: bool = False
    """Whether an edit of the watched file that is not in force may be overwritten."""
    follows_core: bool | None = None
    """Whether the RM has the core's text from then on; None leaves that as it is."""


class Updating(Change):
    """An update under way."""

    what = "another configuration"

    def __init__(self, rollout: Rollout, version: ConfigVersion, wish: Wish, *, file: str):
        super().__init__(rollout, version)
        self.wish = wish
        self.file = file
        """Checksum of what the watched file said when this began: only that may be overwritten."""

    def outcome(self, books: Books) -> Registration:
        before, rollout = books.roster.registrations[self.rollout.rm], self.rollout
        gone = [name for name in before.configs if name not in rollout.configs]
        new = {name: rollout.lives[name] for name in rollout.configs if name not in before.configs}
        after = replace(
            before,
            configs=rollout.configs,
            text=self.wish.text,
            checksum=checksum_of(self.wish.text),
            follows_core=before.follows_core if self.wish.follows_core is None else self.wish.follows_core,
            rollout=rollout.number,
            lives={**before.lives, **new},
            lives_begun=max(before.lives_begun, *new.values(), 0),
            leaving=(*before.leaving, *gone),
        )
        return after.ordered(before, self.order)

    def carried_out(self, books: Books, now: float) -> list[Send]:
        before, registration = books.roster.registrations[self.rollout.rm], self.outcome(books)
        gone = [name for name in before.configs if name not in registration.configs]
        new = [name for name in registration.configs if name not in before.configs]
        books.roster.put(registration, leave_by=now + RETIRE_MAX_S)
        sends = [*self.rollout.commit(books.roster), *first_settings(books, registration, new)]
        ends = [retirement(books, registration, partition) for partition in gone]
        asker = self.wish.asker
        books.notes.append(f"configuration of RM {registration.rm} changed by {asker.described}")
        books.notes += [f"partition {partition} is no longer configured and is taken down" for partition in gone]
        back = _is_written_back(books, registration, asker)
        if back:
            sends.append(send(FILE, WriteFile(text=self.wish.text, replaces=self.file), Header(kind="WriteFile")))
        told, granted = asker.announced(registration), asker.granted(books, registration, written_back=back)
        if new and isinstance(asker, FrontEnd):
            ends += granted
        else:
            told += granted
        held = books.announcements.after(registration.proxy, registration.rm, ends, now) if ends else []
        return [*sends, *told, *held]

    def refused(self, books: Books, refusal: Refused) -> list[Send]:
        return _refused(books, self.wish, refusal)


def update(books: Books, changes: Changes, wish: Wish, now: float) -> list[Send]:
    """Begin an update, or answer at once: that it is refused, or in force already."""
    try:
        return _begun(books, changes, wish, now)
    except Refused as refusal:
        return _refused(books, wish, refusal)


def _refused(books: Books, wish: Wish, refusal: Refused) -> list[Send]:
    if not isinstance(wish.asker, WatchedFile):  # which tells it by the log itself
        books.notes.append(f"configuration change of RM {wish.rm} refused: {refusal}")
    return wish.asker.refused(books, wish.rm, refusal)


def _begun(books: Books, changes: Changes, wish: Wish, now: float) -> list[Send]:
    rm, checksum = wish.rm, checksum_of(wish.text)
    registration = books.roster.registrations.get(rm)
    if registration is None:
        raise Refused(NOT_FOUND, f"RM {rm} has no active partitions, make sure it is registered")
    under_way = changes.of(rm)
    if under_way is not None:
        reason = f"{under_way.what} of RM {rm!r} is under way, try again when it is done"
        raise Refused(CONFLICT, reason, code="busy")
    if wish.expected not in ("", registration.checksum):
        reason = f"the configuration in force has the checksum {registration.checksum}, not {wish.expected}"
        raise Refused(CHANGED, reason)
    if checksum == registration.checksum:
        if wish.follows_core is not None:
            books.roster.put(replace(registration, follows_core=wish.follows_core))
        rebased = owned(books, rm, checksum) if wish.asker.owns else []
        return [*rebased, *wish.asker.granted(books, registration)]
    latest = books.versions.history(rm).latest
    _check_file(books, wish, {checksum, registration.checksum, latest.base if latest else ""}, registration)
    configs = books.roster.by_full_name(rm, books.checked(rm, wish.text, registration.configs))
    for partition in configs:
        if partition in books.roster.leaving:
            name = usual_name(partition)
            reason = f"partition {name} of an earlier configuration is being taken down, try again when it is gone"
            raise Refused(CONFLICT, reason, code="busy")
    base = checksum if wish.asker.owns or latest is None else latest.base
    version = books.versions.next(
        rm, wish.text, at_ns=int(now * 1e9), author=wish.asker.author, origin=wish.asker.origin, base=base
    )
    rollout = _rollout(books, registration, configs, now)
    return changes.begin(Updating(rollout, version, wish, file=books.file_checksum))


def _is_written_back(books: Books, registration: Registration, asker: Asker) -> bool:
    """Whether a change that is carried out is written to the watched file."""
    return bool(books.watched) and registration.follows_core and not asker.owns


def _check_file(books: Books, wish: Wish, known: Collection[str], registration: Registration) -> None:
    """Refuse a change that would overwrite an edit of the watched file. `known` are the checksums of texts that may be
    overwritten: what is in force, what it stands on (where writing the file failed), and the wanted text itself.

    Raises:
        Refused: with what to do about it.
    """
    if wish.overwrite or books.file_empty or not _is_written_back(books, registration, wish.asker):
        return
    if books.file_checksum in known:
        return
    raise Refused(
        CONFLICT,
        f"the watched file {books.watched} has been edited, and RM {wish.rm} does not run that text (the log says why):"
        " the change would overwrite the edit. Compare the two (`yunishard config diff current FILE`), then mend the "
        "file, or overwrite it (`--force`, over REST `force=true`): its text is then kept in FILE.previous",
    )


def _rollout(books: Books, registration: Registration, configs: Mapping[str, PartitionConfig], now: float) -> Rollout:
    """A partition that comes begins another life, as its RM may have numbered what was refused before it came."""
    return Rollout(
        number=books.next_number(),
        rm=registration.rm,
        session=registration.session,
        configs=configs,
        deadline=now + ROLLOUT_MAX_S,
        lives={
            name: registration.life(name) if name in registration.configs else registration.lives_begun + 1
            for name in configs
        },
        live=frozenset(name for name in configs if name in registration.configs),
    )


def owned(books: Books, rm: str, checksum: str) -> list[Send]:
    """The owner of the configuration has this text now, which is in force already."""
    if not books.versions.rebase(rm, checksum):
        return []
    return [send(RECORD, RebaseVersion(base=checksum), Header(kind="RebaseVersion", rm=rm))]
