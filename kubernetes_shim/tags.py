"""Constraints as tags and attributes, which the core evaluates by itself, without a question to the shim.

Most pods require nothing but labels and tolerations. `describe_in_tags` returns the tags that say the same; pods that
require more (host ports, other pods, topology spread, volumes) need the predicate.
"""

from collections.abc import Mapping

from kubernetes_shim.objects import Node, Pod


def describe_in_tags(pod: Pod) -> Mapping[str, str] | None:
    """Return the tags of an ask that say all that the pod requires of a node; None if tags cannot say it."""
    return None


def describe_node(node: Node) -> Mapping[str, str]:
    """Return the attributes of a node: its labels and taints."""
    return {}
