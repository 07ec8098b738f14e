"""Whether a configuration makes sense: every rule a text must obey before any process acts on it.

The rules stand in `check_*.py`, one function each; here is their order, which decides the problem that is told first.
Whether the placement rules can be built is decided by placement, when a partition is.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Generic, TypeVar

from msgspec.structs import replace

from common.acl import AclError, describe_multiple_spaces, has_too_many_fields, parse_acl
from common.config.model import (
    Configuration,
    LimitConfig,
    PartitionConfig,
    QueueConfig,
    QueuePlace,
    ResourcesConfig,
    compute_checksum,
    normalise,
    normalise_partition,
    parse_amounts,
    partition_name,
    root_place,
)
from common.config.parse import parse_with_lines
from common.config.placement_rules import check_rule_paths, check_rules
from common.config.problems import NO_LINES, ConfigError, Lines, Problem, Report
from common.messages import Resources
from common.names import DEFAULT_PARTITION, GROUP, ILLEGAL_QUEUE, PARTITION, QUEUE, ROOT, USER
from common.node_sort_policies import NODE_SORT_POLICIES
from common.resources import (
    NOTHING,
    Limit,
    QuantityError,
    admits,
    describe_amount,
    is_zero,
    parse_quantity,
    saturate,
    text,
    tighten,
    total_of,
)

DEFAULT_TEXT: Final = """\
partitions:
  - name: default
    placementrules:
      - name: tag
        value: namespace
        create: true
    queues:
      - name: root
        submitacl: '*'
"""
"""What stands in for an empty text at registration and update; a text that is only validated stays empty."""


def load(text: str) -> Configuration:
    """Return the configuration in its normal form, with its checksum; raises ConfigError with every problem found."""
    configuration, _ = validate(text)
    return normalise_with_checksum(configuration, text)


def normalise_with_checksum(configuration: Configuration, text: str) -> Configuration:
    """Return the normal form of a configuration that was `validated` from this text."""
    return replace(normalise(configuration), checksum=compute_checksum(text))


def validate(text: str) -> tuple[Configuration, Lines]:
    """Return a configuration that obeys the rules, as it was parsed, and its lines, for those who look further.

    Raises ConfigError with every problem found.
    """
    configuration, lines = parse_with_lines(text)
    problems = find_problems(configuration, lines)
    if problems:
        raise ConfigError(problems)
    return configuration, lines


def find_problems(configuration: Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return what is wrong with a configuration as it was parsed, the deciding problem first; empty if nothing is."""
    report = Report(lines)
    names: set[str] = set()
    for index, partition in enumerate(configuration.partitions):
        path = f"partitions[{index}]"
        _check_partition_name(partition, path, names, report)
        if partition.queues is None:
            report.add("queues-missing", path, "queue config is not set", hint="a partition needs the key queues")
            continue
        _check_partition(partition, path, report)
    return report.problems


def find_build_problems(partition: PartitionConfig, *, path: str = "", lines: Lines = NO_LINES) -> list[Problem]:
    """Return what keeps a partition from being built, although validation accepts it.

    `path` is where the partition stands. A partition in its normal form is judged as the parsed one is, but its paths
    show that form, and it has no lines.
    """
    if _is_sound(normalise_partition(partition).root):
        return []
    report = Report(lines)
    root = root_place(partition, path)
    if root.queue.name != ROOT:
        message = "partition cannot be created without root queue"
        report.add("load", f"{root.path}.name", message, hint=f"'{root.queue.name}' must be written {ROOT}")
    for place in root.walk():
        _check_strict_acls(place, report)
        _check_child_template(place, report)
    return report.problems


def _check_partition(partition: PartitionConfig, path: str, report: Report) -> None:
    root = root_place(partition, path)
    check_root_resources(root, report)
    _check_partition_limits(partition, root, path, report)
    for place in root.walk():
        check_acls(place, report)
        check_limits(place, report)
        check_child_names(place, report)
    check_resources(root, report)
    check_rules(partition.placement_rules, f"{path}.placementrules", report)
    check_rule_paths(partition.placement_rules, root.queue, f"{path}.placementrules", report)
    _check_node_sort(partition, f"{path}.nodesortpolicy", report)
    for place in root.walk():
        check_max_applications(place, report)
    check_limit_resources(root, report)
    check_limit_applications(root, report)


