"""The configuration as typed values: what `queues.yaml` says, key by key, ready to be sent between processes.

Names are ours (`max_applications`), the names on the wire are those of the file (`maxapplications`). Quantities stay
the text that was written, because operators read them back; `amounts` turns them into numbers. Nothing is checked here.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from common.quantity import parse_quantity

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


def amounts(texts: Mapping[str, str] | None) -> dict[str, int]:
    """Return the numbers behind quantity texts, in the units the scheduler counts with; nothing written is empty.

    Raises QuantityError, which validation has ruled out for everything but child templates.
    """
    return {kind: _amount(kind, text) for kind, text in texts.items()} if texts else {}


@lru_cache(QUANTITIES_MAX)
def _amount(kind: str, text: str) -> int:
    return parse_quantity(text, resource_type=kind)
