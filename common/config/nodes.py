"""Old names of `common.config.yaml_nodes`, until every importer uses the new ones."""

from common.config.yaml_nodes import TEXT_BYTES_MAX, Mapping, Node, Scalar, compose

__all__ = ["TEXT_BYTES_MAX", "Mapping", "Node", "Scalar", "compose"]
