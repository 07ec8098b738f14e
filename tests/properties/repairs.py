"""A drawn configuration made to obey the rules, by leaving out and cutting down what breaks them.

Nothing is drawn here and nothing is added but what a rule demands, so a configuration that obeys the rules comes out as
it was. Placement rules are the exception to independence: those that validation would refuse are left out.

Not here: drawing (`configurations.py`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from yunishard.common.config.model import (
    Configuration,
    LimitConfig,
    PartitionConfig,
    PlacementRuleConfig,
    QueueConfig,
    ResourcesConfig,
    normalise_partition,
    parse_amounts,
    partition_name,
)
from yunishard.common.config.placement_rules import check_rule_paths, check_rules
from yunishard.common.config.problems import Report
from yunishard.common.resources import Limit, tighten

T = TypeVar("T")

Holder = tuple[str, str]
"""`user` or `group`, and the name."""
Bound = tuple[int, Limit]
"""The most applications (0: any number) and the most resources."""
Bounds = dict[Holder, Bound]


@dataclass(frozen=True)
class Above:
    """What the queues above leave for a queue."""

    limit: Limit
    budget: Limit  # the most that may be guaranteed
    applications: int  # 0: any number
    users: Bounds


NOTHING_ABOVE = Above(limit={}, budget={}, applications=0, users={})


def repaired(configuration: Configuration) -> Configuration:
    partitions = first_of_each(configuration.partitions, lambda partition: partition_name(partition).lower())
    return replace(configuration, partitions=tuple(map(repaired_partition, partitions)))


def first_of_each(items: Iterable[T], key: Callable[[T], str]) -> tuple[T, ...]:
    """The items, without those whose key an earlier one has."""
    kept: dict[str, T] = {}
    for item in items:
        kept.setdefault(key(item), item)
    return tuple(kept.values())


def repaired_partition(partition: PartitionConfig) -> PartitionConfig:
    queues = partition.queues or ()
    if [queue.name.lower() for queue in queues] == ["root"]:
        limits = queues[0].limits or partition.limits
        root = repaired_queue(replace(queues[0], resources=ResourcesConfig(), limits=limits), NOTHING_ABOVE)
        partition = replace(partition, queues=(root,), limits=root.limits if partition.limits else ())
    else:
        root = repaired_queue(QueueConfig(name="root", queues=queues, limits=partition.limits), NOTHING_ABOVE)
        partition = replace(partition, queues=root.queues, limits=root.limits)
        if [queue.name.lower() for queue in partition.queues] == ["root"]:  # a sibling went, so it is the root now
            return repaired_partition(partition)
    found = normalise_partition(partition).root
    return replace(partition, placement_rules=tuple(r for r in partition.placement_rules if is_legal(r, found)))


def repaired_queue(queue: QueueConfig, above: Above) -> QueueConfig:
    maximum = cut(parse_amounts(queue.resources.max), above.limit)
    guaranteed = cut(parse_amounts(queue.resources.guaranteed), both(maximum, above.budget))
    limit = both(above.limit, maximum)
    applications = queue.max_applications
    if above.applications:
        applications = min(max(applications, 1), above.applications)
    children = first_of_each(queue.queues, lambda child: child.name.lower())
    limits, users = repaired_limits(
        queue.limits, {} if queue.name == "root" else maximum, applications=applications, above=above.users
    )
    share = {
        kind: most // len(children) for kind, most in both(both(above.budget, guaranteed), limit).items() if children
    }
    below = Above(limit=limit, budget=share, applications=applications, users=users)
    return replace(
        queue,
        resources=ResourcesConfig(
            guaranteed=rewritten(queue.resources.guaranteed, guaranteed), max=rewritten(queue.resources.max, maximum)
        ),
        max_applications=applications,
        limits=limits,
        queues=tuple(repaired_queue(child, below) for child in children),
    )


def repaired_limits(
    entries: Iterable[LimitConfig], maximum: Limit, *, applications: int, above: Bounds
) -> tuple[tuple[LimitConfig, ...], Bounds]:
    """The limits of a queue, and what binds users and groups below it."""
    limits, own = [], dict(above)
    seen: dict[str, list[str]] = {"user": [], "group": []}
    for entry in entries:
        users, groups = new_names(entry.users, seen["user"]), new_names(entry.groups, seen["group"])
        if seen["group"] == ["*"]:
            seen["group"].remove("*")
            groups = ()
        holders = [("user", name) for name in users] + [("group", name) for name in groups]
        if not holders:
            continue
        bounds = [bound for noun, name in holders if (bound := above.get((noun, name)) or above.get((noun, "*")))]
        kept = bounded(replace(entry, users=users, groups=groups), maximum, applications=applications, bounds=bounds)
        limits.append(kept)
        for holder in holders:
            same = above[holder][1] if holder in above else {}
            own[holder] = (kept.max_applications, both(same, parse_amounts(kept.max_resources)))
    return tuple(limits), own


def bounded(entry: LimitConfig, maximum: Limit, *, applications: int, bounds: list[Bound]) -> LimitConfig:
    """The entry with no more than its queue has and further up is allowed, and with something that it limits."""
    resources, most = cut(parse_amounts(entry.max_resources), maximum), entry.max_applications
    for bound in bounds:
        resources = cut(resources, bound[1])
        most = min(max(most, 1), bound[0]) if bound[0] else most
    most = min(most, applications or most)
    texts = rewritten(entry.max_resources, resources) if any(resources.values()) else {}
    return replace(entry, max_applications=most if most or texts else 1, max_resources=texts or {})


def new_names(names: Iterable[str], seen: list[str]) -> tuple[str, ...]:
    """The names that may still have a limit: each once, and none behind `*`."""
    kept: list[str] = []
    for name in names:
        if name not in seen and "*" not in seen:
            seen.append(name)
            kept.append(name)
    return tuple(kept)


def cut(amount: Limit, limit: Limit) -> Limit:
    return {kind: min(value, limit.get(kind, value)) for kind, value in amount.items()}


def both(left: Limit, right: Limit) -> Limit:
    return tighten(left, right) or {}


def rewritten(texts: Mapping[str, str] | None, amount: Limit) -> dict[str, str] | None:
    """The texts as they were where they still say the amount, new ones elsewhere."""
    if texts is None:
        return None
    before = parse_amounts(texts)
    return {
        kind: texts[kind] if before[kind] == value else f"{value}m" if kind == "vcore" else str(value)
        for kind, value in amount.items()
    }


def is_legal(rule: PlacementRuleConfig, root: QueueConfig) -> bool:
    report = Report()
    check_rules([rule], "", report)
    check_rule_paths([rule], root, "", report)
    return not report.problems
