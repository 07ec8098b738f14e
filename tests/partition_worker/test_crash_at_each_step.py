"""A worker may end after any step. What is recovered is what the worker had then, from all steps as well as from any
earlier snapshot and the steps after it; and once the RM has resumed, both sides have received each message once.
"""

import os
import random
from collections.abc import Iterable
from typing import Final

import pytest

from tests.builders import config
from tests.invariants import check
from tests.likeness import differences
from tests.machines import PARTITION, arrives
from tests.partition_worker.bench import NOW
from tests.partition_worker.desk import step_of
from tests.partition_worker.test_recovered_state import state_of
from tests.properties.test_engine import PREEMPTING_TREES
from tests.properties.workload import LEAVES, TREES, Livelier
from yunishard.common.messages.control_messages import CommitConfig, PrepareConfig, Repeat
from yunishard.common.messages.journal_messages import Append, Kept, SentMessage, Step
from yunishard.common.messages.kinds import Command, Message
from yunishard.common.messages.rm_messages import Ack, AllocationRelease, AllocationRequest, AllocationResponse
from yunishard.common.messages.wire import Incoming, Outgoing, decode_body, make_outgoing
from yunishard.common.names import BROKER, JOURNAL
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker

SEEDS: Final = 100 if os.environ.get("PROPERTIES") == "long" else 4
INPUTS: Final = 50
COMMANDS_AFTER: Final = 3
"""Commands that the RM sends again, or sends, after a crash."""


class Manager:
    """What an RM has received from a partition: each message once, in order."""

    def __init__(self) -> None:
        self.messages: list[SentMessage] = []
        self.placed: dict[str, str] = {}
        """Nodes by key."""
        self.leaving: set[str] = set()
        """Keys that the partition wants to be released."""
        self.releases: list[AllocationRelease] = []
        self.released: set[str] = set()
        """Keys that it has released itself."""

    @property
    def received(self) -> int:
        """The number of the last message."""
        return len(self.messages)

    def receive(self, number: int, kind: str, body: bytes) -> None:
        assert number == self.received + 1, "a message is missing, or comes again"
        self.messages.append(SentMessage(number, kind, body))
        if kind == AllocationResponse.__name__:
            message = decode_body(AllocationResponse, body)
            for one in message.new:
                known = self.placed.get(one.allocation_key, one.node_id)
                assert known == one.node_id or one.allocation_key in self.released, "allocated twice"
                self.placed[one.allocation_key] = one.node_id
                self.leaving.discard(one.allocation_key)
            for release in message.released:
                self.placed.pop(release.allocation_key, None)
                self.leaving.add(release.allocation_key)
            self.releases += message.released

    def release(self, commands: Iterable[Command]) -> None:
        """It has let these allocations go: it hears nothing of a release that it declares to be wanted."""
        lists = [one.releases.allocations_to_release for one in commands if isinstance(one, AllocationRequest)]
        self.released |= {one.allocation_key for releases in lists for one in releases}

    def compare(self, worker: Worker) -> None:
        """It has the allocations that the partition has."""
        assert worker.partition is not None
        running = [one.allocations for one in worker.partition.applications.values()]
        placed = {key: one.node_id for allocations in running for key, one in allocations.items()}
        assert self.placed.items() >= {key: node for key, node in placed.items() if key not in self.leaving}.items()
        assert self.placed.keys() - self.released <= placed.keys()


