"""Volumes, claims and what else decides where a pod with claims may run, indexed for the questions about them.

A class may have thousands of volumes, and each node reaches a few. So volumes that are free are found by class and by a
label that they require of their node, and volumes that are reserved for a claim by this claim.

Reservations (`assume`) stand for changes that have been decided, but that the API server has not reported back yet.
"""

from typing import Final, NamedTuple

from yunishard.common.resources import QuantityError
from yunishard.kubernetes_shim.objects import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    Object,
    ObjectMeta,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from yunishard.kubernetes_shim.predicates.label_index import LabelIndex
from yunishard.kubernetes_shim.predicates.records import ClaimKey, NodeRecord
from yunishard.kubernetes_shim.predicates.selectors import (
    NodeRequirement,
    Pair,
    Selector,
    compile_labels,
    compile_node_requirement,
)
from yunishard.kubernetes_shim.quantities import parse_quantity

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
STORAGE: Final = "storage"


class VolumeRecord(NamedTuple):
    """A volume with what is compiled of it."""

    volume: PersistentVolume
    size: int
    """In bytes."""
    requirement: NodeRequirement
    """The nodes that can reach it."""

    @property
    def name(self) -> str:
        return self.volume.metadata.name

    def can_be_reached_from(self, node: NodeRecord) -> bool:
        return self.requirement.matches(node.name, node.labels)


class CapacityRecord(NamedTuple):
    """How large a volume of a class may be in a topology."""

    size_max: int | None
    """In bytes; None: the driver has not reported it."""
    topology: Selector


class StaticBinding(NamedTuple):
    """An existing volume for a claim."""

    claim: ClaimKey
    volume: str
    version: str
    """The resource version of the volume when it was chosen."""


class Provision(NamedTuple):
    """A claim for which a volume is made once its node is known."""

    claim: ClaimKey
    version: str
    """The resource version of the claim when it was examined."""


class VolumePlan(NamedTuple):
    """How the unbound claims of a pod get volumes on its node."""

    node: str
    refusal: str = ""
    """Why they cannot; empty if they can."""
    bindings: tuple[StaticBinding, ...] = ()
    provisions: tuple[Provision, ...] = ()

    @property
    def is_bound(self) -> bool:
        """Whether nothing is left to do: all claims are bound, or the pod has none."""
        return not (self.refusal or self.bindings or self.provisions)


