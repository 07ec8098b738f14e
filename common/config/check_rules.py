"""Old names of `common.config.placement_rules`, until every importer uses the new ones."""

from common.config.placement_rules import check_rule_paths, check_rules

__all__ = ["check_rule_paths", "check_rules"]
