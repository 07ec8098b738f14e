"""The queue tree: the settings of configured and dynamic queues, lookup by path, and queues that come and go.

`read_all_settings` computes the settings of all configured queues, with inheritance and templates: a new tree is
built from them, and `reconfiguration.py` compares a running tree with them. The configuration has passed validation.

Resource managers with namespaces, such as Kubernetes, tag each application with the quota of its namespace, which
becomes the quota of its dynamic queue. A tag that cannot be parsed sets nothing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from common.acl import Acl, parse_acl
from common.config.model import ChildTemplateConfig, PartitionConfig, QueueConfig, parse_amounts
from common.messages import Amount, Resources
from common.names import ILLEGAL_QUEUE, QUEUE, RECOVERY_QUEUE, ROOT
from common.resources import Limit, is_positive
from partition_worker.engine.queues.fair_share import refresh_fair_maximum
from partition_worker.engine.queues.queue import Policies, Queue, Template, inherit_properties, parse_policies
from partition_worker.engine.user_resolution import User, tag_value

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


def read_all_settings(config: QueueConfig) -> dict[str, Settings]:
    """The settings of every queue by path, parents first, in the order of the file."""
    found: dict[str, Settings] = {}
    _collect(ROOT, config, None, found)
    return found


def build_queues(config: QueueConfig) -> dict[str, Queue]:
    """The queues of a configuration by path, ranked in the order of the file."""
    queues: dict[str, Queue] = {}
    for path, wants in read_all_settings(config).items():
        queues[path] = queue = create_queue(path, queues.get(path.rpartition(".")[0]), rank=len(queues))
        configure(queue, wants)
    return queues


def create_queue(path: str, parent: Queue | None, *, rank: int) -> Queue:
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


def heritage_of(parent: Settings) -> Heritage:
    """Compute what a queue passes on to all its children."""
    properties = inherit_properties(parent.properties)
    return Heritage(properties, parse_policies(properties, leaf=True), parent.template)


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
        policies=above.policies if above and as_above else parse_policies(properties, leaf=leaf),
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


# Queue tree -----------------------------------------------------------------------------------------------------------


LEVELS_MAX: Final = 64
"""Levels of a path that placement may create, including the root; a deeper one rejects its application."""

QUEUES_MAX: Final = 50_000
"""Queues of a partition beyond which placement creates none; a configuration may have more."""


class QueueError(ValueError):
    """A queue that cannot be created or used; the text is the reason for the user."""


class Tree:
    """All queues of one partition."""

    def __init__(self, config: PartitionConfig) -> None:
        self._by_path = build_queues(config.root)
        self.root = self._by_path[ROOT]
        self.next_rank = len(self._by_path)
        """The rank of the next queue."""

    def recall(self, queues: Sequence[Queue], next_rank: int) -> None:
        """Restore the queues from a snapshot, parents first."""
        for queue in queues:
            if queue.parent is not None:
                queue.parent.children[queue.name] = queue
        self.root = queues[0]
        self._by_path = {queue.path: queue for queue in queues}
        self.next_rank = next_rank

    # Lookup ---------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> Queue | None:
        """The queue of this path, in any case."""
        return self._by_path.get(path.lower())

    def __iter__(self) -> Iterator[Queue]:
        """Every queue, parents before their children."""
        return iter(tuple(self._by_path.values()))

    # Queues that come and go ----------------------------------------------------------------------------------------

    def create(self, path: str, user: User) -> Queue:
        """Create the leaf that placement chose, with all missing levels, or return it if it exists.

        Raises: QueueError: no access, a leaf or a draining queue in the way, or an illegal name.
        """
        written, path = path, path.lower()
        levels = path.count(".") + 1
        if levels > LEVELS_MAX:
            raise QueueError(f"queue path has {levels} levels, at most {LEVELS_MAX} are allowed: {path[:256]}")
        if path == RECOVERY_QUEUE:
            return self.find(path) or self._add(self.root, path.rpartition(".")[2], leaf=True)
        lowest, missing = self._nearest(path)
        if not missing:
            return lowest
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
        for level, name in enumerate(missing, start=1):
            lowest = self._add(lowest, name, leaf=level == len(missing))
        return lowest

    def add(self, path: str, settings: Settings) -> Queue:
        """Add a queue of a new configuration below an existing one; its fair maximum is not set yet."""
        assert path not in self._by_path, path
        queue = create_queue(path, self._by_path[path.rpartition(".")[0]], rank=self.next_rank)
        configure(queue, settings)
        self.next_rank += 1
        self._by_path[path] = queue
        return queue

    def remove_empty(self) -> list[Queue]:
        """Remove and return empty dynamic and draining queues, children first."""
        removed = []
        for queue in reversed(tuple(self._by_path.values())):
            unwanted = not queue.managed or queue.draining
            if unwanted and not queue.children and not queue.applications and queue.parent is not None:
                del queue.parent.children[queue.name]
                del self._by_path[queue.path]
                removed.append(queue)
        return removed

    def has_temporary(self) -> bool:
        """Whether there are dynamic or draining queues."""
        return any(not queue.managed or queue.draining for queue in self._by_path.values())

    def _nearest(self, path: str) -> tuple[Queue, list[str]]:
        missing: list[str] = []
        while (queue := self._by_path.get(path)) is None:
            path, dot, name = path.rpartition(".")
            if not dot:
                raise QueueError(f"queue {name} is not below root")
            missing.insert(0, name)
        return queue, missing

    def _add(self, parent: Queue, name: str, *, leaf: bool) -> Queue:
        queue = create_from_template(parent, name, rank=self.next_rank, leaf=leaf)
        self.next_rank += 1
        parent.children[name] = queue
        self._by_path[queue.path] = queue
        refresh_fair_maximum(queue)
        return queue
