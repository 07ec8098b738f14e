"""A host and its clone: whatever is started, killed, stopped and restarted in whichever order, at most one of the two
is the host, that one stays it until it ends, and the other one is it soon after that. With a real database, whose
clock seems to jump, and with the elapsed time of a virtual clock.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import postgres
from yunishard.broker.candidacy import FILE, HostFacts, HostLease
from yunishard.broker.election import RENEWALS, Election
from yunishard.common.lease_watch import LEFT_MAX
from yunishard.common.messages.control_messages import LeasePolled, PollLease
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import BrokerAddress, Incoming, decode_body, encode_body
from yunishard.common.names import LEASE
from yunishard.common.postgres.connection import Connection, Database

DURATION_S = 6.0
WAIT_MAX_S = DURATION_S * (1 + 4 / RENEWALS)
"""After the end of one system, until another one that runs is the host: its lease ends, which is seen with the next
poll; the poll before that may have shown the last renewal late, and two may fail."""

HOUR_S = 3600.0
STEP_S = 0.5
STEPS = 160
HOST = HostFacts("a", "id", "tcp://a:9094", 4, 1 << 30)


class System:
    """A machine with a state directory. It runs while it has an `election`."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder = folder
        self.election: Election | None = None
        self.is_host = False
        self.since = 0.0
        """When it was started, or has become the host."""
        self._rng = rng

    def start(self, now: float) -> None:
        """Start it, or its broker only, which takes the place of the one before."""
        if self.election is None:
            self.is_host, self.since = False, now
        self.election = Election(BrokerAddress("ipc://own"), duration_s=DURATION_S, host="a", address=HOST.address)
        self._lease = HostLease(HOST, self.folder)

    def kill(self) -> None:
        self.election, self.is_host = None, False

    def stop(self, connection: Connection) -> None:
        self._lease.release(connection)
        self.kill()

    def poll(self, connection: Connection, now: float, jump_s: float) -> None:
        """Poll if that is due, after such a jump of the clock of the database. The outcome of a transaction may be
        unknown: it was carried out, or not.
        """
        election = self.election
        if election is None or election.deadline > now:
            return
        [message] = election.tick(now)
        poll, chance = decode_body(PollLease, message.body), self._rng.random()
        with connection.transaction(force_rollback=chance < 0.05):
            rival = self._lease.renew(connection, poll)
        rival = rival and replace(rival, left_s=rival.left_s + jump_s)
        polled = LeasePolled(rival=rival, holder="z", endpoint="tcp://z:9094", expires=now, left_s=DURATION_S)
        if rival is None and chance >= 0.05:
            self.since = self.since if self.is_host else now
            self.is_host = True
        if rival is None and chance < 0.1:
            polled = LeasePolled(problem="the connection broke")
        elif rival is None:
            self._lease.confirm()
        election.handle(Incoming(LEASE, Header(kind="LeasePolled"), encode_body(polled)), now)


class Story:
    """Both systems, and what happens to them."""

    def __init__(self, folder: Path, connection: Connection, seed: int) -> None:
        self.rng, self.connection, self.now, self.seed = random.Random(seed), connection, 1000.0, seed
        self.systems = [System(folder / name, self.rng) for name in ("original", "clone")]
        self.systems[0].folder.mkdir()
        self.ended_at = self.now
        self.jump_s = 0.0
        self._jumps = (-HOUR_S, 0.0) if seed % 3 else (-HOUR_S, 0.0, HOUR_S)
        """By how much more time seems to be left of a lease. If it is more, the wait is longer, but not for an hour."""
        self._wait_max_s = WAIT_MAX_S + (0.0 if seed % 3 else LEFT_MAX * DURATION_S)
        self.refusals = 0

    def run(self) -> None:
        for _ in range(STEPS):
            if self.rng.random() < 0.15:
                self._act()
            self.now += STEP_S
            for one in self.rng.sample(self.systems, 2):
                was_host = one.is_host
                one.poll(self.connection, self.now, self.jump_s)
                self._check(one, was_host=was_host)

    def _act(self) -> None:
        one = self.rng.choice(self.systems)
        other = next(each for each in self.systems if each is not one)
        match self.rng.choice(("start", "start", "start", "kill", "stop", "restart the broker", "jump")):
            case "start" if one.election is None:
                if not one.folder.exists() or self.rng.random() < 0.3:
                    self._copy(other, one)
                one.start(self.now)
            case "kill" if one.election is not None:
                self.ended_at = self.now if one.is_host else self.ended_at
                one.kill()
            case "stop" if one.election is not None:
                self.ended_at = self.now if one.is_host else self.ended_at
                one.stop(self.connection)
            case "restart the broker" if one.election is not None:
                one.start(self.now)
            case "jump":
                self.jump_s = self.rng.choice(self._jumps)

    def _copy(self, source: System, target: System) -> None:
        """Copy a state directory. A host that runs renews its lease before the copy can be started."""
        if not (source.folder / FILE).exists():  # it has never polled
            target.folder.mkdir(exist_ok=True)
            return
        shutil.rmtree(target.folder, ignore_errors=True)
        shutil.copytree(source.folder, target.folder)
        copied = (target.folder / FILE).read_text().split()
        while source.is_host and str(*self.connection.execute("SELECT writes FROM leases").fetchone() or ()) in copied:
            self.now += DURATION_S / RENEWALS
            source.poll(self.connection, self.now, self.jump_s)

    def _check(self, one: System, *, was_host: bool) -> None:
        where = f"seed {self.seed} at {self.now}"
        hosts = [each for each in self.systems if each.is_host]
        assert len(hosts) < 2, f"{where}: both are the host"
        if one.election is None:
            return
        if one.election.refused:
            assert not was_host, f"{where}: the host was refused"
            assert hosts or self.now < self.ended_at + DURATION_S, (
                f"{where}: refused although no other one was the host"
            )
            self.refusals += 1
            one.kill()
        elif not hosts:
            waits_s = self.now - max(one.since, self.ended_at)
            assert waits_s <= self._wait_max_s, f"{where}: it waits for {waits_s} s"


@pytest.fixture
def connection() -> Iterator[Connection]:
    with closing(Database(postgres.new_store(), "test")) as database, database.autocommit() as opened:
        yield opened


def test_at_most_one_of_a_host_and_its_clone_is_the_host(connection: Connection, tmp_path: Path) -> None:
    refusals = 0
    for seed in range(30):
        connection.execute("DELETE FROM leases")
        folder = tmp_path / str(seed)
        folder.mkdir()
        story = Story(folder, connection, seed)
        story.run()
        refusals += story.refusals
    assert refusals > 20, "the stories show what is to be shown"