class Play:
    """A worker, its journal in memory, and its RM. Every message is durable and received as soon as it is sent."""

    def __init__(self, worker: Worker, now: float) -> None:
        self.worker = worker
        self.now = now
        self.manager = Manager()
        self.steps: list[Step] = []
        self.states: dict[int, dict[str, object]] = {}
        """By number of the step: what a recovery has to bring back."""
        self.snapshots: dict[int, bytes] = {}

    def hear(self, message: Message, **fields: str | int) -> None:
        self._do(self.worker.handle(arrives(BROKER, message, partition=PARTITION, **fields), self.now))

    def schedule(self) -> None:
        while self.worker.deadline <= self.now:
            self._do(self.worker.tick(self.now))

    def _do(self, sends: Iterable[Outgoing]) -> None:
        for one in [*sends, *self.worker.barrier.flush()]:
            if one.to == JOURNAL:
                self.steps += map(step_of, decode_body(Append, one.body).steps)
                self._note()
                kept = make_outgoing(JOURNAL, Kept(number=self.worker.barrier.last))
                self._do(self.worker.handle(Incoming(JOURNAL, kept.header, kept.body), self.now))
            elif one.header.seq:
                self.manager.receive(one.header.seq, one.header.kind, one.body)

    def _note(self) -> None:
        last = self.worker.barrier.last
        self.states[last], self.snapshots[last] = state_of(self.worker), b"".join(self.worker.snapshot())


def play_session(rng: random.Random) -> tuple[Play, list[Command]]:
    """Play a random session; returns it, with the RM's commands."""
    play, commands = Play(empty_worker(1), NOW), list[Command]()
    play.hear(PrepareConfig(rollout=1, config=config(rng.choice((*TREES, *PREEMPTING_TREES)))))
    play.hear(CommitConfig(rollout=1))
    assert play.worker.partition is not None
    leaves = tuple(path for path in LEAVES if play.worker.partition.tree.find(path) is not None)
    workload = Livelier(rng, leaves=leaves, told=play.manager.releases)
    for given in [*workload.start(), *(None for _ in range(INPUTS))]:
        step = workload.next_step() if given is None else given
        if isinstance(step, float):
            play.now += step
        else:
            commands.append(step)
            play.manager.release([step])
            play.hear(step, seq=len(commands))
        if rng.random() < 0.7:
            play.schedule()
        if rng.random() < 0.3:
            play.hear(Ack(), ack=rng.randint(0, play.manager.received))
        play.manager.compare(play.worker)
    return play, commands


def empty_worker(epoch: int) -> Worker:
    return Worker(PartitionHost(partition=PARTITION, epoch=epoch), journalled=True)


def recovered(snapshot: bytes | None, steps: list[Step]) -> Worker:
    worker = empty_worker(2)
    worker.recover(None if snapshot is None else [snapshot], steps)
    return worker


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_worker_may_end_after_each_step(seed: int) -> None:
    rng = random.Random(seed)
    play, commands = play_session(rng)
    assert [step.number for step in play.steps] == [*range(1, len(play.steps) + 1)]
    for last, expected in play.states.items():
        worker = recovered(None, play.steps[:last])
        assert state_of(worker) == expected
        first = rng.choice([number for number in play.snapshots if number <= last])
        other = recovered(play.snapshots[first], play.steps[first:last])
        assert state_of(other) == expected
        if worker.partition is None or other.partition is None:
            assert worker.partition is other.partition
            continue
        assert list(differences(worker.partition, other.partition)) == []
        resume(rng.choice((worker, other)), play.steps[:last], commands, rng)


def resume(worker: Worker, steps: list[Step], commands: list[Command], rng: random.Random) -> None:
    """The RM resumes, and has received some of the messages that were not acknowledged."""
    told = [message for step in steps for message in step.told]
    channel, play = worker.host.channel, Play(worker, steps[-1].at)
    play.manager.release(commands[: channel.received])
    missing = rng.randint(0, len(channel.outbox))
    for message in told[: len(told) - missing]:
        play.manager.receive(message.number, message.kind, message.body)
    play.hear(Repeat(acknowledged=rng.randint(0, channel.received)), ack=play.manager.received)
    assert play.manager.messages == told, "the RM has received what was told, and nothing else"
    play.manager.compare(worker)
    for number, command in enumerate(commands[channel.received :][:COMMANDS_AFTER], channel.received + 1):
        play.manager.release([command])
        play.hear(command, seq=number)
        play.schedule()
        assert channel.received == number
        play.now += rng.choice((0.0, 0.6, 31.0))
    play.schedule()
    assert worker.partition is not None
    check(worker.partition)
    play.manager.compare(worker)
