"""From configuration to queues: how a configured queue, and one that placement creates, gets its settings.

The configuration has passed validation and the load checks; what is wrong here is a defect. Not here: changing a tree
that runs.
"""

from collections.abc import Iterator, Mapping
from itertools import count

from common.acl import parse_acl
from common.config.model import ChildTemplateConfig, QueueConfig, amounts
from common.messages import Resources
from common.names import RECOVERY_QUEUE, ROOT
from common.resources import is_positive
from partition_worker.engine.queues.policies import inherited, policies
from partition_worker.engine.queues.queue import Queue, Template


def build(config: QueueConfig) -> Queue:
    """The root with everything below it, ranked in the order of the file."""
    ranks = count()
    root = Queue(path=ROOT, parent=None, rank=next(ranks), leaf=False, managed=True)
    _configure(root, config, ranks)
    return root


def from_template(parent: Queue, name: str, *, rank: int, leaf: bool) -> Queue:
    """A queue that placement creates: a leaf takes everything from its parent's template, a parent hands the template
    on.
    """
    queue = Queue(path=f"{parent.path}.{name}", parent=parent, rank=rank, leaf=leaf, managed=False)
    template = parent.template
    queue.template = None if leaf else template
    if leaf and template is not None:
        queue.max_applications = template.max_applications
        queue.maximum = template.maximum
        queue.guaranteed = template.guaranteed
        if queue.path != RECOVERY_QUEUE:
            queue.properties = dict(template.properties)
    queue.policies = policies(queue.properties, leaf=leaf)
    return queue


def _configure(queue: Queue, config: QueueConfig, ranks: Iterator[int]) -> None:
    parent = queue.parent
    queue.leaf = not config.is_parent and parent is not None
    queue.submit_acl = parse_acl(config.submit_acl)
    queue.admin_acl = parse_acl(config.admin_acl)
    queue.max_applications = config.max_applications
    queue.properties = inherited(parent.properties, config.properties) if parent else dict(config.properties)
    queue.policies = policies(queue.properties, leaf=queue.leaf)
    if parent is not None:  # the root's resources are those of the cluster
        queue.maximum = _useful(config.resources.max)
        queue.guaranteed = _useful(config.resources.guaranteed)
    if not queue.leaf:
        queue.template = _template(config.child_template) or (parent.template if parent else None)
    for below in config.queues:
        path = f"{queue.path}.{below.name.lower()}"
        child = Queue(path=path, parent=queue, rank=next(ranks), leaf=True, managed=True)
        queue.children[child.name] = child
        _configure(child, below, ranks)


def _template(config: ChildTemplateConfig) -> Template | None:
    """A template with anything written in it counts, even if that limits nothing: then it keeps the parent's away."""
    properties = _written(config.properties)
    resources = {**_written(config.resources.max), **_written(config.resources.guaranteed)}
    if not (config.max_applications or properties or resources):
        return None
    return Template(
        config.max_applications, properties, _useful(config.resources.max), _useful(config.resources.guaranteed)
    )


def _written(texts: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (texts or {}).items() if name and value}


def _useful(texts: Mapping[str, str] | None) -> Resources | None:
    """Amounts that limit or guarantee something: without any positive one it is as if nothing had been written."""
    resources = amounts(texts)
    return resources if is_positive(resources) else None
