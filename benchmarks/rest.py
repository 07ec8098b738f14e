"""Cost of REST clients of a large cluster for its worker, and their response times.

A real system gets a partition with thousands of nodes, queues and applications, in which scheduling continues: all the
time some pods end and others come. Each client asks for clusters, partitions, the tree of queues, all nodes and all
applications once a second, as a browser does: with the version that it has already. The share of the worker is what
its metric states; its processor time is measured too, with and without clients. Everything runs on this
machine, clients and resource manager too, so figures compare only with those of the same machine.
"""

import asyncio
import http.client
import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import repeat
from time import monotonic, perf_counter, sleep
from typing import Final, NamedTuple

from benchmarks.results import Figure, Plan, Waits
from benchmarks.shapes import batches
from benchmarks.systems import SPAWN, Line, in_background, system
from benchmarks.tenants import costs
from yunishard.common.messages.rm_messages import AllocationResponse
from yunishard.common.rest.catalogue import ROWS_MAX, TABLES
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.items import application, ask, node, release

BATCH: Final = 500
"""Items of an update while the cluster is built."""

PERIOD_S: Final = 1.0
"""How often each client asks for everything."""

FIRST_ROWS: Final = 200
"""Rows of a table that the dashboard requests at once."""

CHURN: Final = 20
"""Pods that end, and that come, with each update while it is measured."""

CHURN_PERIOD_S: Final = 0.1
CLIENTS: Final = 10
SECONDS: Final = 60.0
APPLICATIONS_OF_A_USER: Final = 100
QUEUES_OF_A_PARENT: Final = 50
NODE: Final[dict[str, int | str]] = {"vcore": "32", "memory": "128Gi", "pods": 110}
POD: Final[dict[str, int | str]] = {"vcore": "500m", "memory": "1Gi", "pods": 1}

PATHS: Final = {
    "clusters": "/ws/v1/clusters",
    "partitions": "/ws/v1/partitions",
    "queues": "/ws/v1/partition/default/queues",
    "nodes": "/ws/v1/partition/default/nodes",
    "applications": "/ws/v1/partition/default/applications/active",
}
_SPENT: Final = re.compile(r'^yunishard_answering_seconds_total\{.*question="([^"]*)".*\} ([0-9.e+-]+)$', re.MULTILINE)


class Size(NamedTuple):
    """Of the cluster."""

    nodes: int = 5_000
    queues: int = 2_000
    applications: int = 20_000


# The resource manager -------------------------------------------------------------------------------------------------


