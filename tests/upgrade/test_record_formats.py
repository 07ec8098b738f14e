"""The present release reads every record, step and snapshot head that an earlier one wrote, to the same values.

`records.jsonl` has examples: their bytes, and the values that they decode to without fields that have their default.
After a field or a kind of record was added, append examples with it. The lines of earlier releases never change.

    RECORDS=append .venv/bin/python -m pytest tests/upgrade/test_record_formats.py
"""

import json
import os
from base64 import b64decode, b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from zlib import crc32

import msgspec
import pytest
from msgspec import NODEFAULT, Raw, Struct
from msgspec.structs import FieldInfo, fields

from yunishard.common.messages.journal_messages import Step
from yunishard.partition_worker.engine.durable_records import AnyRecord, decode_records, kind_of
from yunishard.partition_worker.recovery import SnapshotHead

FILE = Path(__file__).parent / "records.jsonl"
KINDS = {kind_of(kind): kind for kind in get_args(AnyRecord)}
ROOTS: dict[str, type[Struct]] = {**KINDS, "Step": Step, "SnapshotHead": SnapshotHead}
"""What a journal holds, by name."""


class Example(NamedTuple):
    """A line of the file."""

    kind: str
    encoded: bytes
    value: object

    def decode(self) -> Struct:
        if self.kind not in KINDS:
            found: Struct = msgspec.msgpack.decode(self.encoded, type=ROOTS[self.kind])
            return found
        (record,) = decode_records(b"\x91" + self.encoded)
        assert type(record) is KINDS[self.kind]
        return record


def read_examples() -> list[Example]:
    lines = FILE.read_text(encoding="ascii").splitlines() if FILE.exists() else []
    return [Example(one["kind"], b64decode(one["encoded"]), one["value"]) for one in map(json.loads, lines)]


# Values and types -----------------------------------------------------------------------------------------------------


def find_default(field: FieldInfo) -> object:
    """The default of a field; NODEFAULT if it has none."""
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


def as_plain(value: object) -> object:
    """A value in the types of JSON; structs as their fields that do not have their default, by name in the format."""
    match value:
        case Struct():
            named = ((field, getattr(value, field.name)) for field in fields(value))
            return {field.encode_name: as_plain(one) for field, one in named if one != find_default(field)}
        case Mapping():
            return {key: as_plain(one) for key, one in value.items()}
        case list() | tuple():
            return [as_plain(one) for one in value]
        case Raw():
            return as_plain(msgspec.msgpack.decode(value))
        case bytes():
            return value.hex()
    return value


def find_structs(value: object) -> Iterator[Struct]:
    """All structs in a value."""
    match value:
        case Struct():
            yield value
            for field in fields(value):
                yield from find_structs(getattr(value, field.name))
        case Mapping():
            for one in value.values():
                yield from find_structs(one)
        case list() | tuple():
            for one in value:
                yield from find_structs(one)


def find_types(wanted: Any, seen: dict[type[Struct], None]) -> None:
    """Add all types of structs that values of a type may contain."""
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        if wanted not in seen:
            seen[wanted] = None
            for field in fields(wanted):
                find_types(field.type, seen)
    else:
        for one in get_args(wanted):
            find_types(one, seen)


def find_missing(examples: list[Example]) -> dict[type[Struct], set[str]]:
    """The fields that no example sets, by type."""
    wanted: dict[type[Struct], None] = {}
    for root in ROOTS.values():
        find_types(root, wanted)
    known: defaultdict[type[Struct], set[str]] = defaultdict(set)
    for example in examples:
        for one in find_structs(example.decode()):
            known[type(one)] |= {field.name for field in fields(one) if getattr(one, field.name) != find_default(field)}
    missing = {kind: {field.name for field in fields(kind)} - known.get(kind, set()) for kind in wanted}
    return {kind: names for kind, names in missing.items() if names or kind not in known}


def make_example(wanted: Any, default: object, within: tuple[type[Struct], ...], name: str) -> Any:
    """A value of a type that is not the default."""
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        return make_example(inner[0], default, within, name)
    if origin in (Union, UnionType):
        return make_example(next(one for one in inner if one is not type(None)), default, within, name)
    if origin is Literal:
        return next(one for one in reversed(inner) if one != default)
    if origin is tuple and inner[-1] is not Ellipsis:
        return tuple(make_example(one, None, within, name) for one in inner)
    if origin in (list, tuple):
        return origin([make_example(inner[0], None, within, name)])
    if origin is not None:  # a mapping
        return {make_example(inner[0], None, within, name): make_example(inner[1], None, within, name)}
    if wanted is Raw:
        return Raw(msgspec.msgpack.encode([make_struct(KINDS["Node"])]))
    if issubclass(wanted, Struct):
        return make_struct(wanted, within)
    number = 1 + crc32(name.encode()) % 120  # each field has another one, in case two of them change places
    values = {str: name, int: number, float: number + 0.5, bool: default is not True, bytes: b"\x80"}
    return values[wanted]


def make_struct(kind: type[Struct], within: tuple[type[Struct], ...] = ()) -> Struct:
    """A struct with all fields set, except those for structs that it is in."""
    values: dict[str, Any] = {}
    for field in fields(kind):
        inside: dict[type[Struct], None] = {}
        find_types(field.type, inside)
        if kind not in within or kind not in inside:
            values[field.name] = make_example(field.type, find_default(field), (*within, kind), field.name)
    return kind(**values)


def append_examples(names: list[str]) -> None:
    """Append an example of each of these kinds."""
    with FILE.open("a", encoding="ascii") as file:
        for name in names:
            made = make_struct(ROOTS[name])
            encoded = b64encode(msgspec.msgpack.encode(made)).decode()
            file.write(json.dumps({"kind": name, "encoded": encoded, "value": as_plain(made)}) + "\n")


# Tests ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", read_examples(), ids=lambda one: one.kind)
def test_an_example_decodes_to_its_values(example: Example) -> None:
    assert as_plain(example.decode()) == example.value


@pytest.mark.parametrize("example", read_examples(), ids=lambda one: one.kind)
def test_fields_of_a_later_release_are_ignored(example: Example) -> None:
    later = msgspec.msgpack.decode(example.encoded)
    if isinstance(later, dict):
        later["added_later"] = 1
    else:
        later[_index_of("told")] = [[*sent, "added later"] for sent in later[_index_of("told")]]
        later.append("added later")
    assert as_plain(example._replace(encoded=msgspec.msgpack.encode(later)).decode()) == example.value


def _index_of(name: str) -> int:
    return Step.__struct_fields__.index(name)


def test_every_field_of_every_kind_has_an_example() -> None:
    missing = find_missing(read_examples())
    if missing and os.environ.get("RECORDS") == "append":
        append_examples([name for name, root in ROOTS.items() if _contains(root, missing)])
        missing = find_missing(read_examples())
    assert missing == {}


def _contains(root: type[Struct], kinds: Mapping[type[Struct], object]) -> bool:
    found: dict[type[Struct], None] = {}
    find_types(root, found)
    return not found.keys().isdisjoint(kinds)
