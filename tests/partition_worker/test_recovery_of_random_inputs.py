"""Whatever a worker receives, in any order: a worker that is recovered after each input has the same state."""

import random
from collections.abc import Callable

import pytest

from tests.builders import config
from tests.invariants import check
from tests.machines import SESSION, arrives, said
from tests.partition_worker.desk import Desk
from tests.partition_worker.test_recovered_state import state_of
from tests.properties.workload import LEAVES, NODE_ACTS, QUEUE_ACTIONS, TREES, Livelier
from yunishard.common.messages.control_messages import (
    AbortConfig,
    CommitConfig,
    GroupsFound,
    GroupsWanted,
    PrepareConfig,
    Repeat,
    Settings,
)
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.query_messages import Actor, ChangeNode, ChangeQueue, KillApplication, MoveApplication
from yunishard.common.messages.rm_messages import (
    EVENTS,
    PREDICATES,
    Ack,
    AllocationRelease,
    AllocationResponse,
    PredicatesAnswered,
    PredicatesAsked,
    SyncBegin,
    SyncEnd,
    Verdict,
)
from yunishard.common.messages.wire import Outgoing
from yunishard.partition_worker.partition_host import GROUPS

ADMIN = Actor(user="op", scheduler_admin=True)
INPUTS = 100


class Inputs:
    """A worker and its peers, which send by chance."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.desk = Desk(running=False)
        self.resolver = rng.choice(("", "", "os"))
        self.rollout = 0
        self.users: list[str] = []
        """Of whom the groups are looked up."""
        self.questions: list[PredicatesAsked] = []
        self.releases: list[AllocationRelease] = []
        """Those that the RM has to confirm."""
        self.workload = Livelier(rng, leaves=LEAVES, told=self.releases)
        self.next_configuration(live=False)
        self._hear(CommitConfig(rollout=self.rollout))
        for command in self.workload.start():
            self.receive(self.desk.tell(command))

    def receive(self, sends: list[Outgoing]) -> None:
        for message in said([*sends, *self.desk.kept()]):
            match message:
                case AllocationResponse():
                    self.releases += message.released
                case GroupsWanted():
                    self.users.append(message.user)
                case PredicatesAsked():
                    self.questions.append(message)

    def _hear(self, message: Message, **fields: str | int) -> None:
        self.receive(self.desk.hear(message, session=SESSION, **fields))

    # Inputs -----------------------------------------------------------------------------------------------------------

    def next_command(self) -> None:
        step = self.workload.next_step()
        if isinstance(step, float):
            self.desk.now += step
        else:
            self.receive(self.desk.tell(step))

    def administrator(self) -> None:
        name, queue = f"app-{self.rng.randrange(7)}", self.rng.choice(LEAVES)
        move = MoveApplication(application_id=name, queue=queue, actor=ADMIN)
        stop = ChangeQueue(queue=queue, action=self.rng.choice(QUEUE_ACTIONS), actor=ADMIN, reason="because")
        cordon = ChangeNode(node_id=f"n{self.rng.randrange(5)}", action=self.rng.choice(NODE_ACTS), actor=ADMIN)
        kill = KillApplication(application_id=name, actor=ADMIN)
        self._hear(self.rng.choice((move, kill, stop, cordon)), ref="1")

    def next_configuration(self, *, live: bool = True) -> None:
        self.rollout += 1
        wanted = config(self.rng.choice(TREES), resolver=self.resolver)
        self._hear(PrepareConfig(rollout=self.rollout, config=wanted, live=live))

    def end_of_rollout(self) -> None:
        self._hear(self.rng.choice((CommitConfig(rollout=self.rollout), AbortConfig(rollout=self.rollout))))

    def settings(self) -> None:
        values = {"event.trackingEnabled": self.rng.choice(("true", "false"))}
        self._hear(Settings(values=values, capabilities=self.rng.choice(([], [EVENTS], [PREDICATES]))))

    def acknowledgement(self) -> None:
        self._hear(Ack(), ack=self.rng.randint(0, self.desk.worker.host.channel.outbox.last))

    def groups(self) -> None:
        if self.users:
            found = GroupsFound(user=self.users.pop(), groups=["dev"])
            self.receive(self.desk.worker.handle(arrives(GROUPS, found, rm="", session=""), self.desk.now))

    def verdicts(self) -> None:
        if self.questions:
            question = self.questions.pop()
            answers = [
                Verdict(one.allocation_key, one.node_id, one.allocate, refusal=self.rng.choice(("", "", "no")))
                for one in question.asked
            ]
            self._hear(PredicatesAnswered(question=question.question, verdicts=answers))

    def report(self) -> None:
        self.receive(self.desk.tell(self.rng.choice((SyncBegin(), SyncEnd()))))

    def restart(self) -> None:
        acknowledged = self.desk.worker.host.channel.outbox.acknowledged
        self.desk.worker = self.desk.recovered()
        self._hear(Repeat(), ack=acknowledged)


KINDS: tuple[Callable[[Inputs], None], ...] = (
    *[Inputs.next_command] * 20,
    *(Inputs.administrator, Inputs.next_configuration, Inputs.end_of_rollout, Inputs.end_of_rollout, Inputs.settings),
    *[Inputs.acknowledgement] * 2,
    *[Inputs.groups] * 2,
    *[Inputs.verdicts] * 3,
    *(Inputs.report, Inputs.report, Inputs.restart, lambda inputs: inputs.desk.take_snapshot()),
)


@pytest.mark.parametrize("seed", range(8))
def test_a_recovered_worker_has_the_same_state_after_each_input(seed: int) -> None:
    inputs = Inputs(seed)
    desk, rng = inputs.desk, inputs.rng
    for _ in range(INPUTS):
        rng.choice(KINDS)(inputs)
        inputs.receive(desk.schedule() if rng.random() < 0.8 else desk.tick())
        desk.flush()
        inputs.receive([])
        after = desk.recovered()
        assert after.partition is not None
        check(after.partition)
        found, expected = state_of(after), state_of(desk.worker)
        waiting, more = expected.pop("unacknowledged"), found.pop("unacknowledged")
        assert isinstance(waiting, tuple)
        assert isinstance(more, tuple)
        assert more[len(more) - len(waiting) :] == waiting, "an acknowledgement is no step"
        assert found == expected