def tree(queues: int) -> dict[str, list[str]]:
    """The leaves of each parent, in a hierarchy of so many queues."""
    parents = max(1, queues // QUEUES_OF_A_PARENT)
    leaves = max(queues - 1 - parents, parents)
    return {f"p{parent}": [f"q{leaf}" for leaf in range(parent, leaves, parents)] for parent in range(parents)}


def configuration(queues: int) -> str:
    """So many queues, the root and the parents among them."""
    lines = ["partitions:", "- name: default", "  queues:", "  - name: root", '    submitacl: "*"', "    queues:"]
    for parent, names in tree(queues).items():
        lines += [f"    - name: {parent}", "      queues:", *(f"      - name: {name}" for name in names)]
    return "\n".join(lines) + "\n"


def leaves(queues: int) -> list[str]:
    """The paths of the queues that applications may go to."""
    return [f"root.{parent}.{name}" for parent, names in tree(queues).items() for name in names]


async def manage(address: str, size: Size, line: Line) -> None:
    """Build the cluster, say so, and let pods come and go until told to stop."""
    config = configuration(size.queues)
    async with await ResourceManager.connect(address, rm_id="large", config=config, timeout_s=60) as rm:
        for numbers in batches(range(size.nodes), BATCH):
            names = [f"node-{number:05}" for number in numbers]
            await rm.update_nodes([node(name, NODE, attributes={"si/hostname": name}) for name in names])
        places = leaves(size.queues)
        for numbers in batches(range(size.applications), BATCH):
            await rm.update_applications(
                new=[
                    application(f"app-{n:05}", places[n % len(places)], user=f"user-{n // APPLICATIONS_OF_A_USER}")
                    for n in numbers
                ]
            )
            await rm.update_allocations(allocations=[ask(f"pod-{n:05}-0", f"app-{n:05}", POD) for n in numbers])
        placed = 0
        async for _, news in rm.results():
            placed += len(news.new) if isinstance(news, AllocationResponse) else 0
            if placed == size.applications:
                break
        line.send(None)
        listening = asyncio.create_task(_listen(rm))
        await _churn(rm, size, line)
        listening.cancel()


async def _listen(rm: ResourceManager) -> None:
    async for _ in rm.results():
        pass


async def _churn(rm: ResourceManager, size: Size, line: Line) -> None:
    """Each application in turn has its pod replaced."""
    step = 0
    while not line.poll():
        turns = [divmod(step * CHURN + number, size.applications) for number in range(min(CHURN, size.applications))]
        await rm.update_allocations(
            allocations=[ask(f"pod-{n:05}-{round_ + 1}", f"app-{n:05}", POD) for round_, n in turns],
            releases=[release(f"app-{n:05}", f"pod-{n:05}-{round_}") for round_, n in turns],
        )
        step += 1
        await asyncio.sleep(CHURN_PERIOD_S)


# Clients --------------------------------------------------------------------------------------------------------------


class Client:
    """One that asks for everything once in a while, and keeps versions as a browser does."""

    def __init__(self, host: str, port: int, late_s: float) -> None:
        self._host, self._port, self._late_s = host, port, late_s
        self.waited_ms: dict[str, list[float]] = {name: [] for name in PATHS}
        self.unchanged = dict.fromkeys(PATHS, 0)
        self._versions: dict[str, str] = {}

    def run(self, until: float) -> None:
        """Ask until then; who had to wait for too long asks at once."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=60)
        sleep(self._late_s)
        while (began := monotonic()) < until:
            for name, path in PATHS.items():
                self._ask(connection, name, path)
            sleep(max(0.0, began + PERIOD_S - monotonic()))
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection, name: str, path: str) -> None:
        known = {"If-None-Match": self._versions[name]} if name in self._versions else {}
        began = perf_counter()
        connection.request("GET", path, headers=known)
        response = connection.getresponse()
        body = response.read()
        self.waited_ms[name].append((perf_counter() - began) * 1000)
        assert response.status in (200, 304), (path, response.status, body[:200])
        self._versions[name] = response.headers.get("ETag", "")
        self.unchanged[name] += response.status == 304


def _waits_for_tables(host: str, port: int) -> list[Figure]:
    """For the first rows of each table, sorted by each of its columns in turn, and for as many rows as one answer has.

    A partition answers one of these at a time, and pauses as long as the answer took, so the client pauses too.
    """
    connection = http.client.HTTPConnection(host, port, timeout=60)

    def wait(path: str) -> float:
        began = perf_counter()
        connection.request("GET", f"/ws/v1/partition/default/table/{path}", headers={"Cache-Control": "max-age=0"})
        response = connection.getresponse()
        body = response.read()
        waited = perf_counter() - began
        assert response.status == 200, (path, response.status, body[:200])
        sleep(waited)
        return waited * 1000

    found: list[Figure] = []
    for name, table in TABLES.items():
        longest = max(wait(f"{name}?limit={FIRST_ROWS}&sort=-{column}") for column in table.sortable)
        found.append(Figure(f"rest/table of {name}/longest answer with {FIRST_ROWS} sorted rows", longest, "ms"))
        found.append(Figure(f"rest/table of {name}/all rows", wait(f"{name}?limit={ROWS_MAX}"), "ms"))
    connection.close()
    return found


def _waits(host: str, port: int, count: int, seconds: float) -> list[Figure]:
    clients = [Client(host, port, number * PERIOD_S / count) for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(Client.run, clients, repeat(monotonic() + seconds)))
    return [figure for name in PATHS for figure in _waits_for(name, clients)]


def _waits_for(name: str, clients: list[Client]) -> Iterator[Figure]:
    waited = [ms for one in clients for ms in one.waited_ms[name][1:]]
    waits = Waits.of(waited)
    yield Figure(f"rest/{name}/longest first answer", max(one.waited_ms[name][0] for one in clients), "ms")
    yield Figure(f"rest/{name}/median", waits.p50_ms, "ms")
    yield Figure(f"rest/{name}/99 of 100", waits.p99_ms, "ms")
    yield Figure(f"rest/{name}/answers", len(waited), "")
    yield Figure(f"rest/{name}/unchanged", sum(one.unchanged[name] for one in clients), "")


# Measuring ------------------------------------------------------------------------------------------------------------


def _cpu_s(supervisor: int) -> float:
    """That all workers have used."""
    return sum(cost.cpu_s for (role, _), cost in costs(supervisor).items() if role == "partition_worker")


def _spent_s(rest: str) -> dict[str, float]:
    """By the worker on answers, for each kind of question."""
    host, _, port = rest.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", "/ws/v1/metrics")
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status == 200, text
    return {question: float(spent) for question, spent in _SPENT.findall(text) if question != "metrics"}  # ours


def figures(plan: Plan) -> Iterator[Figure]:
    """Of a cluster of the full size."""
    size = Size(*map(plan.scaled, Size()))
    yield from measured(size, CLIENTS, max(3.0, plan.share * SECONDS))


def measured(size: Size, count: int, seconds: float) -> Iterator[Figure]:
    """Build the cluster, and measure it without clients, then with so many, in a process of their own."""
    with system() as (supervisor, at), in_background(manage, at["native"], size), ProcessPoolExecutor(1, SPAWN) as pool:
        rest = at["rest"].rpartition("/")[2]
        host, _, port = rest.rpartition(":")
        quiet, began = _cpu_s(supervisor), monotonic()
        sleep(seconds / 2)
        alone = (_cpu_s(supervisor) - quiet) / (monotonic() - began)
        before, busy, began = _spent_s(rest), _cpu_s(supervisor), monotonic()
        waits = pool.submit(_waits, host, int(port), count, seconds).result()
        passed, used = monotonic() - began, _cpu_s(supervisor) - busy
        spent_after = _spent_s(rest)
        tables = pool.submit(_waits_for_tables, host, int(port)).result()
        spent = {name: spent - before.get(name, 0.0) for name, spent in spent_after.items()}
    yield Figure("rest/answers, of the worker's time", sum(spent.values()) / passed * 100, "%")
    for name, each in spent.items():
        yield Figure(f"rest/{name}, of the worker's time", each / passed * 100, "%")
    yield Figure("rest/processor time of the worker", used / passed * 100, "%")
    yield Figure("rest/processor time of the worker without clients", alone * 100, "%")
    yield from waits
    yield from tables
