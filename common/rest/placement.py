"""Placement rules as the REST API shows them. Not here: filling them (`partition_worker/answers/rule_views.py`)."""

from msgspec import field

from common.rest.partition import Texts, View


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
