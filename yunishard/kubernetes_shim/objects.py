"""The Kubernetes objects that the shim reads, as structs of the fields that it uses.

Pod specifications are most of what an API server sends, so each struct declares only what some part of the shim reads,
and decoding skips the rest: this decides how much memory a large cluster needs. Names are those of the Kubernetes API
in snake case; absent lists and maps are empty. Amounts and times stay text until they are needed. `decode_object` reads
them from JSON.

Not here: what is written to the API server. `client.py` sends plain dictionaries, because a patch names the fields that
it changes, and an object that is read in part must never be written back as a whole.
"""

from typing import Final, Generic, Literal, TypeVar

from msgspec import DecodeError, Raw, Struct, ValidationError, convert, field
from msgspec.json import decode

Quantities = dict[str, str | int | float]
"""Amounts by resource, as written: `{"cpu": "500m", "memory": "1Gi"}`."""


class Part(Struct, frozen=True, rename="camel"):
    """A part of an object."""


class OwnerReference(Part, frozen=True):
    """The object that an object belongs to."""

    kind: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Part, frozen=True):
    """The metadata of every object. Times are RFC 3339 in UTC, so their order as text is their order in time."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = field(default_factory=list)


class Object(Struct, frozen=True, rename="camel", kw_only=True):
    """An object of the API."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)


ObjectEvent = Literal["added", "modified", "deleted"]
"""A change of an object."""


# Selectors ------------------------------------------------------------------------------------------------------------


class Requirement(Part, frozen=True):
    """One requirement on a label or, in a node selector, also on a field: operator and values as in Kubernetes."""

    key: str
    operator: str
    values: list[str] = field(default_factory=list)


class LabelSelector(Part, frozen=True):
    """A selector of labels: all of its parts must hold; without parts it selects everything."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: list[Requirement] = field(default_factory=list)


class NodeSelectorTerm(Part, frozen=True):
    """One alternative of a node selector: all requirements must hold; without any it selects nothing."""

    match_expressions: list[Requirement] = field(default_factory=list)
    match_fields: list[Requirement] = field(default_factory=list)


class NodeSelector(Part, frozen=True):
    """Alternatives of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = field(default_factory=list)


class TopologySelectorRequirement(Part, frozen=True):
    """A label and its permitted values."""

    key: str
    values: list[str] = field(default_factory=list)


class TopologySelectorTerm(Part, frozen=True):
    """One alternative of the topologies where a storage class provisions volumes."""

    match_label_expressions: list[TopologySelectorRequirement] = field(default_factory=list)


# Pods -----------------------------------------------------------------------------------------------------------------


class ResourceRequirements(Part, frozen=True):
    """The resources that a container or a pod requests. Limits are not read: only requests count for scheduling."""

    requests: Quantities = field(default_factory=dict)


class ContainerPort(Part, frozen=True):
    """A port of a container; only one with `host_port` matters for scheduling."""

    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Part, frozen=True):
    """A container or init container; an init container that restarts always is a sidecar."""

    name: str = ""
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    ports: list[ContainerPort] = field(default_factory=list)
    restart_policy: str | None = None


class NodeAffinity(Part, frozen=True):
    """Nodes where the pod may run. Preferences are not read: the core has no scoring."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(Part, frozen=True):
    """Pods that a pod wants, or does not want, in its topology."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = field(default_factory=list)
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = field(default_factory=list)


class PodAffinity(Part, frozen=True):
    """The terms of an affinity or anti-affinity between pods, all of which must hold."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = field(default_factory=list)


class Affinity(Part, frozen=True):
    """Where a pod may run, by nodes and by other pods."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Part, frozen=True):
    """Taints that a pod tolerates."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class TopologySpreadConstraint(Part, frozen=True):
    """How evenly the matching pods must be spread over the values of a node label."""

    topology_key: str = ""
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: list[str] = field(default_factory=list)


class Named(Part, frozen=True):
    """A reference by name: a scheduling gate, a secret."""

    name: str = ""


class ClaimSource(Part, frozen=True):
    """A volume from a claim of the pod's namespace."""

    claim_name: str


class EphemeralSource(Part, frozen=True):
    """A volume whose claim is made for the pod and named `<pod>-<volume>`."""


class CsiSource(Part, frozen=True):
    """A persistent volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class Volume(Part, frozen=True):
    """A volume of a pod; other sources need nothing from a scheduler."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class PodSpec(Part, frozen=True):
    """The specification of a pod."""

    scheduler_name: str = ""
    node_name: str = ""
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: list[Toleration] = field(default_factory=list)
    topology_spread_constraints: list[TopologySpreadConstraint] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    overhead: Quantities = field(default_factory=dict)
    resources: ResourceRequirements | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: list[Named] = field(default_factory=list)
    image_pull_secrets: list[Named] = field(default_factory=list)
    volumes: list[Volume] = field(default_factory=list)


