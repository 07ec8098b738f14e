"""Shows a configuration in force as `GET /ws/v1/config` does: JSON with capitalized keys, or YAML with lower-case keys.

The parsed configuration is shown in normal form, with quantities as they were written. A table lists the keys of every
part, in their order, and when each is shown: JSON shows the parts of a part even if nothing in them was written, YAML
does not. The YAML layout is YuniKorn's. Rejected: PyYAML's `dump`, which cannot indent lists so, and leaves texts
unquoted that the parser of configurations (`common/config/parse.py`) reads as numbers, such as `1e3`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec

from common.config import model
from webservice.views import RequestError

Document = dict[str, "Document"] | list["Document"] | str | int | float | bool

_STEP: Final = 4
_PLAIN: Final = re.compile(r"[A-Za-z0-9_/.^$=+<;(-](?:[A-Za-z0-9_/.^$=+<>;()*@~!|%&,'\"?\[\]{}\\#-]| (?!#)|:(?! |$))*")
"""Texts that begin with what begins no other thing of YAML, and go on without `: ` and ` #`."""

_READ_AS_OTHER: Final = re.compile(
    r"(?:[yn]|yes|no|on|off|true|false|null|~|<<|=|"
    r"[-+]?[.]?(?:inf|nan)|"
    r"[-+]?[.0-9][0-9_,.:]*(?:e[-+]?[0-9]+)?|"
    r"[-+]?0(?:b[01_]*|o[0-7_]*|x[0-9a-f_]*)|"
    r"[0-9]{4}-[0-9].*)?",
    re.IGNORECASE,
)
"""Texts that some reader of YAML takes for a truth value, nothing, a number or a date; and the empty text."""

_NO_PLAIN_START: Final = re.compile(r"-(?:[ ]|-{2}|$)|[.]{3}")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_text(document: dict[str, Document]) -> str:
    """The document, a line break at the end of each line."""
    return "".join(f"{line}\n" for line in _map(document, 0))


def scalar(text: str) -> str:
    """A text as a scalar on one line, with double quotes if it would be read as something else, or single ones if it
    could not be read at all.
    """
    if not text.isprintable() or _READ_AS_OTHER.fullmatch(text):
        return '"' + "".join(_escaped(character) for character in text) + '"'
    if _PLAIN.fullmatch(text) and not text.endswith(" ") and not _NO_PLAIN_START.match(text):
        return text
    return "'" + text.replace("'", "''") + "'"


def _map(entries: dict[str, Document], column: int) -> Iterator[str]:
    """The lines of a map, whose keys stand at the column."""
    for key, value in entries.items():
        lead = f"{' ' * column}{scalar(key)}:"
        inner = (column // _STEP + 1) * _STEP
        match value:
            case dict() if value:
                yield lead
                yield from _map(value, inner)
            case list() if value:
                yield lead
                yield from _list(value, inner)
            case _:
                yield f"{lead} {_value(value)}"


def _list(items: list[Document], column: int) -> Iterator[str]:
    """The lines of a list, whose dashes stand at the column; a map begins on the line of its dash."""
    for item in items:
        match item:
            case dict() if item:
                first, *rest = _map(item, column + 2)
                yield f"{' ' * column}- {first.lstrip(' ')}"
                yield from rest
            case _:
                yield f"{' ' * column}- {_value(item)}"


def _value(value: Document) -> str:
    match value:
        case str():
            return scalar(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _number(value)
        case dict():
            return "{}"
        case list():
            return "[]"


def _number(number: float) -> str:
    if math.isnan(number):
        return ".nan"
    if math.isinf(number):
        return ".inf" if number > 0 else "-.inf"
    return str(int(number)) if number.is_integer() else repr(number)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\U{number:08X}" if number > 0xFFFF else f"\\u{number:04X}"


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Two keys that are always shown; nothing here looks for deadlocks, and no lock could have one."""

    enabled: bool = False
    timeout_s: int = 60


NO_DEADLOCKS: Final = Deadlock()

_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_SECONDS: Final = re.compile(r"[-+]?[0-9]{1,18}")


def deadlock_of(environment: Mapping[str, str]) -> Deadlock:
    """What the environment says of them; what cannot be read counts as not said."""
    seconds = environment.get("DEADLOCK_TIMEOUT_SECONDS", "")
    return Deadlock(
        enabled=environment.get("DEADLOCK_DETECTION_ENABLED", "") in _TRUE,
        timeout_s=int(seconds) if _SECONDS.fullmatch(seconds) else NO_DEADLOCKS.timeout_s,
    )


class _Shown(Enum):
    """When a key is shown."""

    ALWAYS = auto()
    FILLED = auto()
    """Unless empty: 0, false, no text, no entry."""
    WRITTEN = auto()
    """Unless None: false is a value."""
    PART = auto()
    """A part of its own: in JSON always, in YAML unless everything in it is empty."""


_Keys = tuple[tuple[str, str, _Shown], ...]
_ALWAYS, _FILLED, _WRITTEN, _PART = _Shown

