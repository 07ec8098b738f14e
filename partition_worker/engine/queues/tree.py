"""The queue tree: the settings of configured and dynamic queues, lookup by path, and queues that come and go.

`compare_configs` computes the settings of new and changed queues, with inheritance and templates: a new tree is built
from them, and `reconfiguration.py` changes a running tree with them. The configuration has passed validation.

Resource managers with namespaces, such as Kubernetes, tag each application with the quota of its namespace, which
becomes the quota of its dynamic queue. A tag that cannot be parsed sets nothing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from yunishard.common.config.acl import Acl, parse_acl
from yunishard.common.config.model import ChildTemplateConfig, PartitionConfig, QueueConfig, parse_amounts
from yunishard.common.messages.kinds import Amount, Resources
from yunishard.common.names import ILLEGAL_QUEUE, QUEUE, RECOVERY_QUEUE, ROOT
from yunishard.common.resources import Limit, is_positive
from yunishard.partition_worker.engine.amounts import find_types_objection
from yunishard.partition_worker.engine.durable_records import OperatorMark, Template
from yunishard.partition_worker.engine.queues.queue import (
    Policies,
    Queue,
    inherit_properties,
    parse_policies,
    refresh_fair_maximum,
)
from yunishard.partition_worker.engine.user_resolution import User, tag_value

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


def create_from_template(parent: Queue, name: str, *, rank: int, leaf: bool) -> Queue:
    """A dynamic queue: a leaf takes everything from its parent's template, a parent passes the template on."""
    queue = Queue(path=f"{parent.path}.{name}", parent=parent, rank=rank, leaf=leaf, managed=False)
    template = parent.template
    queue.template = None if leaf else template
    if leaf and template is not None:
        queue.max_applications = template.max_applications
        queue.entitle(maximum=template.maximum, guaranteed=template.guaranteed)
        if queue.path != RECOVERY_QUEUE:
            queue.properties = dict(template.properties)
    queue.policies = parse_policies(queue.properties, leaf=leaf)
    return queue


def read_settings(config: QueueConfig, above: Settings | None, inherited: dict[str, str]) -> Settings:
    """The settings of a configured queue that inherits these properties; the root has nothing above it."""
    leaf = not config.is_parent and above is not None
    properties = {**inherited, **config.properties} if config.properties else inherited
    return Settings(
        leaf=leaf,
        submit_acl=_parse_acl(config.submit_acl),
        admin_acl=_parse_acl(config.admin_acl),
        admin_text=config.admin_acl,
        max_applications=config.max_applications,
        maximum=_useful(config.resources.max) if above else None,
        guaranteed=_useful(config.resources.guaranteed) if above else None,
        properties=properties,
        policies=parse_policies(properties, leaf=leaf),
        template=None if leaf else _template(config.child_template) or (above.template if above else None),
    )


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


# Changes of the configuration -----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class QueueChangePlan:
    """The differences of two configurations for the queues of a partition."""

    before: QueueConfig | None
    """The root of the configuration in force, if there is one; `after` is that of the new one."""
    after: QueueConfig
    wanted: dict[str, Settings] = field(default_factory=dict)
    """The settings of new and changed queues, by path in the order of the file."""
    unwanted: set[str] = field(default_factory=set)
    """Paths that only the configuration in force has."""
    limits: set[str] = field(default_factory=set)
    """Paths of queues at which user or group limits differ."""


def compare_configs(tree: "Tree", before: QueueConfig | None, after: QueueConfig) -> QueueChangePlan:
    """Plan the changes of a tree that has the configuration `before`; without one all queues are new."""
    found = QueueChangePlan(before, after)
    _plan(tree, found, ROOT, before, after, None, {})
    return found


def _plan(
    tree: "Tree",
    found: QueueChangePlan,
    path: str,
    before: QueueConfig | None,
    after: QueueConfig,
    above: Settings | None,
    inherited: dict[str, str],
) -> None:
    """Compare a queue and the queues below it."""
    queue = None if before is None else tree.find(path)
    known = None if queue is None else settings_of(queue)
    wants = read_settings(after, above, inherited)
    if known != wants:
        found.wanted[path] = wants
    if after.limits != (() if before is None else before.limits):
        found.limits.add(path)
    children = {} if before is None else {one.name.lower(): one for one in before.queues}
    as_before = known is not None and (known.properties, known.template) == (wants.properties, wants.template)
    passed_on = inherit_properties(wants.properties) if after.queues else {}
    for child in after.queues:
        name = child.name.lower()
        child_before = children.pop(name, None)
        # A queue of the same text that inherits the same is as before, with all below it, and costs one comparison.
        if not as_before or child_before != child:
            _plan(tree, found, f"{path}.{name}", child_before, child, wants, passed_on)
    for name, child in children.items():
        _mark_unwanted(found, f"{path}.{name}", child)