def _check_partition_name(partition: PartitionConfig, path: str, names: set[str], report: Report) -> None:
    """Names differ in more than case."""
    name = partition_name(partition)
    if name.lower() in names:
        message = f"duplicate partition name found with name {name}"
        hint = f"a partition without a name is called {DEFAULT_PARTITION}" if name == DEFAULT_PARTITION else ""
        report.add("partition-duplicate", f"{path}.name", message, hint=hint)
    names.add(name.lower())


def _check_partition_limits(partition: PartitionConfig, root: QueuePlace, path: str, report: Report) -> None:
    """The partition's limits are those of root, so only one of them can be right."""
    if partition.limits and partition.limits != root.queue.limits:
        message = "partition limits and root queue limits are not equivalent"
        report.add("partition-limits", f"{path}.limits", message, hint="write them once, at either place")


def _check_node_sort(partition: PartitionConfig, path: str, report: Report) -> None:
    """The policy is known and no weight is negative; a weight that is not a number passes, as it always did."""
    policy = partition.node_sort_policy
    if policy.policy not in NODE_SORT_POLICIES:
        hint = f"it is one of {', '.join(NODE_SORT_POLICIES)}"
        report.add("node-sort", f"{path}.type", f"undefined policy: {policy.type}", hint=hint)
    for kind, weight in policy.resource_weights.items():
        if weight < 0:
            message = f"negative resource weight for {kind} is not allowed"
            report.add("node-sort", f"{path}.resourceweights.{kind}", message)


def _is_sound(root: QueueConfig) -> bool:
    """Whether there is certainly no such problem. Places are worked out only where there may be one: a worker that is
    asked decides nothing meanwhile.
    """
    waiting = [root]
    for queue in waiting:  # which grows
        if queue.submit_acl.count(" ") > 1 or queue.admin_acl.count(" ") > 1:
            return False
        if queue.is_parent:
            waiting += queue.queues
            if not queue.child_template.is_empty and not _is_readable(queue.child_template.resources):
                return False
    return root.name == ROOT


def _is_readable(resources: ResourcesConfig) -> bool:
    try:
        parse_amounts(resources.max)
        parse_amounts(resources.guaranteed)
    except QuantityError:
        return False
    return True


def _check_strict_acls(place: QueuePlace, report: Report) -> None:
    """Exactly one blank separates users from groups, where validation counts words only."""
    for key, acl in (("adminacl", place.queue.admin_acl), ("submitacl", place.queue.submit_acl)):
        try:
            parse_acl(acl)
        except AclError as error:
            report.add("load", f"{place.path}.{key}", str(error), hint="one blank stands between users and groups")


def _check_child_template(place: QueuePlace, report: Report) -> None:
    """The quantities of a template that counts can be read, on queues that can have children to use it."""
    if not place.queue.is_parent or place.queue.child_template.is_empty:
        return
    resources = place.queue.child_template.resources
    for key, texts in (("max", resources.max), ("guaranteed", resources.guaranteed)):
        read_amounts(texts, f"{place.path}.childtemplate.resources.{key}", report, kind="load")


# Queues ---------------------------------------------------------------------------------------------------------------

_QUANTITY: Final = "a whole number, perhaps with k M G T P E or Ki Mi Gi Ti Pi Ei, or m for vcore"


def check_root_resources(root: QueuePlace, report: Report) -> None:
    """Root holds what the cluster has, nothing else; even an empty map claims otherwise."""
    for key, written in (("guaranteed", root.queue.resources.guaranteed), ("max", root.queue.resources.max)):
        if written is not None:
            report.add("root-resources", f"{root.path}.resources.{key}", "root queue must not have resource limits set")


