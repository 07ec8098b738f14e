"""Placement rules as the REST API shows them, and how they are filled from what the rules say of themselves.

Not here: what a rule does (`engine/placement`), and the other views (`views.py`, `sights.py`).
"""

from msgspec import field

from common.rest.partition import Texts, View
from partition_worker.engine.placement.filter import FilterDescription
from partition_worker.engine.placement.rule import Description


class FilterView(View, frozen=True, kw_only=True):
    """Whom a rule looks at: each list is names or one expression."""

    type: str
    """`allow` or `deny`."""
    user_list: list[str] = field(default_factory=list)
    group_list: list[str] = field(default_factory=list)
    user_exp: str = ""
    group_exp: str = ""


class RuleView(View, frozen=True, kw_only=True):
    """One entry of the list of rules, or the rule of its parent queue."""

    name: str
    parameters: Texts = field(default_factory=dict)
    filter: FilterView | None = None
    parent_rule: "RuleView | None" = None


def rule(described: Description) -> RuleView:
    """A rule with its parents."""
    return RuleView(
        name=described.name,
        parameters=described.parameters,
        filter=None if described.filter is None else _filter(described.filter),
        parent_rule=None if described.parent is None else rule(described.parent),
    )


def _filter(described: FilterDescription) -> FilterView:
    return FilterView(
        type="allow" if described.allows else "deny",
        user_list=list(described.users),
        group_list=list(described.groups),
        user_exp=described.user_expression,
        group_exp=described.group_expression,
    )
