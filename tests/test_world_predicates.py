"""The whole system with a resource manager that has a say in what runs where: quick, slow, and silent."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tests.world import World
from tests.world_rm import CONFIG, RM
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.rm_messages import (
    PREDICATES,
    PREEMPTION_PREDICATES,
    AddApplicationRequest,
    Allocation,
    AllocationRequest,
    ApplicationRequest,
    PredicatesAsked,
    PreemptionPolicy,
    RegisterResourceManager,
    UserGroupInformation,
)
from yunishard.common.messages.wire import Outgoing, decode_body
from yunishard.sdk.items import Predicate, PreemptionPredicate, answer_predicates


class Choosy(RM):
    """Says yes to what its predicate says yes to; keeps what it is asked while it is `asleep`."""

    def __init__(
        self, rm_id: str, predicate: Predicate, *, config: str = CONFIG, victims: PreemptionPredicate | None = None
    ) -> None:
        super().__init__(rm_id, config=config)
        self.predicate, self.victims = predicate, victims
        self.asleep = False
        self.questions: list[tuple[str, PredicatesAsked]] = []

    def register(self) -> list[Outgoing]:
        capabilities = [PREDICATES, "flight", *([PREEMPTION_PREDICATES] if self.victims else [])]
        request = RegisterResourceManager(rm_id=self.rm_id, config=self.config, capabilities=capabilities)
        return self._sends([self.session.register(request)])

    def hear(self, header: Header, body: bytes) -> list[Outgoing]:
        if header.kind != PredicatesAsked.__name__:
            return super().hear(header, body)
        self.questions.append((header.partition, decode_body(PredicatesAsked, body)))
        return [] if self.asleep else self.answers()

    def answers(self) -> list[Outgoing]:
        """To the last question."""
        partition, asked = self.questions[-1]
        return self._sends(
            [self.session.encode_unnumbered(partition, answer_predicates(asked, self.predicate, self.victims))]
        )


def even(key: str, node: str, allocate: bool) -> str | None:
    """Odd asks run on odd nodes."""
    return None if int(key[1:]) % 2 == int(node[1:]) % 2 else "odd"


def furnished(rm: RM, *, nodes: int = 4) -> World:
    world = World(seed=7)
    world.join(rm)
    world.until(lambda: rm.open)
    world.carry(rm.peer, rm.furnish("rm-1_default", nodes=nodes, vcore=5))
    world.until(lambda: len(rm.nodes) == nodes)
    return world


def passed(world: World, seconds: float) -> Callable[[], bool]:
    until = world.now + seconds
    return lambda: world.now >= until


def test_everything_runs_where_its_manager_wants_it() -> None:
    rm = Choosy("rm-1", even)
    world = furnished(rm)
    world.carry(rm.peer, rm.ask("default", *(f"a{number}" for number in range(20))))
    world.until(lambda: len(rm.allocated) == 20)
    partition = world.workers["rm-1_default"].partition
    assert partition is not None
    assert all(even(one.key, one.node_id, True) is None for one in partition.allocations.values())
    assert len(partition.allocations) == 20


def test_a_manager_without_this_capability_is_never_asked() -> None:
    rm = RM("rm-1")
    world = furnished(rm)
    world.carry(rm.peer, rm.ask("default", "a1"))
    world.until(lambda: len(rm.allocated) == 1)
    assert "PredicatesAsked" not in world.kinds


def test_a_silent_manager_is_asked_ever_more_seldom_and_holds_up_nobody_else() -> None:
    silent, other = Choosy("rm-1", even), RM("rm-2")
    silent.asleep = True
    world = furnished(silent)
    world.join(other)
    world.carry(silent.peer, silent.ask("default", "a1", "a2", "a3"))
    world.until(passed(world, 60.0))
    assert 5 <= len(silent.questions) <= 8
    assert silent.allocated == []
    world.carry(other.peer, other.furnish("rm-2_default", nodes=1, vcore=5))
    world.carry(other.peer, other.ask("default", "b1"))
    world.until(lambda: len(other.allocated) == 1)
    silent.asleep = False
    world.until(lambda: len(silent.allocated) == 3)


def test_what_is_known_already_goes_on_while_an_answer_is_waited_for() -> None:
    rm = Choosy("rm-1", lambda key, node, allocate: None if key != "a7" else "never")
    world = furnished(rm, nodes=2)
    world.carry(rm.peer, rm.ask("default", *(f"a{number}" for number in range(10))))
    world.until(lambda: len(rm.allocated) == 9)  # on two nodes, so most of them waited for others
    rm.asleep = True
    world.carry(rm.peer, rm.release("default", "a1", "a2"))
    world.carry(rm.peer, rm.ask("default", "a20"))
    world.until(lambda: len(rm.released) == 2)
    world.until(lambda: any(one.allocation_key == "a20" for one in rm.questions[-1][1].asked))
    assert world.workers["rm-1_default"].partition is not None
    world.carry(rm.peer, rm.answers())
    world.until(lambda: "rm-1_default/a20" in rm.allocated)


PREEMPTING = """
partitions: [{name: default, queues: [{name: root, submitacl: "*", queues: [
  {name: batch}, {name: owner, resources: {guaranteed: {vcore: 5m}}, properties: {preemption.delay: 1s}}]}]}]
