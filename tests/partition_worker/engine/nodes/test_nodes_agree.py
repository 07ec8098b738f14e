"""The cluster beside lists that are sorted anew for every question: whatever happens, they say the same."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.builders import config
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES
from yunishard.partition_worker.engine.allocation import Allocation, AskShape
from yunishard.partition_worker.engine.amounts import amounts_of
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.nodes.node_index import Node, Reservation
from yunishard.partition_worker.engine.nodes.nodes import Nodes, waste, weigh
from yunishard.partition_worker.engine.predicates.predicate import FORBIDDEN_NODES
from yunishard.partition_worker.engine.queues.tree import Tree
from yunishard.partition_worker.engine.user_resolution import User

WEIGHTS = {"memory": 2.0, "vcore": 1.0}
AMOUNTS = st.sampled_from(
    [
        {"memory": 1},
        {"memory": 3},
        {"memory": 3, "vcore": 1},
        {"memory": 1, "vcore": 2},
        {"memory": 4, "gpu": 1},
        {"memory": 0, "gpu": 1, "vcore": 1},
    ]
)
CAPACITIES = st.sampled_from([{"memory": 8, "vcore": 4}, {"memory": 5, "vcore": 2, "gpu": 2}, {"memory": 9, "gpu": 1}])
IDS = st.sampled_from([f"n{number}" for number in range(7)])
POLICIES = st.sampled_from(["fair", "binpacking"])
FORBIDDEN = st.sampled_from(["", "", "n0", "n1,n3,n5", "n0,n1,n2,n3,n4"])
CHOICES = ("", "fair", "binpacking", "pack", "pack")
ANY = st.integers(0, 2**16)


def application(rank: int, choice: str) -> Application:
    leaf = Tree(config("root.a")).find("root.a")
    assert leaf is not None
    tags = {"node.sort.policy": choice} if choice else {}
    return Application(f"app-{rank}", rank, User("bob", ()), leaf, 0, tags)


class Plain:
    """Places as they were when a node was last put in order; everything else is looked up."""

    def __init__(self, cluster: Nodes) -> None:
        self.nodes = cluster
        self.places: dict[str, dict[str, float]] = {cluster.policy: {}}

    def changed(self, node: Node) -> None:
        for policy, places in self.places.items():
            if node.schedulable and not node.reservations:
                places[node.node_id] = self.score(node, policy)
            else:
                places.pop(node.node_id, None)

    def score(self, node: Node, policy: str) -> float:
        return NODE_SORT_POLICIES[policy](node.available_sum, node.capacity_sum, weigh(WEIGHTS))

    def in_order(self, policy: str) -> list[Node]:
        if policy not in self.places:
            self.places[policy] = {name: self.score(self.node(name), policy) for name in self.places[self.nodes.policy]}
        return [self.node(name) for _, name in sorted((place, name) for name, place in self.places[policy].items())]

    def node(self, name: str) -> Node:
        node = self.nodes.get(name)
        assert node is not None
        return node

    def first(self, shape: AskShape, forbidden: str, app: Application) -> Node | None:
        choice = app.tags.get("node.sort.policy", self.nodes.policy)
        tried = self.in_order(self.nodes.policy if choice == "pack" else choice)
        if choice == "pack":
            tried.sort(
                key=lambda node: not any(one.application_id == app.application_id for one in node.allocations.values())
            )
        return next((one for one in tried if one.has_room(shape.amounts) and one.node_id not in forbidden), None)

    def best(self, shape: AskShape, forbidden: str) -> Node | None:
        large = [node for node in self.in_order(self.nodes.policy) if node.is_large_enough(shape.amounts)]
        allowed = [node for node in large if node.node_id not in forbidden]
        return min(allowed, key=lambda node: waste(node, dict(shape.amounts)), default=None)


class NodeChanges(RuleBasedStateMachine):
    """Both, and what runs."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = Nodes("fair", WEIGHTS)
        self.plain = Plain(self.nodes)
        self.apps = [application(rank, choice) for rank, choice in enumerate(CHOICES)]
        self.running: list[Allocation] = []
        self.made = 0

    def shape(self, amounts: dict[str, int], forbidden: str = "") -> AskShape:
        constraint = self.nodes.predicates.read_constraint({FORBIDDEN_NODES: forbidden}, "") if forbidden else None
        return AskShape(amounts_of(amounts), "", constraint)

    @initialize(capacities=st.lists(CAPACITIES, min_size=3, max_size=6))
    def nodes_come(self, capacities: list[dict[str, int]]) -> None:
        for number, capacity in enumerate(capacities):
            self.plain.changed(self.nodes.add(f"n{number}", capacity, {}, schedulable=True))

    @rule(node_id=IDS, amounts=CAPACITIES, schedulable=st.sampled_from([True, True, True, False]))
    def a_node_comes_or_has_another_size(self, node_id: str, amounts: dict[str, int], schedulable: bool) -> None:
        node = self.nodes.get(node_id)
        if node is None:
            node = self.nodes.add(node_id, amounts, {}, schedulable=schedulable)
        else:
            self.nodes.resize(node, amounts)
        self.plain.changed(node)

    @rule(node_id=IDS)
    def a_node_drains_or_is_opened(self, node_id: str) -> None:
        if node := self.nodes.get(node_id):
            self.nodes.set_schedulable(node, schedulable=not node.schedulable)
            self.plain.changed(node)

    @rule(node_id=IDS)
    def a_node_goes(self, node_id: str) -> None:
        if node := self.nodes.get(node_id):
            self.nodes.set_schedulable(node, schedulable=False)
            for one in [one for one in self.running if one.node_id == node_id]:
                self.ends(one)
            self.plain.changed(node)
            self.nodes.remove(node)

    @rule(node_id=IDS, key=st.sampled_from(["k1", "k2"]))
    def a_node_is_kept_or_no_longer(self, node_id: str, key: str) -> None:
        if node := self.nodes.get(node_id):
            if node.reservations.pop(key, None) is None:
                ask = Allocation(key, self.apps[0].application_id, self.shape({"memory": 1}), 0)
                node.reservations[key] = Reservation(ask, node, self.apps[0].queue, 0.0, 0)
                self.nodes.reindex(node)
            elif not node.reservations:
                self.nodes.reopen(node)
            self.plain.changed(node)

    @rule(node_id=IDS, amounts=AMOUNTS)
    def something_foreign_runs(self, node_id: str, amounts: dict[str, int]) -> None:
        if node := self.nodes.get(node_id):
            node.put_foreign(Allocation("foreign", "", self.shape(amounts), 0, node_id=node_id))
            self.nodes.note_room(node)

    @precondition(lambda self: self.running)
    @rule(which=ANY, memory=st.integers(0, 9))
    def something_is_resized(self, which: int, memory: int) -> None:
        one = self.running[which % len(self.running)]
        node = self.plain.node(one.node_id)
        node.resize_allocation(amounts_of({"memory": memory - one.resources["memory"]}))
        one.resize({**one.resources, "memory": memory})
        self.nodes.note_room(node)

    @precondition(lambda self: self.running)
    @rule(which=ANY)
    def something_ends(self, which: int) -> None:
        self.ends(self.running[which % len(self.running)])

    def ends(self, one: Allocation) -> None:
        node = self.plain.node(one.node_id)
        app = next(app for app in self.apps if app.application_id == one.application_id)
        self.nodes.unbind(app, one, node)
        self.plain.changed(node)
        app.remove_allocation(one)
        self.running.remove(one)

    @rule(amounts=AMOUNTS, forbidden=FORBIDDEN, which=ANY, times=st.integers(1, 4))
    def nodes_are_wanted(self, amounts: dict[str, int], forbidden: str, which: int, times: int) -> None:
        app, shape = self.apps[which % len(self.apps)], self.shape(amounts, forbidden)
        for _ in range(times):
            node = self.nodes.node_for(shape, app)
            assert node is self.plain.first(shape, forbidden, app)
            if node is None:
                break
            self.made += 1
            one = Allocation(str(self.made), app.application_id, self.shape(amounts), 0, node_id=node.node_id)
            self.nodes.bind(app, one, node)
            self.plain.changed(node)
            app.add_allocation(one)
            self.running.append(one)

    @rule(amounts=AMOUNTS, forbidden=FORBIDDEN)
    def somebody_asks(self, amounts: dict[str, int], forbidden: str) -> None:
        shape = self.shape(amounts, forbidden)
        for app in self.apps:
            assert self.nodes.first_fit(shape, app) is self.plain.first(shape, forbidden, app)
        best = self.plain.best(shape, forbidden)
        assert self.nodes.may_reserve(shape) == (best is not None)
        assert self.nodes.best_to_reserve(shape) is best

    @rule(policy=POLICIES)
    def the_partition_wants_another_order(self, policy: str) -> None:
        if policy != self.nodes.policy:
            self.nodes.set_policy(policy, WEIGHTS)
            self.plain.places = {policy: {}}
            for node in self.nodes:
                self.plain.changed(node)


TestNodeChanges = NodeChanges.TestCase
TestNodeChanges.settings = settings(
    max_examples=150,
    stateful_step_count=50,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