class Condition(Part, frozen=True):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str = ""


class ContainerStatus(Part, frozen=True):
    """The resources that a container has now, which differ from its specification while it is resized."""

    name: str = ""
    allocated_resources: Quantities = field(default_factory=dict)
    resources: ResourceRequirements | None = None


class PodStatus(Part, frozen=True):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    conditions: list[Condition] = field(default_factory=list)
    container_statuses: list[ContainerStatus] = field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = field(default_factory=list)
    resize: str = ""


class Pod(Object, frozen=True, kw_only=True):
    """A pod."""

    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


# Nodes, namespaces, classes -------------------------------------------------------------------------------------------


class Taint(Part, frozen=True):
    """A property of a node that repels pods without a matching toleration."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Part, frozen=True):
    """The settings of a node."""

    unschedulable: bool = False
    taints: list[Taint] = field(default_factory=list)


class NodeStatus(Part, frozen=True):
    """The resources and conditions of a node."""

    allocatable: Quantities = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)


class Node(Object, frozen=True, kw_only=True):
    """A node."""

    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class Namespace(Object, frozen=True, kw_only=True):
    """A namespace; its annotations have quotas and the parent queue."""


class PriorityClass(Object, frozen=True, kw_only=True):
    """A priority class; an annotation may protect its pods from preemption."""


class ConfigMap(Object, frozen=True, kw_only=True):
    """Settings by name."""

    data: dict[str, str] = field(default_factory=dict)
    binary_data: dict[str, str] = field(default_factory=dict)
    """Bytes in base64."""


# Volumes --------------------------------------------------------------------------------------------------------------


class ObjectReference(Part, frozen=True):
    """A reference to an object of a namespace."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Part, frozen=True):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Part, frozen=True):
    """A volume of the cluster."""

    capacity: Quantities = field(default_factory=dict)
    access_modes: list[str] = field(default_factory=list)
    storage_class_name: str = ""
    volume_attributes_class_name: str | None = None
    volume_mode: str = "Filesystem"
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class VolumeStatus(Part, frozen=True):
    """Whether a volume is `Available`, `Bound`, `Released` or `Failed`, or a claim `Pending`, `Bound` or `Lost`."""

    phase: str = ""


class PersistentVolume(Object, frozen=True, kw_only=True):
    """A persistent volume."""

    spec: PersistentVolumeSpec = field(default_factory=PersistentVolumeSpec)
    status: VolumeStatus = VolumeStatus()


class PersistentVolumeClaimSpec(Part, frozen=True):
    """The specification of a claim."""

    access_modes: list[str] = field(default_factory=list)
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    volume_mode: str = "Filesystem"
    volume_name: str = ""
    selector: LabelSelector | None = None


class PersistentVolumeClaim(Object, frozen=True, kw_only=True):
    """A claim for a persistent volume."""

    spec: PersistentVolumeClaimSpec = field(default_factory=PersistentVolumeClaimSpec)
    status: VolumeStatus = VolumeStatus()


class StorageClass(Object, frozen=True, kw_only=True):
    """How volumes of a class come to be, and whether they are bound before or after their pod has a node."""

    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologySelectorTerm] = field(default_factory=list)


class CsiNodeAllocatable(Part, frozen=True):
    """How many volumes of a driver a node can attach; None if there is no limit."""

    count: int | None = None


