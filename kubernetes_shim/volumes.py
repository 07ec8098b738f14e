"""Binding of a pod's claims: which volumes it gets on a node, what to write, and whether everything is bound.

1. `plan_binding` chooses volumes on a node, or returns why the pod cannot run there.
2. `Cluster.assume_volumes` reserves them, so that other plans do without them.
3. `list_patches` is what to send to the API server.
4. `check_binding`, after each event of a claim or volume, returns whether all claims are bound.
5. If that fails or takes too long, or the pod is released, `Cluster.forget` ends the reservation.
"""

from enum import Enum
from typing import NamedTuple

from kubernetes_shim.cluster import Cluster
from kubernetes_shim.objects import Kind, PersistentVolume, PersistentVolumeClaim

ClaimKey = tuple[str, str]
"""Namespace and name of a claim."""


class VolumePlan(NamedTuple):
    """How the unbound claims of a pod get volumes on its node."""

    node: str
    refusal: str = ""
    """Why they cannot; empty if they can."""
    bindings: tuple[tuple[ClaimKey, str], ...] = ()
    """Claims, and the name of the existing volume for each."""
    provisions: tuple[ClaimKey, ...] = ()
    """Claims for which a volume is made after the node is known."""

    @property
    def is_bound(self) -> bool:
        """Whether nothing is left to do: all claims are bound, or the pod has none."""
        return not (self.refusal or self.bindings or self.provisions)


class VolumePatch(NamedTuple):
    """A merge patch of a volume or claim. It has the resource version, so it fails if the object has changed."""

    kind: Kind[PersistentVolume] | Kind[PersistentVolumeClaim]
    namespace: str
    name: str
    body: dict[str, object]


class Progress(Enum):
    """How far the binding of claims is."""

    WAIT = "wait"
    BOUND = "bound"
    FAILED = "failed"


class BindingState(NamedTuple):
    """How far the binding of claims is, and why it failed."""

    progress: Progress
    reason: str = ""


def plan_binding(cluster: Cluster, uid: str, node: str) -> VolumePlan:
    """Choose volumes for the unbound claims of a pod: the smallest that fit, or provisioning on the node."""
    return VolumePlan(node)


def list_patches(cluster: Cluster, plan: VolumePlan) -> list[VolumePatch]:
    """Return the patches that carry out a plan."""
    return []


def check_binding(cluster: Cluster, uid: str, plan: VolumePlan) -> BindingState:
    """Return whether the claims of the plan are bound by now, on a volume that the node can reach."""
    return BindingState(Progress.BOUND)
