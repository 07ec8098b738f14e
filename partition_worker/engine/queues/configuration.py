"""Queue configuration: the settings of configured and dynamic queues, with inheritance, templates and namespace quotas.

`wanted` computes the settings of all queues of a configuration as values: a new tree is built from them, and
`reconfiguration.py` compares a running tree with them. The configuration has passed validation.

Resource managers with namespaces, such as Kubernetes, tag each application with the quota of its namespace, which
becomes the quota of its dynamic queue. A tag that cannot be parsed sets nothing.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from common.acl import Acl, parse_acl
from common.config.model import ChildTemplateConfig, QueueConfig, parse_amounts
from common.messages import Amount, Resources
from common.names import RECOVERY_QUEUE, ROOT
from common.resources import Limit, is_positive
from partition_worker.engine.queues.policies import Policies, passed_on, policies
from partition_worker.engine.queues.queue import Queue, Template
from partition_worker.engine.user_resolution import tag_value

ACLS_MAX: Final = 4096
"""Cached ACLs: thousands of queues have equal ones."""


class Settings(NamedTuple):
    """The settings of one queue, inherited ones included."""

    leaf: bool
    submit_acl: Acl
    admin_acl: Acl
    admin_text: str
    max_applications: int
    maximum: Limit | None
    """None for the root, whose maximum is the cluster size."""
    guaranteed: Resources | None
    properties: dict[str, str]
    policies: Policies
    template: Template | None
    """Its own template or its parent's; None for a leaf."""


_PLAIN_SETTINGS: Final = tuple(name for name in Settings._fields if name not in ("maximum", "guaranteed"))

_parse_acl = lru_cache(ACLS_MAX)(parse_acl)


class Heritage(NamedTuple):
    """The settings that a configured queue passes on to its children; shared, so never changed."""

    properties: dict[str, str]
    policies: Policies
    """The properties, parsed for a leaf."""
    template: Template | None


def wanted(config: QueueConfig) -> dict[str, Settings]:
    """The settings of every queue by path, parents first, in the order of the file."""
    found: dict[str, Settings] = {}
    _collect(ROOT, config, None, found)
    return found


def build(config: QueueConfig) -> Queue:
    """The root with all queues below it, ranked in the order of the file."""
    queues: dict[str, Queue] = {}
    for path, wants in wanted(config).items():
        queues[path] = queue = made(path, queues.get(path.rpartition(".")[0]), rank=len(queues))
        configure(queue, wants)
    return queues[ROOT]


def made(path: str, parent: Queue | None, *, rank: int) -> Queue:
    """A configured queue below its parent, without settings."""
    queue = Queue(path=path, parent=parent, rank=rank, leaf=True, managed=True)
    if parent is not None:
        parent.children[queue.name] = queue
    return queue


def configure(queue: Queue, wants: Settings) -> None:
    """Apply settings of the configuration to a queue, which becomes managed. Sums and orders are not updated."""
    queue.managed = True
    for name in _PLAIN_SETTINGS:
        setattr(queue, name, getattr(wants, name))
    if queue.parent is not None:
        queue.entitle(maximum=wants.maximum, guaranteed=wants.guaranteed)


def settings_of(queue: Queue) -> Settings:
    """The settings that a queue has."""
    found = Settings(*(getattr(queue, name) for name in Settings._fields))
    return found if queue.parent is not None else found._replace(maximum=None)


def from_template(parent: Queue, name: str, *, rank: int, leaf: bool) -> Queue:
    """A dynamic queue: a leaf takes everything from its parent's template, a parent passes the template on."""
    queue = Queue(path=f"{parent.path}.{name}", parent=parent, rank=rank, leaf=leaf, managed=False)
    template = parent.template
    queue.template = None if leaf else template
    if leaf and template is not None:
        queue.max_applications = template.max_applications
        queue.entitle(maximum=template.maximum, guaranteed=template.guaranteed)
        if queue.path != RECOVERY_QUEUE:
            queue.properties = dict(template.properties)
    queue.policies = policies(queue.properties, leaf=leaf)
    return queue


def heritage_of(parent: Settings) -> Heritage:
    """Compute what a queue passes on to all its children."""
    properties = passed_on(parent.properties)
    return Heritage(properties, policies(properties, leaf=True), parent.template)


