"""The most expensive inputs that the limits allow, for `python -m benchmarks.neighbours`.

Each is an asynchronous generator: it prepares the system up to its `yield`, and then sends the input again and again
until its time is over. Add one with `@row`; nothing else lists them.
"""

import asyncio
import itertools
import string
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import Final, NamedTuple

import grpc
import msgspec

from benchmarks.shapes import batches
from benchmarks.systems import SPAWN
from yunishard.common.messages.rm_messages import NODE_UPDATE, NodeInfo
from yunishard.partition_worker.engine.predicates.predicate import NODE_SELECTOR
from yunishard.rmproxy.si.scheduler_pb2_grpc import SchedulerStub
from yunishard.sdk.client import ResourceManager
from yunishard.sdk.exceptions import YunishardError
from yunishard.sdk.items import application, ask, node, release, removal

QUEUE: Final = "root.heavy"
NODES: Final = 2_500
BATCH: Final = 10_000
ONE: Final[Mapping[str, str]] = {"vcore": "1"}
CLIENTS: Final = 8
"""REST clients of a row at the same time."""

CONFIG: Final = """\
partitions:
- name: default
  queues:
  - name: root
    submitacl: "*"
    adminacl: "*"
    queues:
    - {name: honest, resources: {guaranteed: {vcore: 1000}}}
    - {name: heavy, resources: {max: {vcore: 2000}}}
"""


@dataclass
class Scene:
    """A running system with an RM that sends the input, and the time at which it ends."""

    native: str
    grpc: str
    rest: str
    rm: ResourceManager
    until: float = 0.0

    @property
    def is_over(self) -> bool:
        return monotonic() >= self.until

    async def repeat(self, action: Callable[[int], Awaitable[None]]) -> None:
        """Await it with 0, 1, 2, ... until the time is over."""
        for number in itertools.count():
            if self.is_over:
                return
            await action(number)

    async def ask_rest(self, *paths: str, method: str = "GET", body: "Body" = None) -> None:
        """Have several clients request these paths one after the other until the time is over."""
        with ProcessPoolExecutor(1, SPAWN) as pool:  # the clients must not slow down the measurement in this process
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(pool, request_all, self.rest, paths, method, body, self.until)


Body = Callable[[int], str] | str | None
"""The body of a request, or what makes it from the number of the request."""


def request_all(address: str, paths: Sequence[str], method: str, body: Body, until: float) -> None:
    """Request these paths from several threads until the time is over."""
    numbers = itertools.count()

    def request_in_turn(_: int) -> None:
        while monotonic() < until:
            for path in paths:
                with suppress(OSError, HTTPException), closing(HTTPConnection(address, timeout=60)) as one:
                    one.request(method, path, body(next(numbers)) if callable(body) else body)
                    one.getresponse().read()

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(request_in_turn, range(CLIENTS)))


Load = Callable[[Scene], AsyncGenerator[None]]


class Row(NamedTuple):
    """An input of the table."""

    name: str
    limit: str
    """The limits that bound it."""
    load: Load


ROWS: Final[list[Row]] = []


def row(limit: str) -> Callable[[Load], Load]:
    """Add an input to the table; its name is the docstring."""

    def add(load: Load) -> Load:
        ROWS.append(Row((load.__doc__ or "").rstrip("."), limit, load))
        return load

    return add


# Asks, applications and nodes -----------------------------------------------------------------------------------------


async def submit(scene: Scene, count: int, *, size: int = 1) -> None:
    """Submit applications with so many asks each, more than there is room for."""
    for some in batches([application(f"job-{n}", QUEUE, user=f"user-{n % 50}") for n in range(count)], BATCH):
        await scene.rm.update_applications(new=list(some))
    asks = (ask(f"job-{n}-{m}", f"job-{n}", ONE, priority=m % 100) for n in range(count) for m in range(size))
    while some_asks := list(itertools.islice(asks, BATCH)):
        await scene.rm.update_allocations(allocations=some_asks)


def write_selector(number: int) -> str:
    """Write a node selector of 63 KB with 60 alternatives that no node fulfils."""
    terms = (f"l{n % 40} in ({','.join(f'w{n}_{value}' for value in range(150))})" for n in range(60))
    return "||".join(terms)[:65_000].rsplit("||", 1)[0] + f"||zz{number} in (q)"


@row("work of a turn; 65,536 characters and 64 alternatives of a selector")
async def selectors(scene: Scene) -> AsyncGenerator[None]:
    """60 asks with different node selectors of 63 KB."""
    await scene.rm.update_applications(new=[application("selecting", QUEUE, user="u")])
    yield
    tags = [{NODE_SELECTOR: write_selector(number)} for number in range(60)]
    for number, tag in enumerate(tags):
        await scene.rm.update_allocations(allocations=[ask(f"s-{number}", "selecting", ONE, tags=tag)])