"""


def test_those_go_without_whom_an_ask_would_run_by_the_word_of_the_manager() -> None:
    """The port of the ask is taken by `a1`, and on the other node by something that nobody may preempt."""

    def needed(key: str, node: str, victims: Sequence[str], start: int) -> int | str:
        return victims.index("a1") if "a1" in victims else "its port is taken for ever"

    rm = Choosy("rm-1", lambda key, node, allocate: None, config=PREEMPTING, victims=needed)
    world = furnished(rm, nodes=2)
    running = [
        Allocation(
            allocation_key=f"a{number}",
            application_id="app",
            node_id=f"n{number // 5}",
            resource_per_alloc={"vcore": 1},
            preemption_policy=PreemptionPolicy(allow_preempt_self=True),
        )
        for number in range(10)
    ]
    world.carry(rm.peer, rm.update(AllocationRequest(allocations=running)))
    world.until(lambda: len(rm.allocated) == 10)
    user = UserGroupInformation(user="u")
    owner = AddApplicationRequest(application_id="owner", queue_name="root.owner", ugi=user)
    world.carry(rm.peer, rm.update(ApplicationRequest(new=[owner])))
    wanted = Allocation(
        allocation_key="o1",
        application_id="owner",
        resource_per_alloc={"vcore": 1},
        preemption_policy=PreemptionPolicy(allow_preempt_other=True),
    )
    world.carry(rm.peer, rm.update(AllocationRequest(allocations=[wanted])))
    world.until(lambda: len(rm.released) == 4)
    assert rm.released == [f"rm-1_default/a{number}" for number in (4, 3, 2, 1)]


def test_an_answer_from_before_a_worker_died_means_nothing() -> None:
    rm = Choosy("rm-1", even)
    rm.asleep = True
    world = furnished(rm)
    world.carry(rm.peer, rm.ask("default", "a1"))
    world.until(lambda: bool(rm.questions))
    late = rm.answers()
    world.kill("rm-1_default")
    world.until(lambda: rm.restarts == ["rm-1_default"])
    world.carry(rm.peer, late)
    world.carry(rm.peer, rm.furnish("rm-1_default", nodes=2, vcore=5))
    world.carry(rm.peer, rm.ask("default", "a1"))
    world.until(lambda: len(rm.questions) > 1)  # the new worker knows that its manager has a say
    assert rm.allocated == []
    world.carry(rm.peer, rm.answers())
    world.until(lambda: rm.allocated == ["rm-1_default/a1"])


def test_the_answer_of_a_stranger_is_not_heard() -> None:
    rm = Choosy("rm-1", even)
    rm.asleep = True
    world = furnished(rm)
    world.carry(rm.peer, rm.ask("default", "a1"))
    world.until(lambda: bool(rm.questions))
    forged = [replace_session(one, "s9") for one in rm.answers()]
    world.carry("native:mallory.1", forged)
    world.until(passed(world, 0.1))
    assert rm.allocated == []


def replace_session(one: Outgoing, session: str) -> Outgoing:
    return Outgoing(one.to, replace(one.header, session=session), one.body)
