"""Volumes of a pod: the filters of nodes by its claims, and the binding of claims.

`refuse_by_volumes` filters by access for one pod only, limits of nodes, zones, and whether claims can be bound. Volumes
in the tree of Kubernetes that are not migrated to CSI have neither limits nor exclusive use.

1. `plan_binding` chooses volumes on a node, or returns why the pod cannot run there.
2. `Cluster.assume_volumes` reserves them, so that other plans do without them.
3. `list_patches` is what to send to the API server.
4. `check_binding`, after each event of a claim or volume, returns whether all claims are bound.
5. If that fails or takes too long, or the pod is released, `Cluster.forget` ends the reservation.

Only claims of a class that waits for the first consumer are bound here; the controllers of Kubernetes bind all others
before their pod can run.
"""

from enum import Enum
from typing import Final, NamedTuple

from yunishard.kubernetes_shim.actions import PatchVolume
from yunishard.kubernetes_shim.cluster import Cluster
from yunishard.kubernetes_shim.objects import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from yunishard.kubernetes_shim.predicates.records import ClaimKey, NodeRecord, PodRecord
from yunishard.kubernetes_shim.predicates.selectors import compile_labels
from yunishard.kubernetes_shim.predicates.volume_objects import (
    BIND_COMPLETED,
    SELECTED_NODE,
    STORAGE,
    Provision,
    StaticBinding,
    VolumeObjects,
    VolumePlan,
    VolumeRecord,
    name_class,
    read_size,
)

BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
NO_PROVISIONER: Final = ("", "kubernetes.io/no-provisioner")
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"

ZONE_LABELS: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels that bind a volume to a part of the cloud, and the label that replaced each."""

VALUES_SEPARATOR: Final = "__"
"""Between the zones of a volume that can be reached from several."""


class Progress(Enum):
    """How far the binding of claims is."""

    WAIT = "wait"
    BOUND = "bound"
    FAILED = "failed"


class BindingState(NamedTuple):
    """How far the binding of claims is, and why it failed."""

    progress: Progress
    reason: str = ""


# Choosing volumes -----------------------------------------------------------------------------------------------------


def plan_binding(cluster: Cluster, uid: str, node: str) -> VolumePlan:
    """Choose volumes for the unbound claims of a pod: the smallest that fit, or provisioning on the node."""
    pod, record = cluster.pods.get(uid), cluster.nodes.get(node)
    if pod is None or record is None or not record.is_known:
        return VolumePlan(node, "pod is gone" if pod is None else "node is unknown")
    return plan_for(cluster.volumes, pod, record)


def plan_for(objects: VolumeObjects, pod: PodRecord, node: NodeRecord) -> VolumePlan:
    """Choose volumes for the unbound claims of a pod on a node."""
    refusal = refuse_claims(objects, pod)
    if refusal is not None:
        return VolumePlan(node.name, refusal)
    claims = [objects.claims[key] for key in pod.claim_keys]
    for claim in claims:
        refusal = _refuse_bound(objects, claim, node) if is_bound(claim) else _refuse_unbound(objects, claim)
        if refusal is not None:
            return VolumePlan(node.name, refusal)
    unbound = [claim for claim in claims if not is_bound(claim)]
    unbound.sort(key=_size_of)  # small claims first, so that they do not take the volumes of large ones
    bindings: list[StaticBinding] = []
    provisions: list[Provision] = []
    for claim in unbound:
        key = _key_of(claim)
        if objects.binders.get(key, pod.uid) != pod.uid:
            return VolumePlan(node.name, "a claim of the pod is being bound for another pod")
        selected = objects.provisioning.get(key) or claim.metadata.annotations.get(SELECTED_NODE)
        if selected and selected != node.name:
            return VolumePlan(node.name, "a claim of the pod is being provisioned for another node")
        volume = None if selected else _find_volume(objects, claim, node, {one.volume for one in bindings})
        if volume is not None:
            bindings.append(StaticBinding(key, volume.name, volume.volume.metadata.resource_version))
        elif (refusal := _refuse_provisioning(objects, claim, node)) is not None:
            return VolumePlan(node.name, refusal)
        else:
            provisions.append(Provision(key, claim.metadata.resource_version))
    return VolumePlan(node.name, "", tuple(bindings), tuple(provisions))


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether claim and volume refer to each other; a claim that merely names its volume still waits for that."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def waits_for_consumer(storage_class: StorageClass | None) -> bool:
    """Whether claims of the class are bound after the node of their first pod is known."""
    return storage_class is not None and storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER


def refuse_claims(objects: VolumeObjects, pod: PodRecord) -> str | None:
    """Return why the pod cannot run on any node: a claim is missing, lost, being deleted, or another pod's."""
    for key, wanted in zip(pod.claim_keys, pod.claims, strict=True):
        claim = objects.claims.get(key)
        if claim is None:
            return f"claim {wanted.name} does not exist"
        owners = claim.metadata.owner_references
        if wanted.is_ephemeral and not any(one.controller and one.uid == pod.uid for one in owners):
            return f"claim {wanted.name} was not made for the pod"
        if claim.metadata.deletion_timestamp is not None:
            return f"claim {wanted.name} is being deleted"
        if claim.status.phase == "Lost":
            return f"claim {wanted.name} has lost its volume {claim.spec.volume_name}"
    return None