NO_MAX_APPLICATIONS: Final = (
    "maxApplications is either undefined or zero, which is not allowed when parent queue's maxApplications is defined"
)
TOO_MANY_APPLICATIONS: Final = "parent maxApplications must be larger than child maxApplications"


def check_acls(place: QueuePlace, report: Report) -> None:
    """An access control list has at most two words: users and groups."""
    for key, acl in (("adminacl", place.queue.admin_acl), ("submitacl", place.queue.submit_acl)):
        if has_too_many_fields(acl):
            hint = "users, one blank, groups; commas within"
            report.add("acl", f"{place.path}.{key}", describe_multiple_spaces(acl), hint=hint)


def check_child_names(place: QueuePlace, report: Report) -> None:
    """The queues below a queue have legal names that differ in more than case."""
    seen: set[str] = set()
    for child in place.children:
        name = child.queue.name
        if not QUEUE.fullmatch(name):
            report.add("queue-name", f"{child.path}.name", ILLEGAL_QUEUE, hint=f"this one is '{name}'")
        elif name.lower() in seen:
            message = f"duplicate child name found with name '{name}', level {child.level}"
            report.add("queue-duplicate", f"{child.path}.name", message)
        seen.add(name.lower())


def check_max_applications(place: QueuePlace, report: Report) -> None:
    """Once a queue bounds its applications each queue directly below does, and not higher."""
    most = place.queue.max_applications
    if most == 0:
        return
    for child in place.children:
        if child.queue.max_applications == 0:
            hint = f"queue {child.queue.name} needs 1 to {most}, because its parent has it"
            report.add("max-apps", child.path, NO_MAX_APPLICATIONS, hint=hint)
        elif child.queue.max_applications > most:
            hint = f"queue {child.queue.name} may have {most} at most"
            report.add("max-apps", f"{child.path}.maxapplications", TOO_MANY_APPLICATIONS, hint=hint)


def check_resources(place: QueuePlace, report: Report, limit: Limit = NOTHING) -> Resources:
    """Nowhere is more guaranteed than can be given, and no maximum is above one further up; returns what is guaranteed.

    `limit` is what the queues above allow. The guarantees of children count together, and a queue that has none of its
    own passes on theirs.
    """
    name, path = place.queue.name, f"{place.path}.resources"
    guaranteed = read_amounts(place.queue.resources.guaranteed, f"{path}.guaranteed", report)
    maximum = read_amounts(place.queue.resources.max, f"{path}.max", report)
    if not admits(maximum, guaranteed):
        message = (
            f"guaranteed resource {text(guaranteed)} is larger than maximum resource {text(maximum)} for queue {name}"
        )
        report.add("guaranteed-over-max", f"{path}.guaranteed", message)
    if not admits(limit, maximum):
        message = (
            f"max resource of parent {text(limit)} is smaller than maximum resource {text(maximum)} for queue {name}"
        )
        report.add("max-over-parent", f"{path}.max", message)
    limit = tighten(limit, maximum) or {}
    below = saturate(total_of([check_resources(child, report, limit) for child in place.children]))
    promised = f"sum of guaranteed resources {text(below)} of the children for queue {name}"
    if not admits(guaranteed, below):
        message = f"guaranteed resource of parent {text(guaranteed)} is smaller than {promised}"
        report.add("children-guaranteed-over-guaranteed", place.path, message)
    if not admits(limit, below):
        message = f"max resource {text(limit)} is smaller than {promised}"
        report.add("children-guaranteed-over-max", place.path, message)
    return below if is_zero(guaranteed) else guaranteed


def read_amounts(texts: Mapping[str, str] | None, path: str, report: Report, *, kind: str = "quantity") -> Resources:
    """Return the numbers behind quantity texts, without those that are none, which are noted as problems of `kind`."""
    read: Resources = {}
    for resource_type, quantity in (texts or {}).items():
        try:
            read[resource_type] = _amount(quantity, resource_type)
        except QuantityError as error:
            hint = f"'{quantity}' should be {_QUANTITY}"
            report.add(kind, f"{path}.{resource_type}", str(error), hint=hint)
    return read


