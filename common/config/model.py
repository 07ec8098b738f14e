"""The configuration as typed values: `queues.yaml` key by key, in a form that processes send to each other; and
the queue properties with the values that they accept.

Fields have our names (`max_applications`), encoded messages have the keys of the file (`maxapplications`). Quantities
stay texts, because operators read them back; `parse_amounts` converts them. This module validates nothing.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from yunishard.common.config.problems import under
from yunishard.common.names import DEFAULT_PARTITION, ROOT
from yunishard.common.node_sort_policies import NODE_SORT_POLICIES, PACK, parse_node_choice
from yunishard.common.resources import parse_quantity
from yunishard.common.text_formats import parse_duration

DEFAULT_WEIGHTS: Final[Mapping[str, float]] = {"vcore": 1.0, "memory": 1.0}
"""Weights of the resource types in node sorting, if the configuration sets none."""


class _Part(Struct, frozen=True, kw_only=True, omit_defaults=True, rename=lambda name: name.replace("_", ""), gc=False):
    """A part of the configuration: immutable, and encoded without fields that were not written.

    Immutable values contain no cycles, so the garbage collector does not have to visit thousands of queues.
    """


class ResourcesConfig(_Part, frozen=True, kw_only=True, gc=False):
    """Resource type to quantity text. None if the key was not written, empty if it has no entries."""

    guaranteed: Mapping[str, str] | None = None
    max: Mapping[str, str] | None = None


class ChildTemplateConfig(_Part, frozen=True, kw_only=True, gc=False):
    """Initial settings of a dynamic leaf that is created below a queue."""

    max_applications: int = 0
    properties: Mapping[str, str] = {}
    resources: ResourcesConfig = ResourcesConfig()

    @property
    def is_empty(self) -> bool:
        """Whether the template sets nothing. An entry without key or value sets nothing."""
        maps = (self.properties, self.resources.guaranteed or {}, self.resources.max or {})
        return self.max_applications == 0 and not any(key and value for one in maps for key, value in one.items())


ANYONE: Final = "*"
"""In a limit: each user without a limit of its own, or all groups without one together."""


class LimitConfig(_Part, frozen=True, kw_only=True, gc=False):
    """The maximum that each listed user and each listed group may use at a queue and below it."""

    limit: str = ""  # a description for operators
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    max_applications: int = 0  # 0 is unlimited
    max_resources: Mapping[str, str] = {}


class QueueConfig(_Part, frozen=True, kw_only=True, gc=False):
    """One queue with everything below it."""

    name: str = ""  # in the case in which it was written
    parent: bool = False  # as written; see `is_parent`
    queues: tuple["QueueConfig", ...] = ()
    resources: ResourcesConfig = ResourcesConfig()
    max_applications: int = 0  # 0 is unlimited
    properties: Mapping[str, str] = {}
    submit_acl: str = ""
    admin_acl: str = ""
    child_template: ChildTemplateConfig = ChildTemplateConfig()
    limits: tuple[LimitConfig, ...] = ()

    @property
    def is_parent(self) -> bool:
        """Whether the queue has children or the flag is set."""
        return self.parent or bool(self.queues)


DENY: Final = "deny"
"""The type of a filter that excludes the listed users and groups. Any other spelling, such as `DENY`, includes them."""


class FilterConfig(_Part, frozen=True, kw_only=True, gc=False):
    """The users and groups to whose applications a placement rule applies."""

    type: str = ""
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class PlacementRuleConfig(_Part, frozen=True, kw_only=True, gc=False):
    """One placement rule, with the rule for its parent queue, if it has one."""

    name: str = ""
    create: bool = False
    value: str = ""
    parent: "PlacementRuleConfig | None" = None
    filter: FilterConfig = FilterConfig()

    def walk(self) -> Iterator["PlacementRuleConfig"]:
        """Yield this rule, the rule for its parent queue, and so on."""
        rule: PlacementRuleConfig | None = self
        while rule is not None:
            yield rule
            rule = rule.parent


class PreemptionConfig(_Part, frozen=True, kw_only=True, gc=False):
    """The enabled kinds of preemption. None if the key was not written, so that the default applies."""

    enabled: bool | None = None
    quota_preemption_enabled: bool | None = None

    @property
    def is_enabled(self) -> bool:
        return self.enabled is not False

    @property
    def is_quota_enabled(self) -> bool:
        return self.quota_preemption_enabled is True


class NodeSortConfig(_Part, frozen=True, kw_only=True, gc=False):
    """The order in which nodes are tried."""

    type: str = ""
    resource_weights: Mapping[str, float] = {}

    @property
    def policy(self) -> str:
        """Return `fair` or `binpacking`."""
        return self.type or "fair"

    @property
    def weights(self) -> Mapping[str, float]:
        """Weight by resource type. Once one type is written, types that are not written weigh nothing."""
        return self.resource_weights or DEFAULT_WEIGHTS


class ResolverConfig(_Part, frozen=True, kw_only=True, gc=False):
    """The source of a user's groups for submissions that name no groups."""

    type: str = ""


