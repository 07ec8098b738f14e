"""The system of the recorded scenario: its processes and its resource manager in one process, under a virtual clock, in
partitions that decide only when they are asked to; and the web service's way to them.

Not here: the steps of the scenario (`player.py`), the requests (`answers.py`).
"""

from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

from tests.captures.scenario import Manager
from tests.world import STEPS_MAX, World
from tests.world_rm import RM
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.query_messages import Answer, ListPartitions, PartitionList, Query, ReadConfig
from yunishard.common.messages.rm_messages import (
    STATE_DUMP,
    Refused,
    RegisterResourceManager,
    StateDumpAnswered,
    StateDumpAsked,
    UpdateConfiguration,
)
from yunishard.common.messages.wire import Outgoing, decode_body, make_outgoing
from yunishard.common.names import WEBSERVICE
from yunishard.partition_worker.engine.allocation import CREATION_TIME
from yunishard.partition_worker.engine.predicates.predicate import NodeView
from yunishard.rmproxy.proxy import BROKER
from yunishard.webservice.broker_client import Change
from yunishard.webservice.views import RequestError

BEGIN_S: Final = 1_800_000_000.0
"""When the scenario begins, in Unix seconds: later than anything that it says was created."""

SEED: Final = 1
QUESTION_REF: Final = "question"

_M = TypeVar("_M", bound=Message)


class ScenarioManager(RM):
    """Registers as the scenario says, and tells what it knows when it is asked."""

    def __init__(self, described: Manager) -> None:
        super().__init__(described.id)
        self._described = described
        self.extra: dict[str, str] = {}

    def register(self) -> list[Outgoing]:
        request = RegisterResourceManager(
            rm_id=self.rm_id,
            version=self._described.version,
            policy_group=self._described.policy_group,
            build_info=self._described.build_info,
            config=self.config,
            extra_config=self.extra,
            capabilities=[STATE_DUMP],
        )
        return self._sends([self.session.register(request)])

    def reconfigure(self, text: str) -> list[Outgoing]:
        request = UpdateConfiguration(rm_id=self.rm_id, policy_group="queues", config=text, extra_config=self.extra)
        return self._sends([self.session.update_configuration(request)])

    def hear(self, header: Header, body: bytes) -> list[Outgoing]:
        if header.kind != StateDumpAsked.__name__:
            return super().hear(header, body)
        question = decode_body(StateDumpAsked, body).question
        answered = StateDumpAnswered(question=question, text=self._described.state_dump)
        return self._sends([self.session.encode_unnumbered(header.partition, answered)])


class ManagersWord:
    """What the resource manager says about nodes: it refuses some asks on each, and is asked at once, as a plug-in is.

    A plug-in is not told the key of an ask; in the scenario the creation time is another for each.
    """

    name = "scenario"

    def __init__(self, refusals: Mapping[str, str]) -> None:
        self._refusals = refusals
        """Why, by creation time."""

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        created = tags.get(CREATION_TIME, "")
        return created if created in self._refusals else None

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        return self._refusals[demand] if isinstance(demand, str) else ""


class System(World):
    """A world with a web service in it, which asks one question at a time."""

    def __init__(self, refusals: Mapping[str, str], *, manual: bool = True) -> None:
        super().__init__(SEED, now=BEGIN_S, manual=manual, plugins=[ManagersWord(refusals)] if refusals else [])
        self._told: tuple[Header, bytes] | None = None

    def pass_by(self, seconds: float) -> None:
        """Let everything happen that happens within this time."""
        until = self.now + seconds
        for _ in range(STEPS_MAX):
            arrival = self._packets[0].arrival if self._packets else until
            if min(max(self.now, arrival), self._due()[0]) >= until:
                self.now = until
                return
            self.step()
        raise AssertionError("it never settles")

    def question(self, to: Header, message: Message) -> tuple[Header, bytes]:
        """What comes back for a message of the web service."""
        self._told = None
        header = Header(kind=type(message).__name__, rm=to.rm, partition=to.partition, ref=QUESTION_REF)
        self.carry(WEBSERVICE, [make_outgoing(BROKER, message, header)])
        for _ in range(STEPS_MAX):
            if self._told is not None:
                return self._told
            assert self.step(), "nobody answers"
        raise AssertionError("nobody answers")

    def _to_front_end(self, header: Header, body: bytes) -> None:
        self._told = (header, body)


class SystemLink:
    """The web service's link, which takes no real time."""

    def __init__(self, system: System) -> None:
        self._system = system

    async def ask(self, partition: str, query: Query) -> Answer:
        return self._answer(Header(kind="", partition=partition), query, Answer)

    def recent_partitions(self) -> PartitionList | None:
        return None

    async def partitions(self) -> PartitionList:
        return self._answer(Header(kind=""), ListPartitions(), PartitionList)

    async def read(self, rm: str, question: ReadConfig) -> Answer:
        return self._answer(Header(kind="", rm=rm), question, Answer)

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer:
        return self._answer(Header(kind="", rm=rm, partition=partition), wanted, Answer)

    def _answer(self, to: Header, message: Message, kind: type[_M]) -> _M:
        header, body = self._system.question(to, message)
        if header.kind == Refused.__name__:
            raise RequestError(503, decode_body(Refused, body).reason)
        assert header.kind == kind.__name__, header
        return decode_body(kind, body)
