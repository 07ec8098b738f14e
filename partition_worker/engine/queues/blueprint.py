"""From configuration to queues: what a configured queue, and one that placement creates, gets as its settings.

`wanted` works out everything a configuration says about its queues, inheritance included, as values: a fresh tree is
made of them, and a tree that runs is compared with them (`changes.py`). So both come to the same.

The configuration has passed validation and the load checks; what is wrong here is a defect. Not here: what changes in
a tree that runs.
"""

from collections.abc import Mapping
from typing import NamedTuple

from common.acl import Acl, parse_acl
from common.config.model import ChildTemplateConfig, QueueConfig, amounts
from common.messages import Resources
from common.names import RECOVERY_QUEUE, ROOT
from common.resources import Limit
from partition_worker.engine.queues.policies import Policies, passed_on, policies
from partition_worker.engine.queues.queue import Queue, Template


class Settings(NamedTuple):
    """All that a configuration says about one queue, with what it inherits."""

    leaf: bool
    submit_acl: Acl
    admin_acl: Acl
    admin_text: str
    max_applications: int
    maximum: Limit | None
    """None for the root, whose maximum is the size of the cluster."""
    guaranteed: Resources | None
    properties: dict[str, str]
    policies: Policies
    template: Template | None
    """Its own or else its parent's; a leaf has none."""


class Heritage(NamedTuple):
    """What a configured queue leaves to those below it. They share it, so nobody changes it."""

    properties: dict[str, str]
    policies: Policies
    """What these mean for a leaf."""
    template: Template | None


def wanted(config: QueueConfig) -> dict[str, Settings]:
    """The settings of every queue by its path, parents before their children, in the order of the file."""
    found: dict[str, Settings] = {}
    _collect(ROOT, config, None, found)
    return found


def build(config: QueueConfig) -> Queue:
    """The root with everything below it, ranked in the order of the file."""
    queues: dict[str, Queue] = {}
    for path, wants in wanted(config).items():
        queues[path] = queue = made(path, queues.get(path.rpartition(".")[0]), rank=len(queues))
        configure(queue, wants)
    return queues[ROOT]


def made(path: str, parent: Queue | None, *, rank: int) -> Queue:
    """A configured queue, in its place below its parent, still without settings."""
    queue = Queue(path=path, parent=parent, rank=rank, leaf=True, managed=True)
    if parent is not None:
        parent.children[queue.name] = queue
    return queue


def configure(queue: Queue, wants: Settings) -> None:
    """Give a queue the settings of the configuration, which makes it a configured one. Sums and orders are not
    touched.
    """
    queue.managed = True
    queue.leaf = wants.leaf
    queue.submit_acl = wants.submit_acl
    queue.admin_acl = wants.admin_acl
    queue.admin_text = wants.admin_text
    queue.max_applications = wants.max_applications
    queue.properties = wants.properties
    queue.policies = wants.policies
    queue.template = wants.template
    if queue.parent is not None:
        queue.entitle(maximum=wants.maximum, guaranteed=wants.guaranteed)


def settings_of(queue: Queue) -> Settings:
    """The settings that a queue has, as the configuration that said so would be read."""
    return Settings(
        leaf=queue.leaf,
        submit_acl=queue.submit_acl,
        admin_acl=queue.admin_acl,
        admin_text=queue.admin_text,
        max_applications=queue.max_applications,
        maximum=queue.maximum if queue.parent is not None else None,
        guaranteed=queue.guaranteed,
        properties=queue.properties,
        policies=queue.policies,
        template=queue.template,
    )


def from_template(parent: Queue, name: str, *, rank: int, leaf: bool) -> Queue:
    """A queue that placement creates: a leaf takes everything from its parent's template, a parent hands the template
    on.
    """
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


def heritage(parent: Settings) -> Heritage:
    """Made once for all children of a queue."""
    properties = passed_on(parent.properties)
    return Heritage(properties, policies(properties, leaf=True), parent.template)


def settings(config: QueueConfig, above: Heritage | None, *, lists: tuple[Acl, Acl] | None = None) -> Settings:
    """The settings of a queue below one that leaves it this; the root has none above it. Whoever knows already what its
    lists of submitters and of administrators say, says so.
    """
    leaf = not config.is_parent and above is not None
    properties = {} if above is None else above.properties
    if config.properties:
        properties = {**properties, **config.properties}
    as_above = leaf and above is not None and not config.properties
    submit_acl, admin_acl = lists or (parse_acl(config.submit_acl), parse_acl(config.admin_acl))
    return Settings(
        leaf=leaf,
        submit_acl=submit_acl,
        admin_acl=admin_acl,
        admin_text=config.admin_acl,
        max_applications=config.max_applications,
        maximum=_useful(config.resources.max) if above else None,
        guaranteed=_useful(config.resources.guaranteed) if above else None,
        properties=properties,
        policies=above.policies if above and as_above else policies(properties, leaf=leaf),
        template=None if leaf else _template(config.child_template) or (above.template if above else None),
    )


def _collect(path: str, config: QueueConfig, above: Heritage | None, found: dict[str, Settings]) -> None:
    here = found[path] = settings(config, above)
    if config.queues:
        left = heritage(here)
        for below in config.queues:
            _collect(f"{path}.{below.name.lower()}", below, left, found)


def _template(config: ChildTemplateConfig) -> Template | None:
    """A template with anything written in it counts, even if that limits nothing: then it keeps the parent's away."""
    if config.is_empty:
        return None
    properties = {name: value for name, value in config.properties.items() if name and value}
    return Template(
        config.max_applications, properties, _useful(config.resources.max), _useful(config.resources.guaranteed)
    )


def _useful(texts: Mapping[str, str] | None) -> Resources | None:
    """Amounts that limit or guarantee something: without any positive one it is as if nothing had been written."""
    if not texts:
        return None
    resources = amounts(texts)
    return resources if any(resources.values()) else None  # none is negative