_KEYS: Final[Mapping[type[msgspec.Struct], _Keys]] = {
    model.PartitionConfig: (
        ("name", "Name", _ALWAYS),
        ("queues", "Queues", _ALWAYS),
        ("placement_rules", "PlacementRules", _FILLED),
        ("limits", "Limits", _FILLED),
        ("preemption", "Preemption", _PART),
        ("node_sort_policy", "NodeSortPolicy", _PART),
        ("user_group_resolver", "UserGroupResolver", _PART),
    ),
    model.QueueConfig: (
        ("name", "Name", _ALWAYS),
        ("parent", "Parent", _FILLED),
        ("resources", "Resources", _PART),
        ("max_applications", "MaxApplications", _FILLED),
        ("properties", "Properties", _FILLED),
        ("admin_acl", "AdminACL", _FILLED),
        ("submit_acl", "SubmitACL", _FILLED),
        ("child_template", "ChildTemplate", _PART),
        ("queues", "Queues", _FILLED),
        ("limits", "Limits", _FILLED),
    ),
    model.ResourcesConfig: (("guaranteed", "Guaranteed", _FILLED), ("max", "Max", _FILLED)),
    model.ChildTemplateConfig: (
        ("max_applications", "MaxApplications", _FILLED),
        ("properties", "Properties", _FILLED),
        ("resources", "Resources", _PART),
    ),
    model.PlacementRuleConfig: (
        ("name", "Name", _ALWAYS),
        ("create", "Create", _FILLED),
        ("filter", "Filter", _PART),
        ("parent", "Parent", _FILLED),
        ("value", "Value", _FILLED),
    ),
    model.FilterConfig: (("type", "Type", _ALWAYS), ("users", "Users", _FILLED), ("groups", "Groups", _FILLED)),
    model.LimitConfig: (
        ("limit", "Limit", _ALWAYS),
        ("users", "Users", _FILLED),
        ("groups", "Groups", _FILLED),
        ("max_resources", "MaxResources", _FILLED),
        ("max_applications", "MaxApplications", _FILLED),
    ),
    model.PreemptionConfig: (
        ("enabled", "Enabled", _WRITTEN),
        ("quota_preemption_enabled", "QuotaPreemptionEnabled", _WRITTEN),
    ),
    model.NodeSortConfig: (("type", "Type", _ALWAYS), ("resource_weights", "ResourceWeights", _FILLED)),
    model.ResolverConfig: (("type", "type", _FILLED),),
}


def config_json(configuration: model.Configuration | None, extra: Mapping[str, str], deadlock: Deadlock) -> bytes:
    """The configuration in JSON; None before there is one.

    Raises:
        RequestError: a weight is a number that JSON does not have.
    """
    for partition in configuration.partitions if configuration else ():
        for kind, weight in partition.node_sort_policy.resource_weights.items():
            if not math.isfinite(weight):
                text = f"JSON has no number for the weight {_special(weight)} of {kind} in nodesortpolicy: ask for YAML"
                raise RequestError(500, text)
    return msgspec.json.encode(dict(_top(configuration, extra, deadlock, in_json=True)))


def config_yaml(configuration: model.Configuration | None, extra: Mapping[str, str], deadlock: Deadlock) -> bytes:
    """The configuration as YAML; None before there is one."""
    return yaml_text(dict(_top(configuration, extra, deadlock, in_json=False))).encode()


def _top(
    configuration: model.Configuration | None, extra: Mapping[str, str], deadlock: Deadlock, *, in_json: bool
) -> Iterator[tuple[str, Document]]:
    def key(name: str) -> str:
        return name if in_json else name.lower()

    if configuration is not None:
        yield key("Partitions"), [_part(partition, in_json=in_json) for partition in configuration.partitions]
        if configuration.checksum:
            yield key("Checksum"), configuration.checksum
        if extra:
            yield key("Extra"), _document(extra, in_json=in_json)
    yield key("DeadlockDetectionEnabled"), deadlock.enabled
    yield key("DeadlockTimeoutSeconds"), deadlock.timeout_s


def _part(part: msgspec.Struct, *, in_json: bool) -> dict[str, Document]:
    shown: dict[str, Document] = {}
    for attribute, key, when in _KEYS[type(part)]:
        value = getattr(part, attribute)
        if when is _ALWAYS or (when is _PART and in_json) or not _is_empty(value, when):
            shown[key if in_json else key.lower()] = _document(value, in_json=in_json)
    return shown


def _is_empty(value: object, when: _Shown = _FILLED) -> bool:
    if isinstance(value, msgspec.Struct):
        return all(_is_empty(getattr(value, attribute), inner) for attribute, _, inner in _KEYS[type(value)])
    return value is None or (when is not _WRITTEN and not value)


def _document(value: object, *, in_json: bool) -> Document:
    match value:
        case msgspec.Struct():
            return _part(value, in_json=in_json)
        case Mapping():
            return {str(key): _document(value[key], in_json=in_json) for key in sorted(value)}
        case tuple():
            return [_document(item, in_json=in_json) for item in value]
        case float() if value.is_integer() and in_json:
            return int(value)  # 1, not 1.0
        case str() | bool() | int() | float():
            return value
        case None:
            return []  # only a list of queues that was not written gets here
    raise TypeError(f"{type(value).__name__} in a configuration")


def _special(number: float) -> str:
    return "NaN" if math.isnan(number) else f"{'+' if number > 0 else '-'}Inf"
