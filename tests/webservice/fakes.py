"""A fake broker connection that records its queries, and a client that calls the API without sockets."""

import asyncio
import json
from collections.abc import Callable

import httpx
from starlette.types import Receive, Scope, Send

from tests.webservice.socket_tables import line
from yunishard.common.config.acl import NOBODY, Acl
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.query_messages import (
    Actor,
    Answer,
    ChangeConfig,
    ChangeHosts,
    ChangeNode,
    ChangeQueue,
    EndSession,
    PartitionEntry,
    PartitionList,
    Query,
    ReadConfig,
    ReadHosts,
    Schedule,
)
from yunishard.common.settings import Settings
from yunishard.webservice.api import Api
from yunishard.webservice.authn_authz import AccessControl, LoopbackUsers
from yunishard.webservice.broker_client import Change
from yunishard.webservice.credentials import CERTIFICATE_EXTENSION, Identity
from yunishard.webservice.history.queries import HistoryReader
from yunishard.webservice.views import RequestError

Reader = Callable[[str, ReadConfig | ReadHosts], Answer]
Changer = Callable[[Change], Answer]
Worker = Callable[[Query], Answer]


def partition(rm_id: str = "rm-1", name: str = "default", *, problem: str = "") -> PartitionEntry:
    return PartitionEntry(full_name=f"{rm_id}_{name}", name=name, rm_id=rm_id, problem=problem)


def echo(query: Query) -> Answer:
    """A worker that answers with the name it is to show."""
    return Answer(status=200, body=f'{{"name":"{query.name}"}}\n'.encode())


QUEUES = "partitions:\n- name: default\n  queues:\n  - name: a\n"
CHECKSUM = compute_checksum(QUEUES)

HOST = {
    "name": "a",
    "state": "ready",
    "draining": False,
    "leader": True,
    "address": "tcp://10.0.0.1:9094",
    "cores": 4,
    "memory": 8 << 30,
    "release": "1.0",
    "partitions": 3,
    "leaving": 0,
    "lastSeen": 7,
}
HOSTS = {"hosts": [HOST], "rebalancing": False}
"""The only host of a cluster."""

CLIENT = ("127.0.0.1", 40000)
SERVER = ("127.0.0.1", 9080)
ALICE = Actor(user="alice", groups=["staff", "dev"])
"""Who asks, unless a test says otherwise; no scheduler administrator."""

ADMIN = Actor(user="root", groups=["root"], scheduler_admin=True)
_UIDS = {1000: Identity("alice", ("staff", "dev")), 0: Identity("root", ("root",))}


def loopback_users(
    uid: int = 1000, *, admins: Acl = NOBODY, tables: Callable[[], list[str]] | None = None
) -> LoopbackUsers:
    """A machine on which one user has one connection, to us; user 0 runs us."""
    table = [line(CLIENT, SERVER, uid=uid), line(SERVER, CLIENT, uid=0)]
    return LoopbackUsers(admins, own_uid=0, tables=tables or (lambda: ["\n".join(table)]), account=_UIDS.__getitem__)


def read(rm: str, question: ReadConfig | ReadHosts) -> Answer:
    """A broker's answer about a resource manager that has had one configuration, or about its hosts."""
    if isinstance(question, ReadHosts):
        return answer(HOSTS)
    document = {"checksum": CHECKSUM, "config": QUEUES}
    match question.what:
        case "current":
            return answer({**document, "extra": {"log.level": "INFO"}})
        case "version" if question.version == 3:
            return answer(document)
        case "default":
            return answer(document)
        case "history":
            return answer([{"version": 3, "checksum": CHECKSUM}])
    return Answer(status=404, body=f"RM {rm} has no version {question.version}".encode())


def change(wanted: Change) -> Answer:
    """What comes of a change that is made."""
    if isinstance(wanted, ChangeConfig):
        made = {"checksum": compute_checksum(wanted.config), "version": 4, "partitions": ["rm-1_default"]}
        return answer({**made, "file": True, "followers": ["rm-2"]})
    if isinstance(wanted, ChangeHosts):
        return answer(HOSTS)
    if isinstance(wanted, Schedule):
        return answer({"made": wanted.steps})
    if isinstance(wanted, EndSession):
        return answer({"rm": "rm-1", "partitions": ["rm-1_default"]})
    if isinstance(wanted, ChangeQueue):
        return answer({"queue": wanted.queue, "partition": wanted.name})
    if isinstance(wanted, ChangeNode):
        return answer({"nodeID": wanted.node_id, "partition": wanted.name, "state": "cordoned"})
    return answer({"applicationID": wanted.application_id})


def answer(document: object) -> Answer:
    return Answer(status=200, body=json.dumps(document, separators=(",", ":")).encode())


class FakeLink:
    def __init__(
        self,
        *partitions: PartitionEntry,
        worker: Worker = echo,
        reader: Reader = read,
        changer: Changer = change,
        record_problem: str = "",
    ) -> None:
        self.known = PartitionList(
            partitions=list(partitions),
            build_information={entry.rm_id: {"buildVersion": "1.0"} for entry in partitions},
            started_ns=7,
            record_problem=record_problem,
        )
        self.worker, self.reader, self.changer = worker, reader, changer
        self.asked: list[tuple[str, Query]] = []
        self.read_of: list[tuple[str, ReadConfig | ReadHosts]] = []
        self.changes: list[tuple[str, Change]] = []
        """Each with the resource manager or partition it was for."""
        self.figures = Answer(status=200, body=b"[]")
        """What the broker tells of everybody but workers."""

    async def ask(self, partition: str, query: Query) -> Answer:
        if not partition:
            return self.figures
        self.asked.append((partition, query))
        return self.worker(query)

    async def partitions(self) -> PartitionList:
        return self.known

    def recent_partitions(self) -> PartitionList | None:
        return None

    async def read(self, rm: str, question: ReadConfig | ReadHosts) -> Answer:
        self.read_of.append((rm, question))
        return self.reader(rm, question)

    async def change(self, wanted: Change, *, rm: str = "", partition: str = "") -> Answer:
        assert bool(rm) + bool(partition) + isinstance(wanted, ChangeHosts) == 1
        self.changes.append((rm or partition, wanted))
        return self.changer(wanted)


class SilentLink(FakeLink):
    async def ask(self, partition: str, query: Query) -> Answer:
        raise RequestError(503, f"Partition {partition} did not answer within 10 s")


def request(
    link: FakeLink,
    path: str,
    method: str = "GET",
    *,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    client: tuple[str, int] = CLIENT,
    who: LoopbackUsers | None = None,
    settings: Settings | None = None,
    control: AccessControl | None = None,
    shown: Identity | None = None,
    past: HistoryReader | None = None,
) -> httpx.Response:
    """The API's answer; redirects are not followed and nothing is decompressed unless asked for. `shown` is the
    certificate with which the client has come.
    """
    settings = settings or Settings()
    api = Api(link, settings, control or AccessControl(who or loopback_users(), origins=settings.cors))
    api.services.history = past

    async def connection(scope: Scope, receive: Receive, send: Send) -> None:
        await api({**scope, "extensions": {CERTIFICATE_EXTENSION: {"owner": shown}}}, receive, send)

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=connection, client=client)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:9080") as visitor:
            return await visitor.request(
                method, httpx.URL(path), headers={"Accept-Encoding": "", **(headers or {})}, content=body
            )

    return asyncio.run(run())
