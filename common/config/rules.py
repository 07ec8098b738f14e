"""Old names of `common.config.placement_rules`, until every importer uses the new ones."""

from common.config.placement_rules import RULES
from common.config.placement_rules import check_fixed_queue as wrong_queue
from common.config.placement_rules import check_rule_name as wrong_name
from common.config.placement_rules import check_tag as wrong_tag
from common.config.placement_rules import describe_filter_error as unusable_filter
from common.config.placement_rules import find_rule_problems as rule_problems

__all__ = ["RULES", "rule_problems", "unusable_filter", "wrong_name", "wrong_queue", "wrong_tag"]