class CsiNodeDriver(Part, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    allocatable: CsiNodeAllocatable | None = None


class CsiNodeSpec(Part, frozen=True):
    """The CSI drivers of a node."""

    drivers: list[CsiNodeDriver] = field(default_factory=list)


class CsiNode(Object, frozen=True, kw_only=True):
    """The CSI drivers of a node, as they have registered; it has the node's name."""

    spec: CsiNodeSpec = field(default_factory=CsiNodeSpec)


class CsiDriverSpec(Part, frozen=True):
    """Properties of a CSI driver."""

    storage_capacity: bool = False


class CsiDriver(Object, frozen=True, kw_only=True):
    """A CSI driver; with `storage_capacity` it publishes `CsiStorageCapacity` objects, which then count."""

    spec: CsiDriverSpec = field(default_factory=CsiDriverSpec)


class CsiStorageCapacity(Object, frozen=True, kw_only=True):
    """How much can be provisioned of a storage class in a topology."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None


class VolumeAttachmentSource(Part, frozen=True):
    """The volume of an attachment."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Part, frozen=True):
    """A volume attached to a node by a driver."""

    node_name: str = ""
    source: VolumeAttachmentSource = field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(Object, frozen=True, kw_only=True):
    """An attachment of a volume; it counts against the limit of the node even if its pod is gone."""

    spec: VolumeAttachmentSpec = field(default_factory=VolumeAttachmentSpec)


# Workloads and services: their selectors are those of the default topology spread ------------------------------------


class LeaseSpec(Part, frozen=True):
    """The holder of a lease, its duration, and how often it changed hands."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0


class Lease(Object, frozen=True, kw_only=True):
    """A lease of coordination.k8s.io."""

    spec: LeaseSpec = field(default_factory=LeaseSpec)


# Of the admission controller -----------------------------------------------------------------------------------------


class Secret(Object, frozen=True, kw_only=True):
    """Secret texts by name, in base64."""

    data: dict[str, str] = field(default_factory=dict)


class AdmissionRules(Object, frozen=True, kw_only=True):
    """Webhooks that the API server calls, a policy that it evaluates, or the binding of one; compared as a whole."""

    webhooks: Raw = Raw(b"[]")
    spec: Raw = Raw(b"{}")


# Kinds ----------------------------------------------------------------------------------------------------------------

_O_co = TypeVar("_O_co", bound=Object, covariant=True)


class Kind(Struct, Generic[_O_co], frozen=True):
    """A kind of object: the struct that is read, and where the API server has it."""

    struct: type[_O_co]
    path: str
    """Of the collection in all namespaces; that of one namespace has `namespaces/NAME/` before `plural`."""
    plural: str
    namespaced: bool = True


PODS: Final = Kind(Pod, "/api/v1", "pods")
CONFIG_MAPS: Final = Kind(ConfigMap, "/api/v1", "configmaps")
NODES: Final = Kind(Node, "/api/v1", "nodes", namespaced=False)
NAMESPACES: Final = Kind(Namespace, "/api/v1", "namespaces", namespaced=False)
PRIORITY_CLASSES: Final = Kind(PriorityClass, "/apis/scheduling.k8s.io/v1", "priorityclasses", namespaced=False)
PERSISTENT_VOLUMES: Final = Kind(PersistentVolume, "/api/v1", "persistentvolumes", namespaced=False)
PERSISTENT_VOLUME_CLAIMS: Final = Kind(PersistentVolumeClaim, "/api/v1", "persistentvolumeclaims")
STORAGE_CLASSES: Final = Kind(StorageClass, "/apis/storage.k8s.io/v1", "storageclasses", namespaced=False)
CSI_NODES: Final = Kind(CsiNode, "/apis/storage.k8s.io/v1", "csinodes", namespaced=False)
CSI_DRIVERS: Final = Kind(CsiDriver, "/apis/storage.k8s.io/v1", "csidrivers", namespaced=False)
CSI_STORAGE_CAPACITIES: Final = Kind(CsiStorageCapacity, "/apis/storage.k8s.io/v1", "csistoragecapacities")
VOLUME_ATTACHMENTS: Final = Kind(VolumeAttachment, "/apis/storage.k8s.io/v1", "volumeattachments", namespaced=False)
LEASES: Final = Kind(Lease, "/apis/coordination.k8s.io/v1", "leases")
SECRETS: Final = Kind(Secret, "/api/v1", "secrets")
MUTATING_WEBHOOKS: Final = Kind(
    AdmissionRules, "/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", namespaced=False
)
VALIDATING_WEBHOOKS: Final = Kind(
    AdmissionRules, "/apis/admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", namespaced=False
)
POLICIES: Final = Kind(
    AdmissionRules, "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", namespaced=False
)
POLICY_BINDINGS: Final = Kind(
    AdmissionRules, "/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicybindings", namespaced=False
)
EVENTS: Final = Kind(Object, "/apis/events.k8s.io/v1", "events")


# Decoding -------------------------------------------------------------------------------------------------------------

_T = TypeVar("_T")


def decode_object(data: bytes | str | Raw, kind: type[_T]) -> _T:
    """Decode an object, or an answer with objects in it.

    API servers before 1.34 write `"creationTimestamp": null` into new objects and pod templates, and all of them write
    some absent lists as `null`. The structs do not have that: only then the data are decoded a second time.

    Raises:
        msgspec.DecodeError: the data are not such an object, or are nested too deeply.
    """
    try:
        try:
            return decode(data, type=kind)
        except ValidationError:
            return convert(_drop_nulls(decode(data)), kind)
    except RecursionError:
        raise DecodeError("the JSON is nested too deeply") from None


def _drop_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value
