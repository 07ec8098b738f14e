r"""Other configurations that a resource manager asked for, until it is known what became of each.

    asked --sent--> ConfigurationUpdated | Refused --> outcome
                 \--connection broke--> the checksum of what is in force tells, or nobody knows

What was asked for is not sent again: somebody may have changed the configuration since, which that would undo. Not
here: what is done with an answer that nobody here waits for (`dialogue.py`).
"""

from dataclasses import dataclass
from typing import Final

from common.config.checksum import checksum_of
from common.rm_messages import ConfigurationUpdated, Refused, Registered, RegisterResourceManager, UpdateConfiguration
from common.session import Outgoing, Session
from yunishard.failures import ConfigurationRefused, OutcomeUnknown

Outcome = ConfigurationUpdated | Exception


@dataclass(slots=True)
class _Change:
    """Another configuration that was asked for."""

    request: UpdateConfiguration
    sent: bool = False
    outcome: Outcome | None = None
    """None until there is an answer, or until it is known that there may be none."""


class Changes:
    """What somebody waits for, by the reference that the answer will repeat."""

    def __init__(self, request: RegisterResourceManager) -> None:
        self._request: Final = request
        self._changes: dict[str, _Change] = {}
        self._made = 0
        self._checksum = ""
        """Of the configuration that we believe in force; empty if the core did not say."""
        self._extra_config = request.extra_config
        """What was sent last: it holds until something else is sent."""

    def __contains__(self, reference: str) -> bool:
        return reference in self._changes

    def ask(self, text: str, extra_config: dict[str, str] | None) -> str:
        """One more, not sent yet; the reference for `outcome`."""
        if extra_config is not None:
            self._extra_config = extra_config
        self._made += 1
        reference = f"configuration-{self._made}"
        self._changes[reference] = _Change(
            UpdateConfiguration(
                rm_id=self._request.rm_id,
                policy_group=self._request.policy_group,
                config=text,
                extra_config=self._extra_config,
            )
        )
        return reference

    def sent(self, session: Session) -> list[Outgoing]:
        """What is to be sent now, as the session is open; once."""
        due = [(reference, change) for reference, change in self._changes.items() if not change.sent]
        for _, change in due:
            change.sent = True
        return [session.update_configuration(change.request, ref=reference) for reference, change in due]

    def outcome(self, reference: str) -> Outcome | None:
        """What became of a change, or None as long as that may still be heard."""
        return self._changes[reference].outcome

    def drop(self, reference: str) -> None:
        """Nobody waits for this change any more."""
        del self._changes[reference]

    def answered(self, reference: str, message: ConfigurationUpdated) -> bool:
        """Another configuration is in force; whether that answers a change of ours."""
        self._checksum = message.checksum
        change = self._changes.get(reference)
        if change is not None:
            change.outcome = message
        return change is not None

    def refused(self, reference: str, refused: Refused) -> None:
        """This change was not made."""
        self._changes[reference].outcome = ConfigurationRefused(refused)

    def resumed(self, registered: Registered) -> ConfigurationUpdated | None:
        """The configuration may have changed while nobody could tell us: as we asked before the break, or by others;
        in that case this says so.
        """
        known, self._checksum = self._checksum, registered.checksum
        changed = bool(known and registered.checksum) and known != registered.checksum
        now = ConfigurationUpdated(checksum=registered.checksum, partitions=registered.partitions)
        for change in self._changes.values():
            if not change.sent or change.outcome is not None:
                continue
            if changed and checksum_of(change.request.config) == registered.checksum:
                change.outcome = now
            else:
                change.outcome = OutcomeUnknown(
                    f"{self._request.rm_id}: the connection broke before the core answered: look which "
                    "configuration it has (`yunishard config get`), or send this one again"
                )
        ours = any(change.outcome is now for change in self._changes.values())
        return now if changed and not ours else None