def _mark_unwanted(found: QueueChangePlan, path: str, config: QueueConfig) -> None:
    found.unwanted.add(path)
    if config.limits:
        found.limits.add(path)
    for child in config.queues:
        _mark_unwanted(found, f"{path}.{child.name.lower()}", child)


# Namespace quotas -----------------------------------------------------------------------------------------------------

QUOTA_TAG: Final = "namespace.resourcequota"
GUARANTEED_TAG: Final = "namespace.resourceguaranteed"
MAX_APPLICATIONS_TAG: Final = "namespace.resourcemaxapps"

_COUNT: Final = re.compile(r"[0-9]{1,19}")


class _Value(msgspec.Struct):
    value: Amount = 0


class _Document(msgspec.Struct):
    resources: dict[str, _Value]


def apply_namespace_quota(queue: Queue, tags: Mapping[str, str]) -> list[str]:
    """Set the quota in the tags of an application; their names are case-insensitive. Returns one sentence for each tag
    that cannot be parsed.

    If either maximum or guarantee is given, both are set, overriding a template.
    """
    problems: list[str] = []
    count = tag_value(tags, MAX_APPLICATIONS_TAG)
    if not count or _COUNT.fullmatch(count):
        queue.max_applications = int(count or 0) or queue.max_applications
    else:
        problems.append(f"tag {MAX_APPLICATIONS_TAG}: {count[:100]!r} is not a number")
    maximum, guaranteed = _resources(tags, QUOTA_TAG, problems), _resources(tags, GUARANTEED_TAG, problems)
    if maximum is not None or guaranteed is not None:
        queue.entitle(maximum=maximum, guaranteed=guaranteed)
    return problems


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
    amounts = {kind: entry.value for kind, entry in entries.items()}
    if objection := find_types_objection(amounts):
        problems.append(f"tag {tag}: {objection}")
        return None
    return amounts if is_positive(amounts) else None


# Queue tree -----------------------------------------------------------------------------------------------------------


LEVELS_MAX: Final = 64
"""Levels of a path that placement may create, including the root; a deeper one rejects its application."""

QUEUES_MAX: Final = 50_000
"""Queues of a partition beyond which placement creates none; a configuration may have more."""


STOPS_MAX: Final = 1_000
"""Stopped queues of a partition; stopping another one is refused."""


class QueueError(ValueError):
    """A queue that cannot be created or used; the text is the reason for the user."""


class CreationPlan(NamedTuple):
    """The queues that placement may create on a path."""

    above: Queue
    """The lowest queue that exists on the path."""
    missing: tuple[str, ...] = ()
    """The names of the missing levels below it, the highest first; the last one is a leaf."""

    def preview(self) -> Queue:
        """Return the leaf as it would be created, or the queue if it exists. It is not part of the tree."""
        queue = self.above
        for level, name in enumerate(self.missing, start=1):
            queue = create_from_template(queue, name, rank=queue.rank, leaf=level == len(self.missing))
        return queue


