"""Whether the placement rules of a partition can be built; a partition whose rules cannot places no application.

Validation does not ask this, because YuniKorn accepts such configurations, too. Each reason is the sentence that
building the rules would end with (it asks here), and the first problem is the one that it would end at.

Not here: what the rules do (the engine's placement), and what validation says of them (`check_rules.py`).
"""

from collections.abc import Sequence
from typing import Final

from common.config.expressions import Expression, ExpressionError, looks_like_expression
from common.config.model import FilterConfig, PartitionConfig, PlacementRuleConfig
from common.config.problems import NO_LINES, Lines, Problem, Report, under
from common.names import ILLEGAL_QUEUE, QUEUE, ROOT

KIND: Final = "rules"

RULES: Final = ("fixed", "provided", "tag", "user", "primarygroup", "secondarygroup", "applicationtype")
"""Every rule that a configuration may name, in any case."""
RECOVERY: Final = "recovery"
"""The rule that ends every list, and is written in none."""


def rule_problems(partition: PartitionConfig, *, path: str = "", lines: Lines = NO_LINES) -> list[Problem]:
    """Return why the rules cannot be built, in the order of building; `path` is where the partition stands."""
    report = Report(lines)
    for index, rule in enumerate(partition.placement_rules):
        _check_rule(rule, under(path, f"placementrules[{index}]"), report)
    return report.problems


def _check_rule(rule: PlacementRuleConfig, path: str, report: Report) -> None:
    """The name, the parent rule, the filter, the value."""
    if wrong := wrong_name(rule):
        report.add(KIND, under(path, "name"), wrong, hint=f"it is one of {', '.join(RULES)}")
    if rule.parent is not None:
        _check_rule(rule.parent, under(path, "parent"), report)
    _check_filter(rule.name, rule.filter, under(path, "filter"), report)
    if wrong := _wrong_value(rule):
        report.add(KIND, under(path, "value"), wrong)


def wrong_name(rule: PlacementRuleConfig) -> str:
    """Return what is wrong with the name, nothing if there is such a rule."""
    if rule.name.lower() == RECOVERY:
        return "recovery rule cannot be part of the config, failing placement rule config"
    if rule.name.lower() not in RULES:
        return f"unknown rule name specified {rule.name}, failing placement rule config"
    return ""


def _wrong_value(rule: PlacementRuleConfig) -> str:
    """Return what is wrong with the value, nothing if the rule can use it."""
    match rule.name.lower():
        case "fixed":
            return wrong_queue(rule.value.lower(), has_parent=rule.parent is not None)
        case "tag":
            return wrong_tag(rule.value)
    return ""


def wrong_tag(tag: str) -> str:
    """Return what is wrong with the value of a rule `tag`, nothing if it can be used."""
    return "" if tag else "a tag queue rule must have a tag name set"


def wrong_queue(queue: str, *, has_parent: bool) -> str:
    """Return what is wrong with the value of a rule `fixed`, in lower case; nothing if it can be used."""
    if not queue:
        return "a fixed queue rule must have a queue name set"
    if not all(QUEUE.fullmatch(part) for part in queue.split(".")):
        return ILLEGAL_QUEUE
    if queue.startswith(ROOT) and has_parent:
        return f"a fixed queue rule with the whole path {queue} cannot have a parent rule"
    return ""


def _check_filter(name: str, rule_filter: FilterConfig, path: str, report: Report) -> None:
    """An only entry that is meant as an expression is one, and not too large to be followed."""
    entries: tuple[tuple[str, Sequence[str]], ...] = (("users", rule_filter.users), ("groups", rule_filter.groups))
    for key, names in entries:
        if len(names) != 1 or not looks_like_expression(names[0]):
            continue
        try:
            Expression(names[0])
        except ExpressionError as error:
            report.add(KIND, under(path, f"{key}[0]"), unusable_filter(name, error))


def unusable_filter(rule: str, error: ExpressionError) -> str:
    """Return the sentence for a rule whose filter has an expression that is none."""
    return f"the filter of rule {rule} cannot be used: {error}"
