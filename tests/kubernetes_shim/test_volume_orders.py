"""Whatever the order of events, answers and failures: pods get the volumes of their claims, and no volume is kept."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest
from msgspec import convert, to_builtins

from tests.kubernetes_shim.shim_builders import Json, make_node, make_pod
from tests.kubernetes_shim.shim_world import ApiServer, World
from yunishard.kubernetes_shim.actions import Failure, PatchVolume, WriteAction
from yunishard.kubernetes_shim.objects import (
    PERSISTENT_VOLUME_CLAIMS,
    Object,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from yunishard.kubernetes_shim.settings import Settings
from yunishard.kubernetes_shim.state import TaskState

SEEDS = 2_000 if os.environ.get("PROPERTIES") == "long" else 20
STEPS = 400
NODES = ("n1", "n2")
FAULTS = ("", "", "", "lost", "unreached", "refused")
DELIVERIES = (
    *("pods", "nodes", "claims", "volumes"),
    *("step_to_core", "step_core", "step_from_core", "step_write", "step_outcome"),
)
HOST = "kubernetes.io/hostname"
SELECTED = "volume.kubernetes.io/selected-node"
CLASSES = {"made": "csi", "local": "kubernetes.io/no-provisioner"}
GIB: Json = {"storage": "1Gi"}


def merge(target: Json, patch: Json) -> Json:
    """Return an object after a merge patch."""
    merged = dict(target)
    for key, value in patch.items():
        former = merged.get(key)
        if isinstance(value, dict):
            merged[key] = merge(former if isinstance(former, dict) else {}, value)
        else:
            merged[key] = value
    return merged


class VolumeApi(ApiServer):
    """An API server with claims and volumes, and the controllers that provision and bind them."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.watch |= {"claims": deque(), "volumes": deque()}
        self.version = 0

    def list_objects(self) -> Iterator[Object]:
        for name, provisioner in CLASSES.items():
            spec = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
            yield convert({"metadata": {"name": name}, **spec}, StorageClass)
        yield from self.claims.values()
        yield from self.volumes.values()
        yield from super().list_objects()

    def put(self, obj: Json, struct: type[PersistentVolumeClaim | PersistentVolume]) -> None:
        """Store a claim or volume with the next version."""
        self.version += 1
        found = convert(merge(obj, {"metadata": {"resourceVersion": str(self.version)}}), struct)
        objects, kind = (
            (self.claims, "claims") if isinstance(found, PersistentVolumeClaim) else (self.volumes, "volumes")
        )
        event = "modified" if found.metadata.name in objects else "added"
        objects[found.metadata.name] = found  # type: ignore[assignment]
        self.watch[kind].append((event, found))  # type: ignore[arg-type]

    def add_claim(self, name: str, storage_class: str) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class, "resources": {"requests": GIB}}
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        self.put({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, PersistentVolumeClaim)

    def add_volume(self, name: str, node: str, storage_class: str, claim: Json | None = None) -> None:
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
        spec: Json = {
            "capacity": GIB,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        if claim is not None:
            spec["claimRef"] = claim
        phase = "Bound" if claim else "Available"
        self.put({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}, PersistentVolume)

    def execute(self, action: WriteAction) -> Failure | None:
        if not isinstance(action, PatchVolume):
            return super().execute(action)
        objects: Mapping[str, Object] = self.claims if action.kind is PERSISTENT_VOLUME_CLAIMS else self.volumes
        found = objects.get(action.name)
        if found is None:
            return Failure(404)
        metadata = convert(action.body["metadata"], dict[str, object])
        if metadata["resourceVersion"] != found.metadata.resource_version:
            return Failure(409)
        self.put(merge(to_builtins(found), action.body), action.kind.struct)
        return None

    # Controllers ----------------------------------------------------------------------------------------------------

    def step_controllers(self) -> bool:
        """Provision a volume for a claim, or bind a claim to the volume that names it."""
        for name, claim in self.claims.items():
            if claim.spec.volume_name:
                continue
            volume = self.find_volume(claim)
            node = claim.metadata.annotations.get(SELECTED)
            if volume is None and node and claim.spec.storage_class_name == "made":
                reference = {"namespace": "default", "name": name, "uid": claim.metadata.uid}
                self.add_volume(f"pv-{name}", node, "made", reference)
                return True
            if volume is not None:
                self.put(merge(to_builtins(volume), {"status": {"phase": "Bound"}}), PersistentVolume)
                marks = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
                bound = {"metadata": marks, "spec": {"volumeName": volume.metadata.name}, "status": {"phase": "Bound"}}
                self.put(merge(to_builtins(claim), bound), PersistentVolumeClaim)
                return True
        return False

    def find_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume that names a claim."""
        for volume in self.volumes.values():
            if volume.spec.claim_ref is not None and volume.spec.claim_ref.uid == claim.metadata.uid:
                return volume
        return None

    def give_up_provisioning(self, number: int) -> None:
        """Remove the node from a claim, as a provisioner does that cannot make a volume there."""
        waiting = [
            one for one in self.claims.values() if SELECTED in one.metadata.annotations and not self.find_volume(one)
        ]
        if waiting:
            found = to_builtins(waiting[number % len(waiting)])
            del found["metadata"]["annotations"][SELECTED]
            self.put(found, PersistentVolumeClaim)


class Orders:
    """Pods with claims on two nodes, each with two local volumes; a random source chooses what happens."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.api = VolumeApi()
        self.world = World(api=self.api, asks=True, settings=Settings(volume_bind_timeout_s=50.0))
        self.count = 0
        for node in NODES:
            self.set_node(node)
            for number in range(2):
                self.api.add_volume(f"{node}-{number}", node, "local")

    def step(self) -> None:
        """Let something happen: deliveries above all, changes now and then, failures seldom."""
        choices: dict[Callable[[], object], int] = {
            self.deliver: 60,
            self.create_pod: 10,
            self.write: 10,
            self.api.step_controllers: 4,
            self.create_missing_claim: 3,
            self.delete_pod: 3,
            self.give_up_provisioning: 3,
            self.return_node: 3,
            self.pass_time: 2,
            self.remove_node: 1,
        }
        (chosen,) = self.random.choices(list(choices), list(choices.values()))
        chosen()
        if self.random.random() < 0.006:
            self.random.choice((self.world.start_shim, self.world.register))()

    # The cluster ----------------------------------------------------------------------------------------------------

    def create_pod(self) -> None:
        self.count += 1
        name = f"c{self.count}"
        if self.api.claims and self.random.random() < 0.25:
            name = self.random.choice(list(self.api.claims))
        elif self.random.random() < 0.8:
            self.api.add_claim(name, self.random.choice(list(CLASSES)))
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
        self.api.set_pod(
            make_pod(f"p{self.count}", labels={"queue": "root.a"}, requests={"cpu": "1"}, spec={"volumes": [volume]})
        )

    def create_missing_claim(self) -> None:
        wanted = {f"c{one.metadata.name[1:]}" for one in self.api.pods.values()}
        if missing := sorted(wanted - set(self.api.claims)):
            self.api.add_claim(self.random.choice(missing), self.random.choice(list(CLASSES)))

    def delete_pod(self) -> None:
        if self.api.pods:
            self.api.remove_pod(self.random.choice(list(self.api.pods)))

    def give_up_provisioning(self) -> None:
        self.api.give_up_provisioning(self.random.randrange(30))

    def set_node(self, name: str) -> None:
        self.api.set_node(make_node(name, cpu="4", labels={HOST: name}))

    def return_node(self) -> None:
        self.set_node(self.random.choice(NODES))

    def remove_node(self) -> None:
        name = self.random.choice(NODES)
        if name in self.api.nodes:
            self.api.remove_node(name)

    # Deliveries -----------------------------------------------------------------------------------------------------

    def deliver(self) -> None:
        step = self.random.choice(DELIVERIES)
        for _ in range(self.random.randint(1, 12)):
            if step in self.api.watch:
                self.world.step_watch(step)
            else:
                getattr(self.world, step)()

    def write(self) -> None:
        self.world.step_write(self.random.randrange(30), self.random.choice(FAULTS))

    def pass_time(self) -> None:
        self.world.pass_time(self.random.choice((1, 1, 31, 51)))

    # The end --------------------------------------------------------------------------------------------------------

    def check_volumes(self) -> None:
        """Pods are where their volumes are, each volume has one claim, and nothing is reserved."""
        state = self.world.state
        objects = state.cluster.volumes
        for kept in (state.binding_volumes, objects.plans, objects.reserved, objects.provisioning):
            assert not kept
        users = [one.spec.volume_name for one in self.api.claims.values() if one.spec.volume_name]
        assert len(users) == len(set(users))
        for pod in self.api.pods.values():
            if pod.spec.node_name:
                source = pod.spec.volumes[0].persistent_volume_claim
                assert source is not None
                volume = self.api.volumes[self.api.claims[source.claim_name].spec.volume_name]
                affinity = volume.spec.node_affinity
                assert affinity is not None
                assert affinity.required is not None
                assert affinity.required.node_selector_terms[0].match_expressions[0].values == [pod.spec.node_name]

    def finish(self) -> None:
        """Nodes and claims are there, everything is delivered: who waits has no node that suits it."""
        world = self.world
        for name in NODES:
            self.set_node(name)
        for _ in range(4):
            world.settle()
            world.pass_time(31)
        world.settle()
        world.check()
        self.check_volumes()
        for task in world.state.tasks.values():
            if task.state is TaskState.SCHEDULING:
                for node in world.core.nodes:
                    if node.available.get("vcore", 0) >= 1000:
                        assert world.shim.may_run(task.uid, node.node_id, True), f"{task.uid} fits on {node.node_id}"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_pods_get_their_volumes_in_any_order_of_events(seed: int) -> None:
    orders = Orders(Random(seed))
    for _ in range(STEPS):
        orders.step()
    orders.finish()


def test_a_node_that_goes_before_its_reported_allocations_are_confirmed_releases_each_once() -> None:
    api = VolumeApi()
    world = World(api=api)
    api.set_node(make_node("n1", labels={HOST: "n1"}))
    api.add_claim("c1", "made")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c1"}}
    api.set_pod(make_pod("p1", labels={"queue": "root.a"}, spec={"volumes": [volume]}))
    world.settle_until(lambda: bool(world.state.binding_volumes))
    world.register()
    api.remove_node("n1")
    world.step_watch("nodes")
    world.settle()
    world.check()
    api.set_node(make_node("n1", labels={HOST: "n1"}))
    world.settle()
    world.check()
    assert world.bound == {"p1": "n1"}
