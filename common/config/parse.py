"""From YAML text to the typed configuration: which keys there are, and of which type each one is.

Every unknown key and every value of the wrong type is found before the text is refused. Whether the values make sense
together is decided in `check.py`; how one key is read, in `fields.py`.

Not here: whether what is written makes sense (`check.py`).
"""

from common.config import model, scalars
from common.config.fields import Fields, Reading, read_mapping
from common.config.nodes import Scalar, compose
from common.config.problems import ConfigError, Lines


def parse(text: str) -> model.Configuration:
    """Return the configuration as it is written, without a checksum; raises ConfigError with every problem."""
    configuration, _ = parse_with_lines(text)
    return configuration


def parse_with_lines(text: str) -> tuple[model.Configuration, Lines]:
    """As `parse`, with the line of each value for those who find problems later.

    A text without a document, or with the document null, is a configuration without partitions.
    """
    document = compose(text.removeprefix("\ufeff"))
    if document is None or (isinstance(document, Scalar) and scalars.is_null(document)):
        return model.Configuration(), {}
    reading = Reading()
    configuration = read_mapping(reading, document, "", _configuration)
    if configuration is None or reading.report.problems:
        raise ConfigError(sorted(reading.report.problems, key=lambda problem: problem.line))
    return configuration, reading.lines


def _configuration(fields: Fields) -> model.Configuration:
    fields.text("checksum")  # a known key, but what counts is computed from the text
    return model.Configuration(partitions=fields.parts("partitions", _partition) or ())


def _partition(fields: Fields) -> model.PartitionConfig:
    return model.PartitionConfig(
        name=fields.text("name"),
        queues=fields.parts("queues", _queue),
        placement_rules=fields.parts("placementrules", _rule) or (),
        limits=fields.parts("limits", _limit) or (),
        preemption=fields.part("preemption", _preemption) or model.PreemptionConfig(),
        node_sort_policy=fields.part("nodesortpolicy", _node_sort) or model.NodeSortConfig(),
        user_group_resolver=fields.part("usergroupresolver", _resolver) or model.ResolverConfig(),
    )


def _queue(fields: Fields) -> model.QueueConfig:
    return model.QueueConfig(
        name=fields.text("name"),
        parent=fields.flag("parent") or False,
        queues=fields.parts("queues", _queue) or (),
        resources=fields.part("resources", _resources) or model.ResourcesConfig(),
        max_applications=fields.count("maxapplications"),
        properties=fields.text_map("properties") or {},
        submit_acl=fields.text("submitacl"),
        admin_acl=fields.text("adminacl"),
        child_template=fields.part("childtemplate", _child_template) or model.ChildTemplateConfig(),
        limits=fields.parts("limits", _limit) or (),
    )


def _resources(fields: Fields) -> model.ResourcesConfig:
    return model.ResourcesConfig(guaranteed=fields.text_map("guaranteed"), max=fields.text_map("max"))


def _child_template(fields: Fields) -> model.ChildTemplateConfig:
    return model.ChildTemplateConfig(
        max_applications=fields.count("maxapplications"),
        properties=fields.text_map("properties") or {},
        resources=fields.part("resources", _resources) or model.ResourcesConfig(),
    )


def _limit(fields: Fields) -> model.LimitConfig:
    return model.LimitConfig(
        limit=fields.text("limit"),
        users=fields.texts("users"),
        groups=fields.texts("groups"),
        max_applications=fields.count("maxapplications"),
        max_resources=fields.text_map("maxresources") or {},
    )


def _rule(fields: Fields) -> model.PlacementRuleConfig:
    return model.PlacementRuleConfig(
        name=fields.text("name"),
        create=fields.flag("create") or False,
        value=fields.text("value"),
        parent=fields.part("parent", _rule),
        filter=fields.part("filter", _filter) or model.FilterConfig(),
    )


def _filter(fields: Fields) -> model.FilterConfig:
    return model.FilterConfig(type=fields.text("type"), users=fields.texts("users"), groups=fields.texts("groups"))


def _preemption(fields: Fields) -> model.PreemptionConfig:
    return model.PreemptionConfig(
        enabled=fields.flag("enabled"), quota_preemption_enabled=fields.flag("quotapreemptionenabled")
    )


def _node_sort(fields: Fields) -> model.NodeSortConfig:
    return model.NodeSortConfig(type=fields.text("type"), resource_weights=fields.number_map("resourceweights"))


def _resolver(fields: Fields) -> model.ResolverConfig:
    return model.ResolverConfig(type=fields.text("type"))