class VolumeObjects:
    """All objects of volumes, and the reservations of pods that are about to be bound."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, VolumeRecord] = {}
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CsiNode] = {}
        self.csi_drivers: dict[str, CsiDriver] = {}
        self.capacities: dict[str, dict[ClaimKey, CapacityRecord]] = {}
        """By storage class, then by namespace and name."""
        self.attachments: dict[str, dict[str, VolumeAttachment]] = {}
        """By node, then by name."""
        self.prebound: dict[ClaimKey, dict[str, None]] = {}
        """Volumes whose `claimRef` names a claim."""
        self.reserved: dict[str, ClaimKey] = {}
        """Volumes that plans have reserved, and for which claim."""
        self.binders: dict[ClaimKey, str] = {}
        """Claims for which plans have reserved a volume, and the uids of the pods with these plans."""
        self.provisioning: dict[ClaimKey, str] = {}
        """Claims for which plans have a volume made, and for which node."""
        self.plans: dict[str, VolumePlan] = {}
        """Plans that have been assumed, by the uid of the pod."""
        self._free: dict[str, LabelIndex[str]] = {}
        """Names of free volumes by storage class."""

    def set_object(self, obj: Object) -> None:
        """Add an object, or replace the earlier one."""
        name = obj.metadata.name
        match obj:
            case PersistentVolumeClaim():
                self.claims[obj.metadata.namespace, name] = obj
            case PersistentVolume():
                self._remove_volume(name)
                self._add_volume(obj)
            case StorageClass():
                self.classes[name] = obj
            case CsiNode():
                self.csi_nodes[name] = obj
            case CsiDriver():
                self.csi_drivers[name] = obj
            case CsiStorageCapacity():
                self.remove_object(obj)
                of_class = self.capacities.setdefault(obj.storage_class_name, {})
                of_class[obj.metadata.namespace, name] = _read_capacity(obj)
            case VolumeAttachment():
                self.attachments.setdefault(obj.spec.node_name, {})[name] = obj

    def remove_object(self, obj: Object) -> None:
        """Remove an object; an unknown one is ignored."""
        name = obj.metadata.name
        match obj:
            case PersistentVolumeClaim():
                self.claims.pop((obj.metadata.namespace, name), None)
            case PersistentVolume():
                self._remove_volume(name)
            case StorageClass():
                self.classes.pop(name, None)
            case CsiNode():
                self.csi_nodes.pop(name, None)
            case CsiDriver():
                self.csi_drivers.pop(name, None)
            case CsiStorageCapacity():
                for of_class in self.capacities.values():
                    of_class.pop((obj.metadata.namespace, name), None)
            case VolumeAttachment():
                self.attachments.get(obj.spec.node_name, {}).pop(name, None)

    # Reservations -----------------------------------------------------------------------------------------------------

    def assume(self, uid: str, plan: VolumePlan) -> None:
        """Reserve what a plan needs."""
        self.forget(uid)
        self.plans[uid] = plan
        for binding in plan.bindings:
            self.reserved[binding.volume] = binding.claim
            self.binders[binding.claim] = uid
        for provision in plan.provisions:
            self.provisioning[provision.claim] = plan.node

    def forget(self, uid: str) -> None:
        """Release what the plan of a pod has reserved."""
        plan = self.plans.pop(uid, None)
        if plan is None:
            return
        for binding in plan.bindings:
            self.reserved.pop(binding.volume, None)
            self.binders.pop(binding.claim, None)
        for provision in plan.provisions:
            if not any(one.claim == provision.claim for other in self.plans.values() for one in other.provisions):
                self.provisioning.pop(provision.claim, None)

    # Volumes ----------------------------------------------------------------------------------------------------------

    def find_free(self, storage_class: str, node: NodeRecord) -> list[VolumeRecord]:
        """Return the free volumes of a class that the node can reach."""
        index = self._free.get(storage_class)
        found = [self.volumes[name] for name in dict.fromkeys(index.find(node.labels))] if index is not None else []
        return [one for one in found if one.name not in self.reserved and one.can_be_reached_from(node)]

    def _add_volume(self, volume: PersistentVolume) -> None:
        spec = volume.spec
        required = spec.node_affinity.required if spec.node_affinity is not None else None
        record = VolumeRecord(
            volume, read_size(spec.capacity.get(STORAGE)) or 0, compile_node_requirement({}, required)
        )
        self.volumes[record.name] = record
        if spec.claim_ref is not None:
            claim = (spec.claim_ref.namespace, spec.claim_ref.name)
            self.prebound.setdefault(claim, {})[record.name] = None
        elif volume.status.phase == "Available" and volume.metadata.deletion_timestamp is None:
            index = self._free.setdefault(name_class(volume.metadata, spec.storage_class_name), LabelIndex())
            index.add(record.name, _list_pairs(record.requirement))

    def _remove_volume(self, name: str) -> None:
        record = self.volumes.pop(name, None)
        if record is None:
            return
        volume, spec = record.volume, record.volume.spec
        if spec.claim_ref is not None:
            claim = (spec.claim_ref.namespace, spec.claim_ref.name)
            self.prebound[claim].pop(name)
            if not self.prebound[claim]:
                del self.prebound[claim]
        elif volume.status.phase == "Available" and volume.metadata.deletion_timestamp is None:
            self._free[name_class(volume.metadata, spec.storage_class_name)].remove(
                name, _list_pairs(record.requirement)
            )


def name_class(metadata: ObjectMeta, storage_class: str | None) -> str:
    """Return the storage class of a volume or claim; the annotation is older than the field, and still counts."""
    return metadata.annotations.get(CLASS_ANNOTATION) or storage_class or ""


def read_size(quantity: str | float | None) -> int | None:
    """Return bytes, or None if there is no quantity or it cannot be read."""
    try:
        return None if quantity is None or quantity == "" else parse_quantity(quantity)
    except QuantityError:
        return None


def _read_capacity(capacity: CsiStorageCapacity) -> CapacityRecord:
    """Read how large a volume may be: the maximum size if the driver reports it, else the whole capacity."""
    size = read_size(capacity.maximum_volume_size)
    return CapacityRecord(
        read_size(capacity.capacity) if size is None else size, compile_labels(capacity.node_topology)
    )


def _list_pairs(requirement: NodeRequirement) -> tuple[Pair, ...]:
    """Return labels of which a node that can reach the volume has at least one; empty if there are no such labels."""
    pairs = [one.labels.pairs for one in requirement.alternatives or ()]
    return tuple(dict.fromkeys(pair for some in pairs for pair in some)) if pairs and all(pairs) else ()
