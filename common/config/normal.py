"""Old names of `common.config.model`, until every importer uses the new ones."""

from common.config.model import normalise_partition as normal_partition
from common.config.model import partition_name, root_place

__all__ = ["normal_partition", "partition_name", "root_place"]
