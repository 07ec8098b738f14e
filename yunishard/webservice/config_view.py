"""Shows a configuration in force as `GET /ws/v1/config` does: JSON with capitalized keys, or YAML with lower-case keys.

The parsed configuration is shown in normal form, with quantities as they were written. JSON shows the parts of a part
even if nothing in them was written, YAML does not. The YAML layout is YuniKorn's. Rejected: PyYAML's `dump`, which
cannot indent lists so, and leaves texts unquoted that the parser of configurations (`common/config/parse.py`) reads as
numbers, such as `1e3`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from yunishard.common.config import model
from yunishard.webservice.views import RequestError

_Texts = Mapping[str, str]
Document = dict[str, "Document"] | list["Document"] | str | int | float | bool

_STEP: Final = 4
_PLAIN: Final = re.compile(r"[A-Za-z0-9_/.^$=+<;(-](?:[A-Za-z0-9_/.^$=+<>;()*@~!|%&,'\"?\[\]{}\\#-]| (?!#)|:(?! |$))*")
"""Texts whose first character begins no other YAML construct, without `: ` and ` #`."""

_READ_AS_OTHER: Final = re.compile(
    r"(?:[yn]|yes|no|on|off|true|false|null|~|<<|=|"
    r"[-+]?[.]?(?:inf|nan)|"
    r"[-+]?[.0-9][0-9_,.:]*(?:e[-+]?[0-9]+)?|"
    r"[-+]?0(?:b[01_]*|o[0-7_]*|x[0-9a-f_]*)|"
    r"[0-9]{4}-[0-9].*)?",
    re.IGNORECASE,
)
"""Texts that some YAML parser reads as a boolean, null, a number or a date; and the empty text."""

_NO_PLAIN_START: Final = re.compile(r"-(?:[ ]|-{2}|$)|[.]{3}")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def format_yaml(document: dict[str, Document]) -> str:
    """The document, a line break at the end of each line."""
    return "".join(f"{line}\n" for line in _format_map(document, 0))


def format_scalar(text: str) -> str:
    """A text as a scalar on one line: with double quotes if a parser would read another type, with single ones if it
    would be an error.
    """
    if not text.isprintable() or _READ_AS_OTHER.fullmatch(text):
        return '"' + "".join(_escape(character) for character in text) + '"'
    if _PLAIN.fullmatch(text) and not text.endswith(" ") and not _NO_PLAIN_START.match(text):
        return text
    return "'" + text.replace("'", "''") + "'"


def _format_map(entries: dict[str, Document], column: int) -> Iterator[str]:
    """The lines of a map whose keys begin at the column."""
    for key, value in entries.items():
        lead = f"{' ' * column}{format_scalar(key)}:"
        inner = (column // _STEP + 1) * _STEP
        match value:
            case dict() if value:
                yield lead
                yield from _format_map(value, inner)
            case list() if value:
                yield lead
                yield from _format_list(value, inner)
            case _:
                yield f"{lead} {_format_value(value)}"


def _format_list(items: list[Document], column: int) -> Iterator[str]:
    """The lines of a list whose dashes are at the column; a map begins on the line of its dash."""
    for item in items:
        match item:
            case dict() if item:
                first, *rest = _format_map(item, column + 2)
                yield f"{' ' * column}- {first.lstrip(' ')}"
                yield from rest
            case _:
                yield f"{' ' * column}- {_format_value(item)}"


def _format_value(value: Document) -> str:
    match value:
        case str():
            return format_scalar(value)
        case float():
            return _format_number(value)
    return msgspec.json.encode(value).decode()  # as in YAML; a map or list is empty


def _format_number(number: float) -> str:
    if math.isnan(number):
        return ".nan"
    if math.isinf(number):
        return ".inf" if number > 0 else "-.inf"
    return str(int(number)) if number.is_integer() else repr(number)


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    number = ord(character)
    return f"\\U{number:08X}" if number > 0xFFFF else f"\\u{number:04X}"


_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})
_SECONDS: Final = re.compile(r"[-+]?[0-9]{1,18}")

_ATTRIBUTES: Final[Mapping[type[msgspec.Struct], str]] = {
    model.PartitionConfig: "*name *queues placement_rules limits preemption node_sort_policy user_group_resolver",
    model.QueueConfig: "*name parent resources max_applications properties admin_acl submit_acl child_template queues"
    " limits",
    model.ResourcesConfig: "guaranteed max",
    model.ChildTemplateConfig: "max_applications properties resources",
    model.PlacementRuleConfig: "*name create filter parent value",
    model.FilterConfig: "*type users groups",
    model.LimitConfig: "*limit users groups max_resources max_applications",
    model.PreemptionConfig: "enabled quota_preemption_enabled",
    model.NodeSortConfig: "*type resource_weights",
    model.ResolverConfig: "type",
}
"""The attributes of each part, in the order of their keys; those with an asterisk are shown even if they are empty."""


def config_json(configuration: model.Configuration | None, extra: _Texts, environment: _Texts) -> bytes:
    """The configuration in JSON; None before there is one. Two keys come from the environment.

    Raises:
        RequestError: a weight is a number that JSON does not have.
    """
    for partition in configuration.partitions if configuration else ():
        for kind, weight in partition.node_sort_policy.resource_weights.items():
            if not math.isfinite(weight):
                number = "NaN" if math.isnan(weight) else f"{'+' if weight > 0 else '-'}Inf"
                text = f"JSON has no number for the weight {number} of {kind} in nodesortpolicy: ask for YAML"
                raise RequestError(500, text)
    return msgspec.json.encode(dict(_iterate_keys(configuration, extra, environment, in_json=True)))


def config_yaml(configuration: model.Configuration | None, extra: _Texts, environment: _Texts) -> bytes:
    """The configuration as YAML; None before there is one."""
    return format_yaml(dict(_iterate_keys(configuration, extra, environment, in_json=False))).encode()


def _iterate_keys(
    configuration: model.Configuration | None, extra: _Texts, environment: _Texts, *, in_json: bool
) -> Iterator[tuple[str, Document]]:
    def key(name: str) -> str:
        return name if in_json else name.lower()

    if configuration is not None:
        yield key("Partitions"), [_to_keys(partition, in_json=in_json) for partition in configuration.partitions]
        if configuration.checksum:
            yield key("Checksum"), configuration.checksum
        if extra:
            yield key("Extra"), _to_document(extra, in_json=in_json)
    # YuniKorn always shows these two; nothing here detects deadlocks
    seconds = environment.get("DEADLOCK_TIMEOUT_SECONDS", "")
    yield key("DeadlockDetectionEnabled"), environment.get("DEADLOCK_DETECTION_ENABLED", "") in _TRUE
    yield key("DeadlockTimeoutSeconds"), int(seconds) if _SECONDS.fullmatch(seconds) else 60


def _to_keys(part: msgspec.Struct, *, in_json: bool) -> dict[str, Document]:
    shown: dict[str, Document] = {}
    for name in _ATTRIBUTES[type(part)].split():
        attribute = name.removeprefix("*")
        value = getattr(part, attribute)
        is_part = in_json and isinstance(value, msgspec.Struct)
        if name.startswith("*") or is_part or not _is_empty(part, attribute):
            shown[_make_key(part, attribute, in_json=in_json)] = _to_document(value, in_json=in_json)
    return shown


def _make_key(part: msgspec.Struct, attribute: str, *, in_json: bool) -> str:
    """The key of an attribute: `placement_rules` is `PlacementRules` in JSON, and `placementrules` in YAML."""
    if not in_json or isinstance(part, model.ResolverConfig):
        return attribute.replace("_", "")
    return attribute.title().replace("_", "").replace("Acl", "ACL")


def _is_empty(part: msgspec.Struct, attribute: str) -> bool:
    """Whether an attribute is 0, false, without text or without entries; for preemption, false is a value."""
    value = getattr(part, attribute)
    if isinstance(value, msgspec.Struct):
        return all(_is_empty(value, name.removeprefix("*")) for name in _ATTRIBUTES[type(value)].split())
    return value is None or not (value or isinstance(part, model.PreemptionConfig))


def _to_document(value: object, *, in_json: bool) -> Document:
    match value:
        case msgspec.Struct():
            return _to_keys(value, in_json=in_json)
        case Mapping():
            return {str(key): _to_document(value[key], in_json=in_json) for key in sorted(value)}
        case tuple():
            return [_to_document(item, in_json=in_json) for item in value]
        case float() if value.is_integer() and in_json:
            return int(value)  # 1, not 1.0
        case str() | bool() | int() | float():
            return value
        case None:
            return []  # only a list of queues that was not written gets here
    raise TypeError(f"{type(value).__name__} in a configuration")
