"""A store in PostgreSQL with a synchronous standby, beside the embedded one: rates, commits, processor time.

Both servers run on this machine and write to its disk for real. Systems with each store run in turn, and the ratio is
that of each pair: the speed of a shared machine changes within minutes. Rates of three larger hosts are reckoned from
the processor time of each process and from the bytes of the write-ahead log.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import msgspec
import psycopg

from benchmarks.end_to_end import measured
from benchmarks.processor_time import RECKONED, ROLES, WORKER, spread
from benchmarks.resource_managers import NativeRm
from benchmarks.results import PER_SECOND, Figure, Plan
from benchmarks.shapes import two_queues
from benchmarks.systems import CLIENT, Up, own, roles_of, system
from tests.deploy.system import free_ports
from tests.postgres import USER, Server, new_store
from yunishard.cli.main import main
from yunishard.common.text_formats import format_count
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals
from yunishard.partition_worker.journal.protocol import Journals
from yunishard.partition_worker.journal.sqlite_journal import SqliteJournals

SAFE: Final = ("fsync=on", "full_page_writes=on", "autovacuum=off")
"""Settings of a server that survives a crash of the machine. Processes that come and go could not be measured."""

ASKS: Final = 20_000

GROUPS: Final = (1, 50, 256, 1_000)
"""Numbers of steps in a commit."""

STEP_BYTES: Final = 200
COMMITS: Final = 100
"""Commits of each size."""

SIZES: Final = {("a",): 1, ("a", "b"): 4}
"""Numbers of partitions by the names of the hosts."""

SESSIONS: Final = "primary, sessions"
SENDER: Final = "primary, sender of the log"
RECEIVER: Final = "standby, receiver of the log"
REPLAY: Final = "standby, replay"
OTHERS: Final = "servers, other processes"
SERVERS: Final = {
    ("primary", USER): SESSIONS,
    ("primary", "walsender"): SENDER,
    ("standby", "walreceiver"): RECEIVER,
    ("standby", "startup"): REPLAY,
}
"""Roles of server processes, by the server and the kind in their title."""

HOSTS: Final = 3
CORES: Final = 16
"""Cores of each of the larger hosts; a primary and a standby have as many."""

PARTITIONS: Final = (1, 6, 12, 24)
LOG_BYTES_PER_SECOND: Final = 1_000_000_000
"""Bytes of the write-ahead log that network and disks of the larger hosts take: 10 Gbit/s."""


def figures(plan: Plan) -> Iterator[Figure]:
    """Commits of each size, rates in turn, and what larger hosts would give."""
    with _servers() as (primary, standby):
        yield from _commit_figures(primary, plan)
        workload = two_queues(plan.nodes, plan.scaled(ASKS))
        pairs, log_bytes = [], 0.0
        for _ in range(plan.rounds):
            embedded = measured(partial(own, "native"), workload, plan.settling_s)
            before = _log_position(primary)
            stored = measured(partial(_clustered, primary, standby), workload, plan.settling_s)
            log_bytes = (_log_position(primary) - before) / stored.allocations
            pairs.append((embedded, stored))
    yield Figure("store/embedded", median(one.per_second for one, _ in pairs), PER_SECOND)
    yield Figure("store/postgresql", median(one.per_second for _, one in pairs), PER_SECOND)
    yield Figure("store/ratio", median(two.per_second / one.per_second for one, two in pairs), "of embedded")
    us = {role: median(two.cpu_us().get(role, 0.0) for _, two in pairs) for role in (*ROLES, *SERVERS.values(), OTHERS)}
    for role, spent in us.items():
        yield Figure(f"store/{role}", spent, "µs")
    yield Figure("store/log", log_bytes, "bytes")
    for partitions in PARTITIONS:
        rate = reckoned(us, log_bytes, partitions=partitions)
        yield Figure(f"store/reckoned/{partitions}", rate, RECKONED)


def hosts_figures(plan: Plan) -> Iterator[Figure]:
    """The rate of one partition on one host, and in turn that of several partitions on two hosts."""
    nodes, asks = plan.nodes, plan.scaled(ASKS)
    with _servers() as (primary, _):
        pairs = [
            [
                measured(partial(_hosts, primary, names), spread(nodes, asks, partitions), plan.settling_s).per_second
                for names, partitions in SIZES.items()
            ]
            for _ in range(plan.rounds)
        ]
    for (names, partitions), rates in zip(SIZES.items(), zip(*pairs, strict=True), strict=True):
        yield Figure(f"hosts/{len(names)}, {format_count(partitions, 'partition')}", median(rates), PER_SECOND)
    yield Figure("hosts/ratio", median(two / one for one, two in pairs), "times")


@contextmanager
def _hosts(primary: Server, names: Sequence[str]) -> Iterator[Up]:
    """Hosts with these names on this machine; the resource manager connects to the first one."""
    store = new_store(primary)
    with ExitStack() as stack:
        keys = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with redirect_stdout(StringIO()):
            assert main(["cluster", "init", str(keys), *names]) == 0
        hosts = []
        for name, port in zip(names, free_ports(len(names)), strict=True):
            address = ("--cluster-address", f"tcp://127.0.0.1:{port}", "--cluster-keys", str(keys / name))
            hosts.append(stack.enter_context(system("--store", store, "--host-name", name, *address)))
        connect = partial(NativeRm, hosts[0][1]["native"])
        yield Up(connect, lambda: {process: role for host, _ in hosts for process, role in roles_of(host).items()})


@contextmanager
def _servers() -> Iterator[tuple[Server, Server]]:
    """A primary, and its synchronous standby."""
    with ExitStack() as stack:
        primary = Server("synchronous_standby_names=*", *SAFE)
        stack.callback(primary.remove)
        standby = Server(*SAFE, source=primary)
        stack.callback(standby.remove)
        yield primary, standby


@contextmanager
def _clustered(primary: Server, standby: Server) -> Iterator[Up]:
    """This system with a new store; the servers count as processes of it."""
    with own("native", "--store", new_store(primary)) as up:
        yield Up(up.connect, lambda: {**up.processes(), **_server_roles(primary=primary, standby=standby)})


def _server_roles(**servers: Server) -> dict[int, str]:
    """The servers' processes and their roles."""
    return {
        process: SERVERS.get((name, _kind(process)), OTHERS)
        for name, server in servers.items()
        for process in server.processes()
    }