def read_settings(config: QueueConfig, above: Heritage | None) -> Settings:
    """The settings of a configured queue; the root has nothing above it."""
    leaf = not config.is_parent and above is not None
    properties = {} if above is None else above.properties
    if config.properties:
        properties = {**properties, **config.properties}
    as_above = leaf and above is not None and not config.properties
    return Settings(
        leaf=leaf,
        submit_acl=_parse_acl(config.submit_acl),
        admin_acl=_parse_acl(config.admin_acl),
        admin_text=config.admin_acl,
        max_applications=config.max_applications,
        maximum=_useful(config.resources.max) if above else None,
        guaranteed=_useful(config.resources.guaranteed) if above else None,
        properties=properties,
        policies=above.policies if above and as_above else policies(properties, leaf=leaf),
        template=None if leaf else _template(config.child_template) or (above.template if above else None),
    )


def _collect(path: str, config: QueueConfig, above: Heritage | None, found: dict[str, Settings]) -> None:
    here = found[path] = read_settings(config, above)
    if config.queues:
        left = heritage_of(here)
        for below in config.queues:
            _collect(f"{path}.{below.name.lower()}", below, left, found)


def _template(config: ChildTemplateConfig) -> Template | None:
    """The configured template; a template that limits nothing still hides the parent's."""
    if config.is_empty:
        return None
    properties = {name: value for name, value in config.properties.items() if name and value}
    return Template(
        config.max_applications, properties, _useful(config.resources.max), _useful(config.resources.guaranteed)
    )


def _useful(texts: Mapping[str, str] | None) -> Resources | None:
    """The amounts, or None if none is positive."""
    if not texts:
        return None
    resources = parse_amounts(texts)
    return resources if any(resources.values()) else None  # validation refuses negative ones


# Namespace quotas -----------------------------------------------------------------------------------------------------

QUOTA_TAG: Final = "namespace.resourcequota"
GUARANTEED_TAG: Final = "namespace.resourceguaranteed"
MAX_APPLICATIONS_TAG: Final = "namespace.resourcemaxapps"

_COUNT: Final = re.compile(r"[0-9]{1,19}")


class NamespaceQuota(NamedTuple):
    """The quota in the tags of an application; None where nothing usable is set."""

    max_applications: int | None
    maximum: Resources | None
    guaranteed: Resources | None
    problems: tuple[str, ...]
    """One sentence for each tag that cannot be parsed."""


class _Value(msgspec.Struct):
    value: Amount = 0


class _Document(msgspec.Struct):
    resources: dict[str, _Value]


def read_namespace_quota(tags: Mapping[str, str]) -> NamespaceQuota:
    """Parse the tags; their names are case-insensitive."""
    problems: list[str] = []
    count = tag_value(tags, MAX_APPLICATIONS_TAG)
    if count and not _COUNT.fullmatch(count):
        problems.append(f"tag {MAX_APPLICATIONS_TAG}: {count[:100]!r} is not a number")
        count = ""
    return NamespaceQuota(
        max_applications=int(count or 0) or None,
        maximum=_resources(tags, QUOTA_TAG, problems),
        guaranteed=_resources(tags, GUARANTEED_TAG, problems),
        problems=tuple(problems),
    )


def _resources(tags: Mapping[str, str], tag: str, problems: list[str]) -> Resources | None:
    """The amounts of `{"resources": {"memory": {"value": 1000}}}`; None if none is positive."""
    text = tag_value(tags, tag)
    if not text:
        return None
    try:
        entries = msgspec.json.decode(text, type=_Document).resources
    except (msgspec.MsgspecError, RecursionError) as error:
        problems.append(f"tag {tag}: {error}")
        return None
    parse_amounts = {kind: entry.value for kind, entry in entries.items()}
    return parse_amounts if is_positive(parse_amounts) else None


def apply_namespace_quota(queue: Queue, quota: NamespaceQuota) -> bool:
    """Set the quota of the tags; returns whether the queue changed.

    If either maximum or guarantee is given, both are set, overriding a template.
    """
    before = (queue.max_applications, queue.maximum, queue.guaranteed)
    if quota.max_applications is not None:
        queue.max_applications = quota.max_applications
    if quota.maximum is not None or quota.guaranteed is not None:
        queue.entitle(maximum=quota.maximum, guaranteed=quota.guaranteed)
    return before != (queue.max_applications, queue.maximum, queue.guaranteed)
