"""Whether a configuration makes sense: every rule a text must obey before any process acts on it.

The rules stand in `check_*.py`, one function each; here is their order, which decides the problem that is told first.
Whether the placement rules can be built is decided by placement, when a partition is.
"""

from typing import Final

from msgspec.structs import replace

from common.acl import AclError, parse_acl
from common.config.check_limits import check_limit_applications, check_limit_resources, check_limits
from common.config.check_queues import (
    check_acls,
    check_child_names,
    check_max_applications,
    check_resources,
    check_root_resources,
    read_amounts,
)
from common.config.check_rules import check_rule_paths, check_rules
from common.config.checksum import checksum_of
from common.config.model import Configuration, PartitionConfig, QueueConfig, ResourcesConfig, amounts
from common.config.normal import Place, normal_partition, normalised, partition_name, root_place
from common.config.parse import parse_with_lines
from common.config.problems import NO_LINES, ConfigError, Lines, Problem, Report
from common.names import DEFAULT_PARTITION, ROOT
from common.node_sort_policies import NODE_SORT_POLICIES
from common.quantity import QuantityError

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
    configuration, _ = validated(text)
    return loaded(configuration, text)


def loaded(configuration: Configuration, text: str) -> Configuration:
    """Return the normal form of a configuration that was `validated` from this text."""
    return replace(normalised(configuration), checksum=checksum_of(text))


def validated(text: str) -> tuple[Configuration, Lines]:
    """Return a configuration that obeys the rules, as it was parsed, and its lines, for those who look further.

    Raises ConfigError with every problem found.
    """
    configuration, lines = parse_with_lines(text)
    problems = check(configuration, lines)
    if problems:
        raise ConfigError(problems)
    return configuration, lines


def check(configuration: Configuration, lines: Lines = NO_LINES) -> list[Problem]:
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


def load_problems(partition: PartitionConfig, *, path: str = "", lines: Lines = NO_LINES) -> list[Problem]:
    """Return what keeps a partition from being built, although validation accepts it.

    `path` is where the partition stands. A partition in its normal form is judged as the parsed one is, but its paths
    show that form, and it has no lines.
    """
    if _is_sound(normal_partition(partition).root):
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


def _check_partition_limits(partition: PartitionConfig, root: Place, path: str, report: Report) -> None:
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
        amounts(resources.max)
        amounts(resources.guaranteed)
    except QuantityError:
        return False
    return True


def _check_strict_acls(place: Place, report: Report) -> None:
    """Exactly one blank separates users from groups, where validation counts words only."""
    for key, text in (("adminacl", place.queue.admin_acl), ("submitacl", place.queue.submit_acl)):
        try:
            parse_acl(text)
        except AclError as error:
            report.add("load", f"{place.path}.{key}", str(error), hint="one blank stands between users and groups")


def _check_child_template(place: Place, report: Report) -> None:
    """The quantities of a template that counts can be read, on queues that can have children to use it."""
    if not place.queue.is_parent or place.queue.child_template.is_empty:
        return
    resources = place.queue.child_template.resources
    for key, texts in (("max", resources.max), ("guaranteed", resources.guaranteed)):
        read_amounts(texts, f"{place.path}.childtemplate.resources.{key}", report, kind="load")