def _refuse_unbound(objects: VolumeObjects, claim: PersistentVolumeClaim) -> str | None:
    """Return why the pod has to wait until a controller has bound the claim."""
    storage_class = objects.classes.get(name_class(claim.metadata, claim.spec.storage_class_name))
    if claim.spec.volume_name or not waits_for_consumer(storage_class):
        return f"claim {claim.metadata.name} is not bound yet"
    return None


def _refuse_bound(objects: VolumeObjects, claim: PersistentVolumeClaim, node: NodeRecord) -> str | None:
    """Return why the volume of a bound claim cannot be used on the node."""
    volume = objects.volumes.get(claim.spec.volume_name)
    if volume is None:
        return f"volume {claim.spec.volume_name} of claim {claim.metadata.name} does not exist"
    if not volume.can_be_reached_from(node):
        return f"node cannot reach volume {volume.name}"
    return None


def _find_volume(
    objects: VolumeObjects, claim: PersistentVolumeClaim, node: NodeRecord, taken: set[str]
) -> VolumeRecord | None:
    """Return the volume that names the claim, or the smallest free one that fits and that the node can reach."""
    size = _size_of(claim)
    for name in objects.prebound.get(_key_of(claim), ()):
        volume = objects.volumes[name]
        reference = volume.volume.spec.claim_ref
        if reference is None or reference.uid not in ("", claim.metadata.uid) or name in taken:
            continue
        if (
            volume.size >= size
            and _has_form(volume.volume, claim)
            and volume.volume.metadata.deletion_timestamp is None
        ):
            return volume if volume.can_be_reached_from(node) else None
    selector = None if claim.spec.selector is None else compile_labels(claim.spec.selector)
    fitting = [
        one
        for one in objects.find_free(name_class(claim.metadata, claim.spec.storage_class_name), node)
        if one.size >= size
        and one.name not in taken
        and _has_form(one.volume, claim)
        and set(claim.spec.access_modes).issubset(one.volume.spec.access_modes)
        and (selector is None or selector.matches(one.volume.metadata.labels))
    ]
    return min(fitting, key=lambda one: (one.size, one.name), default=None)


