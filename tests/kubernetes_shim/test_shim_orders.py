"""Whatever the order of events, answers and failures: in the end, the books of API server, shim and core agree."""

import json
import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from tests.kubernetes_shim.shim_builders import make_node, make_pod, repel
from tests.kubernetes_shim.shim_world import World

LONG = os.environ.get("PROPERTIES") == "long"
Y = "yunikorn.apache.org/"
APPLICATIONS = st.sampled_from(["a1", "a2", "a3"])
NAMES = st.sampled_from(["n1", "n2", "n3"])
FAULTS = st.sampled_from(["", "", "", "lost", "unreached", "refused"])
NUMBER = st.integers(0, 30)
pytestmark = [pytest.mark.timeout(3_600)] if LONG else []


class Orders(RuleBasedStateMachine):
    """Three applications on three nodes, of which some are gangs."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    @initialize(asks=st.booleans())
    def the_shim_starts(self, asks: bool) -> None:
        self.world = World("root.a max=vcore:9000", asks=asks)

    # The cluster ----------------------------------------------------------------------------------------------------

    @rule(
        application=APPLICATIONS,
        members=st.integers(0, 3),
        style=st.sampled_from(["Soft", "Hard"]),
        repelled=st.sampled_from(["", "", "x", "y"]),
    )
    def a_pod_is_created(self, application: str, members: int, style: str, repelled: str) -> None:
        """Pods without a gang may repel those with a label."""
        self.count += 1
        marks = {}
        if members and application != "a1":
            group = {"name": "g", "minMember": members, "minResource": {"cpu": "1"}}
            marks = {
                f"{Y}task-groups": json.dumps([group]),
                f"{Y}task-group-name": "g",
                f"{Y}schedulingPolicyParameters": f"placeholderTimeoutInSeconds=20 gangSchedulingStyle={style}",
            }
        self.world.api.set_pod(
            make_pod(
                f"p{self.count}",
                labels={f"{Y}app-id": application, "queue": "root.a"},
                annotations=marks,
                requests={"cpu": "1"},
                spec=repel("kubernetes.io/hostname", label=repelled) if repelled and not marks else None,
                created=f"2026-01-31T12:00:00.{self.count:04d}Z",
            )
        )

    @rule(node=NAMES)
    def a_foreign_pod_is_created(self, node: str) -> None:
        self.count += 1
        self.world.api.set_pod(make_pod(f"f{self.count}", scheduler="default-scheduler", node=node))

    @rule(number=NUMBER)
    def a_pod_is_being_deleted(self, number: int) -> None:
        """A finalizer, or its kubelet, keeps it for a while."""
        if self.world.api.pods:
            self.world.api.change_pod(list(self.world.api.pods)[number % len(self.world.api.pods)], deleted=True)

    @rule(number=NUMBER)
    def a_pod_is_deleted(self, number: int) -> None:
        if self.world.api.pods:
            self.world.api.remove_pod(list(self.world.api.pods)[number % len(self.world.api.pods)])

    @rule(number=NUMBER, phase=st.sampled_from(["Succeeded", "Failed"]))
    def a_pod_ends(self, number: int, phase: str) -> None:
        running = [uid for uid, pod in self.world.api.pods.items() if pod.spec.node_name]
        if running:
            self.world.api.change_pod(running[number % len(running)], phase=phase)

    @rule(number=NUMBER, label=st.sampled_from(["x", "y"]))
    def labels_of_a_pod_change(self, number: int, label: str) -> None:
        pods = list(self.world.api.pods.values())
        if pods:
            pod = pods[number % len(pods)]
            labels = {**pod.metadata.labels, "label": label}
            self.world.api.set_pod(replace(pod, metadata=replace(pod.metadata, labels=labels)))

    @rule(number=NUMBER, node=NAMES)
    def a_pod_is_bound_by_another_scheduler(self, number: int, node: str) -> None:
        waiting = [uid for uid, pod in self.world.api.pods.items() if not pod.spec.node_name]
        if waiting:
            self.world.api.change_pod(waiting[number % len(waiting)], node=node)

    @rule(name=NAMES, unschedulable=st.booleans(), ready=st.sampled_from(["True", "Unknown"]))
    def a_node_is_set(self, name: str, unschedulable: bool, ready: str) -> None:
        self.world.api.set_node(
            make_node(name, cpu="4", labels={"kubernetes.io/hostname": name}, unschedulable=unschedulable, ready=ready)
        )

    @rule(name=NAMES)
    def a_node_is_removed(self, name: str) -> None:
        if name in self.world.api.nodes:
            self.world.api.remove_node(name)

    # Deliveries -----------------------------------------------------------------------------------------------------

    @rule(kind=st.sampled_from(["pods", "pods", "nodes"]), twice=st.booleans())
    def the_watch_delivers(self, kind: str, twice: bool) -> None:
        self.world.step_watch(kind, twice=twice)

    @rule()
    def the_core_receives(self) -> None:
        self.world.step_to_core()

    @rule(budget=st.integers(1, 3))
    def the_core_decides(self, budget: int) -> None:
        self.world.step_core(budget)

    @rule()
    def the_shim_receives(self) -> None:
        self.world.step_from_core()

    @rule(number=NUMBER, fault=FAULTS)
    def a_write_is_executed(self, number: int, fault: str) -> None:
        self.world.step_write(number, fault)

    @rule()
    def an_outcome_arrives(self) -> None:
        self.world.step_outcome()

    @rule()
    def kubelets_stop_pods(self) -> None:
        self.world.step_kubelets()

    @rule(seconds=st.sampled_from([1, 6, 31]))
    def time_passes(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    @rule()
    def everything_is_delivered(self) -> None:
        self.world.settle()
        self.world.check()

    # Failures -------------------------------------------------------------------------------------------------------

    @rule()
    def the_shim_restarts(self) -> None:
        self.world.start_shim()

    @rule()
    def the_session_is_lost(self) -> None:
        self.world.register()

    @rule()
    def the_partition_loses_its_state(self) -> None:
        self.world.restart_partition()

    @rule(application=APPLICATIONS)
    def an_operator_kills_an_application(self, application: str) -> None:
        if application in self.world.core.applications:
            self.world.kill(application)

    # The end --------------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Everything is delivered, all nodes return, gangs time out: the books agree, and all is where it belongs."""
        world = self.world
        for name in ("n1", "n2", "n3"):
            world.api.set_node(make_node(name, cpu="4", labels={"kubernetes.io/hostname": name}))
        for _ in range(4):
            world.settle()
            world.pass_time(31)
        world.settle()
        world.check()
        world.check_end()


TestOrders = Orders.TestCase
TestOrders.settings = settings(
    max_examples=5000 if LONG else 150,
    stateful_step_count=80 if LONG else 40,
    suppress_health_check=list(HealthCheck),
)
