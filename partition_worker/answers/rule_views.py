"""Filling the views of placement rules from what the rules say of themselves.

Not here: what a rule does (`engine/placement`), and the other views (`sights.py`).
"""

from common.rest_views import FilterView, RuleView
from partition_worker.engine.placement_rules import Description, FilterDescription


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