class PartitionConfig(_Part, frozen=True, kw_only=True, gc=False):
    """One partition. `queues` is None if the key was not written."""

    name: str = ""
    queues: tuple[QueueConfig, ...] | None = None
    placement_rules: tuple[PlacementRuleConfig, ...] = ()
    limits: tuple[LimitConfig, ...] = ()
    preemption: PreemptionConfig = PreemptionConfig()
    node_sort_policy: NodeSortConfig = NodeSortConfig()
    user_group_resolver: ResolverConfig = ResolverConfig()

    @property
    def root(self) -> QueueConfig:
        """The root queue of a normalised partition."""
        assert self.queues is not None, "a partition without queues passed validation"
        assert len(self.queues) == 1, "a partition with several top level queues was not normalised"
        return self.queues[0]


class Configuration(_Part, frozen=True, kw_only=True, gc=False):
    """A whole file, with the checksum that identifies it."""

    partitions: tuple[PartitionConfig, ...] = ()
    checksum: str = ""  # 64 upper case hexadecimal digits; empty before it is loaded


def parse_amounts(texts: Mapping[str, str] | None) -> dict[str, int]:
    """Convert quantity texts to numbers in base units; None becomes empty.

    Raises:
        QuantityError: validation excludes this for everything but child templates.
    """
    return {kind: parse_quantity(text, resource_type=kind) for kind, text in texts.items()} if texts else {}


# Normal form ----------------------------------------------------------------------------------------------------------


def normalise(configuration: Configuration) -> Configuration:
    """Return the configuration with every partition in its normal form. Idempotent."""
    return replace(configuration, partitions=tuple(normalise_partition(part) for part in configuration.partitions))


def normalise_partition(partition: PartitionConfig) -> PartitionConfig:
    """Return the partition with a name and one root queue: the written one, or one inserted above all top queues."""
    written = _written_root(partition)
    root = QueueConfig(name=ROOT, queues=partition.queues or ()) if written is None else written
    queues = (replace(root, parent=True, limits=root.limits or partition.limits),)
    return replace(partition, name=partition_name(partition), queues=queues)


def partition_name(partition: PartitionConfig) -> str:
    """Return the partition's name; an empty name, and `default` in any case, become `default`."""
    return DEFAULT_PARTITION if partition.name.lower() in ("", DEFAULT_PARTITION) else partition.name


@dataclass(frozen=True)
class QueuePlace:
    """A queue of a normalised partition, with its place in the text."""

    queue: QueueConfig
    full_path: str
    """From root, in lower case: `root.a.b`."""
    path: str
    """Of the queue in the text; an inserted root has the path of its partition."""
    limits_path: str
    """Of its limits in the text, which root may inherit from its partition."""
    level: int = 0  # of root

    @cached_property
    def children(self) -> tuple["QueuePlace", ...]:
        """The queues directly below, in the order of the text."""
        places = ((child, under(self.path, f"queues[{index}]")) for index, child in enumerate(self.queue.queues))
        return tuple(
            QueuePlace(child, f"{self.full_path}.{child.name.lower()}", path, f"{path}.limits", self.level + 1)
            for child, path in places
        )

    @property
    def acls(self) -> tuple[tuple[str, str], ...]:
        """The path and text of both access control lists."""
        return (f"{self.path}.adminacl", self.queue.admin_acl), (f"{self.path}.submitacl", self.queue.submit_acl)

    def walk(self) -> Iterator["QueuePlace"]:
        """Yield this queue and everything below, parents before children."""
        yield self
        for child in self.children:
            yield from child.walk()


def root_place(partition: PartitionConfig, path: str) -> QueuePlace:
    """Return the root of the normal form of a partition that was written at `path`, with everything below."""
    written = _written_root(partition)
    root_path = path if written is None else under(path, "queues[0]")
    limits_path = under(root_path if written is not None and written.limits else path, "limits")
    return QueuePlace(normalise_partition(partition).root, ROOT, root_path, limits_path)


def find_top_queues(partition: PartitionConfig) -> tuple[QueueConfig, ...]:
    """Return the written queues directly below root."""
    written = _written_root(partition)
    return (partition.queues or ()) if written is None else written.queues


def _written_root(partition: PartitionConfig) -> QueueConfig | None:
    """Return the written root queue: the only queue at the top, called root in any case."""
    queues = partition.queues or ()
    return queues[0] if len(queues) == 1 and queues[0].name.lower() == ROOT else None


# Checksum -------------------------------------------------------------------------------------------------------------

_MARK: Final = b"checksum: "
_HEX_DIGITS: Final = 64


