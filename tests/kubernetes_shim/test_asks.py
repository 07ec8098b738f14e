"""Asks about which the core asks the shim, and asks that are sent again."""

from msgspec import convert

from tests.kubernetes_shim.shim_builders import Json, make_node, make_pod, repel
from tests.kubernetes_shim.shim_world import World, with_nodes
from yunishard.kubernetes_shim.actions import PatchVolume
from yunishard.kubernetes_shim.asks import REPEAT_S, REPEAT_S_PER_ASK
from yunishard.kubernetes_shim.objects import (
    CSI_STORAGE_CAPACITIES,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    Kind,
    Object,
)
from yunishard.kubernetes_shim.tags import Scope

QUEUE = {"queue": "root.a"}
SCOPE = "yunishard/predicateScope"


def with_zones(*zones: str) -> World:
    """A world with a node for one pod in each zone."""
    world = with_nodes(asks=True)
    for number, zone in enumerate(zones, 1):
        labels = {"zone": zone, "kubernetes.io/hostname": f"n{number}"}
        world.api.set_node(make_node(f"n{number}", cpu="1", labels=labels))
    world.settle()
    return world


def create(world: World, name: str, *, app: str = "a", spec: Json | None = None, **more: object) -> None:
    labels = {**QUEUE, "app": app}
    world.api.set_pod(make_pod(name, labels=labels, requests={"cpu": "700m"}, spec=spec, **more))  # type: ignore[arg-type]


def put(world: World, kind: Kind[Object], obj: Json, event: str = "added") -> None:
    found = convert({"metadata": {}, **obj}, kind.struct)
    world.shim.handle_object(event, found, world.now)  # type: ignore[arg-type]
    world.take()


def scopes(world: World) -> dict[str, str]:
    """The scopes of the asks that wait in the core."""
    return {ask.key: ask.tags[SCOPE] for ask in world.core.allocations.values() if not ask.node_id}


def test_the_core_does_not_ask_about_a_pod_that_nothing_can_refuse() -> None:
    world = with_nodes("n1", "n2", asks=True)
    for number in range(5):
        create(world, f"p{number}", spec={"nodeSelector": {}, "tolerations": [{"operator": "Exists"}]})
    create(world, "port", spec={"containers": [{"name": "main", "ports": [{"hostPort": 80}]}]})
    world.settle()
    world.check()
    assert len(world.bound) == 6
    assert {uid for uid, _ in world.asked} == {"uid-port"}


def test_asks_that_wait_are_asked_about_before_a_pod_arrives_that_repels_them() -> None:
    world = with_zones("x", "y")
    create(world, "first")
    create(world, "second")
    world.settle()
    create(world, "waits", app="web")
    create(world, "other", app="db")
    world.settle()
    assert scopes(world) == {"uid-waits": "none", "uid-other": "none"}
    world.api.set_pod(make_pod("enemy", labels=QUEUE, spec=repel("zone", app="web"), requests={"cpu": "100m"}))
    world.settle()
    assert world.bound["enemy"] == "n1"
    assert scopes(world) == {"uid-waits": "partition", "uid-other": "none"}
    world.api.remove_pod("uid-first")
    world.settle()
    assert world.bound["other"] == "n1", "the zone of the enemy"
    world.api.remove_pod("uid-second")
    world.settle()
    assert world.bound["waits"] == "n2"
    assert "AssumePodError" not in [one.action for one in world.events]
    world.check()


def test_a_pod_is_asked_about_as_long_as_others_may_repel_it() -> None:
    world = with_nodes("n1", asks=True)
    spec = {**repel("kubernetes.io/hostname", app="web"), "schedulingGates": [{"name": "later"}]}
    world.api.set_pod(make_pod("enemy", labels=QUEUE, spec=spec))
    create(world, "p1", app="web")
    world.settle()
    assert {uid for uid, _ in world.asked} == {"uid-p1"}
    world.api.remove_pod("uid-enemy")
    create(world, "p2", app="web")
    world.settle()
    assert {uid for uid, _ in world.asked} == {"uid-p1"}
    assert len(world.bound) == 2


def test_other_labels_of_a_pod_or_a_namespace_let_the_core_ask() -> None:
    world = with_zones("x")
    create(world, "first")
    world.settle()
    for name in ("p1", "p2"):
        create(world, name, app="web")
    enemy = repel("kubernetes.io/hostname", namespaces={"matchLabels": {"team": "b"}}, app="web")
    world.api.set_pod(make_pod("enemy", namespace="other", labels=QUEUE, spec=enemy, scheduler="default"))
    enemy = repel("zone", app="db")
    world.api.set_pod(make_pod("second", labels=QUEUE, spec=enemy, scheduler="default"))
    world.settle()
    assert scopes(world) == {"uid-p1": "none", "uid-p2": "none"}
    put(world, NAMESPACES, {"metadata": {"name": "default", "labels": {"team": "b"}}})
    world.settle()
    assert scopes(world) == {"uid-p1": "node", "uid-p2": "node"}
    create(world, "p2", app="db")
    world.settle()
    assert scopes(world) == {"uid-p1": "node", "uid-p2": "partition"}
    world.check()


