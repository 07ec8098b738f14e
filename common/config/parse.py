"""Parse `queues.yaml` text into the typed configuration, with the line of every value.

The types of `model.py` are the schema: `_Parser` walks the YAML nodes along them, records lines and collects every
unknown key and every value of the wrong type, then `msgspec.convert` builds the configuration. `validation.py` decides
whether the values make sense together.

Single values follow the rules of the YAML library that YuniKorn uses, a mixture of YAML 1.1 and 1.2 that PyYAML's own
constructors do not share (`1e3`, `0o17`, a quoted "on").
"""

import base64
import re
from functools import cache
from typing import Final

import msgspec
from msgspec.inspect import (
    BoolType,
    DictType,
    Field,
    FloatType,
    IntType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
)

from common.config.model import Configuration
from common.config.problems import ConfigError, Lines, Problem, Report, under
from common.config.yaml_nodes import TEXT_BYTES_MAX, VALUES_MAX, Mapping, Node, Scalar, Sequence, compose, refuse

UINT64_MAX: Final = 2**64 - 1

_TEXT_SHOWN_MAX: Final = 60  # characters of a wrong value that a message repeats
_NUMBER_LENGTH_MAX: Final = 400  # characters; Python refuses to convert numbers of thousands of digits

_MERGE: Final = "<<"
_TAG: Final = "tag:yaml.org,2002:"


def parse(text: str) -> Configuration:
    """Return the configuration as it is written, without a checksum; raises ConfigError with every problem."""
    configuration, _ = parse_with_lines(text)
    return configuration


def parse_with_lines(text: str) -> tuple[Configuration, Lines]:
    """As `parse`, with the line of each value, for problems that are found later.

    A text without a document, or with the document null, is a configuration without partitions.
    """
    document = compose(text.removeprefix("\ufeff"))
    if document is None or is_null(document):
        return Configuration(), {}
    parser = _Parser()
    plain = parser.read(document, _type_of(Configuration), "")
    if parser.report.problems:
        raise ConfigError(sorted(parser.report.problems, key=lambda problem: problem.line))
    # The checksum is computed from the text; the key may be there, but its value does not count.
    return msgspec.structs.replace(msgspec.convert(plain, Configuration), checksum=""), parser.lines


@cache
def _type_of(cls: type[msgspec.Struct]) -> Type:
    return msgspec.inspect.type_info(cls)


@cache
def _keys_of(cls: type[msgspec.Struct]) -> dict[str, Type]:
    """The keys of a mapping in the file, with their types."""
    kind = _type_of(cls)
    assert isinstance(kind, StructType)
    return {field.encode_name: _type_without_none(field) for field in kind.fields}


def _type_without_none(field: Field) -> Type:
    if isinstance(field.type, UnionType):
        return next(kind for kind in field.type.types if not isinstance(kind, msgspec.inspect.NoneType))
    return field.type