@row("64 MiB of an update, 65,536 characters and 256 terms of a selector")
async def selectors_in_large_updates(scene: Scene) -> AsyncGenerator[None]:
    """Updates of 900 asks with different node selectors of 63 KB."""
    await scene.rm.update_applications(new=[application("selecting", QUEUE, user="u")])
    text = write_selector(0)
    yield

    async def turn(number: int) -> None:
        asks = [
            ask(f"s-{number}-{n}", "selecting", ONE, tags={NODE_SELECTOR: f"{text}||x{number}y{n}"}) for n in range(900)
        ]
        await scene.rm.update_allocations(allocations=asks)
        await scene.rm.update_allocations(releases=[release("selecting", one.allocation_key) for one in asks])

    await scene.repeat(turn)


@row("50,000 items and 64 MiB of an update; the window")
async def many_asks(scene: Scene) -> AsyncGenerator[None]:
    """Updates of 10,000 asks without room, 400,000 in all."""
    await scene.rm.update_applications(new=[application("many", QUEUE, user="u")])
    yield
    numbers = iter(range(40))

    async def send(_: int) -> None:
        if (batch := next(numbers, None)) is None:
            await asyncio.sleep(0.1)
            return
        asks = [ask(f"m-{batch}-{n}", "many", ONE, priority=n % 100) for n in range(BATCH)]
        await scene.rm.update_allocations(allocations=asks)

    await scene.repeat(send)


@row("none for the asks of an application")
async def remove_large_application(scene: Scene) -> AsyncGenerator[None]:
    """Removal of an application with 200,000 asks."""
    await submit(scene, 1, size=200_000)
    yield
    await scene.rm.update_applications(remove=[removal("job-0")])


@row("50,000 items of an update")
async def application_churn(scene: Scene) -> AsyncGenerator[None]:
    """10,000 applications come and go."""
    yield

    async def turn(number: int) -> None:
        names = [f"churn-{number}-{n}" for n in range(BATCH)]
        await scene.rm.update_applications(new=[application(one, QUEUE, user="u") for one in names])
        await scene.rm.update_applications(remove=[removal(one) for one in names])

    await scene.repeat(turn)


@row("50,000 items of an update")
async def node_updates(scene: Scene) -> AsyncGenerator[None]:
    """Every node changes its attributes, 2,500 in an update."""
    await submit(scene, 300, size=20)
    yield

    async def turn(number: int) -> None:
        changed = [node(f"n{n}", action=NODE_UPDATE, attributes={"a": f"{number}-{n}"}) for n in range(NODES)]
        await scene.rm.update_nodes(changed)

    await scene.repeat(turn)


@row("50,000 items of an update")
async def capacity_updates(scene: Scene) -> AsyncGenerator[None]:
    """Every node changes its capacity while 6,000 asks wait."""
    await submit(scene, 300, size=20)
    yield

    async def turn(number: int) -> None:
        room = {"vcore": str(32 + number % 2)}
        await scene.rm.update_nodes([node(f"n{n}", room, action=NODE_UPDATE) for n in range(NODES)])

    await scene.repeat(turn)


@row("50,000 items of an update")
async def foreign_allocations(scene: Scene) -> AsyncGenerator[None]:
    """2,500 foreign allocations come and go."""
    yield

    async def turn(number: int) -> None:
        keys = [f"f-{number}-{n}" for n in range(NODES)]
        tags = {"foreign": "default"}
        await scene.rm.update_allocations(
            allocations=[ask(key, "", ONE, node_id=f"n{n}", tags=tags) for n, key in enumerate(keys)]
        )
        await scene.rm.update_allocations(releases=[release("", key) for key in keys])

    await scene.repeat(turn)


@row("50,000 items of an update")
async def gangs(scene: Scene) -> AsyncGenerator[None]:
    """Gangs of 10,000 placeholders without room."""
    yield

    async def turn(number: int) -> None:
        name = f"gang-{number}"
        await scene.rm.update_applications(new=[application(name, QUEUE, user="u", gang={"vcore": "1000"})])
        await scene.rm.update_allocations(
            allocations=[ask(f"{name}-{n}", name, ONE, placeholder=True, task_group="g") for n in range(BATCH)]
        )
        await scene.rm.update_applications(remove=[removal(name)])

    await scene.repeat(turn)


