"""Messages that wait for the text of a configuration version, which only the record has.

    message needs a text --TextWanted--> waiting --ReadVersion--> record --VersionRead--> handled again, with the text

The broker holds no texts, so that its memory does not grow with them. Two kinds of messages need one: the Hello of a
worker that does not have the configuration in force, and a registration whose RM gets another text than its own. One
text is read at a time. Not here: the analysis of a text (`config_validation.py`), the store (`store.py`).
"""

from collections.abc import Callable
from typing import Final

from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.messages.control_messages import ReadVersion, VersionRead
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing, make_outgoing
from yunishard.common.names import RECORD

RETRY_S: Final = 1.0
"""Seconds until the record is asked again for a text that it could not read."""


class TextWanted(Exception):
    """A message cannot be handled without the text of this version of this RM. Nothing has changed."""

    def __init__(self, rm: str, version: int) -> None:
        super().__init__(f"version {version} of RM {rm}")
        self.rm = rm
        self.version = version


class StoredTexts:
    """The waiting messages, and the text that the record has found, while they are handled."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, tuple[Incoming, int]]] = {}
        """RM id to the partition that a message is about, empty for a registration, to that message and the version
        that it needs. Bounded by the partitions; a later message takes the place of an earlier one."""
        self._asked = ""
        """The RM whose text is being read; empty if none is."""
        self._found: tuple[str, VersionRead] | None = None
        self.deadline = NEVER
        """When to ask again for a text that the record could not read."""

    def get(self, rm: str, version: int) -> str:
        """The text of a version.

        Raises:
            TextWanted: it has to be read first; pass this to `wait`.
            ConfigError: it cannot be read.
        """
        if self._found is None or (self._found[0], self._found[1].version) != (rm, version):
            raise TextWanted(rm, version)
        found = self._found[1]
        if found.problem:
            raise ConfigError([Problem(message=found.problem, kind="record")])
        return found.text

    def is_waiting(self, rm: str, partition: str = "") -> bool:
        """Whether a message about this partition, or the registration of the RM, waits for a text."""
        return partition in self._waiting.get(rm, ())

    def wait(self, incoming: Incoming, wanted: TextWanted) -> list[Outgoing]:
        """Have a message wait until the text has been read; the request to the record, unless it waits itself."""
        partition = incoming.header.partition if incoming.header.kind == "Hello" else ""
        self._waiting.setdefault(wanted.rm, {})[partition] = incoming, wanted.version
        return self._ask()

    def drop_outdated(self, sent: Header) -> bool:
        """Drop the waiting Hello of a worker that has sent this message since; return whether there was one.

        A worker repeats its Hello until it has its configuration. One of an earlier generation than the message was
        overtaken by the answer to another Hello; handling it would start the partition empty once more.
        """
        messages = self._waiting.get(sent.rm, {})
        waiting = messages.get(sent.partition)
        if waiting is None or (waiting[0].header.session, waiting[0].header.life) == (sent.session, sent.life):
            return False
        del messages[sent.partition]
        if not messages:
            del self._waiting[sent.rm]
        return True

    def _ask(self) -> list[Outgoing]:
        if self._asked or not self._waiting:
            return []
        self._asked, messages = next(iter(self._waiting.items()))
        _, version = next(iter(messages.values()))
        header = Header(kind=ReadVersion.__name__, rm=self._asked)
        return [make_outgoing(RECORD, ReadVersion(version=version), header)]

    def receive(
        self, rm: str, found: VersionRead, now: float, handle: Callable[[Incoming], list[Outgoing]]
    ) -> list[Outgoing]:
        """Handle the messages that waited for this text, with it. If the record cannot be read at present, they wait
        until it can.
        """
        if found.may_retry:
            self.deadline = now + RETRY_S
            return []
        self._asked, self._found = "", (rm, found)
        try:
            sends = [one for incoming, _ in self._waiting.pop(rm, {}).values() for one in handle(incoming)]
        finally:
            self._found = None
        return [*sends, *self._ask()]

    def retry_due(self, now: float) -> list[Outgoing]:
        """Ask again for a text that could not be read."""
        if self.deadline > now:
            return []
        self.deadline, self._asked = NEVER, ""
        return self._ask()
