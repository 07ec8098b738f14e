"""Filters of volumes: access by one pod only, limits of nodes, zones, and the binding of claims.

Not here: in-tree volumes that are not migrated to CSI. Their limits and their exclusive use are not examined.
"""

from typing import Final

from yunishard.kubernetes_shim.predicates.records import ClaimKey, NodeRecord, PodRecord
from yunishard.kubernetes_shim.predicates.volume_objects import VolumeObjects, name_class
from yunishard.kubernetes_shim.volumes import plan_for, waits_for_consumer

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
