"""A link that knows a few partitions and notes what it was asked, and a client that reaches the API without sockets."""

import asyncio
from collections.abc import Callable

import httpx

from common.messages import Answer, PartitionEntry, PartitionList, Query
from webservice.api import Api
from webservice.errors import RequestError

Worker = Callable[[Query], Answer]


def partition(rm_id: str = "rm-1", name: str = "default") -> PartitionEntry:
    return PartitionEntry(full_name=f"{rm_id}_{name}", name=name, rm_id=rm_id)


def echo(query: Query) -> Answer:
    """A worker that answers with the name it is to show."""
    return Answer(status=200, body=f'{{"name":"{query.name}"}}\n'.encode())


class FakeLink:
    def __init__(self, *partitions: PartitionEntry, worker: Worker = echo) -> None:
        self.known = PartitionList(
            partitions=list(partitions),
            build_information={entry.rm_id: {"buildVersion": "1.0"} for entry in partitions},
            started_ns=7,
        )
        self.worker = worker
        self.asked: list[tuple[str, Query]] = []

    async def ask(self, partition: str, query: Query) -> Answer:
        self.asked.append((partition, query))
        return self.worker(query)

    async def partitions(self) -> PartitionList:
        return self.known


class SilentLink(FakeLink):
    async def ask(self, partition: str, query: Query) -> Answer:
        raise RequestError(503, f"Partition {partition} did not answer within 10 s")


def request(
    link: FakeLink, path: str, method: str = "GET", *, headers: dict[str, str] | None = None, body: bytes = b""
) -> httpx.Response:
    """The API's answer; redirects are not followed and nothing is decompressed unless asked for."""

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=Api(link))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.request(
                method, httpx.URL(path), headers={"Accept-Encoding": "", **(headers or {})}, content=body
            )

    return asyncio.run(run())
