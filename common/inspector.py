"""A machine whose process answers questions about itself, beside whatever the machine does.

For the shells of broker and workers: the machine hears nothing of these questions, and is not held up by them. Not
here: what is found (`inspection.py`), who may ask (the web service).
"""

import asyncio
from collections.abc import Callable

from common.inspection import INSPECTIONS, PROFILE_MAX_S, inspected
from common.machine import Incoming, Machine, Outgoing, make_outgoing
from common.messages import Header
from common.query_messages import Answer, Query
from common.wire import WireError, decoded


class Inspected:
    """The machine. There is one look into the process at a time: whoever asks meanwhile is refused, for looks would see
    each other.
    """

    def __init__(
        self, machine: Machine, pass_on: Callable[[Outgoing], None], *, partition: str = "", epoch: int = 0
    ) -> None:
        self._machine = machine
        self._pass_on = pass_on
        self._partition = partition
        """That of questions to this process; empty where it is none of a partition."""
        self._epoch = epoch
        self._looking: asyncio.Task[None] | None = None

    @property
    def deadline(self) -> float:
        return self._machine.deadline

    def handle(self, incoming: Incoming, now: float) -> list[Outgoing]:
        query = self._asked(incoming)
        if query is None:
            return self._machine.handle(incoming, now)
        if self._looking is not None and not self._looking.done():
            return [self._answer(incoming, 503, "somebody else is looking into this process")]
        self._looking = asyncio.create_task(self._look(incoming, query))
        return []

    def tick(self, now: float) -> list[Outgoing]:
        return self._machine.tick(now)

    def close(self) -> None:
        """Look no longer."""
        if self._looking is not None:
            self._looking.cancel()

    def _asked(self, incoming: Incoming) -> Query | None:
        """The question, if it is about this process."""
        if incoming.header.kind != Query.__name__ or incoming.header.partition != self._partition:
            return None
        try:
            query = decoded(Query, incoming.body)
        except WireError:  # the machine says what is wrong with it
            return None
        return query if query.what in INSPECTIONS else None

    async def _look(self, incoming: Incoming, query: Query) -> None:
        try:
            seconds = min(float(query.args.get("seconds", "0")), PROFILE_MAX_S)
        except ValueError:
            self._pass_on(self._answer(incoming, 400, "seconds must be a number"))
        else:
            self._pass_on(self._answer(incoming, 200, await inspected(query.what, seconds)))

    def _answer(self, question: Incoming, status: int, text: str) -> Outgoing:
        header = Header(kind=Answer.__name__, partition=self._partition, ref=question.header.ref, epoch=self._epoch)
        return make_outgoing(question.source, Answer(status=status, body=text.encode(errors="replace")), header)
