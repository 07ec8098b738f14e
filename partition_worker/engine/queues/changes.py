"""What a new configuration changes in a tree that runs, as values: found first, then carried out, one by one.

A queue is found by its path in lower case. What the configuration does not name drains if it is managed, and is left
alone if it is dynamic, but for the template that a dynamic parent has from above. Nothing that is as it should be is
among the changes, so what follows is proportional to what differs.

Not here: what a change means for orders, sums and those who are told (`engine/reconfiguration.py`).
"""

from typing import NamedTuple

from common.config.model import QueueConfig
from partition_worker.engine.queues.blueprint import Settings, settings_of, wanted
from partition_worker.engine.queues.queue import Queue, Template
from partition_worker.engine.queues.tree import Tree


class Add(NamedTuple):
    """A queue that does not exist yet."""

    path: str
    settings: Settings


class Set(NamedTuple):
    """A queue that gets other settings, becomes managed, or is wanted again while it drains."""

    queue: Queue
    settings: Settings


class PassOn(NamedTuple):
    """A dynamic parent that has another template from the queue above it."""

    queue: Queue
    template: Template | None


class Drain(NamedTuple):
    """A managed queue that is no longer wanted."""

    queue: Queue


Change = Add | Set | PassOn | Drain


def changes(tree: Tree, config: QueueConfig) -> list[Change]:
    """The changes that make the tree that of the configuration, in the order in which they can be made: parents before
    their children, what is wanted before what is not. Costs a look at each queue of both.
    """
    found: list[Change] = []
    settings_by_path = wanted(config)
    for path, settings in settings_by_path.items():
        queue = tree.find(path)
        if queue is None:
            found.append(Add(path, settings))
        elif not queue.managed or queue.state != "Active" or settings_of(queue) != settings:
            found.append(Set(queue, settings))
    templates = {path: settings.template for path, settings in settings_by_path.items()}
    for queue in tree:
        if queue.path in settings_by_path:
            continue
        if queue.managed:
            if not queue.draining:
                found.append(Drain(queue))
            continue
        assert queue.parent is not None, queue.path
        if not queue.leaf:
            template = templates.get(queue.parent.path, queue.parent.template)
            templates[queue.path] = template
            if template != queue.template:
                found.append(PassOn(queue, template))
    return found