def test_other_labels_of_a_waiting_pod_are_tags_of_its_ask() -> None:
    world = with_zones("x")
    create(world, "first")
    create(world, "waits")
    world.settle()
    create(world, "waits", app="other")
    world.settle()
    tags = world.core.allocations["uid-waits"].tags
    assert (tags["kubernetes.io/label/app"], tags[SCOPE]) == ("other", "node")
    create(world, "waits", app="other", annotations={"looks": "new"})
    world.step_watch("pods")
    assert not world.to_core, "annotations are no tags"
    world.api.remove_pod("uid-first")
    world.settle()
    assert world.bound == {"waits": "n1"}
    create(world, "waits", app="third", node="n1")
    world.settle()
    assert world.core.allocations["uid-waits"].tags["kubernetes.io/label/app"] == "other", "it has its node"
    world.check()


def test_a_waiting_pod_that_gets_a_toleration_may_run_on_the_node() -> None:
    world = with_nodes(asks=True)
    world.api.set_node(make_node("n1", taints=[{"key": "gpu", "effect": "NoSchedule"}]))
    create(world, "p1")
    world.settle()
    assert world.bound == {}
    create(world, "p1", spec={"tolerations": [{"key": "gpu", "operator": "Exists"}]})
    world.settle()
    assert world.bound == {"p1": "n1"}
    world.check()


def test_a_pod_that_is_repelled_when_it_is_bound_goes_back_and_is_asked_about() -> None:
    world = with_nodes("n1", "n2", asks=True)
    world.api.set_node(make_node("n1", labels={"zone": "x"}))
    world.settle()
    create(world, "p1", app="web")
    world.settle_until(lambda: bool(world.from_core) and "uid-p1" in world.core.allocations)
    enemy = make_pod("enemy", node="n1", scheduler="default", spec=repel("zone", app="web"))
    world.api.set_pod(enemy)
    world.step_watch("pods")
    world.settle()
    assert world.bound == {"p1": "n2"}
    world.check()


# Objects that the core does not see -----------------------------------------------------------------------------------


def with_waiting_claim() -> World:
    """A world with a pod that no volume fits."""
    world = with_nodes("n1", asks=True)
    put(
        world,
        STORAGE_CLASSES,
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    put(
        world,
        PERSISTENT_VOLUME_CLAIMS,
        {
            "metadata": {"name": "c", "namespace": "default", "uid": "uid-c"},
            "spec": {
                "storageClassName": "local",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    create(world, "p1", spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]})
    world.settle()
    assert world.state.asked["uid-p1"].scope is Scope.PARTITION
    assert list(world.state.refused) == ["uid-p1"]
    return world


VOLUME: Json = {
    "metadata": {"name": "v1", "uid": "uid-v1", "resourceVersion": "1"},
    "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}},
    "status": {"phase": "Available"},
}


def test_a_new_volume_lets_the_core_ask_again() -> None:
    world = with_waiting_claim()
    put(world, PERSISTENT_VOLUMES, VOLUME)
    assert world.shim.next_deadline == world.now + REPEAT_S
    world.pass_time(REPEAT_S)
    world.settle_until(lambda: any(isinstance(one, PatchVolume) for one in world.writes))
    assert not world.state.refused


def test_objects_that_cannot_help_change_nothing() -> None:
    world = with_waiting_claim()
    asked = len(world.asked)
    others: list[tuple[Kind[Object], Json]] = [
        (PERSISTENT_VOLUMES, {**VOLUME, "spec": {"storageClassName": "other"}}),
        (PERSISTENT_VOLUMES, {**VOLUME, "spec": {"storageClassName": "local", "claimRef": {"name": "other"}}}),
        (CSI_STORAGE_CAPACITIES, {"storageClassName": "other"}),
        (PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "other", "namespace": "default"}}),
        (NAMESPACES, {"metadata": {"name": "default", "labels": {"a": "b"}}}),
    ]
    for kind, obj in others:
        put(world, kind, obj)
    world.pass_time(2)
    world.settle()
    assert len(world.asked) == asked
    put(world, CSI_STORAGE_CAPACITIES, {"storageClassName": "local"})
    world.settle()
    assert len(world.asked) > asked


def test_other_labels_of_a_running_pod_let_the_core_ask_again() -> None:
    world = with_nodes(asks=True)
    world.api.set_node(make_node(labels={"kubernetes.io/hostname": "n1"}))
    create(world, "p1", app="web")
    world.settle()
    create(world, "p2", app="api", spec=repel("kubernetes.io/hostname", app="web"))
    world.settle()
    assert list(world.bound) == ["p1"]
    world.api.set_pod(make_pod("p1", labels={**QUEUE, "app": "old"}, requests={"cpu": "700m"}, node="n1"))
    world.settle()
    assert set(world.bound) == {"p1", "p2"}
    world.check()


def test_thousands_of_refused_asks_are_sent_again_less_often() -> None:
    world = with_waiting_claim()
    task = world.state.tasks["uid-p1"]
    world.state.refused.update({str(number): task for number in range(2_000)})
    put(world, PERSISTENT_VOLUMES, VOLUME)
    assert world.shim.next_deadline == world.now + 2_001 * REPEAT_S_PER_ASK


def test_changes_before_a_refusal_are_forgotten() -> None:
    world = with_nodes("n1", asks=True)
    put(world, PERSISTENT_VOLUMES, VOLUME)
    assert not world.state.unseen
    assert world.shim.next_deadline == float("inf")