@row("524,288 characters of an application; placement work")
async def many_groups(scene: Scene) -> AsyncGenerator[None]:
    """Applications of users with 1,000 groups each."""
    yield
    groups = [f"group-{n:04}-{string.ascii_lowercase}" for n in range(1_000)]

    async def turn(number: int) -> None:
        names = [f"g-{number}-{n}" for n in range(500)]
        await scene.rm.update_applications(
            new=[application(one, QUEUE, user=f"u-{one}", groups=[f"{one}-{each}" for each in groups]) for one in names]
        )
        await scene.rm.update_applications(remove=[removal(one) for one in names])

    await scene.repeat(turn)


# Configurations -------------------------------------------------------------------------------------------------------

EXPRESSION: Final = '"^((%s%d|b|c){1,20}[a-z]{1,30}){1,10}$"'


def write_rules(count: int, word: str) -> str:
    """Write a configuration with so many placement rules, each with an expression of its own."""
    rules = (
        "{name: user, create: true, filter: {type: allow, users: [" + EXPRESSION % (word, n) + "]}}"
        for n in range(count)
    )
    head = "partitions: [{name: default, queues: [{name: root, submitacl: '*'}], placementrules: ["
    return head + ",".join(rules) + "]}]"


def write_queues(count: int) -> str:
    """Write a configuration with so many queues."""
    queues = ",".join(f"{{name: q{n}}}" for n in range(count))
    return "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [" + queues + "]}]}]"


def write_different_queues(number: int) -> str:
    """Write a configuration with 2,000 queues that differs from all others."""
    return write_queues(2_000 + number)


async def register(scene: Scene, rm_id: str, config: str) -> None:
    """Register an RM with a configuration, and let it leave; a refusal is an answer, too."""
    with suppress(YunishardError):
        rm = await ResourceManager.connect(scene.native, rm_id=rm_id, config=config, timeout_s=60)
        async with rm:
            await rm.leave()


def register_in_turn(config: Callable[[int], str], clients: int) -> Load:
    """Have several clients register with a configuration that no one has sent before, and leave."""

    async def load(scene: Scene) -> AsyncGenerator[None]:
        yield

        async def come_and_go(client: int, number: int) -> None:
            await register(scene, f"rm-{client}-{number}", config(number * clients + client))

        await asyncio.gather(*(scene.repeat(partial(come_and_go, client)) for client in range(clients)))

    return load


ROWS.extend(
    Row(name, limit, register_in_turn(write, clients))
    for name, limit, write, clients in (
        (
            "Registrations with 25,000 placement rules, which are refused",
            "1,000 placement rules of a partition",
            lambda n: write_rules(25_000, f"a{n}"),
            1,
        ),
        (
            "Registrations with 300,000 queues, which are refused",
            "50,000 queues of a partition",
            lambda n: write_queues(300_000 + n),
            1,
        ),
        (
            "Registrations with 1,000 placement rules and expressions",
            "placement rules and expressions of a configuration",
            lambda n: write_rules(1_000, f"a{n:05}"),
            1,
        ),
        ("Registrations with 50,000 queues", "50,000 queues of a partition", lambda n: write_queues(50_000 - n), 1),
        (
            "Four clients register with 640 expressions in 64 KB each",
            "processor time for the configurations of a client",
            lambda n: write_rules(640, f"a{n:05}"),
            4,
        ),
        (
            "Registrations with 15 MiB of comments",
            "64 MiB of versions of an RM, 256 MiB of all former RMs",
            lambda n: f"# {n} " + "x" * (15 << 20) + "\n" + CONFIG,
            1,
        ),
        ("Ten clients register and leave in turn", "500 partitions of all RMs", lambda n: CONFIG, 10),
    )
)


@row("one change of an RM at a time")
async def configuration_changes(scene: Scene) -> AsyncGenerator[None]:
    """Changes of a configuration with 2,000 queues."""
    yield
    more = "".join(f"    - {{name: q{n}}}\n" for n in range(2_000))

    async def turn(number: int) -> None:
        text = f"{CONFIG}{more}".replace("2000", str(2_000 + number % 2))
        with suppress(YunishardError):
            await scene.rm.update_configuration(text)

    await scene.repeat(turn)


@row("32 changes at a time")
async def validations(scene: Scene) -> AsyncGenerator[None]:
    """Validations of 2,000 queues over REST."""
    yield
    await scene.ask_rest("/ws/v1/validate-conf", method="POST", body=write_different_queues)


# Queries --------------------------------------------------------------------------------------------------------------


def query_row(name: str, limit: str, *paths: str, method: str = "GET", body: str | None = None) -> None:
    """Add a row of REST clients that request paths of a partition with 30,000 asks of 3,000 applications."""

    async def load(scene: Scene) -> AsyncGenerator[None]:
        await submit(scene, 3_000, size=10)
        yield
        await scene.ask_rest(*paths, method=method, body=body)

    ROWS.append(Row(name, limit, load))


