"""The changes from one configuration to another, and their effects on the work that runs now, for operators.

Effective values are compared, not texts: queue names ignore case, `1000m` cores equal `1`, and an inserted root is a
root. A queue that is added or removed stands for everything below it.

Not here: differences between lines of text (`yunishard config`), applying changes: the engine does that whatever their
effects (`partition_worker/engine/reconfiguration.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from yunishard.common.config import model
from yunishard.common.config.model import LimitConfig, PartitionConfig, QueueConfig, parse_delay
from yunishard.common.names import ROOT
from yunishard.common.resources import QuantityError, parse_quantity
from yunishard.common.text_formats import format_amount, format_count, format_seconds

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


# Effects on the work that runs now ------------------------------------------------------------------------------------
#
# Queues above their new maximum, removed queues with applications, users and groups above their new limits. Only what
# the change itself brings about is listed: a queue that exceeds its maximum already, and keeps it, is not. The usage
# comes from the tables of a partition (`common/rest/catalogue.py`).

Principal = Literal["user", "group"]


@dataclass(frozen=True, slots=True)
class QueueUse:
    """The use of one queue and those below it."""

    queue: str
    used: Mapping[str, int]
    running: int
    applications: int
    is_leaf: bool = True


@dataclass(frozen=True, slots=True)
class PrincipalUse:
    """The use by one user or group of one queue and those below it."""

    name: str
    queue: str
    used: Mapping[str, int]
    running: int


@dataclass(frozen=True, slots=True)
class PartitionUse:
    """The use of a partition now."""

    queues: Iterable[QueueUse] = ()
    users: Iterable[PrincipalUse] = ()
    groups: Iterable[PrincipalUse] = ()


class Effect(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One consequence for what runs now."""

    code: str
    """`partition-removed`, `queue-removed`, `queue-becomes-parent`, `queue-above-maximum`, `queue-above-applications`,
    `user-above-limit`, `user-above-applications`, `group-above-limit` or `group-above-applications`.
    """
    text: str
    """One sentence for operators."""
    partition: str
    queue: str = ""
    user: str = ""
    group: str = ""
    resource: str = ""
    used: int = 0
    """Amount of the resource in base units, or running applications."""
    maximum: int = 0
    """The new maximum of the same."""
    applications: int = 0
    """Applications concerned: of a partition or queue that is removed or becomes a parent."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The maxima of a queue, or of a user or group in it. A resource type that is missing has none."""

    resources: Mapping[str, int] = field(default_factory=dict)
    applications: int = 0
    """0 for none."""


def find_effects(
    before: PartitionConfig | None, after: PartitionConfig | None, partition: str, use: PartitionUse
) -> list[Effect]:
    """Return the effects on one partition, queues first. Both configurations are valid; None before a partition exists
    or after it is removed.
    """
    if before is None:
        return []
    if after is None:
        return [_describe_removed_partition(partition, use)]
    old, new = _index(before), _index(after)
    found: list[Effect] = []
    for queue in use.queues:
        found += _check_queue(partition, queue, old, new, is_quota_enabled=after.preemption.is_quota_enabled)
    for one in use.users:
        found += _check_principal(partition, "user", one, old, new)
    for one in use.groups:
        found += _check_principal(partition, "group", one, old, new)
    return found


def _index(partition: PartitionConfig) -> dict[str, QueueConfig]:
    """The queues of a partition by path, in lower case."""
    return {place.full_path: place.queue for place in model.root_place(partition, "").walk()}


def _describe_removed_partition(partition: str, use: PartitionUse) -> Effect:
    number = next((one.applications for one in use.queues if one.queue == ROOT), 0)
    what = f"{format_count(number, 'application')} {_verb(number, 'fails', 'fail')}"
    text = f"partition {partition} ends: its nodes leave, and its {what}"
    return Effect(code="partition-removed", text=text, partition=partition, applications=number)


# Queues ---------------------------------------------------------------------------------------------------------------