def _has_form(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether volume mode and attributes class are those of the claim."""
    wanted, offered = claim.spec, volume.spec
    return (wanted.volume_mode or "Filesystem", wanted.volume_attributes_class_name or "") == (
        offered.volume_mode or "Filesystem",
        offered.volume_attributes_class_name or "",
    )


def _refuse_provisioning(objects: VolumeObjects, claim: PersistentVolumeClaim, node: NodeRecord) -> str | None:
    """Return why no volume can be made for the claim on the node."""
    class_name = name_class(claim.metadata, claim.spec.storage_class_name)
    storage_class = objects.classes.get(class_name)
    if storage_class is None:
        return f"storage class {class_name} does not exist"
    if storage_class.provisioner in NO_PROVISIONER:
        return "no volume on the node fits the claims of the pod"
    allowed = storage_class.allowed_topologies
    if allowed and not any(
        all(node.labels.get(one.key) in one.values for one in term.match_label_expressions)
        for term in allowed
        if term.match_label_expressions
    ):
        return f"storage class {class_name} makes no volumes in the topology of the node"
    driver = objects.csi_drivers.get(storage_class.provisioner)
    if driver is None or not driver.spec.storage_capacity:
        return None
    size = _size_of(claim)
    if not any(
        one.size_max is not None and one.size_max >= size and one.topology.matches(node.labels)
        for one in objects.capacities.get(class_name, {}).values()
    ):
        return f"storage class {class_name} has not enough capacity on the node"
    return None


def _size_of(claim: PersistentVolumeClaim) -> int:
    return read_size(claim.spec.resources.requests.get(STORAGE)) or 0


def _key_of(claim: PersistentVolumeClaim) -> ClaimKey:
    return claim.metadata.namespace, claim.metadata.name


# Filters --------------------------------------------------------------------------------------------------------------


def refuse_by_volumes(
    objects: VolumeObjects, claim_users: dict[ClaimKey, int], pod: PodRecord, node: NodeRecord
) -> str | None:
    """Return why the claims of the pod keep it from the node."""
    if not pod.claims:
        return None
    return (
        plan_for(objects, pod, node).refusal
        or refuse_shared(objects, claim_users, pod)
        or refuse_by_limit(objects, pod, node)
        or refuse_by_zone(objects, pod, node)
    )


def refuse_shared(objects: VolumeObjects, claim_users: dict[ClaimKey, int], pod: PodRecord) -> str | None:
    """Return whether another pod uses a claim that permits only one."""
    for key in pod.claim_keys:
        claim = objects.claims.get(key)
        if claim is not None and READ_WRITE_ONCE_POD in claim.spec.access_modes and key in claim_users:
            return f"claim {key[1]} is used by another pod and permits one pod only"
    return None


# Limits ---------------------------------------------------------------------------------------------------------------


def refuse_by_limit(objects: VolumeObjects, pod: PodRecord, node: NodeRecord) -> str | None:
    """Return whether a CSI driver could not attach all volumes of the pod.

    A volume that is attached for a pod that is gone counts twice if the pod wants it, as it does in kube-scheduler.
    """
    csi_node = objects.csi_nodes.get(node.name)
    drivers = csi_node.spec.drivers if csi_node is not None else []
    limits = {one.name: one.allocatable.count for one in drivers if one.allocatable is not None}
    wanted = _identify(objects, pod.claim_keys)
    if not any(limits.get(driver) is not None for driver in wanted.values()):
        return None
    used = _identify(objects, node.claims)
    present = used | _identify_attached(objects, node)
    for driver in dict.fromkeys(wanted.values()):
        limit = limits.get(driver)
        added = sum(one == driver and volume not in used for volume, one in wanted.items())
        if limit is not None and added and sum(one == driver for one in present.values()) + added > limit:
            return f"node has no room for more volumes of {driver}"
    return None


def _identify(objects: VolumeObjects, claims: dict[ClaimKey, int] | list[ClaimKey]) -> dict[str, str]:
    """Return the CSI volumes of claims, each with its driver; one that does not exist yet is named after its claim."""
    found: dict[str, str] = {}
    for key in claims:
        claim = objects.claims.get(key)
        if claim is None:
            continue
        volume = objects.volumes.get(claim.spec.volume_name)
        if volume is not None:
            source = volume.volume.spec.csi
            if source is not None:
                found[f"{source.driver}/{source.volume_handle}"] = source.driver
            continue
        storage_class = objects.classes.get(name_class(claim.metadata, claim.spec.storage_class_name))
        if storage_class is not None:
            found[f"{storage_class.provisioner} {key[0]}/{key[1]}"] = storage_class.provisioner
    return found


def _identify_attached(objects: VolumeObjects, node: NodeRecord) -> dict[str, str]:
    """Return the CSI volumes that are attached to the node, also for pods that are gone."""
    found: dict[str, str] = {}
    for attachment in objects.attachments.get(node.name, {}).values():
        volume = objects.volumes.get(attachment.spec.source.persistent_volume_name or "")
        source = None if volume is None else volume.volume.spec.csi
        if source is not None:
            found[f"{source.driver}/{source.volume_handle}"] = source.driver
    return found


# Zones ----------------------------------------------------------------------------------------------------------------


def refuse_by_zone(objects: VolumeObjects, pod: PodRecord, node: NodeRecord) -> str | None:
    """Return whether a volume of the pod is in another zone or region."""
    is_zoned = any(key in node.labels for key in ZONE_LABELS)
    for key, one in zip(pod.claim_keys, pod.claims, strict=True):
        claim = objects.claims.get(key)
        if claim is None or one.is_ephemeral:
            continue
        if not claim.spec.volume_name:
            class_name = name_class(claim.metadata, claim.spec.storage_class_name)
            if not waits_for_consumer(objects.classes.get(class_name)):
                return f"claim {one.name} is not bound yet"
            continue
        volume = objects.volumes.get(claim.spec.volume_name)
        if volume is None:
            return f"volume {claim.spec.volume_name} of claim {one.name} does not exist"
        if not is_zoned:
            continue
        for label, replacement in ZONE_LABELS.items():
            text = volume.volume.metadata.labels.get(label)
            if text is None:
                continue
            value = node.labels.get(label, node.labels.get(replacement))
            if value not in {part.strip() for part in text.split(VALUES_SEPARATOR)}:
                return f"node is not in the zone of volume {volume.name}"
    return None


# Carrying out a plan --------------------------------------------------------------------------------------------------


def list_patches(cluster: Cluster, uid: str, plan: VolumePlan) -> list[PatchVolume]:
    """Return the patches that carry out the plan of a pod, without objects that are gone: `check_binding` reports
    those.
    """
    patches: list[PatchVolume] = []
    for binding in plan.bindings:
        volume, claim = cluster.volumes.volumes.get(binding.volume), cluster.volumes.claims.get(binding.claim)
        if volume is not None and claim is not None:
            body = _claim_volume(volume, claim, binding)
            patches.append(PatchVolume(kind=PERSISTENT_VOLUMES, namespace="", name=binding.volume, body=body, uid=uid))
    for namespace, name, version in ((*one.claim, one.version) for one in plan.provisions):
        body = {"metadata": {"resourceVersion": version, "annotations": {SELECTED_NODE: plan.node}}}
        kind = PERSISTENT_VOLUME_CLAIMS
        patches.append(PatchVolume(kind=kind, namespace=namespace, name=name, body=body, uid=uid))
    return patches


def _claim_volume(volume: VolumeRecord, claim: PersistentVolumeClaim, binding: StaticBinding) -> dict[str, object]:
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    }
    metadata: dict[str, object] = {"resourceVersion": binding.version}
    if volume.volume.spec.claim_ref is None:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    return {"metadata": metadata, "spec": {"claimRef": reference}}


def check_binding(cluster: Cluster, plan: VolumePlan) -> BindingState:
    """Return whether the claims of the plan are bound by now, on volumes that the node can reach."""
    node = cluster.nodes.get(plan.node)
    if node is None or not node.is_known:
        return BindingState(Progress.FAILED, f"node {plan.node} is gone")
    states = [_check_static(cluster.volumes, one) for one in plan.bindings]
    states += [_check_provision(cluster.volumes, one, node) for one in plan.provisions]
    failed = next((one for one in states if one.progress is Progress.FAILED), None)
    if failed is not None:
        return failed
    return BindingState(Progress.WAIT if _WAIT in states else Progress.BOUND)


_WAIT: Final = BindingState(Progress.WAIT)
_BOUND: Final = BindingState(Progress.BOUND)


def _check_static(objects: VolumeObjects, binding: StaticBinding) -> BindingState:
    claim, volume = objects.claims.get(binding.claim), objects.volumes.get(binding.volume)
    if claim is None or volume is None:
        gone = f"claim {binding.claim[1]}" if claim is None else f"volume {binding.volume}"
        return BindingState(Progress.FAILED, f"{gone} is gone")
    reference = volume.volume.spec.claim_ref
    if reference is None or reference.uid != claim.metadata.uid:
        if volume.volume.metadata.resource_version == binding.version:
            return _WAIT  # the change has not arrived yet
        return BindingState(Progress.FAILED, f"volume {volume.name} is not bound to claim {claim.metadata.name}")
    if not is_bound(claim):
        return _WAIT
    if claim.spec.volume_name != binding.volume:
        text = f"claim {claim.metadata.name} is bound to another volume, {claim.spec.volume_name}"
        return BindingState(Progress.FAILED, text)
    return _BOUND


def _check_provision(objects: VolumeObjects, provision: Provision, node: NodeRecord) -> BindingState:
    claim = objects.claims.get(provision.claim)
    if claim is None:
        return BindingState(Progress.FAILED, f"claim {provision.claim[1]} is gone")
    if claim.metadata.annotations.get(SELECTED_NODE) != node.name:
        if claim.metadata.resource_version == provision.version:
            return _WAIT  # the change has not arrived yet
        return BindingState(Progress.FAILED, f"no volume could be made for claim {claim.metadata.name} on the node")
    volume = objects.volumes.get(claim.spec.volume_name)
    if not is_bound(claim) or volume is None:
        return _WAIT
    if not volume.can_be_reached_from(node):
        return BindingState(Progress.FAILED, f"node cannot reach volume {volume.name}")
    return _BOUND