@lru_cache(maxsize=4096)  # a large tree writes the same few amounts, and each is looked at several times
def _amount(quantity: str, resource_type: str) -> int:
    return parse_quantity(quantity, resource_type=resource_type)


# Limits of users and groups -------------------------------------------------------------------------------------------

Bound = TypeVar("Bound")

ANYONE: Final = "*"

ONLY_WILDCARD: Final = (
    "should not specify only one group limit that is using the wildcard. "
    "There must be at least one limit with a group name defined "
)


_ABOVE: Final = "immediate or ancestor parent"


def check_limits(place: QueuePlace, report: Report) -> None:
    """The limits of one queue, entry by entry; names count once for all entries together."""
    users, groups = _Names("user", USER, ", already exists"), _Names("group", GROUP)
    for index, entry in enumerate(place.queue.limits):
        path = f"{place.limits_path}[{index}]"
        if not entry.users and not entry.groups:
            name = f"'{entry.limit}' " if entry.limit else ""
            message = f"the limit {name}names neither users nor groups"
            report.add("limit-entry", path, message)
        users.check(entry.users, f"{path}.users", report)
        groups.check(entry.groups, f"{path}.groups", report)
        if groups.seen == {ANYONE}:
            report.add("limit-entry", f"{path}.groups", ONLY_WILDCARD, hint="before it, on the same queue")
        _check_values(entry, place, path, report)


@dataclass(slots=True)
class _Names:
    """The names that the limits of one queue have used so far; `*` closes the list."""

    noun: str
    pattern: re.Pattern[str]
    after_twice: str = ""
    """What is said of a name that comes again, after it."""
    seen: set[str] = field(default_factory=set)

    def check(self, names: Iterable[str], path: str, report: Report) -> None:
        for index, name in enumerate(names):
            place = f"{path}[{index}]"
            if name != ANYONE and not self.pattern.fullmatch(name):
                report.add("limit-entry", place, f"invalid limit {self.noun} name '{name}' in limit definition")
                continue
            if name in self.seen:
                report.add("limit-entry", place, f"duplicated {self.noun} name '{name}'{self.after_twice}")
            elif ANYONE in self.seen:
                message = f"should not set no wildcard {self.noun} {name} after wildcard {self.noun} limit"
                report.add("limit-entry", place, message)
            self.seen.add(name)


def _check_values(entry: LimitConfig, place: QueuePlace, path: str, report: Report) -> None:
    """An entry limits something, and to no more than its queue has."""
    queue = place.queue
    most = read_amounts(entry.max_resources, f"{path}.maxresources", report)
    if len(most) == len(entry.max_resources) and most and is_zero(most):
        message = f"MaxResources should be greater than zero in '{entry.limit}' limit"
        report.add("limit-entry", f"{path}.maxresources", message)
    if not entry.max_resources and entry.max_applications == 0:
        message = f"invalid resource combination for limit {entry.limit} all resource limits are null"
        report.add("limit-entry", path, message, hint="it needs maxapplications above 0 or maxresources")
    if 0 < queue.max_applications < entry.max_applications:
        message = f"invalid MaxApplications settings for limit {entry.limit} exceed current the queue MaxApplications"
        hint = f"{entry.max_applications} is above {queue.max_applications}"
        report.add("limit-entry", f"{path}.maxapplications", message, hint=hint)
    if queue.name == ROOT:
        return
    maximum = read_amounts(queue.resources.max, f"{place.path}.resources.max", report)
    if not admits(maximum, most):
        message = f"invalid MaxResources settings for limit {entry.limit} exeecd current the queue MaxResources"
        hint = f"{describe_amount(most)} is above {describe_amount(maximum)}"
        report.add("limit-entry", f"{path}.maxresources", message, hint=hint)


