"""What changes from one configuration to another, as an operator would say it.

Compared is what counts, not how it is written: names of queues ignore case, `1000m` cores are `1`, and an inserted root
is a root. A queue that comes or goes stands for everything below it.

Not here: lines of text (the command line shows those), and what a running partition does about it (the engine).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from common.config.model import (
    Configuration,
    LimitConfig,
    PartitionConfig,
    PlacementRuleConfig,
    QueueConfig,
    ResourcesConfig,
    normalise,
)
from common.names import ROOT
from common.resources import QuantityError, parse_quantity

PARTITION_ADDED: Final = "partition-added"
PARTITION_REMOVED: Final = "partition-removed"
PARTITION_CHANGED: Final = "partition-changed"
QUEUE_ADDED: Final = "queue-added"
QUEUE_REMOVED: Final = "queue-removed"
QUEUE_CHANGED: Final = "queue-changed"


class _Value(NamedTuple):
    """A setting, as it was written and as it counts."""

    text: str
    meaning: str | int


_Settings = dict[str, _Value]
"""Name of a setting to its value; one that is not set is absent."""
_UNSET: Final = _Value("", "")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that changes. `path` is the partition, a blank and the queue, a blank and the setting, as far as known.

    `before` and `after` are the values of a setting, empty where it is not set; of queues that come or go they say how
    many more are below.
    """

    kind: str
    path: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        """Return it in one line."""
        noun, _, verb = self.kind.partition("-")
        if verb == "changed":
            return f"{self.path}: {self.before or 'nothing'} -> {self.after or 'nothing'}"
        more = self.before or self.after
        return f"{noun} {self.path} {verb}{f' ({more})' if more else ''}"


def find_differences(before: Configuration, after: Configuration) -> list[Difference]:
    """Return what changes, partition by partition: those that go, those that come, and the settings of the others."""
    old = {partition.name: partition for partition in normalise(before).partitions}
    new = {partition.name: partition for partition in normalise(after).partitions}
    gone = [Difference(kind=PARTITION_REMOVED, path=name) for name in old if name not in new]
    come = [Difference(kind=PARTITION_ADDED, path=name) for name in new if name not in old]
    changed = [found for name in new if name in old for found in _of_partition(old[name], new[name])]
    return [*gone, *come, *changed]


def _of_partition(old: PartitionConfig, new: PartitionConfig) -> Iterator[Difference]:
    yield from _of_settings(PARTITION_CHANGED, new.name, _partition_settings(old), _partition_settings(new))
    yield from _of_queue(old.root, new.root, new.name, ROOT)


def _of_queue(old: QueueConfig, new: QueueConfig, partition: str, path: str) -> Iterator[Difference]:
    """Yield what changes at the queue, which queues directly below go and come, and what changes in the others."""
    yield from _of_settings(QUEUE_CHANGED, f"{partition} {path}", _queue_settings(old), _queue_settings(new))
    was = {child.name.lower(): child for child in old.queues}
    now = {child.name.lower(): child for child in new.queues}
    for name, child in was.items():
        if name not in now:
            yield Difference(kind=QUEUE_REMOVED, path=f"{partition} {path}.{name}", before=_below(child))
    for name, child in now.items():
        if name not in was:
            yield Difference(kind=QUEUE_ADDED, path=f"{partition} {path}.{name}", after=_below(child))
    for name, child in now.items():
        if name in was:
            yield from _of_queue(was[name], child, partition, f"{path}.{name}")


def _of_settings(kind: str, path: str, old: _Settings, new: _Settings) -> Iterator[Difference]:
    for name in {**old, **new}:
        before, after = old.get(name, _UNSET), new.get(name, _UNSET)
        if before.meaning != after.meaning:
            yield Difference(kind=kind, path=f"{path} {name}", before=before.text, after=after.text)


def _partition_settings(partition: PartitionConfig) -> _Settings:
    """Return what is set for the whole partition; its limits are those of its root."""
    preemption, nodes = partition.preemption, partition.node_sort_policy
    settings = {
        "placementrules": "; ".join(_rule(rule) for rule in partition.placement_rules),
        "preemption.enabled": _yes_no(value=preemption.is_enabled),
        "preemption.quotapreemptionenabled": _yes_no(value=preemption.is_quota_enabled),
        "nodesortpolicy.type": nodes.policy,
        "nodesortpolicy.resourceweights": _listed({kind: f"{weight:g}" for kind, weight in nodes.weights.items()}),
        "usergroupresolver.type": partition.user_group_resolver.type,
    }
    return _texts(settings)


def _queue_settings(queue: QueueConfig) -> _Settings:
    """Return what is set for the queue itself."""
    template = queue.child_template
    settings = {
        "type": "parent" if queue.is_parent else "leaf",
        "maxapplications": _number(queue.max_applications),
        "submitacl": queue.submit_acl,
        "adminacl": queue.admin_acl,
        **{f"properties.{key}": f"'{value}'" for key, value in queue.properties.items()},
        "childtemplate.maxapplications": _number(template.max_applications),
        **{f"childtemplate.properties.{key}": f"'{value}'" for key, value in template.properties.items()},
        **_limits(queue.limits),
    }
    return {
        **_texts(settings),
        **_amounts(queue.resources, "resources"),
        **_amounts(template.resources, "childtemplate.resources"),
    }


def _texts(settings: Mapping[str, str]) -> _Settings:
    return {name: _Value(text, text) for name, text in settings.items()}


def _amounts(resources: ResourcesConfig, name: str) -> _Settings:
    """Return quantities, which mean a number; those of a template may mean none."""
    found: _Settings = {}
    for key, quantities in (("guaranteed", resources.guaranteed), ("max", resources.max)):
        for kind, text in (quantities or {}).items():
            try:
                meaning: str | int = parse_quantity(text, resource_type=kind)
            except QuantityError:
                meaning = text
            found[f"{name}.{key}.{kind}"] = _Value(text, meaning)
    return found


def _limits(entries: Sequence[LimitConfig]) -> dict[str, str]:
    """Return what each user and each group may use."""
    found: dict[str, str] = {}
    for entry in entries:
        applications = f"{entry.max_applications} applications" if entry.max_applications else ""
        bounds = ", ".join(filter(None, (applications, _listed(entry.max_resources))))
        found |= {f"limit of user {name}": bounds for name in entry.users}
        found |= {f"limit of group {name}": bounds for name in entry.groups}
    return found


def _rule(rule: PlacementRuleConfig) -> str:
    """Return a rule in words: `fixed a, create, deny users bob, below (user, create)`."""
    only = rule.filter
    words = [
        f"{rule.name} {rule.value}".strip(),
        "create" if rule.create else "",
        f"{only.type or 'allow'} users {' '.join(only.users)}" if only.users else "",
        f"{only.type or 'allow'} groups {' '.join(only.groups)}" if only.groups else "",
        f"{only.type} all" if only.type and not only.users and not only.groups else "",
        f"below ({_rule(rule.parent)})" if rule.parent else "",
    ]
    return ", ".join(filter(None, words))


def _listed(values: Mapping[str, str]) -> str:
    return " ".join(f"{key}={values[key]}" for key in sorted(values))


def _number(number: int) -> str:
    return str(number) if number else ""


def _yes_no(*, value: bool) -> str:
    return "true" if value else "false"


def _below(queue: QueueConfig) -> str:
    number = _count(queue) - 1
    return f"with {number} queue{'s' if number > 1 else ''} below" if number else ""


def _count(queue: QueueConfig) -> int:
    return 1 + sum(_count(child) for child in queue.queues)