class _Parser:
    """Turns YAML nodes into plain values. A value with a problem, or null, is left out, and the rest is still read."""

    def __init__(self) -> None:
        self.report = Report()
        self.lines: dict[str, int] = {}
        self._values = 0
        self._characters = 0

    def read(self, node: Node, kind: Type, path: str) -> object:
        """The plain value of a node that is not null, or None after a problem was reported."""
        match kind:
            case StrType():
                return self._text(node, path)
            case StructType():
                return self._mapping(node, kind, path)
            case VarTupleType():
                return self._list(node, kind.item_type, path)
            case DictType():
                return self._free_mapping(node, kind.value_type, path)
            case BoolType():
                return self._flag(node, path)
            case IntType():
                return self._whole_number(node, path)
            case FloatType():
                return self._number(node, path)
        raise TypeError(f"{path}: a configuration has no values of the type {kind}")

    def _mapping(self, node: Node, kind: StructType, path: str) -> dict[str, object] | None:
        """A mapping with the keys of a struct; other keys are reported."""
        if not isinstance(node, Mapping):
            self._wrong(node, path, "is not a mapping")
            return None
        entries = self._entries(node, path)
        keys = _keys_of(kind.cls)
        found: dict[str, object] = {}
        for name, key_type in keys.items():
            if name in entries:
                key, value = entries[name]
                at = under(path, name)
                self.lines[at] = key.line
                read = None if is_null(value) else self.read(value, key_type, at)
                if read is not None:
                    found[name] = read
        for name, (key, _) in entries.items():
            if name not in keys:
                near = name.lower().replace("_", "").replace("-", "")
                hint = f"did you mean {near}" if near in keys else f"known are {', '.join(keys)}"
                self._note(key, under(path, _cut(name)), f"unknown key {_shown(key)}", hint=hint)
        return found

    def _list(self, node: Node, kind: Type, path: str) -> list[object] | None:
        """The items of a list; null items are left out and do not count in the paths."""
        if not isinstance(node, Sequence):
            self._wrong(node, path, "is not a list")
            return None
        found: list[object] = []
        index = 0
        for item in node.items:
            self._count(item)
            if is_null(item):
                continue
            at = f"{path}[{index}]"
            index += 1
            self.lines[at] = item.line
            read = self.read(item, kind, at)
            if read is not None:
                found.append(read)
        return found

    def _free_mapping(self, node: Node, kind: Type, path: str) -> dict[str, object] | None:
        """A mapping with any keys. A null value is the empty text, or the number 0."""
        if not isinstance(node, Mapping):
            self._wrong(node, path, "is not a mapping")
            return None
        found: dict[str, object] = {}
        for name, (key, value) in self._entries(node, path).items():
            at = f"{path}.{name}"
            self.lines[at] = key.line
            if is_null(value):
                found[name] = 0.0 if isinstance(kind, FloatType) else ""
            else:
                read = self.read(value, kind, at)
                if read is not None:
                    found[name] = read
        return found

    def _text(self, node: Node, path: str) -> str | None:
        if isinstance(node, Scalar) and not node.tag:
            return node.text
        text = as_text(node) if isinstance(node, Scalar) else None
        if text is None:
            kind = node.tag.rpartition(":")[2] if isinstance(node, Scalar) else "text"
            self._wrong(node, path, f"is not a {kind}")
        return text

    def _flag(self, node: Node, path: str) -> bool | None:
        value = as_bool(node) if isinstance(node, Scalar) else None
        if value is None:
            self._wrong(node, path, "is neither true nor false")
        return value

    def _whole_number(self, node: Node, path: str) -> int | None:
        value = as_unsigned(node) if isinstance(node, Scalar) else None
        if value is None:
            self._wrong(node, path, f"is not a whole number from 0 to {UINT64_MAX}", hint=_unquoted(node))
        return value

    def _number(self, node: Node, path: str) -> float | None:
        value = as_float(node) if isinstance(node, Scalar) else None
        if value is None:
            self._wrong(node, path, "is not a number", hint=_unquoted(node))
        return value

    def _entries(self, node: Mapping, path: str) -> dict[str, tuple[Scalar, Node]]:
        """The entries of a mapping by key: its own, then what its merge key adds, which never replaces anything."""
        own: dict[str, tuple[Scalar, Node]] = {}
        merge_key: Scalar | None = None
        merged: list[Node] = []
        for key, value in node.entries:
            self._count(key, value)
            if not isinstance(key, Scalar):
                self._wrong(key, path, "is not a key")
                continue
            name = key.text
            first = own[name][0] if name in own else merge_key if name == _MERGE else None
            if first is not None:
                self._wrong(key, under(path, _cut(name)), f"is already defined at line {first.line}", noun="key ")
            elif name == _MERGE and (key.plain or key.tag == _TAG + "merge"):
                merge_key = key
                merged = value.items if isinstance(value, Sequence) else [value]
            else:
                own[name] = (key, value)
        for source in merged:
            self._count(source)
            if not isinstance(source, Mapping):
                self._wrong(source, path, "cannot be merged", hint="<< takes a mapping or a list of them")
                continue
            for name, entry in self._entries(source, path).items():
                own.setdefault(name, entry)
        return own

    def _count(self, *nodes: Node) -> None:
        """Count visited nodes against the bounds: a small text with aliases to aliases can expand to billions."""
        for node in nodes:
            self._values += 1
            if isinstance(node, Scalar):
                self._characters += len(node.text)
        if self._values > VALUES_MAX:
            refuse(f"aliases expand to more than {VALUES_MAX} values", line=nodes[-1].line)
        if self._characters > TEXT_BYTES_MAX:
            refuse(f"aliases expand to more than {TEXT_BYTES_MAX} characters", line=nodes[-1].line)

    def _wrong(self, node: Node, path: str, message: str, *, noun: str = "", hint: str = "") -> None:
        """Report a problem with a node, which the message names."""
        self._note(node, path, f"{noun}{_shown(node)} {message}", hint=hint)

    def _note(self, node: Node, path: str, message: str, *, hint: str) -> None:
        self.report.note(Problem(line=node.line, path=path, message=message, kind="parse", hint=hint))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN_MAX else f"{text[:_TEXT_SHOWN_MAX]}..."


