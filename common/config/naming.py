"""Old names of `common.config.validation`, until every importer uses the new ones."""

from common.config.validation import find_name_problems as naming_problems

__all__ = ["naming_problems"]
