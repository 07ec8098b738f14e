"""Validate a configuration: the rules that apply before a process uses it.

The order of the checks decides which problem is reported first. Not here: whether placement rules can be built
(`placement_rules.py`), settings that are valid but probably unintended (`warnings.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from yunishard.common import resources
from yunishard.common.config import model
from yunishard.common.config.acl import (
    AclError,
    describe_multiple_spaces,
    has_too_many_fields,
    may_be_parsed,
    parse_acl,
)
from yunishard.common.config.parse import parse_with_lines
from yunishard.common.config.placement_rules import (
    check_rule_paths,
    check_rules,
    iterate_expressions,
    measure_expression,
)
from yunishard.common.config.problems import NO_LINES, ConfigError, Lines, Problem, Report
from yunishard.common.messages.kinds import Resources
from yunishard.common.names import DEFAULT_PARTITION, GROUP, ILLEGAL_QUEUE, PARTITION, QUEUE, ROOT, USER
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES

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
"""The configuration of an RM that registers or updates with an empty text; only validating keeps the text empty."""


def load(text: str) -> model.Configuration:
    """Return the configuration in its normal form, with its checksum. Raises ConfigError with every problem."""
    configuration, _ = validate(text)
    return replace(model.normalise(configuration), checksum=model.compute_checksum(text))


def validate(text: str) -> tuple[model.Configuration, Lines]:
    """Return a valid configuration as it was parsed, with the lines of its values. Raises ConfigError otherwise."""
    configuration, lines = parse_with_lines(text)
    problems = find_problems(configuration, lines)
    if problems:
        raise ConfigError(problems)
    return configuration, lines


def find_problems(configuration: model.Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return the problems of a configuration as it was parsed, the deciding one first."""
    report = Report(lines)
    check_size(configuration, report)
    if report.problems:
        return report.problems
    names: set[str] = set()
    for index, partition in enumerate(configuration.partitions):
        path = f"partitions[{index}]"
        name = model.partition_name(partition)
        if name.lower() in names:
            message = f"duplicate partition name found with name {name}"
            hint = f"a partition without a name is called {DEFAULT_PARTITION}" if name == DEFAULT_PARTITION else ""
            report.add("partition-duplicate", f"{path}.name", message, hint=hint)
        names.add(name.lower())
        if partition.queues is None:
            report.add("queues-missing", path, "queue config is not set", hint="a partition needs the key queues")
        else:
            _check_partition(partition, path, report)
    return report.problems


def find_build_problems(partition: model.PartitionConfig, *, path: str = "", lines: Lines = NO_LINES) -> list[Problem]:
    """Return why a partition that passes validation cannot be built.

    `path` is the place of the partition in the text. A partition in its normal form has the same problems as the parsed
    one, but with the paths of that form and without lines.
    """
    report = Report(lines)
    root = model.root_place(partition, path)
    if root.queue.name != ROOT:
        message = "partition cannot be created without root queue"
        report.add("load", f"{root.path}.name", message, hint=f"'{root.queue.name}' must be written {ROOT}")
    if not _is_doubtful(root.queue):  # a worker with 10,000 queues makes no decisions while it checks them
        return report.problems
    for place in root.walk():
        for acl_path, acl in place.acls:
            try:
                parse_acl(acl)  # exactly one blank separates users from groups; validation only counts words
            except AclError as error:
                report.add("load", acl_path, str(error), hint="one space stands between users and groups")
        template = place.queue.child_template
        if place.queue.is_parent and not template.is_empty:
            for key, texts in (("max", template.resources.max), ("guaranteed", template.resources.guaranteed)):
                _read_amounts(texts, f"{place.path}.childtemplate.resources.{key}", report, kind="load")
    return report.problems


def _is_doubtful(queue: model.QueueConfig) -> bool:
    """Whether a queue, or one below it, has an ACL or a template that may not be read."""
    if not (may_be_parsed(queue.admin_acl) and may_be_parsed(queue.submit_acl)):
        return True
    return not queue.child_template.is_empty or any(map(_is_doubtful, queue.queues))


