"""What a new configuration changes in a tree that runs, as values: found first, then carried out, one by one.

    plan(tree, before, after)    what two configurations say differently, with all that is inherited
    changes(tree, plan)          what that means for the tree as it is now

The tree is as the configuration in force says (`tests/properties` hold it to that). So where two configurations say the
same in the same words, about a queue and what it inherits, nothing is looked at twice; what they say otherwise is
compared with the queue itself, as two texts may mean the same. A plan needs no queues but those that the configuration
in force names, and holds until that is another one: it is made when a worker votes, so that the commit is short.

A queue is found by its path in lower case. What the configuration does not name drains if it is managed, and is left
alone if it is dynamic, but for the template that a dynamic parent has from above. Nothing that is as it should be is
among the changes, so what follows is proportional to what differs.

Not here: what a change means for orders, sums and those who are told (`engine/reconfiguration.py`).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from common.acl import Acl, parse_acl
from common.config.model import QueueConfig
from common.names import ROOT
from partition_worker.engine.queues.blueprint import Heritage, Settings, heritage, settings, settings_of
from partition_worker.engine.queues.queue import Queue, Template
from partition_worker.engine.queues.tree import Tree


@dataclass(slots=True, eq=False)
class Plan:
    """How one configuration differs from another, for the queues of a partition."""

    before: QueueConfig
    """The roots of both."""
    after: QueueConfig
    wanted: dict[str, Settings] = field(default_factory=dict)
    """The settings of queues that are not in the first one, or have others there, by path in the order of the file."""
    unwanted: set[str] = field(default_factory=set)
    """Paths that only the first one names."""
    limits: bool = False
    """Whether the limits of users and groups may be others, at any queue."""


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


def plan(tree: Tree, before: QueueConfig, after: QueueConfig) -> Plan:
    """What is to be another in a tree that is as the configuration `before` says."""
    found = Plan(before, after)
    _plan(tree, found, ROOT, before, after, None)
    return found


def changes(tree: Tree, wanted: Plan) -> list[Change]:
    """The changes by which a plan comes true, in the order in which they can be made: parents before their children,
    what is wanted before what is not.
    """
    found: list[Change] = []
    for path, settings_ in wanted.wanted.items():
        queue = tree.find(path)
        found.append(Add(path, settings_) if queue is None else Set(queue, settings_))
    templates: dict[str, Template | None] = {}
    for queue in tree:
        if queue.managed:
            if queue.path in wanted.unwanted:
                found += [] if queue.draining else [Drain(queue)]
            elif queue.state == "Stopped" and queue.path not in wanted.wanted:
                found.append(Set(queue, settings_of(queue)))  # which starts it again
        elif not queue.leaf and queue.path not in wanted.wanted:
            template = templates[queue.path] = _template_above(queue, wanted, templates)
            if template != queue.template:
                found.append(PassOn(queue, template))
    return found


def _template_above(queue: Queue, wanted: Plan, templates: dict[str, Template | None]) -> Template | None:
    """The template that a dynamic parent is to have, after those of the dynamic ones above it."""
    parent = queue.parent
    assert parent is not None, queue.path
    settings_ = wanted.wanted.get(parent.path)
    return templates.get(parent.path, parent.template) if settings_ is None else settings_.template


# Private --------------------------------------------------------------------------------------------------------------


def _plan(
    tree: Tree, found: Plan, path: str, before: QueueConfig | None, after: QueueConfig, above: Heritage | None
) -> None:
    """Look at a queue, of which the configuration in force says this or nothing, and at what is below it."""
    queue = None if before is None else tree.find(path)
    known = None if queue is None else settings_of(queue)
    lists = None if before is None or known is None else _lists(before, after, known)
    wants = settings(after, above, lists=lists)
    if known != wants:
        found.wanted[path] = wants
    if after.limits != (() if before is None else before.limits):
        found.limits = True
    children = {} if before is None or not before.queues else {one.name.lower(): one for one in before.queues}
    if after.queues:
        left = heritage(wants)
        as_before = known is not None and (known.properties, known.template) == (wants.properties, wants.template)
        for child in after.queues:
            name = child.name.lower()
            said = children.pop(name, None)
            if not as_before or said != child:
                _plan(tree, found, f"{path}.{name}", said, child, left)
    for name, child in children.items():
        _gone(found, f"{path}.{name}", child)


def _gone(found: Plan, path: str, config: QueueConfig) -> None:
    found.unwanted.add(path)
    found.limits = found.limits or bool(config.limits)
    for child in config.queues:
        _gone(found, f"{path}.{child.name.lower()}", child)


def _lists(before: QueueConfig, after: QueueConfig, known: Settings) -> tuple[Acl, Acl]:
    """Who may submit to a queue and administer it: read again only where the texts are others."""
    return (
        known.submit_acl if before.submit_acl == after.submit_acl else parse_acl(after.submit_acl),
        known.admin_acl if before.admin_acl == after.admin_acl else parse_acl(after.admin_acl),
    )
