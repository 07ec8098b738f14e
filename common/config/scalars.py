"""Old names of `common.config.parse`, until every importer uses the new ones."""

from common.config.parse import is_null

__all__ = ["is_null"]
