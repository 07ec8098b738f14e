"""The configuration as typed values: what `queues.yaml` says, key by key, ready to be sent between processes.

Names are ours (`max_applications`), the names on the wire are those of the file (`maxapplications`). Quantities stay
the text that was written, because operators read them back; `amounts` turns them into numbers. Nothing is checked here.
"""

import hashlib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from common.config.problems import under
from common.names import DEFAULT_PARTITION, ROOT
from common.resources import parse_quantity

QUANTITIES_MAX: Final = 4096
"""Quantities of which it is remembered what they mean: thousands of queues have the same ones."""

DEFAULT_WEIGHTS: Final[Mapping[str, float]] = {"vcore": 1.0, "memory": 1.0}
"""How much each type counts when nodes are ordered and the configuration does not say."""


def _as_written(name: str) -> str:
    """Return the key that a field has in the file: `max_applications` is `maxapplications` there."""
    return name.replace("_", "")


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_as_written, gc=False):
    """What all parts share: values that never change, and only what was written travels.

    Values that never change contain no cycles, so the garbage collector need not walk through thousands of queues.
    """


class ResourcesConfig(_Part, frozen=True, kw_only=True, gc=False):
    """Resource type to quantity text. None: not written; empty: written, without a type."""

    guaranteed: Mapping[str, str] | None = None
    max: Mapping[str, str] | None = None


class ChildTemplateConfig(_Part, frozen=True, kw_only=True, gc=False):
    """What a new dynamic leaf below a queue starts with."""

    max_applications: int = 0
    properties: Mapping[str, str] = {}
    resources: ResourcesConfig = ResourcesConfig()

    @property
    def is_empty(self) -> bool:
        """Whether the template sets nothing, so that there is none; an entry without key or value sets nothing."""
        maps = (self.properties, self.resources.guaranteed or {}, self.resources.max or {})
        return self.max_applications == 0 and not any(key and value for one in maps for key, value in one.items())


class LimitConfig(_Part, frozen=True, kw_only=True, gc=False):
    """What the listed users, each, and the listed groups, each, may use at a queue and below it."""

    limit: str = ""  # a description, for people only
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    max_applications: int = 0  # 0: as many as they like
    max_resources: Mapping[str, str] = {}


class QueueConfig(_Part, frozen=True, kw_only=True, gc=False):
    """One queue with everything below it."""

    name: str = ""  # in the case it was written in
    parent: bool = False  # as written; whether it really is one: `is_parent`
    queues: tuple["QueueConfig", ...] = ()
    resources: ResourcesConfig = ResourcesConfig()
    max_applications: int = 0  # 0: as many as there are
    properties: Mapping[str, str] = {}
    submit_acl: str = ""
    admin_acl: str = ""
    child_template: ChildTemplateConfig = ChildTemplateConfig()
    limits: tuple[LimitConfig, ...] = ()

    @property
    def is_parent(self) -> bool:
        """Children make a queue a parent, whatever its flag says."""
        return self.parent or bool(self.queues)


DENY: Final = "deny"
"""The type of a filter that keeps out those who are listed; any other spelling of it, such as `DENY`, lets them in."""


class FilterConfig(_Part, frozen=True, kw_only=True, gc=False):
    """Whose applications a placement rule looks at."""

    type: str = ""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class PlacementRuleConfig(_Part, frozen=True, kw_only=True, gc=False):
    """One placement rule, with the rule that yields its parent queue, if it has one."""

    name: str = ""
    create: bool = False
    value: str = ""
    parent: "PlacementRuleConfig | None" = None
    filter: FilterConfig = FilterConfig()


class PreemptionConfig(_Part, frozen=True, kw_only=True, gc=False):
    """Which kinds of preemption are on. None: not written, so the default holds."""

    enabled: bool | None = None
    quota_preemption_enabled: bool | None = None

    @property
    def is_enabled(self) -> bool:
        return self.enabled is not False

    @property
    def is_quota_enabled(self) -> bool:
        return self.quota_preemption_enabled is True


class NodeSortConfig(_Part, frozen=True, kw_only=True, gc=False):
    """In which order nodes are tried."""

    type: str = ""
    resource_weights: Mapping[str, float] = {}

    @property
    def policy(self) -> str:
        """Return `fair` or `binpacking`."""
        return self.type or "fair"

    @property
    def weights(self) -> Mapping[str, float]:
        """How much each type counts; once a type is written, types that are not count nothing."""
        return self.resource_weights or DEFAULT_WEIGHTS


class ResolverConfig(_Part, frozen=True, kw_only=True, gc=False):
    """Where the groups of a user are looked up when a submission does not name them."""

    type: str = ""