def check_limit_resources(root: QueuePlace, report: Report) -> None:
    """Nobody may use more resources on a queue than further up."""

    def amount(entry: LimitConfig, path: str) -> Limit:
        return read_amounts(entry.max_resources, f"{path}.maxresources", report)

    def both(above: Limit, own: Limit) -> Limit:
        return tighten(above, own) or {}

    for found in _compared(root, {}, value_of=amount, carried=both):
        if not admits(found.above, found.value):
            message = f"{found.holder} max resource {text(found.value)} of queue {found.queue} is greater than " + (
                f"wildcard maximum resource {text(found.above)} of {_ABOVE} queue"
                if found.by_wildcard
                else f"{_ABOVE} maximum resource {text(found.above)}"
            )
            report.add("limit-hierarchy-resources", f"{found.path}.maxresources", message)


def check_limit_applications(root: QueuePlace, report: Report) -> None:
    """Nobody may run more applications on a queue than further up; no number is more than any number."""

    def number(entry: LimitConfig, path: str) -> int:
        return entry.max_applications

    def own_number(above: int, own: int) -> int:
        return own

    for found in _compared(root, {}, value_of=number, carried=own_number):
        if found.above and not 0 < found.value <= found.above:
            message = f"{found.holder} max applications {found.value} of queue {found.queue} is greater than " + (
                f"wildcard max applications {found.above} of {_ABOVE} queue"
                if found.by_wildcard
                else f"{_ABOVE} max applications {found.above}"
            )
            hint = "" if found.value else "0 is any number of them"
            report.add("limit-hierarchy-apps", f"{found.path}.maxapplications", message, hint=hint)


@dataclass(frozen=True, slots=True)
class _Holder:
    """A user or group that a limit is for. Users and groups of one name have nothing to do with each other."""

    noun: str
    name: str

    def __str__(self) -> str:
        return f"{self.noun} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared(Generic[Bound]):
    """The value that an entry gives to one holder, beside the value that binds the holder further up."""

    holder: _Holder
    value: Bound
    queue: str
    path: str  # of the entry
    holder_above: _Holder  # the same, or `*`
    above: Bound

    @property
    def by_wildcard(self) -> bool:
        """Whether the holder itself is not bound further up, but everybody is."""
        return self.holder_above != self.holder


def _compared(
    place: QueuePlace,
    inherited: Mapping[_Holder, Bound],
    *,
    value_of: Callable[[LimitConfig, str], Bound],
    carried: Callable[[Bound, Bound], Bound],
) -> Iterator[_Compared[Bound]]:
    """Yield each pair to compare at this queue and below, parents first.

    Where a holder is bound by the same holder further up, `carried` says what binds it further down. Where `*` binds
    it, and where nothing does, that is its own value as written: a type it leaves out is open again further down.
    """
    own: dict[_Holder, Bound] = {}
    for index, entry in enumerate(place.queue.limits):
        path = f"{place.limits_path}[{index}]"
        value = value_of(entry, path)
        holders = [_Holder("user", name) for name in entry.users] + [_Holder("group", name) for name in entry.groups]
        for holder in holders:
            anyone = _Holder(holder.noun, ANYONE)
            above = next((other for other in (holder, anyone) if other in inherited), None)
            own[holder] = carried(inherited[holder], value) if above == holder else value
            if above is not None:
                yield _Compared(
                    holder=holder,
                    value=value,
                    queue=place.queue.name,
                    path=path,
                    holder_above=above,
                    above=inherited[above],
                )
    here = {**inherited, **own} if own else inherited
    for child in place.children:
        yield from _compared(child, here, value_of=value_of, carried=carried)


# Names of partitions --------------------------------------------------------------------------------------------------

KIND: Final = "partition-name"


def find_name_problems(configuration: Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return the partitions of a configuration, as it was parsed, that no core takes because of their name."""
    report = Report(lines)
    for index, partition in enumerate(configuration.partitions):
        name = partition_name(partition)
        if not PARTITION.fullmatch(name):
            message = f"partition name {name!r} must be 1 to 64 letters, digits and '_', '.', '-'"
            report.add(KIND, f"partitions[{index}].name", message)
    return report.problems