class Tree:
    """All queues of one partition."""

    def __init__(self, config: PartitionConfig) -> None:
        self._by_path: dict[str, Queue] = {}
        self.next_rank = 0
        """The rank of the next queue."""
        self.stops: dict[str, OperatorMark] = {}
        """By path: the queues that an operator stopped. A dynamic queue may be missing now."""
        for path, settings in compare_configs(self, None, config.root).wanted.items():
            self.add(path, settings)
        self.root = self._by_path[ROOT]

    # Lookup ---------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Queue | None:
        """The queue of this path, in any case."""
        return self._by_path.get(path.lower())

    def find_nearest(self, path: str) -> Queue | None:
        """The lowest existing queue on this path. Searches from the root, because a path may have many parts."""
        lowest: Queue | None = None
        for above in accumulate(path.split("."), "{}.{}".format):
            if (queue := self.find(above)) is None:
                break
            lowest = queue
        return lowest

    def find_stop(self, path: str) -> str:
        """The path of a stopped queue at or above this path, where queues may be missing; empty if there is none."""
        path = path.lower()
        return next((stop for stop in self.stops if path == stop or path.startswith(f"{stop}.")), "")

    def __iter__(self) -> Iterator[Queue]:
        """Every queue, parents before their children."""
        return iter(tuple(self._by_path.values()))

    # Queues that come and go ----------------------------------------------------------------------------------------

    def create(self, plan: CreationPlan) -> Queue:
        """Create the missing queues of a plan for this state of the tree, and return the lowest."""
        lowest, missing = plan
        for level, name in enumerate(missing, start=1):
            lowest = self._add(lowest, name, leaf=level == len(missing))
        return lowest

    def plan_creation(self, path: str, user: User) -> CreationPlan:
        """Plan the leaf that placement chose, with all missing levels; none if it exists. Changes nothing.

        Raises: QueueError: no access, a leaf or a draining queue in the way, or an illegal name.
        """
        written, path = path, path.lower()
        levels = path.count(".") + 1
        if levels > LEVELS_MAX:
            raise QueueError(f"queue path has {levels} levels, at most {LEVELS_MAX} are allowed: {path[:256]}")
        lowest = self.find_nearest(path)
        if lowest is None:
            raise QueueError(f"queue {path.partition('.')[0]} is not below root")
        if lowest.path == path:
            return CreationPlan(lowest)
        missing = path.removeprefix(lowest.path + ".").split(".")
        if path == RECOVERY_QUEUE:
            return CreationPlan(lowest, tuple(missing))
        if len(self._by_path) + len(missing) > QUEUES_MAX:
            raise QueueError(f"there are {len(self._by_path)} queues, placement creates none beyond {QUEUES_MAX}")
        if not lowest.admits_submission(user):
            raise QueueError(f"submit access to queue {lowest.path} denied during create of: {written}")
        if lowest.leaf:
            raise QueueError(f"creation of queue {written} failed parent is already a leaf: {lowest.path}")
        if lowest.draining:
            raise QueueError(f"cannot add a child queue when queue is marked for deletion: {lowest.path}")
        for name in missing:
            if not QUEUE.fullmatch(name):
                raise QueueError(ILLEGAL_QUEUE)
            if name == RECOVERY_QUEUE.rpartition(".")[2]:
                raise QueueError("dynamic queue cannot be root.@recovery@")
        return CreationPlan(lowest, tuple(missing))

    def add(self, path: str, settings: Settings) -> Queue:
        """Add a queue of a configuration, below an existing one or as the root; its fair maximum is not set yet."""
        assert path not in self._by_path, path
        parent = self._by_path.get(path.rpartition(".")[0])
        queue = self._link(Queue(path=path, parent=parent, rank=self.next_rank, leaf=True, managed=True))
        configure(queue, settings)
        return queue

    def set_stops(self, stops: Mapping[str, OperatorMark]) -> None:
        """Set which queues are stopped."""
        self.stops = dict(stops)
        for queue in self._by_path.values():
            queue.stop = self.stops.get(queue.path)

    def restore(self, path: str) -> Queue:
        """Add a queue below an existing one; it has no settings yet."""
        parent = self._by_path[path.rpartition(".")[0]]
        return self._link(Queue(path=path, parent=parent, rank=self.next_rank, leaf=True, managed=False))

    def remove_empty(self) -> list[Queue]:
        """Remove and return empty dynamic and draining queues, children first. A stopped dynamic queue stays, so that
        operators see it.
        """
        removed = []
        for queue in reversed(tuple(self._by_path.values())):
            unwanted = queue.draining or not (queue.managed or queue.stopped)
            if unwanted and not queue.children and not queue.applications and queue.parent is not None:
                del queue.parent.children[queue.name]
                del self._by_path[queue.path]
                queue.leave_tree()
                removed.append(queue)
        return removed

    def has_temporary(self) -> bool:
        """Whether there are dynamic or draining queues."""
        return any(not queue.managed or queue.draining for queue in self._by_path.values())

    def _add(self, parent: Queue, name: str, *, leaf: bool) -> Queue:
        queue = self._link(create_from_template(parent, name, rank=self.next_rank, leaf=leaf))
        refresh_fair_maximum(queue)
        return queue

    def _link(self, queue: Queue) -> Queue:
        self.next_rank += 1
        self._by_path[queue.path] = queue
        queue.stop = self.stops.get(queue.path)
        if queue.parent is not None:
            queue.parent.children[queue.name] = queue
        return queue