def _shown(node: Node) -> str:
    """How a message names a value."""
    if isinstance(node, Scalar):
        return f"'{_cut(node.text)}'"
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _unquoted(node: Node) -> str:
    """The hint for a number in quotes."""
    is_quoted = isinstance(node, Scalar) and not node.plain and node.text.isdigit()
    return "a number stands without quotes" if is_quoted else ""


# Single values: None if the text is not of the wanted type ------------------------------------------------------------

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# Words of YAML 1.1, which count even when they are quoted.
_WORDS: Final = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_INTEGER: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9][0-9]*))"
)
_BASES: Final = {"x": 16, "b": 2, "o": 8, "d": 10}
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOATS: Final = {
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}


def is_null(node: Node) -> bool:
    """Whether no value was written: an empty value, `~`, or one of the words for null, not quoted."""
    return isinstance(node, Scalar) and node.text in _NULLS and (node.plain or node.tag == _TAG + "null")


def as_text(scalar: Scalar) -> str | None:
    """Return the text as it was written; a tag may promise what the text is not, or that it is binary."""
    kind = scalar.tag.removeprefix(_TAG)
    number = msgspec.structs.replace(scalar, plain=True, tag="")
    match kind:
        case "int" if _integer(number) is None:
            return None
        case "float" if as_float(number) is None:
            return None
        case "bool" if scalar.text not in _BOOLS:
            return None
        case "null" if scalar.text not in _NULLS:
            return None
        case "binary":
            return _decoded(scalar.text)
    return scalar.text


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except ValueError:
        return None


def as_bool(scalar: Scalar) -> bool | None:
    """Return the truth value; `true` and `false` count only when they are not quoted."""
    if _is_bare(scalar, "bool") and scalar.text in _BOOLS:
        return _BOOLS[scalar.text]
    return _WORDS.get(scalar.text)


def as_unsigned(scalar: Scalar) -> int | None:
    """Return the number of 0 to 2^64-1; a fraction is cut off, a negative number has no meaning."""
    number = _integer(scalar) if _is_bare(scalar, "int", "float") else None
    if number is None and (fraction := as_float(scalar)) is not None and 0 <= fraction <= UINT64_MAX:
        number = int(fraction)
    return number if number is not None and 0 <= number <= UINT64_MAX else None


def as_float(scalar: Scalar) -> float | None:
    """Return the number, which may be infinite or not a number."""
    if not _is_bare(scalar, "float", "int"):
        return None
    if scalar.text in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[scalar.text]
    whole = _integer(scalar)
    if whole is not None and abs(whole) <= UINT64_MAX:
        return float(whole)
    text = _digits(scalar)
    number = float(text) if _FLOAT.fullmatch(text) else None
    return None if number in (float("inf"), float("-inf")) else number


def _integer(scalar: Scalar) -> int | None:
    match = _INTEGER.fullmatch(_digits(scalar))
    if match is None or match.lastgroup is None:
        return None
    number = int(match.group(match.lastgroup), _BASES[match.lastgroup])
    return -number if match.group("sign") == "-" else number


def _digits(scalar: Scalar) -> str:
    """Return the text without the separators that may stand anywhere behind the first digit, or nothing if too long."""
    if scalar.text.startswith("_") or len(scalar.text) > _NUMBER_LENGTH_MAX:
        return ""
    return scalar.text.replace("_", "")


def _is_bare(scalar: Scalar, *kinds: str) -> bool:
    """Whether the value was written without quotes, or with a tag that names one of the kinds."""
    return scalar.plain or any(scalar.tag == _TAG + kind for kind in kinds)