def _kind(process: int) -> str:
    """The kind of a process of PostgreSQL: the second word of its title."""
    words = Path(f"/proc/{process}/cmdline").read_text().strip("\0").split()
    return words[1] if len(words) > 1 else ""


def _log_position(server: Server) -> int:
    """Bytes of the write-ahead log so far."""
    with psycopg.connect(server.dsn) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def _commit_figures(primary: Server, plan: Plan) -> Iterator[Figure]:
    """Milliseconds of a commit with each number of steps."""
    with tempfile.TemporaryDirectory() as folder:
        stores: Mapping[str, Journals] = {
            "embedded": SqliteJournals(Path(folder)),
            "postgresql": PostgresJournals(new_store(primary)),
        }
        for steps in GROUPS:
            for name, journals in stores.items():
                ms = _commit_ms(journals, steps, plan.scaled(COMMITS))
                yield Figure(f"store/commit of {steps}/{name}", ms, "ms")


def _commit_ms(journals: Journals, steps: int, commits: int) -> float:
    """The median of so many commits, one after the other."""
    found = []
    with closing(journals.open(f"p{steps}", 1)) as journal:
        for number in range(1, commits * steps, steps):
            group = [msgspec.msgpack.encode([number + n, 0.0, "", bytes(STEP_BYTES)]) for n in range(steps)]
            began = perf_counter()
            journal.append(group, fresh=False)
            found.append((perf_counter() - began) * 1000)
    return median(found)


def reckoned(us: Mapping[str, float], log_bytes: float, *, partitions: int) -> float:
    """Calculate the allocations per second of larger hosts, from the processor time of each role.

    Each host has a proxy and its share of the workers, each RM has a host of its own, one broker leads, and each
    partition has a session. The rate is limited by the first process without idle time, by all cores together, or by
    the bytes of the write-ahead log.
    """
    shares = {CLIENT: partitions, WORKER: partitions, SESSIONS: partitions, "rmproxy": min(HOSTS, partitions)}
    busiest = max(spent / shares.get(role, 1) for role, spent in us.items() if role != OTHERS)
    own_cores = sum(spent for role, spent in us.items() if role in ROLES and role != CLIENT) / (HOSTS * CORES)
    server_cores = sum(spent for role, spent in us.items() if role not in ROLES) / (2 * CORES)
    return min(1e6 / max(busiest, own_cores, server_cores), LOG_BYTES_PER_SECOND / log_bytes)