def _check_queue(
    partition: str,
    one: QueueUse,
    old: Mapping[str, QueueConfig],
    new: Mapping[str, QueueConfig],
    *,
    is_quota_enabled: bool,
) -> Iterator[Effect]:
    before, after = old.get(one.queue), new.get(one.queue)
    if after is None:
        if before is not None and one.applications and one.is_leaf:
            number = one.applications
            what = f"{format_count(number, 'application')} {_verb(number, 'continues', 'continue')}"
            text = f"{one.queue} is removed: its {what}, and it takes nothing new"
            yield Effect(code="queue-removed", text=text, partition=partition, queue=one.queue, applications=number)
        return
    if one.is_leaf and after.is_parent and one.applications:
        what = format_count(one.applications, "application")
        text = f"{one.queue} becomes a parent: its {what} stay, and new ones go to queues below it"
        yield Effect(
            code="queue-becomes-parent",
            text=text,
            partition=partition,
            queue=one.queue,
            applications=one.applications,
        )
    earlier = _Bounds() if before is None else _bounds_of_queue(before)
    bounds = _bounds_of_queue(after)
    delay_s = parse_delay(after.properties.get("quota.preemption.delay", "")) or 0.0
    then = "nothing more starts there until it uses less"
    if is_quota_enabled and delay_s:
        then += f", and after {format_seconds(delay_s)} allocations are preempted"
    yield from _list_excesses("queue", partition, one, earlier, bounds, then=then)


def _bounds_of_queue(queue: QueueConfig) -> _Bounds:
    return _Bounds(model.parse_amounts(queue.resources.max), queue.max_applications)


# Users and groups -----------------------------------------------------------------------------------------------------


def _check_principal(
    partition: str, kind: Principal, one: PrincipalUse, old: Mapping[str, QueueConfig], new: Mapping[str, QueueConfig]
) -> Iterator[Effect]:
    after = new.get(one.queue)
    bounds = _bounds_of_principal(after, kind, one.name) if after else None
    if bounds is None:
        return
    before = old.get(one.queue)
    earlier = (_bounds_of_principal(before, kind, one.name) if before else None) or _Bounds()
    yield from _list_excesses(kind, partition, one, earlier, bounds, then="asks wait until it is less")


def _bounds_of_principal(queue: QueueConfig, kind: Principal, name: str) -> _Bounds | None:
    """The limit of a user or group at a queue, or that of `*`; None for none."""

    def names(entry: LimitConfig) -> tuple[str, ...]:
        return entry.users if kind == "user" else entry.groups

    for wanted in (name, model.ANYONE):
        for entry in queue.limits:
            if wanted in names(entry):
                # a limit of nothing but zeros limits no resource, as in the engine
                most = model.parse_amounts(entry.max_resources)
                return _Bounds(most if any(most.values()) else {}, entry.max_applications)
    return None


# Maxima ---------------------------------------------------------------------------------------------------------------


def _list_excesses(
    kind: Principal | Literal["queue"],
    partition: str,
    one: QueueUse | PrincipalUse,
    earlier: _Bounds,
    bounds: _Bounds,
    *,
    then: str,
) -> Iterator[Effect]:
    """Yield what exceeds a maximum that is new: of a queue, or of a user or group at one. `then` is the consequence for
    resources.
    """
    who, at, bound, code = one.queue, "", "its new maximum", "queue-above-maximum"
    name = "" if isinstance(one, QueueUse) else one.name
    if name:
        who, at, bound, code = f"{kind} {name}", f" in {one.queue}", "the new limit", f"{kind}-above-limit"
    user, group = name if kind == "user" else "", name if kind == "group" else ""
    base = Effect(code=code, text="", partition=partition, queue=one.queue, user=user, group=group)
    for resource, most in bounds.resources.items():
        used = one.used.get(resource, 0)
        if used > most and earlier.resources.get(resource) != most:
            over = f"{format_amount(resource, used - most)} more than {bound} {format_amount(resource, most)}"
            text = f"{who} uses {format_amount(resource, used)}{at}, {over}: {then}"
            yield replace(base, text=text, resource=resource, used=used, maximum=most)
    most = bounds.applications
    if 0 < most < one.running and most != earlier.applications:  # 0 is no maximum
        over = f"{one.running - most} more than {bound} {most}"
        text = f"{who} runs {format_count(one.running, 'application')}{at}, {over}: no other one starts until fewer run"
        yield replace(base, code=f"{kind}-above-applications", text=text, used=one.running, maximum=most)


def _verb(number: int, one: str, several: str) -> str:
    return one if number == 1 else several
