"""Change limits of one queue in the text of a configuration, and leave the rest of the text as it is.

Operators write comments, and order and align what they write, so a change must not format the whole text. The text is
read as a tree of places: YAML events with the characters where they begin and end. Each value is then replaced,
inserted or removed at its place. At last the new text is parsed: unless it differs from the old one in exactly the
wanted values, the change is refused, for example where an anchor, an alias or a merge key gives a value to several
queues.

Rejected: ruamel.yaml, which writes the whole text again with one indentation and one style, and so changes other lines
in two thirds of the texts of the property test, even without a change of a value; for 3,000 queues it takes 2 s.

Not here: what the values mean (`common/config/validation.py` decides whether the new configuration is valid).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import yaml
from msgspec.structs import replace

from yunishard.common.config.model import Configuration, PartitionConfig, QueueConfig, ResourcesConfig, partition_name
from yunishard.common.config.parse import READER, is_null_text, parse_with_lines
from yunishard.common.config.problems import ConfigError
from yunishard.common.names import ROOT

INDENT: Final = 2
"""Columns by which inserted lines are indented below their key."""

_BOM: Final = "\ufeff"
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
"""Texts that need no quotes, as a key or as a value."""


class LimitChange(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a queue that change. Quantities are texts as in the file, by resource type; None removes one."""

    maximum: Mapping[str, str | None] = {}
    guaranteed: Mapping[str, str | None] = {}
    max_applications: int | None = None
    """None leaves it as it is; 0 is unlimited."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not self.maximum and not self.guaranteed and self.max_applications is None

    def edits(self) -> Iterator[tuple[tuple[str, ...], str | None]]:
        """Yield each value with its keys below the queue; None removes it."""
        for name, amounts in (("guaranteed", self.guaranteed), ("max", self.maximum)):
            for kind, amount in amounts.items():
                yield ("resources", name, kind), amount
        if self.max_applications is not None:
            yield ("maxapplications",), str(self.max_applications)


class EditError(ValueError):
    """The text cannot be changed in this way; the text of the error states the place and the reason."""


class QueueNotWrittenError(EditError):
    """The configuration does not define the queue."""


def edit_queue(text: str, partition: str, path: str, change: LimitChange) -> str:
    """Return the text of a valid configuration with the changed values of a queue.

    Raises:
        EditError: the queue is not in the text, or the values are written in a way that only a person can change.
        ConfigError: the text cannot be parsed.
    """
    before = parse_with_lines(text)[0]
    index = _find_partition(before, partition)
    names = path.lower().split(".")
    wanted = _replace_partition(before, index, _change_partition(before.partitions[index], names, change))
    mark, body = (_BOM, text.removeprefix(_BOM)) if text.startswith(_BOM) else ("", text)
    try:
        for keys, value in change.edits():
            body = _edit(body, index, names, keys, value)
        after = parse_with_lines(body)[0]
    except ConfigError as error:
        raise EditError(f"queue {path}: {_BY_HAND}: {error.problems[0]}") from None
    except yaml.YAMLError as error:  # an earlier edit has made the text invalid
        raise EditError(f"queue {path}: {_BY_HAND}: {error}") from None
    if _without_empty(after) != _without_empty(wanted):
        raise EditError(f"queue {path}: {_BY_HAND}: another value would change, too (an anchor, alias or merge key?)")
    return mark + body


_BY_HAND: Final = "edit the configuration by hand"


# The change of the parsed configuration -------------------------------------------------------------------------------


def _find_partition(configuration: Configuration, name: str) -> int:
    for index, one in enumerate(configuration.partitions):
        if partition_name(one) == name:
            return index
    raise QueueNotWrittenError(f"the configuration has no partition {name}")


def _replace_partition(configuration: Configuration, index: int, partition: PartitionConfig) -> Configuration:
    partitions = list(configuration.partitions)
    partitions[index] = partition
    return replace(configuration, partitions=tuple(partitions))


def _change_partition(partition: PartitionConfig, names: list[str], change: LimitChange) -> PartitionConfig:
    top = partition.queues or ()
    below = names if _has_root(top) else names[1:]
    if names[0] != ROOT or not below:
        reason = "the text leaves out the queue root, so it has no limits there"
        raise QueueNotWrittenError(reason if names[0] == ROOT else f"queue {'.'.join(names)} is not below {ROOT}")
    return replace(partition, queues=_change_queues(top, below, ".".join(names), change))


def _has_root(queues: tuple[QueueConfig, ...]) -> bool:
    return len(queues) == 1 and queues[0].name.lower() == ROOT


def _change_queues(
    queues: tuple[QueueConfig, ...], names: list[str], path: str, change: LimitChange
) -> tuple[QueueConfig, ...]:
    at = next((at for at, one in enumerate(queues) if one.name.lower() == names[0]), None)
    if at is None:
        raise QueueNotWrittenError(f"the configuration does not define queue {path}")
    found = queues[at]
    if len(names) > 1:
        found = replace(found, queues=_change_queues(found.queues, names[1:], path, change))
    else:
        resources = ResourcesConfig(
            guaranteed=_change_amounts(found.resources.guaranteed, change.guaranteed),
            max=_change_amounts(found.resources.max, change.maximum),
        )
        most = found.max_applications if change.max_applications is None else change.max_applications
        found = replace(found, resources=resources, max_applications=most)
    return (*queues[:at], found, *queues[at + 1 :])


def _change_amounts(amounts: Mapping[str, str] | None, change: Mapping[str, str | None]) -> Mapping[str, str]:
    merged = {**(amounts or {}), **change}
    return {kind: amount for kind, amount in merged.items() if amount is not None}


def _without_empty(configuration: Configuration) -> Configuration:
    """The configuration with missing and empty amounts alike, as they mean the same."""
    partitions = [
        replace(one, queues=None if one.queues is None else tuple(map(_fill_amounts, one.queues)))
        for one in configuration.partitions
    ]
    return replace(configuration, partitions=tuple(partitions))


def _fill_amounts(queue: QueueConfig) -> QueueConfig:
    resources = ResourcesConfig(guaranteed=queue.resources.guaranteed or {}, max=queue.resources.max or {})
    return replace(queue, resources=resources, queues=tuple(map(_fill_amounts, queue.queues)))


# Places ---------------------------------------------------------------------------------------------------------------


class _Place(msgspec.Struct, gc=False):
    """A value with its characters in the text; those of a block end with its last value, before comments."""

    kind: str
    """`scalar`, `alias`, `mapping` or `sequence`."""
    start: int
    end: int
    line: int
    column: int
    text: str = ""
    style: str = ""
    """The quote or block indicator of a scalar; empty for a plain one."""
    flow: bool = False
    opened: int = 0
    """Of a flow mapping: the character after its brace."""
    items: list["_Place"] = []
    entries: list[tuple["_Place", "_Place"]] = []

    @property
    def is_null(self) -> bool:
        return self.kind == "scalar" and not self.style and is_null_text(self.text)

    def find(self, key: str) -> tuple[int, "_Place"] | None:
        """The position and the value of one of its own entries."""
        for at, (name, value) in enumerate(self.entries):
            if name.kind == "scalar" and name.text == key:
                return at, value
        return None


def _read_places(text: str) -> _Place:
    """Read the first document of a text that was parsed before."""
    events = READER(text)
    while not isinstance(event := events.get_event(), yaml.NodeEvent):
        pass
    return _read_place(events, event)


def _read_place(events: yaml.CSafeLoader | yaml.SafeLoader, event: yaml.NodeEvent) -> _Place:
    start, end = event.start_mark, event.end_mark
    assert start is not None, event
    assert end is not None, event
    place = _Place("alias", start.index, end.index, start.line + 1, start.column)
    if isinstance(event, yaml.ScalarEvent):
        place.kind, place.text, place.style = "scalar", event.value, event.style or ""
    elif isinstance(event, yaml.CollectionStartEvent):
        parts = []
        while not isinstance(part := events.get_event(), yaml.CollectionEndEvent):
            assert isinstance(part, yaml.NodeEvent), part
            parts.append(_read_place(events, part))
        place.flow, place.opened = bool(event.flow_style), end.index
        if isinstance(event, yaml.MappingStartEvent):
            place.kind, place.entries = "mapping", list(zip(parts[::2], parts[1::2], strict=True))
        else:
            place.kind, place.items = "sequence", parts
        assert part.end_mark is not None, part
        place.end = part.end_mark.index if place.flow or not parts else parts[-1].end
    return place


def _find_queue(document: _Place, partition: int, names: list[str]) -> _Place:
    """Return the mapping of a queue of this partition."""
    partitions = _items_at(document, "partitions")
    top = _items_at(partitions[partition], "queues") if partition < len(partitions) else []
    has_root = len(top) == 1 and _name_of(top[0]) == ROOT
    found, queues = None, top
    for name in names if has_root else names[1:]:
        found = next((one for one in queues if _name_of(one) == name), None)
        if found is None:
            raise EditError(f"queue {'.'.join(names)}: {_BY_HAND}: it is written with an alias or a merge key")
        queues = _items_at(found, "queues")
    assert found is not None, names
    return found


def _items_at(place: _Place, key: str) -> list[_Place]:
    found = place.find(key)
    return [] if found is None else [one for one in found[1].items if not one.is_null]


def _name_of(queue: _Place) -> str:
    found = queue.find("name")
    return found[1].text.lower() if found is not None else ""


# Edits ----------------------------------------------------------------------------------------------------------------


def _edit(text: str, partition: int, names: list[str], keys: tuple[str, ...], value: str | None) -> str:
    """Replace, insert or remove one value below a queue."""
    place = _find_queue(_read_places(text), partition, names)
    for depth, key in enumerate(keys):
        found = place.find(key)
        if found is None:
            return text if value is None else _insert_entry(text, place, keys[depth:], value)
        at, inner = found
        if inner.kind == "alias":
            where = f"line {inner.line}: {'.'.join(keys[: depth + 1])}"
            raise EditError(f"{where} is an alias, which another place defines: {_BY_HAND}")
        if depth == len(keys) - 1:
            return _remove_entry(text, place, at) if value is None else _replace_value(text, inner, value)
        if inner.is_null:
            return text if value is None else _fill_null(text, place, at, keys[depth + 1 :], value)
        place = inner
    return text


def _replace_value(text: str, place: _Place, value: str) -> str:
    if place.kind != "scalar" or place.style in ("|", ">"):
        raise EditError(f"line {place.line}: the value is not written in one line: {_BY_HAND}")
    if place.text == value:
        return text
    quoted = f"{place.style}{value}{place.style}" if place.style and _PLAIN.fullmatch(value) else _write_scalar(value)
    space = " " if place.start == place.end and text[place.start - 1 : place.start] == ":" else ""
    return f"{text[: place.start]}{space}{quoted}{text[place.end :]}"


def _fill_null(text: str, parent: _Place, at: int, keys: tuple[str, ...], value: str) -> str:
    """Write entries in place of a missing mapping."""
    key, null = parent.entries[at]
    if parent.flow or null.start != null.end:
        space = " " if null.start == null.end else ""
        return f"{text[: null.start]}{space}{{{_write_flow(keys, value)}}}{text[null.end :]}"
    return _insert_lines(text, null.end, key.column + INDENT, keys, value)


def _insert_entry(text: str, mapping: _Place, keys: tuple[str, ...], value: str) -> str:
    """Add an entry to a mapping: before the queues below it, otherwise as the last one."""
    if mapping.kind != "mapping":
        raise EditError(f"line {mapping.line}: expected a mapping: {_BY_HAND}")
    entries = mapping.entries
    if mapping.flow:
        if not entries:
            return f"{text[: mapping.opened]}{_write_flow(keys, value)}{text[mapping.opened :]}"
        end = entries[-1][1].end
        return f"{text[:end]}, {_write_flow(keys, value)}{text[end:]}"
    queues = mapping.find("queues")
    last = entries[queues[0] - 1] if queues is not None and queues[0] > 0 else entries[-1]
    return _insert_lines(text, last[1].end, entries[0][0].column, keys, value)


def _insert_lines(text: str, after: int, column: int, keys: tuple[str, ...], value: str) -> str:
    """Insert nested keys as lines after the line of this character."""
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [f"{' ' * (column + INDENT * depth)}{_write_scalar(key)}:" for depth, key in enumerate(keys)]
    added = newline.join(lines) + f" {_write_scalar(value)}"
    if text[after - 1 : after] == "\n":  # a block scalar ends with its line
        return f"{text[:after]}{added}{newline}{text[after:]}"
    end = text.find("\n", after)
    if end < 0:
        return f"{text}{newline}{added}"
    return f"{text[: end + 1]}{added}{newline}{text[end + 1 :]}"


def _remove_entry(text: str, mapping: _Place, at: int) -> str:
    """Remove an entry of a mapping, with the comment in its line."""
    key, value = mapping.entries[at]
    if mapping.flow:
        if at + 1 < len(mapping.entries):
            return text[: key.start] + text[mapping.entries[at + 1][0].start :]
        start = mapping.entries[at - 1][1].end if at else key.start
        return text[:start] + text[value.end :]
    start = text.rfind("\n", 0, key.start) + 1
    if text[start : key.start].strip(" "):
        raise EditError(f"line {key.line}: the first entry of a list item cannot be removed: {_BY_HAND}")
    end = text.find("\n", value.end)
    return text[:start] + ("" if end < 0 else text[end + 1 :])


def _write_flow(keys: tuple[str, ...], value: str) -> str:
    nested = f"{_write_scalar(keys[-1])}: {_write_scalar(value)}"
    for key in reversed(keys[:-1]):
        nested = f"{_write_scalar(key)}: {{{nested}}}"
    return nested


def _write_scalar(value: str) -> str:
    """Write a text plain if it needs no quotes, otherwise in double quotes."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    parts = (one if one.isprintable() else "\\U" + format(ord(one), "08x") for one in escaped)
    return '"' + "".join(parts) + '"'