def find_name_problems(configuration: model.Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return the partitions of a parsed configuration that the core refuses because of their names."""
    report = Report(lines)
    for index, partition in enumerate(configuration.partitions):
        name = model.partition_name(partition)
        if not PARTITION.fullmatch(name):
            message = f"partition name {name!r} must be 1 to 64 letters, digits and '_', '.', '-'"
            report.add("partition-name", f"partitions[{index}].name", message)
    return report.problems


def _check_partition(partition: model.PartitionConfig, path: str, report: Report) -> None:
    root = model.root_place(partition, path)
    for key, written in (("guaranteed", root.queue.resources.guaranteed), ("max", root.queue.resources.max)):
        if written is not None:  # an empty map, too
            report.add("root-resources", f"{root.path}.resources.{key}", "root queue must not have resource limits set")
    if partition.limits and partition.limits != root.queue.limits:
        message = "partition limits and root queue limits are not equivalent"
        report.add("partition-limits", f"{path}.limits", message, hint="write them once, at either place")
    for place in root.walk():
        _check_acls(place, report)
        _check_limits(place, report)
        _check_child_names(place, report)
    _check_resources(root, report, resources.NOTHING)
    check_rules(partition.placement_rules, f"{path}.placementrules", report)
    check_rule_paths(partition.placement_rules, root.queue, f"{path}.placementrules", report)
    _check_node_sort(partition, f"{path}.nodesortpolicy", report)
    for place in root.walk():
        _check_max_applications(place, report)
    _check_limit_hierarchy(root, report)


def _check_node_sort(partition: model.PartitionConfig, path: str, report: Report) -> None:
    """The policy exists and no weight is negative. A weight that is not a number passes, as in YuniKorn."""
    policy = partition.node_sort_policy
    if policy.policy not in NODE_SORT_POLICIES:
        hint = f"it is one of {', '.join(NODE_SORT_POLICIES)}"
        report.add("node-sort", f"{path}.type", f"undefined policy: {policy.type}", hint=hint)
    for kind, weight in policy.resource_weights.items():
        if weight < 0:
            message = f"negative resource weight for {kind} is not allowed"
            report.add("node-sort", f"{path}.resourceweights.{kind}", message)


# Queues ---------------------------------------------------------------------------------------------------------------


def _check_acls(place: model.QueuePlace, report: Report) -> None:
    """An access control list has at most two words: users and groups."""
    for path, acl in place.acls:
        if has_too_many_fields(acl):
            report.add("acl", path, describe_multiple_spaces(acl), hint="users, one space, groups; commas within")


def _check_child_names(place: model.QueuePlace, report: Report) -> None:
    """Child queues have valid names that differ in more than case."""
    seen: set[str] = set()
    for child in place.children:
        name = child.queue.name
        if not QUEUE.fullmatch(name):
            report.add("queue-name", f"{child.path}.name", ILLEGAL_QUEUE, hint=f"this one is '{name}'")
        elif name.lower() in seen:
            message = f"duplicate child name found with name '{name}', level {child.level}"
            report.add("queue-duplicate", f"{child.path}.name", message)
        seen.add(name.lower())


def _check_max_applications(place: model.QueuePlace, report: Report) -> None:
    """If a queue has a maximum of applications, each child has one that is not higher."""
    most = place.queue.max_applications
    for child in place.children if most else ():
        if child.queue.max_applications == 0:
            message = (
                "maxApplications is either undefined or zero, which is not allowed when parent queue's maxApplications "
                "is defined"
            )
            hint = f"queue {child.queue.name} needs 1 to {most}, because its parent has it"
            report.add("max-apps", child.path, message, hint=hint)
        elif child.queue.max_applications > most:
            message = "parent maxApplications must be larger than child maxApplications"
            hint = f"queue {child.queue.name} may have {most} at most"
            report.add("max-apps", f"{child.path}.maxapplications", message, hint=hint)


def _check_resources(place: model.QueuePlace, report: Report, limit: resources.Limit) -> Resources:
    """A guarantee fits the maximum, a maximum fits the limits above; return what this queue guarantees.

    `limit` combines the maximums above. The guarantees of children add up; a queue without a guarantee of its own has
    the sum of its children's.
    """
    name, path = place.queue.name, f"{place.path}.resources"
    guaranteed = _read_amounts(place.queue.resources.guaranteed, f"{path}.guaranteed", report)
    maximum = _read_amounts(place.queue.resources.max, f"{path}.max", report)
    if not resources.permits(maximum, guaranteed) and not report.is_full:
        own = f"maximum resource {resources.text(maximum)} for queue {name}"
        message = f"guaranteed resource {resources.text(guaranteed)} is larger than {own}"
        report.add("guaranteed-over-max", f"{path}.guaranteed", message)
    if not resources.permits(limit, maximum) and not report.is_full:
        own = f"maximum resource {resources.text(maximum)} for queue {name}"
        message = f"max resource of parent {resources.text(limit)} is smaller than {own}"
        report.add("max-over-parent", f"{path}.max", message)
    if maximum:  # otherwise all queues below share the limit
        limit = resources.tighten(limit, maximum) or {}
    below = resources.saturate(resources.total_of([_check_resources(child, report, limit) for child in place.children]))
    if not resources.permits(guaranteed, below) and not report.is_full:
        promised = f"sum of guaranteed resources {resources.text(below)} of the children for queue {name}"
        message = f"guaranteed resource of parent {resources.text(guaranteed)} is smaller than {promised}"
        report.add("children-guaranteed-over-guaranteed", place.path, message)
    if not resources.permits(limit, below) and not report.is_full:
        promised = f"sum of guaranteed resources {resources.text(below)} of the children for queue {name}"
        message = f"max resource {resources.text(limit)} is smaller than {promised}"
        report.add("children-guaranteed-over-max", place.path, message)
    return below if resources.is_zero(guaranteed) else guaranteed


def _read_amounts(texts: Mapping[str, str] | None, path: str, report: Report, *, kind: str = "quantity") -> Resources:
    """Convert quantity texts to numbers. Invalid ones are left out and reported as problems of `kind`."""
    read: Resources = {}
    for resource_type, quantity in (texts or {}).items():
        try:
            read[resource_type] = resources.parse_quantity(quantity, resource_type=resource_type)
        except resources.QuantityError as error:
            suffixes = "k M G T P E or Ki Mi Gi Ti Pi Ei, or m for vcore"
            hint = f"'{quantity}' should be a whole number, perhaps with {suffixes}"
            report.add(kind, f"{path}.{resource_type}", str(error), hint=hint)
    return read


# Limits of users and groups -------------------------------------------------------------------------------------------


def _check_limits(place: model.QueuePlace, report: Report) -> None:
    """The limits of one queue, entry by entry. A user or group occurs in one entry only."""
    users: set[str] = set()
    groups: set[str] = set()
    maximum: Resources = {}
    if place.queue.limits and place.queue.name != ROOT:
        maximum = _read_amounts(place.queue.resources.max, f"{place.path}.resources.max", report)
    for index, entry in enumerate(place.queue.limits):
        path = f"{place.limits_path}[{index}]"
        if not entry.users and not entry.groups:
            name = f"'{entry.limit}' " if entry.limit else ""
            report.add("limit-entry", path, f"the limit {name}names neither users nor groups")
        _check_names("user", entry.users, users, f"{path}.users", report)
        _check_names("group", entry.groups, groups, f"{path}.groups", report)
        if groups == {model.ANYONE}:
            message = (
                "should not specify only one group limit that is using the wildcard. "
                "There must be at least one limit with a group name defined "
            )
            report.add("limit-entry", f"{path}.groups", message, hint="before it, on the same queue")
        _check_values(entry, place.queue, maximum, path, report)


def _check_names(noun: str, names: Iterable[str], seen: set[str], path: str, report: Report) -> None:
    """The users or groups of an entry are new at this queue, and none follows `*`. Adds them to the `seen` ones."""
    for index, name in enumerate(names):
        place = f"{path}[{index}]"
        if name != model.ANYONE and not (USER if noun == "user" else GROUP).fullmatch(name):
            report.add("limit-entry", place, f"invalid limit {noun} name '{name}' in limit definition")
            continue
        if name in seen:
            end = ", already exists" if noun == "user" else ""
            report.add("limit-entry", place, f"duplicated {noun} name '{name}'{end}")
        elif model.ANYONE in seen:
            message = f"should not set no wildcard {noun} {name} after wildcard {noun} limit"
            report.add("limit-entry", place, message)
        seen.add(name)


def _check_values(
    entry: model.LimitConfig, queue: model.QueueConfig, maximum: Resources, path: str, report: Report
) -> None:
    """An entry limits something, and to no more than its queue has; `maximum` is the queue's, none for root."""
    most = _read_amounts(entry.max_resources, f"{path}.maxresources", report)
    if len(most) == len(entry.max_resources) and most and resources.is_zero(most):
        message = f"MaxResources should be greater than zero in '{entry.limit}' limit"
        report.add("limit-entry", f"{path}.maxresources", message)
    if not entry.max_resources and entry.max_applications == 0:
        message = f"invalid resource combination for limit {entry.limit} all resource limits are null"
        report.add("limit-entry", path, message, hint="it needs maxapplications above 0 or maxresources")
    if 0 < queue.max_applications < entry.max_applications:
        message = f"invalid MaxApplications settings for limit {entry.limit} exceed current the queue MaxApplications"
        hint = f"{entry.max_applications} is above {queue.max_applications}"
        report.add("limit-entry", f"{path}.maxapplications", message, hint=hint)
    if not resources.permits(maximum, most):
        message = f"invalid MaxResources settings for limit {entry.limit} exeecd current the queue MaxResources"
        hint = f"{resources.describe_amount(most)} is above {resources.describe_amount(maximum)}"
        report.add("limit-entry", f"{path}.maxresources", message, hint=hint)


class _Maximum(NamedTuple):
    """The maximum of a user or group at a queue and below it."""

    amounts: resources.Limit
    applications: int  # 0 is unlimited


class _Pair(NamedTuple):
    """An entry for one user or group that a queue above limits, too."""

    holder: str
    """`user bob` or `group dev`: users and groups of the same name are independent."""
    queue: str
    path: str
    by_wildcard: bool
    """Whether only a limit for `*` applies above."""
    own: _Maximum
    above: _Maximum


def _check_limit_hierarchy(root: model.QueuePlace, report: Report) -> None:
    """No user or group may use more resources, or run more applications, at a queue than at the queues above."""
    pairs = list(_pair_limits(root, {}, report))
    for pair in pairs:
        own, above = pair.own.amounts, pair.above.amounts
        if not resources.permits(above, own):
            message = f"{pair.holder} max resource {resources.text(own)} of queue {pair.queue} is greater than " + (
                f"wildcard maximum resource {resources.text(above)} of immediate or ancestor parent queue"
                if pair.by_wildcard
                else f"immediate or ancestor parent maximum resource {resources.text(above)}"
            )
            report.add("limit-hierarchy-resources", f"{pair.path}.maxresources", message)
    for pair in pairs:
        value, most = pair.own.applications, pair.above.applications
        if most and not 0 < value <= most:
            message = (
                f"{pair.holder} max applications {value} of queue {pair.queue} is greater than "
                f"{'wildcard' if pair.by_wildcard else 'immediate or ancestor parent'} max applications {most}"
                f"{' of immediate or ancestor parent queue' if pair.by_wildcard else ''}"
            )
            hint = "" if value else "0 is any number of them"
            report.add("limit-hierarchy-apps", f"{pair.path}.maxapplications", message, hint=hint)


def _pair_limits(place: model.QueuePlace, inherited: dict[str, _Maximum], report: Report) -> Iterator[_Pair]:
    """Yield the entries to compare at this queue and below, parents first.

    If the same user or group has a limit above, the tighter resources of both apply to the queues below. Otherwise a
    type that the entry leaves out is unlimited there, even if `*` is limited above. `inherited` has the maximums above,
    and in the meantime those of this queue.
    """
    here: dict[str, _Maximum] = {}
    for index, entry in enumerate(place.queue.limits):
        path = f"{place.limits_path}[{index}]"
        own = _Maximum(_read_amounts(entry.max_resources, f"{path}.maxresources", report), entry.max_applications)
        for noun, names in (("user", entry.users), ("group", entry.groups)):
            for holder in (f"{noun} {name}" for name in names):
                same = inherited.get(holder)
                here[holder] = own._replace(amounts=resources.tighten(same.amounts, own.amounts) or {}) if same else own
                if above := same or inherited.get(f"{noun} {model.ANYONE}"):
                    yield _Pair(holder, place.queue.name, path, same is None, own, above)
    above_here = {holder: inherited.get(holder) for holder in here}
    inherited.update(here)  # a copy for each queue would cost queues times users
    for child in place.children:
        yield from _pair_limits(child, inherited, report)
    for holder, maximum in above_here.items():
        if maximum is None:
            del inherited[holder]
        else:
            inherited[holder] = maximum


# The same parent in every partition -----------------------------------------------------------------------------------


PARENTS_MAX: Final = 10
"""Parents in another partition that a problem names; further ones are counted."""


def find_hierarchy_problems(configuration: model.Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return each place where a partition has a queue below another parent than an earlier partition.

    Queues are compared by name, ignoring case. A name may occur at several places of a partition, so two partitions
    agree on it if the paths of one include the paths of the other. Otherwise each path that only the later partition
    has is a problem, unless a queue above it is one.

        gpu: root.eng.dev      cpu: root.ops.dev                  `dev` is below root.eng here, below root.ops there
        gpu: root.eng.dev      cpu: root.eng.dev, root.ops.dev    no problem: cpu has one more
        gpu: root.a.eng.dev    cpu: root.b.eng.dev                only `eng` is reported: `dev` is below it

    The setting `queues.same-hierarchy` decides whether these problems are errors. Places and lines are those of the
    text for a configuration as it was parsed, and those of the normal form for a normalised one.
    """
    report = Report(lines)
    known: dict[str, dict[frozenset[str], str]] = {}  # name to its paths, each with the first partition that has them
    for index, partition in enumerate(configuration.partitions):
        own: dict[str, dict[str, str]] = {}  # name to its paths, each with its place in the text
        for place in model.root_place(partition, f"partitions[{index}]").walk():
            if place.level:
                own.setdefault(place.queue.name.lower(), {}).setdefault(place.full_path, place.path)
        moved = {} if report.is_full else _find_moved(own, known)
        for path, (at, parents, elsewhere) in moved.items():
            above, _, name = path.rpartition(".")
            parts = path.split(".")
            if not any(".".join(parts[:level]) in moved for level in range(1, len(parts))):
                message = f"queue {name} is below {above} here, but below {parents} in partition {elsewhere}"
                hint = "a queue has the same parent in every partition that has it"
                report.add("hierarchy", f"{at}.name", message, hint=hint)
        for name, paths in own.items():
            known.setdefault(name, {}).setdefault(frozenset(paths), model.partition_name(partition))
    return report.problems


def _find_moved(
    own: Mapping[str, Mapping[str, str]], known: Mapping[str, Mapping[frozenset[str], str]]
) -> dict[str, tuple[str, str, str]]:
    """Return the paths that contradict an earlier partition, each with its place in the text, the parents in that
    partition, and the partition's name.
    """
    moved: dict[str, tuple[str, str, str]] = {}
    for name, paths in own.items():
        for others, partition in known.get(name, {}).items():
            if not (paths.keys() <= others or others <= paths.keys()):
                above = sorted(other.rpartition(".")[0] for other in others)
                more = f" and {len(above) - PARENTS_MAX} more" if len(above) > PARENTS_MAX else ""
                parents = " and ".join(above[:PARENTS_MAX]) + more
                for path in sorted(paths.keys() - others):
                    moved.setdefault(path, (paths[path], parents, partition))
    return moved


# Limits on the size ---------------------------------------------------------------------------------------------------
#
# Analysing a configuration, and building its partitions, takes seconds at most. `TEXT_BYTES_MAX`, `VALUES_MAX` and
# `DEPTH_MAX` in `parse.py` bound the text. The limits here bound what is more expensive than a value: a queue is
# checked in several passes, and an expression is compiled, once for the analysis and once by the worker of its
# partition. They are checked first, and a configuration beyond one of them is not checked any further.

PARTITIONS_MAX: Final = 10_000
"""Partitions of a configuration, as many as the setting `partitions-max` allows at most. One with more is refused."""

QUEUES_MAX: Final = 50_000
"""Queues of a partition below root, as many as placement may fill it with. A configuration with more is refused."""

ALL_QUEUES_MAX: Final = 100_000
"""Queues of all partitions of a configuration. One with more is refused."""

RESOURCE_TYPES_MAX: Final = 100
"""Resource types that the queues, templates and limits of a partition name. A worker stores a number for each type with
each queue. A configuration with more is refused.
"""

RULES_MAX: Final = 1_000
"""Placement rules of a partition; the rule for a parent queue counts, too. A configuration with more is refused."""

ALL_RULES_MAX: Final = 10_000
"""Placement rules of all partitions of a configuration. One with more is refused."""

EXPRESSIONS_MAX: Final = 1_000
"""Regular expressions in the filters of a configuration. One with more is refused."""

EXPRESSIONS_SIZE_MAX: Final = 2_000_000
"""Total size of the expressions of a configuration: their characters and instructions (`measure_expression`). Compiling
takes a second for each 1,000,000. A configuration with more is refused."""


def check_size(configuration: model.Configuration, report: Report) -> None:
    """Report the limits that the configuration exceeds, each at the first value that is too much."""
    partitions = configuration.partitions
    if len(partitions) > PARTITIONS_MAX:
        message = f"{len(partitions)} partitions are too many, a configuration may have {PARTITIONS_MAX}"
        report.add("limit", f"partitions[{PARTITIONS_MAX}]", message)
    _check_counts(
        "queues",
        [_count_queues(model.find_top_queues(one)) for one in partitions],
        (QUEUES_MAX, ALL_QUEUES_MAX),
        report,
    )
    for index, partition in enumerate(partitions):
        types = _list_types(model.find_top_queues(partition))
        if len(types) > RESOURCE_TYPES_MAX:
            message = f"{len(types)} resource types are too many, a partition may have {RESOURCE_TYPES_MAX}"
            report.add("limit", f"partitions[{index}].queues", message)
    rules = [sum(1 for rule in one.placement_rules for _ in rule.walk()) for one in partitions]
    hint = "one rule with a list of users or groups does the work of many"
    _check_counts("placement rules", rules, (RULES_MAX, ALL_RULES_MAX), report, hint)
    if not report.problems:  # compiling is expensive
        _check_expressions(partitions, report)


def _check_counts(noun: str, counts: Sequence[int], limits: tuple[int, int], report: Report, hint: str = "") -> None:
    """Check the number in each partition, and in all."""
    most, most_of_all = limits
    path = "queues" if noun == "queues" else "placementrules"
    for index, count in enumerate(counts):
        if count > most:
            message = f"{count} {noun} are too many, a partition may have {most}"
            report.add("limit", f"partitions[{index}].{path}", message, hint=hint)
    if (total := sum(counts)) > most_of_all:
        message = f"{total} {noun} in all partitions are too many, a configuration may have {most_of_all}"
        report.add("limit", "partitions", message, hint=hint)


def _count_queues(queues: Sequence[model.QueueConfig]) -> int:
    return len(queues) + sum(_count_queues(queue.queues) for queue in queues if queue.queues)


def _list_types(queues: Sequence[model.QueueConfig]) -> set[str]:
    """Return the resource types that queues and those below them name."""
    found: set[str] = set()
    for queue in queues:
        for one in (queue.resources, queue.child_template.resources):
            found.update(one.max or (), one.guaranteed or ())
        for limit in queue.limits:
            found.update(limit.max_resources)
        if queue.queues:
            found |= _list_types(queue.queues)
    return found


def _check_expressions(partitions: Sequence[model.PartitionConfig], report: Report) -> None:
    """Measure the expressions one by one until they are too large together."""
    size = 0
    hint = "use lists of names, or fewer and smaller repeat counts"
    for number, (path, text) in enumerate(_iterate_all(partitions), 1):
        if number > EXPRESSIONS_MAX:
            count = sum(1 for _ in _iterate_all(partitions))
            message = (
                f"{count} filters with a regular expression are too many, a configuration may have {EXPRESSIONS_MAX}"
            )
            report.add(
                "limit", path, message, hint="one expression can have alternatives, and a filter a list of names"
            )
            return
        size += measure_expression(text)
        if size > EXPRESSIONS_SIZE_MAX:
            message = (
                f"the regular expressions up to this one, number {number}, have a size of {size} together, a"
                f" configuration may have {EXPRESSIONS_SIZE_MAX}"
            )
            report.add("limit", path, message, hint=hint)
            return


def _iterate_all(partitions: Sequence[model.PartitionConfig]) -> Iterator[tuple[str, str]]:
    """Yield the place and text of every expression of a configuration."""
    for index, partition in enumerate(partitions):
        yield from iterate_expressions(partition.placement_rules, f"partitions[{index}].placementrules")