PARTITION: Final = "/ws/v1/partition/heavy_default"
query_row(
    "Tables of asks and applications, sorted by reason",
    "rows that are sorted by `reason`",
    f"{PARTITION}/table/asks?sort=reason&limit=10000",
    f"{PARTITION}/table/applications?sort=-message&limit=10000",
)
query_row(
    "Explanations of applications, queues and nodes",
    "nodes, asks and allocations that an explanation examines",
    f"{PARTITION}/explain/application/job-2999",
    f"{PARTITION}/explain/queue/root.heavy",
    f"{PARTITION}/explain/node/n0",
)
query_row(
    "Plans of a job with 10,000 tasks",
    "1 plan of a partition at a time, 30 s, 2 GiB",
    f"{PARTITION}/plan",
    method="POST",
    body=msgspec.json.encode(
        {"changes": [{"kind": "submit", "job": {"queue": QUEUE, "user": "u", "resources": ONE, "tasks": 10_000}}]}
    ).decode(),
)
query_row(
    "All applications, nodes, queues and users as YuniKorn's documents",
    "200,000 asks of an application in an answer; 64 MiB of an answer",
    f"{PARTITION}/applications/active",
    f"{PARTITION}/nodes",
    f"{PARTITION}/queues",
    f"{PARTITION}/usage/users",
)
query_row("State dumps", "128 MiB of a combined list", "/debug/fullstatedump")
query_row("Scrapes of the metrics", "256 queries at a time", "/ws/v1/metrics")
query_row(
    "Events and preemptions",
    "events in memory",
    f"{PARTITION}/events/batch?count=10000",
    f"{PARTITION}/preemptions",
    "/ws/v1/events/batch?count=10000",
)


@row("500 event streams; 10,000 unread events")
async def event_streams(scene: Scene) -> AsyncGenerator[None]:
    """400 event streams whose readers stop."""
    async with AsyncExitStack() as stack:
        host, _, port = scene.rest.rpartition(":")
        for _ in range(400):
            _, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(f"GET {PARTITION}/events/stream HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        yield

        async def turn(number: int) -> None:
            names = [f"e-{number}-{n}" for n in range(1_000)]
            await scene.rm.update_applications(new=[application(one, QUEUE, user="u") for one in names])
            await scene.rm.update_applications(remove=[removal(one) for one in names])

        await scene.repeat(turn)


# Connections ----------------------------------------------------------------------------------------------------------


@row("gRPC calls in all, and of each client")
async def idle_streams(scene: Scene) -> AsyncGenerator[None]:
    """4,300 idle gRPC streams."""
    async with AsyncExitStack() as stack:
        calls = []
        for number in range(43):
            options = [("grpc.use_local_subchannel_pool", 1), ("yunishard.number", number)]
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(scene.grpc, options=options))
            stub = SchedulerStub(channel)  # type: ignore[no-untyped-call]
            calls += [stub.UpdateNode() for _ in range(100)]
        yield
        await scene.repeat(lambda _: asyncio.sleep(0.1))
        for call in calls:
            call.cancel()


@row("1,000 REST connections; file descriptors")
async def silent_connections(scene: Scene) -> AsyncGenerator[None]:
    """Connections that say nothing, to each port."""
    yield
    async with AsyncExitStack() as stack:

        async def turn(number: int) -> None:
            where = (scene.native.removeprefix("tcp://"), scene.grpc, scene.rest)[number % 3]
            host, _, port = where.rpartition(":")
            with suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
            if number > 2_000:
                await asyncio.sleep(0.01)

        await scene.repeat(turn)


@row("messages that an RM has not acknowledged")
async def broken_sessions(scene: Scene) -> AsyncGenerator[None]:
    """Sessions that connect, resume and break off."""
    yield

    async def come_and_break_off(client: int, number: int) -> None:
        with suppress(YunishardError):
            rm = await ResourceManager.connect(scene.native, rm_id=f"broken-{client}", config=CONFIG, timeout_s=60)
            await rm.update_nodes([node(f"n{n}", {"vcore": "1"}) for n in range(100)])
            await rm.close()

    await asyncio.gather(*(scene.repeat(partial(come_and_break_off, client)) for client in range(5)))


def nodes() -> Sequence[NodeInfo]:
    """The nodes of the RM that sends the inputs."""
    return [node(f"n{n}", {"vcore": "32"}, attributes={"zone": f"z{n % 10}"}) for n in range(NODES)]
