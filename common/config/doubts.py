"""Old names of `common.config.warnings`, until every importer uses the new ones."""

from common.config.warnings import doubts

__all__ = ["doubts"]
