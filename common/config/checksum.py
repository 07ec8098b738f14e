"""Old names of `common.config.model`, until every importer uses the new ones."""

from common.config.model import compute_checksum as checksum_of

__all__ = ["checksum_of"]
