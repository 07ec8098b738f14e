"""The changes from one configuration to another, for operators.

Effective values are compared, not texts: queue names ignore case, `1000m` cores equal `1`, and an inserted root is a
root. A queue that is added or removed stands for everything below it.

Not here: differences between lines of text (`yunishard config`), applying changes (the engine).
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from yunishard.common.config import model
from yunishard.common.names import ROOT
from yunishard.common.resources import QuantityError, parse_quantity

_Settings = Mapping[str, str]
"""Name of a setting to its text, which is empty or absent if it is not set."""

_AMOUNTS: Final = ("resources.", "childtemplate.resources.")
"""Beginnings of the names of quantities, which compare by their amount."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One change. `path` is the partition, a blank and the queue, a blank and the setting, as far as applicable."""

    kind: str
    """`partition-added`, `queue-removed`, `queue-changed` and so on."""
    path: str
    before: str = ""
    """Value of a setting, empty if it is not set. Of a removed queue: how many queues are below it."""
    after: str = ""
    """The same after the change; of an added queue the number of queues below it."""

    def __str__(self) -> str:
        """Return it in one line."""
        noun, _, verb = self.kind.partition("-")
        if verb == "changed":
            return f"{self.path}: {self.before or 'nothing'} -> {self.after or 'nothing'}"
        more = self.before or self.after
        return f"{noun} {self.path} {verb}{f' ({more})' if more else ''}"


def find_differences(before: model.Configuration, after: model.Configuration) -> list[Difference]:
    """Return the removed partitions, the added ones, and what changes in the others."""
    old = {partition.name: partition for partition in model.normalise(before).partitions}
    new = {partition.name: partition for partition in model.normalise(after).partitions}
    removed = [Difference(kind="partition-removed", path=name) for name in old if name not in new]
    added = [Difference(kind="partition-added", path=name) for name in new if name not in old]
    changed: list[Difference] = []
    for name in new:
        if name in old:
            settings = _partition_settings(old[name]), _partition_settings(new[name])
            changed += _compare("partition-changed", name, *settings)
            changed += _compare_queues(old[name].root, new[name].root, f"{name} {ROOT}")
    return [*removed, *added, *changed]


def _compare_queues(old: model.QueueConfig, new: model.QueueConfig, path: str) -> Iterator[Difference]:
    """Yield the changes of the queue, its removed and its added children, and the changes of the others."""
    yield from _compare("queue-changed", path, _queue_settings(old), _queue_settings(new))
    before = {child.name.lower(): child for child in old.queues}
    after = {child.name.lower(): child for child in new.queues}
    for name, child in before.items():
        if name not in after:
            yield Difference(kind="queue-removed", path=f"{path}.{name}", before=_describe_children(child))
    for name, child in after.items():
        if name not in before:
            yield Difference(kind="queue-added", path=f"{path}.{name}", after=_describe_children(child))
    for name, child in after.items():
        if name in before:
            yield from _compare_queues(before[name], child, f"{path}.{name}")


def _compare(kind: str, path: str, old: _Settings, new: _Settings) -> Iterator[Difference]:
    for name in {**old, **new}:
        before, after = old.get(name, ""), new.get(name, "")
        if before != after and not (name.startswith(_AMOUNTS) and _is_same_amount(name, before, after)):
            yield Difference(kind=kind, path=f"{path} {name}", before=before, after=after)


def _is_same_amount(name: str, before: str, after: str) -> bool:
    """Whether both quantities are valid and the same. Those of a template may be invalid."""
    kind = name.rpartition(".")[2]
    try:
        return parse_quantity(before, resource_type=kind) == parse_quantity(after, resource_type=kind)
    except QuantityError:
        return False


def _partition_settings(partition: model.PartitionConfig) -> _Settings:
    """Return the settings of the whole partition; its limits are those of its root."""
    preemption, nodes = partition.preemption, partition.node_sort_policy
    return {
        "placementrules": "; ".join(map(_describe_rule, partition.placement_rules)),
        "preemption.enabled": str(preemption.is_enabled).lower(),
        "preemption.quotapreemptionenabled": str(preemption.is_quota_enabled).lower(),
        "nodesortpolicy.type": nodes.policy,
        "nodesortpolicy.resourceweights": _pairs({kind: f"{weight:g}" for kind, weight in nodes.weights.items()}),
        "usergroupresolver.type": partition.user_group_resolver.type,
    }


def _queue_settings(queue: model.QueueConfig) -> _Settings:
    """Return the settings of the queue itself."""
    template = queue.child_template
    texts = {
        "type": "parent" if queue.is_parent else "leaf",
        "maxapplications": str(queue.max_applications or ""),
        "submitacl": queue.submit_acl,
        "adminacl": queue.admin_acl,
        **{f"properties.{key}": f"'{value}'" for key, value in queue.properties.items()},
        "childtemplate.maxapplications": str(template.max_applications or ""),
        **{f"childtemplate.properties.{key}": f"'{value}'" for key, value in template.properties.items()},
    }
    for entry in queue.limits:
        limit = _describe_limit(entry)
        texts |= {f"limit of user {name}": limit for name in entry.users}
        texts |= {f"limit of group {name}": limit for name in entry.groups}
    for name, resources in zip(_AMOUNTS, (queue.resources, template.resources), strict=True):
        texts |= {f"{name}guaranteed.{kind}": text for kind, text in (resources.guaranteed or {}).items()}
        texts |= {f"{name}max.{kind}": text for kind, text in (resources.max or {}).items()}
    return texts


def _describe_limit(entry: model.LimitConfig) -> str:
    applications = f"{entry.max_applications} applications" if entry.max_applications else ""
    return ", ".join(filter(None, (applications, _pairs(entry.max_resources))))


def _describe_rule(rule: model.PlacementRuleConfig) -> str:
    """Return a rule in words: `fixed a, create, deny users bob, below (user, create)`."""
    only = rule.filter
    words = [
        f"{rule.name} {rule.value}".strip(),
        "create" if rule.create else "",
        f"{only.type or 'allow'} users {' '.join(only.users)}" if only.users else "",
        f"{only.type or 'allow'} groups {' '.join(only.groups)}" if only.groups else "",
        f"{only.type} all" if only.type and not only.users and not only.groups else "",
        f"below ({_describe_rule(rule.parent)})" if rule.parent else "",
    ]
    return ", ".join(filter(None, words))


def _pairs(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={values[key]}" for key in sorted(values))


def _describe_children(queue: model.QueueConfig) -> str:
    number = _count(queue) - 1
    return f"with {number} queue{'s' if number > 1 else ''} below" if number else ""


def _count(queue: model.QueueConfig) -> int:
    return 1 + sum(map(_count, queue.queues))