class PartitionConfig(_Part, frozen=True, kw_only=True, gc=False):
    """One partition. None for its queues: not written."""

    name: str = ""
    queues: tuple[QueueConfig, ...] | None = None
    placement_rules: tuple[PlacementRuleConfig, ...] = ()
    limits: tuple[LimitConfig, ...] = ()
    preemption: PreemptionConfig = PreemptionConfig()
    node_sort_policy: NodeSortConfig = NodeSortConfig()
    user_group_resolver: ResolverConfig = ResolverConfig()

    @property
    def root(self) -> QueueConfig:
        """The one queue at the top, which every normalised partition has."""
        assert self.queues is not None, "a partition without queues passed validation"
        assert len(self.queues) == 1, "a partition with several top level queues was not normalised"
        return self.queues[0]


class Configuration(_Part, frozen=True, kw_only=True, gc=False):
    """A whole file, and the checksum by which two of them are known to be the same."""

    partitions: tuple[PartitionConfig, ...] = ()
    checksum: str = ""  # 64 upper case hexadecimal digits once loaded, before that empty


def parse_amounts(texts: Mapping[str, str] | None) -> dict[str, int]:
    """Return the numbers behind quantity texts, in the units the scheduler counts with; nothing written is empty.

    Raises QuantityError, which validation has ruled out for everything but child templates.
    """
    return {kind: _amount(kind, text) for kind, text in texts.items()} if texts else {}


@lru_cache(QUANTITIES_MAX)
def _amount(kind: str, text: str) -> int:
    return parse_quantity(text, resource_type=kind)


# Normal form ----------------------------------------------------------------------------------------------------------


def normalise(configuration: Configuration) -> Configuration:
    """Return the configuration with every partition in its normal form; a normal one comes out the same."""
    return replace(configuration, partitions=tuple(normalise_partition(part) for part in configuration.partitions))


def normalise_partition(partition: PartitionConfig) -> PartitionConfig:
    """Return the partition named, and with one root queue: the one written, or one put above all the others."""
    written = _written_root(partition)
    root = QueueConfig(name=ROOT, queues=partition.queues or ()) if written is None else written
    return replace(
        partition,
        name=partition_name(partition),
        queues=(replace(root, parent=True, limits=root.limits or partition.limits),),
    )


def partition_name(partition: PartitionConfig) -> str:
    """Return its name; nothing, and `default` in any case, are `default`."""
    return DEFAULT_PARTITION if partition.name.lower() in ("", DEFAULT_PARTITION) else partition.name


class QueuePlace(Struct, frozen=True, kw_only=True, gc=False):  # a tree, which no garbage collector need look at
    """A queue of a normal partition, and where it was written."""

    queue: QueueConfig
    path: str  # of the queue; an inserted root stands at the path of its partition
    limits_path: str  # of its limits, which root may have from its partition
    level: int  # 0 for root
    children: tuple["QueuePlace", ...]  # the queues directly below, in the order they were written

    def walk(self) -> Iterator["QueuePlace"]:
        """Yield this queue and everything below, parents before children."""
        yield self
        for child in self.children:
            yield from child.walk()


def root_place(partition: PartitionConfig, path: str) -> QueuePlace:
    """Return the root of the normal form of a partition that was written at `path`, with everything below."""
    written = _written_root(partition)
    root_path = path if written is None else under(path, "queues[0]")
    has_own_limits = written is not None and written.limits
    limits_path = under(root_path if has_own_limits else path, "limits")
    return _place(normalise_partition(partition).root, root_path, limits_path=limits_path, level=0)


def _place(queue: QueueConfig, path: str, *, limits_path: str, level: int) -> QueuePlace:
    prefix = under(path, "queues[")
    below = [(child, f"{prefix}{index}]") for index, child in enumerate(queue.queues)]
    children = [_place(child, at, limits_path=f"{at}.limits", level=level + 1) for child, at in below]
    return QueuePlace(queue=queue, path=path, limits_path=limits_path, level=level, children=tuple(children))


def _written_root(partition: PartitionConfig) -> QueueConfig | None:
    """Return the root queue that was written: the only queue at the top, called root in any case."""
    match partition.queues:
        case (QueueConfig() as only,) if only.name.lower() == ROOT:
            return only
    return None


# Checksum -------------------------------------------------------------------------------------------------------------

_MARK: Final = b"checksum: "
_HEX_DIGITS: Final = 64


def compute_checksum(text: str) -> str:
    """Return the SHA-256 of the text without the checksum it carries, as 64 upper case hexadecimal digits.

    Only the first checksum is recognised, and at most 64 characters of it; every repetition of it is left out as well.
    The line break behind it counts, so a text does not have the checksum of the same text with a checksum line.
    """
    data = text.encode()
    parts = data.split(_MARK, 2)
    if len(parts) > 1:
        carried = (_MARK + parts[1]).rstrip(b"\n")[: len(_MARK) + _HEX_DIGITS]
        data = data.replace(carried, b"")
    return hashlib.sha256(data).hexdigest().upper()