def compute_checksum(text: str) -> str:
    """Return the SHA-256 of the text without the checksum it carries, as 64 upper case hexadecimal digits.

    At most 64 characters of the first checksum in the text are removed, with every repetition of them. The line break
    after it is kept, so a text has another checksum than the same text with a checksum line.
    """
    data = text.encode()
    _, mark, carried = data.partition(_MARK)
    if mark:
        carried = carried.partition(_MARK)[0]
        data = data.replace((_MARK + carried).rstrip(b"\n")[: len(_MARK) + _HEX_DIGITS], b"")
    return hashlib.sha256(data).hexdigest().upper()


# Queue properties -----------------------------------------------------------------------------------------------------
#
# A file may hold any property with any value; a value that is not accepted means the default. The engine reads values
# with the parsers below, and `warnings.py` reports values that mean the default although they seem to say something
# else. The effects of the properties, and their inheritance, are in the engine's queues.

SIMILARITY_MIN: Final = 0.86
"""Ratio of `difflib` above which a key is reported as a misspelled property: one or two wrong letters."""


class Property(NamedTuple):
    """A property. `accepts` returns whether a value is accepted: neither None nor False."""

    values: str
    """Description of the accepted values."""
    default: str
    """The meaning of every other value."""
    accepts: Callable[[str], object]

    def misreads(self, value: str) -> bool:
        """Whether a value is not accepted, and seems to say something else than the default that it means."""
        found = self.accepts(value)
        if (found is not None and found is not False) or not value.strip() or value.lower() == self.default:
            return False
        duration = parse_duration(value)
        return duration is None or duration != parse_duration(self.default)


def _parse_integer(text: str, allowed: range, pattern: str = "[0-9]{1,20}") -> int | None:
    value = int(text) if re.fullmatch(pattern, text) else None
    return value if value is not None and value in allowed else None


def parse_priority_offset(text: str) -> int | None:
    """Parse a signed number of 32 bits."""
    return _parse_integer(text, range(-(2**31), 2**31), "[+-]?[0-9]{1,20}")


def parse_delay(text: str) -> float | None:
    """Parse a duration above zero, in seconds."""
    duration = parse_duration(text)
    return duration if duration is not None and duration > 0 else None


def parse_backoff_attempts(text: str) -> int | None:
    """Parse an unsigned number of 64 bits; 0 is off."""
    return _parse_integer(text, range(2**64))


def parse_allocation_batch(text: str) -> int | None:
    """Parse a number of asks above zero."""
    return _parse_integer(text, range(1, 2**31), "[0-9]{1,10}")


def _word(*words: str) -> Property:
    """One of some words in any case, of which the first is the default."""
    return Property(" or ".join((", ".join(words[:-1]), words[-1])), words[0], lambda value: value.lower() in words)


def _duration(default: str) -> Property:
    return Property("a duration above zero with its unit, such as 90s or 1h30m", default, parse_delay)


PROPERTIES: Final[Mapping[str, Property]] = {
    "application.sort.policy": Property(
        "fifo, fair or stateaware, in lower case", "fifo", lambda value: value in ("fifo", "fair", "stateaware")
    ),
    "application.sort.priority": _word("enabled", "disabled"),
    "application.unschedasks.backoff": Property("a whole number, 0 for off", "0", parse_backoff_attempts),
    "application.unschedasks.backoff.delay": _duration("30s"),
    "priority.policy": _word("default", "fence"),
    "priority.offset": Property("a whole number from -2147483648 to 2147483647", "0", parse_priority_offset),
    "preemption.policy": _word("default", "fence", "disabled"),
    "preemption.delay": _duration("30s"),
    "preemption.cooldown": _duration("5m"),
    "quota.preemption.delay": _duration("0"),
    "node.sort.policy": Property(
        f"{', '.join(NODE_SORT_POLICIES)} or {PACK}", "the order of the partition", parse_node_choice
    ),
    "allocation.batch": Property("a whole number above zero", "1", parse_allocation_batch),
}
"""Every property that has a meaning, by its exact name."""


def _parts(key: str) -> tuple[str, ...]:
    return tuple(sorted(re.split("[^a-z0-9]+", key.lower())))


_BY_PARTS: Final = {_parts(name): name for name in PROPERTIES}
_KEY_MAX: Final = 2 * max(map(len, PROPERTIES))  # a longer key is similar to none


def find_similar_property(key: str) -> str:
    """Return the property that a key resembles; empty if there is none, or the key is a property.

    A similar key has the same words in another order, case or with other separators, or differs by one or two letters.
    """
    if key in PROPERTIES or len(key) > _KEY_MAX:
        return ""
    return _BY_PARTS.get(_parts(key)) or next(iter(get_close_matches(key.lower(), PROPERTIES, 1, SIMILARITY_MIN)), "")
