"""A broker whose record is in the simulated database: a standby, then the leader, then over.

It does what `broker/candidacy.py` and `broker/service.py` do around the machine of the election. While it leads, it
is checked that no broker of another host does.

Not here: the record (`database_record.py`), the election (`broker/election.py`).
"""

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tests.sim.auditor import Violation
from tests.sim.database import Client, Tables, once
from tests.sim.database_record import RecordClient
from tests.sim.host import Host
from tests.sim.process import Process
from yunishard.broker.candidacy import LEADER_DURATION
from yunishard.broker.config_versions import VersionHistory
from yunishard.broker.election import RENEWALS, ElectedBroker, Election
from yunishard.broker.hosts import HostRow
from yunishard.broker.registry import RmRecord
from yunishard.common.lease_watch import RELEASED
from yunishard.common.messages.control_messages import LeasePolled, PollLease
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, encode_body
from yunishard.common.names import BROKER, LEASE
from yunishard.deploy.children import LeaderFound

if TYPE_CHECKING:
    from tests.sim.supervision import Keeper
    from tests.sim.world import World

Content = tuple[list[RmRecord], dict[str, VersionHistory], list[HostRow]]
"""Of the record."""


class Candidate:
    """The part of one broker's process in the election."""

    def __init__(self, world: "World", process: Process, host: Host, keeper: "Keeper", lease_timeout_s: float) -> None:
        assert world.database is not None
        self._world, self._process, self._host, self._keeper = world, process, host, keeper
        duration_s = self._duration_s = LEADER_DURATION * lease_timeout_s
        self._election = Election(host.own, host=host.name, address=host.remote.address, duration_s=duration_s)
        self._client = Client(world.database, process, world.timeline, duration_s / RENEWALS)
        self._begun = False
        process.route(LEASE, self._poll)
        process.after_turn = self._look
        process.run(self._election)

    # The lease ------------------------------------------------------------------------------------------------------

    def _poll(self, message: Outgoing) -> None:
        poll = decode_body(PollLease, message.body)
        self._client.drive(once(partial(poll_lease, self._host, int(self._process.now), poll)), self._polled)

    def _polled(self, outcome: LeasePolled | OSError) -> None:
        polled = LeasePolled(problem=str(outcome)) if isinstance(outcome, OSError) else outcome
        self._process.take(Incoming(LEASE, Header(kind="LeasePolled"), encode_body(polled)))

    def release(self) -> None:
        """The lease ends, as this broker was asked to stop and answers nothing any more."""
        self._process.machine = None
        if self._election.epoch:
            self._client.drive(once(partial(_release, self._election.epoch)), lambda _: None)

    def _look(self) -> None:
        """After each turn: what has become of it."""
        election = self._election
        election.notes.clear()
        election.warnings.clear()
        if election.lost:
            self._world.timeline.after(0, partial(self._world.kill, self._process, election.lost))
            return
        while election.leaders:
            self._keeper.report(LeaderFound(election.leaders.pop(0)))
        if election.epoch and not self._begun:
            self._begun = True
            self._process.machine = None
            client = Client(self._client.database, self._process, self._world.timeline)
            client.drive(once(_read_record), partial(self._lead, client))

    # Leading --------------------------------------------------------------------------------------------------------

    def _lead(self, client: Client, content: Content | OSError) -> None:
        """The record is read: answer the others."""
        world, process = self._world, self._process
        if isinstance(content, OSError):
            self._keeper.failed(process, str(content))
            world.kill(process, str(content))
            return
        records, histories, hosts = content
        record = RecordClient(client, self._election.epoch, process.take)
        broker = world.roles.make_broker(process, record.give, self._election.epoch, records, histories, hosts=hosts)
        router = world.network.listen(process, self._host.own.address, self._host.remote.address)

        def send(one: Outgoing) -> None:
            self._check(one)
            world.network.down(router, one.to, process.frames(one))

        process.route("", send)
        process.run(ElectedBroker(broker, self._election, broker.state.hosts))

    def _check(self, one: Outgoing) -> None:
        """Another broker must not have begun. One of the same host may have, as it is killed when it goes on."""
        held = self._client.database.primary.lease(BROKER)
        if held.epoch != self._election.epoch and held.holder != self._host.name:
            text = f"{self._host.name} sends {one.header.kind} under {self._election.epoch}, and {held} leads"
            raise Violation("two leaders", text, (self._process.name,))


def poll_lease(host: Host, unix_s: int, poll: PollLease, tables: Tables, now: float) -> LeasePolled:
    """Renew the lease, or acquire it; who leads (`common/postgres/leases.py`)."""
    known, _ = tables.record.hosts.get(host.name, (HostRow(name=host.name, cores=host.cores), 0.0))
    tables.record.hosts[host.name] = known, now
    lease = tables.lease(BROKER)
    if poll.epoch and poll.epoch == lease.epoch:
        lease.expires_at = now + poll.duration_s
        return LeasePolled(epoch=lease.epoch, heartbeats={name: at for name, (_, at) in tables.record.hosts.items()})
    if not poll.epoch and (lease.holder == host.name or lease.expires_at in (RELEASED, poll.ended)):
        lease.holder, lease.epoch, lease.writes = host.name, max(unix_s, lease.epoch + 1), 0
        lease.address, lease.expires_at = host.remote, now + poll.duration_s
        return LeasePolled(epoch=lease.epoch)
    address, left_s = lease.address, lease.expires_at - now
    return LeasePolled(
        holder=lease.holder,
        endpoint=address.address,
        public_key=address.key,
        expires=lease.expires_at,
        left_s=left_s,
    )


def _release(epoch: int, tables: Tables, now: float) -> None:
    lease = tables.lease(BROKER)
    if lease.epoch == epoch:
        lease.expires_at = RELEASED


def _read_record(tables: Tables, now: float) -> Content:
    hosts = [replace(row, age_s=now - heartbeat) for row, heartbeat in tables.record.hosts.values()]
    return tables.record.read_records(), tables.record.read_histories(), hosts if len(hosts) > 1 else []
