"""Parse `queues.yaml` text into the typed configuration, with the line of every value.

First PyYAML's events are composed to a tree of nodes, within bounds that keep hostile text harmless. PyYAML's own
composer is not used: it reads past the first document, and recurses as deep as the text is nested (libyaml's without a
check). Then `_Parser` walks the nodes along the types of `model.py`, records lines, and collects every unknown key and
every value of the wrong type. `msgspec.convert` builds the configuration from the result; `validation.py` decides
whether the values make sense together.

Single values follow the rules of the YAML library that YuniKorn uses, a mixture of YAML 1.1 and 1.2 that PyYAML's own
constructors do not share (`1e3`, `0o17`, a quoted "on").
"""

import base64
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from typing import Final, NoReturn

import msgspec
import yaml
from msgspec import inspect

from yunishard.common.config.model import Configuration
from yunishard.common.config.problems import UNKNOWN_LINE, ConfigError, Lines, Problem, Report, under

TEXT_BYTES_MAX: Final = 16 * 1024 * 1024
VALUES_MAX: Final = 1_000_000
"""Values in a text whose aliases are expanded."""

DEPTH_MAX: Final = 128
"""Nested mappings and lists; a level of queues takes two."""

UINT64_MAX: Final = 2**64 - 1

Reader = type[yaml.CSafeLoader] | type[yaml.SafeLoader]
"""Converts a text to events: libyaml or PyYAML's own reader."""

# libyaml is ten times as fast, and YuniKorn's reader derives from it. PyYAML may be installed without it; its own
# reader accepts the same texts, except for rare ones such as a tab before a comment.
READER: Final[Reader] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader

_TEXT_SHOWN_MAX: Final = 60  # characters of a wrong value that a message repeats
_NUMBER_LENGTH_MAX: Final = 400  # characters; Python refuses to convert numbers of thousands of digits
_NEARNESS_MIN: Final = 0.75  # ratio of difflib from which on an unknown key is a probable misspelling
_COMPARED_MAX: Final = 64  # characters of an unknown key that are compared
_MERGE: Final = "<<"
_TAG: Final = "tag:yaml.org,2002:"


def parse_with_lines(text: str) -> tuple[Configuration, Lines]:
    """Return the configuration as it is written, without a checksum, and the line of each value for problems that are
    found later. Raises ConfigError with every problem.

    A text without a document, or with the document null, is a configuration without partitions.
    """
    document = compose(text.removeprefix("\ufeff"))
    if document is None or is_null(document):
        return Configuration(), {}
    parser = _Parser()
    plain = parser.read(document, msgspec.inspect.type_info(Configuration), "")
    if parser.report.problems:
        raise ConfigError(sorted(parser.report.problems, key=lambda problem: problem.line))
    # The checksum is computed from the text; the key may be there, but its value does not count.
    return msgspec.structs.replace(msgspec.convert(plain, Configuration), checksum=""), parser.lines


# YAML nodes -----------------------------------------------------------------------------------------------------------


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """A single value. `plain`: neither quoted nor tagged, so that its text decides its type.

    A large text has hundreds of thousands of nodes. No node contains itself, so the garbage collector may skip them.
    """

    line: int  # 1-based, as in all nodes
    text: str
    plain: bool
    tag: str  # as written, in full; empty if none


class Sequence(msgspec.Struct, frozen=True, gc=False):
    """A list."""

    line: int
    items: list["Scalar | Sequence | Mapping"]


class Mapping(msgspec.Struct, frozen=True, gc=False):
    """A mapping, its keys in the order of the text, with merge keys (`<<`) and repeated keys."""

    line: int
    entries: list[tuple["Scalar | Sequence | Mapping", "Scalar | Sequence | Mapping"]]


Node = Scalar | Sequence | Mapping

_Target = tuple[Node, int, int, int]
"""A node with an anchor, its height, and its values and characters with those below it."""


def compose(text: str, *, reader: Reader = READER) -> Node | None:
    """Return the first document of the text, None if there is none. The rest of the text is not read.

    An alias becomes the node that it names, so nodes may be shared, but a node never contains itself. Raises
    ConfigError with one problem of kind `parse`.
    """
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        _refuse("the text is not valid Unicode", line=text.count("\n", 0, error.start) + 1)
    if size > TEXT_BYTES_MAX:
        _refuse(f"the text has {size} bytes, a configuration may have at most {TEXT_BYTES_MAX}")
    try:
        events = reader(text)
        while not isinstance(event := events.get_event(), yaml.NodeEvent | yaml.StreamEndEvent):
            pass
        document = _Composer(events).compose(event)[0] if isinstance(event, yaml.NodeEvent) else None
        events.get_event()  # the end of the document, which raises if invalid text follows directly
    except yaml.YAMLError as error:
        raise _describe_syntax_error(error, text, reader) from error
    return document


def _refuse(message: str, *, line: int = UNKNOWN_LINE, hint: str = "") -> NoReturn:
    """Refuse the whole text."""
    raise ConfigError([Problem(line=line, message=message, kind="parse", hint=hint)])


class _Composer:
    """Composes events to nodes. Large texts spend most of their time here."""

    def __init__(self, events: yaml.CSafeLoader | yaml.SafeLoader) -> None:
        self._events = events
        self._anchors: dict[str, _Target | None] = {}  # None while the node is composed
        self._values = 0  # an alias counts as what it names: a small text could expand to billions
        self._characters = 0

    def compose(self, event: object, depth: int = 0) -> tuple[Node, int]:
        """Return the node that begins with this event below `depth` others, and its height: the lists and mappings at
        and below it.
        """
        assert isinstance(event, yaml.NodeEvent)
        line = event.start_mark.line + 1 if event.start_mark else UNKNOWN_LINE
        before = self._values, self._characters
        if isinstance(event, yaml.AliasEvent):
            node, height, values, characters = self._find_target(event.anchor or "", line)
            self._check_depth(depth + height, node.line)
            self._values += values
            self._characters += characters
        else:
            self._values += 1
            if isinstance(event, yaml.ScalarEvent):
                tag = "" if event.tag in (None, "!") else event.tag
                node, height = Scalar(line, event.value, not event.style and not tag, tag), 0
                self._characters += len(event.value)
            else:
                if event.anchor is not None:
                    self._anchors[event.anchor] = None
                self._check_depth(depth + 1, line)
                node, height = self._compose_parts(event, line, depth + 1)
            if event.anchor is not None:
                self._anchors[event.anchor] = (node, height, self._values - before[0], self._characters - before[1])
        if self._values > VALUES_MAX:
            _refuse(f"the text and its aliases expand to more than {VALUES_MAX} values", line=line)
        if self._characters > TEXT_BYTES_MAX:
            _refuse(f"the text and its aliases expand to more than {TEXT_BYTES_MAX} characters", line=line)
        return node, height

    def _compose_parts(self, start: yaml.NodeEvent, line: int, depth: int) -> tuple[Sequence | Mapping, int]:
        """Compose a list or mapping whose start was read."""
        parts, height = [], 0
        while not isinstance(event := self._events.get_event(), yaml.CollectionEndEvent):
            part, part_height = self.compose(event, depth)
            parts.append(part)
            height = max(height, part_height)
        if isinstance(start, yaml.SequenceStartEvent):
            return Sequence(line, parts), height + 1
        return Mapping(line, list(zip(parts[::2], parts[1::2], strict=True))), height + 1

    def _find_target(self, anchor: str, line: int) -> _Target:
        if anchor not in self._anchors:
            _refuse(f"unknown anchor '{anchor}' referenced", line=line, hint=explain_special("*"))
        target = self._anchors[anchor]
        if target is None:
            _refuse(f"anchor '{anchor}' value contains itself", line=line)
        return target

    def _check_depth(self, depth: int, line: int) -> None:
        if depth > DEPTH_MAX:
            _refuse(f"values are nested more than {DEPTH_MAX} levels deep", line=line)


# Hints for texts that are not YAML ------------------------------------------------------------------------------------

_SPECIAL: Final = {"*": "an alias", "&": "an anchor", "!": "a tag", "%": "a directive", "@": "", "`": ""}
"""Characters that cannot begin a value without quotes, and what YAML reads instead, if anything."""

_COLUMNS: Final = "wrong indentation? What belongs together begins in the same column"
_HINTS: Final = {
    "mapping values are not allowed": "wrong indentation, or a value with `: ` in it that must be quoted?",
    "simple key": "a key without `:`, or wrong indentation, here or in the line before?",
    "parsing a flow": "a `]`, `}` or `,` is missing, here or further up",
    "block mapping": _COLUMNS,
    "block collection": _COLUMNS,
}
"""Part of a reader's message to the probable cause."""


def _describe_syntax_error(error: yaml.YAMLError, text: str, reader: Reader) -> ConfigError:
    line, message, hint = UNKNOWN_LINE, str(error), ""
    if isinstance(error, yaml.MarkedYAMLError):
        message = " ".join(part for part in (error.context, error.problem) if part)
        if mark := error.problem_mark or error.context_mark:
            line = mark.line + 1
            lines = text.splitlines()
            hint = _find_hint(message, lines[mark.line] if mark.line < len(lines) else "", mark.column)
    elif isinstance(error, yaml.reader.ReaderError):
        # libyaml counts bytes, PyYAML's own reader characters.
        before = text.encode()[: error.position] if reader is not yaml.SafeLoader else text[: error.position].encode()
        line, message = before.count(b"\n") + 1, error.reason
    line = min(line, text.count("\n") + 1)  # a text that ends too early has its problem in the last line, not after it
    return ConfigError([Problem(line=line, message=f"this is not YAML: {message}", kind="parse", hint=hint)])


def _find_hint(message: str, here: str, column: int) -> str:
    """Return the probable cause of a reader's message about a column (from 0) of the line `here`; empty if unknown."""
    near = here[max(column - 1, 0) : column + 1][::-1]  # an alias begins right before the column
    first_special = next((character for character in near if character in _SPECIAL), "")
    is_quoted = "quoted scalar" in message
    is_tab_indented = "\t" in here[: len(here) - len(here.lstrip())] and not is_quoted
    if is_tab_indented or ("\t" in here and "tab" in message):
        return "a tab is used for indentation: YAML is indented with spaces only"
    if any(part in message for part in ("cannot start any token", "scanning an alias", "scanning an anchor")):
        return explain_special(first_special)
    if is_quoted and "found unexpected end of stream" in message:
        return "a quote that was opened further up is not closed"
    if "block mapping" in message and here[:column].rstrip().endswith(("'", '"')):
        return "a value that begins with a quote ends with the next one: quote all of it"
    return next((hint for part, hint in _HINTS.items() if part in message), "")


def explain_special(character: str) -> str:
    """Return the hint for a value that begins with this character; empty if a value may begin with it."""
    if character not in _SPECIAL:
        return ""
    meaning = f": without quotes it is {_SPECIAL[character]}" if _SPECIAL[character] else ""
    return f"a value that begins with {character} must be quoted{meaning}"


# Nodes to typed values ------------------------------------------------------------------------------------------------


@cache
def _keys_of(cls: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    """The keys of a mapping in the file, with their types; a null value is left out, so None is not among them."""
    info = msgspec.inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {
        field.encode_name: next(kind for kind in field.type.types if not isinstance(kind, inspect.NoneType))
        if isinstance(field.type, inspect.UnionType)
        else field.type
        for field in info.fields
    }


class _Parser:
    """Converts nodes to plain values. A null, or a value with a problem, is left out, and the rest is still read."""

    def __init__(self) -> None:
        self.report = Report()
        self.lines: dict[str, int] = {}

    def read(self, node: Node, kind: inspect.Type, path: str) -> object:
        """The plain value of a node that is not null, or None after a problem was reported."""
        value: object = None
        match node, kind:
            case Mapping(), inspect.StructType():
                return self._mapping(node, kind, path)
            case Sequence(), inspect.VarTupleType():
                return self._list(node, kind.item_type, path)
            case Mapping(), inspect.DictType():
                return self._free_mapping(node, kind.value_type, path)
            case Scalar(), _ if type(kind) in _CONVERTERS:
                value = _CONVERTERS[type(kind)](node)
        if value is None:
            is_quoted = isinstance(node, Scalar) and not node.plain and node.text.isdigit()
            is_number = isinstance(kind, inspect.IntType | inspect.FloatType)
            hint = "a number stands without quotes" if is_quoted and is_number else ""
            type_name = node.tag.rpartition(":")[2] if isinstance(node, Scalar) else "text"
            expected = f"is not a {type_name}" if isinstance(kind, inspect.StrType) else _EXPECTED[type(kind)]
            if not path and isinstance(node, Scalar) and node.text.endswith((".yaml", ".yml")):
                hint = "this looks like a file name: pass the text of the file"
            self._wrong(node, path, expected, hint=hint)
        return value

    def _mapping(self, node: Mapping, kind: inspect.StructType, path: str) -> dict[str, object]:
        """A mapping with the keys of a struct; other keys are reported."""
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
            if self.report.is_full:
                break
            if name not in keys:
                plain = name[:_COMPARED_MAX].lower().replace("_", "").replace("-", "")
                near = get_close_matches(plain, keys, n=1, cutoff=_NEARNESS_MIN)
                hint = f"did you mean {near[0]}" if near else f"known are {', '.join(keys)}"
                self._note(key, under(path, _cut(name)), f"unknown key {_name(key)}", hint=hint)
        return found

    def _list(self, node: Sequence, kind: inspect.Type, path: str) -> list[object]:
        """The items of a list; null items are left out and do not count in the paths."""
        found: list[object] = []
        index = 0
        for item in node.items:
            if not is_null(item):
                at = f"{path}[{index}]"
                index += 1
                self.lines[at] = item.line
                read = self.read(item, kind, at)
                if read is not None:
                    found.append(read)
        return found

    def _free_mapping(self, node: Mapping, kind: inspect.Type, path: str) -> dict[str, object]:
        """A mapping with any keys. A null value is the empty text, or the number 0."""
        found: dict[str, object] = {}
        for name, (key, value) in self._entries(node, path).items():
            at = f"{path}.{name}"
            self.lines[at] = key.line
            empty = 0.0 if isinstance(kind, inspect.FloatType) else ""
            read = empty if is_null(value) else self.read(value, kind, at)
            if read is not None:
                found[name] = read
        return found

    def _entries(self, node: Mapping, path: str) -> dict[str, tuple[Scalar, Node]]:
        """The entries of a mapping by key: its own, then those of its merge key, which replace nothing."""
        own: dict[str, tuple[Scalar, Node]] = {}
        merge_key: Scalar | None = None
        merged: list[Node] = []
        for key, value in node.entries:
            if not isinstance(key, Scalar):
                self._wrong(key, path, "is not a key")
                continue
            name = key.text
            first = own[name][0] if name in own else merge_key if name == _MERGE else None
            if first is not None:
                message = f"key {_name(key)} is already defined at line {first.line}"
                self._note(key, under(path, _cut(name)), message)
            elif name == _MERGE and (key.plain or key.tag == _TAG + "merge"):
                merge_key = key
                merged = value.items if isinstance(value, Sequence) else [value]
            else:
                own[name] = (key, value)
        for source in merged:
            if not isinstance(source, Mapping):
                self._wrong(source, path, "cannot be merged", hint="<< takes a mapping or a list of them")
                continue
            for name, entry in self._entries(source, path).items():
                own.setdefault(name, entry)
        return own

    def _wrong(self, node: Node, path: str, message: str, *, hint: str = "") -> None:
        """Report a problem with a node, which the message names."""
        self._note(node, path, f"{_name(node)} {message}", hint=hint)

    def _note(self, node: Node, path: str, message: str, *, hint: str = "") -> None:
        self.report.note(Problem(line=node.line, path=path, message=message, kind="parse", hint=hint))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN_MAX else f"{text[:_TEXT_SHOWN_MAX]}..."


def _name(node: Node) -> str:
    """How a message names a value."""
    if isinstance(node, Scalar):
        return f"'{_cut(node.text)}'"
    return "a list" if isinstance(node, Sequence) else "a mapping"


# Single values: None if the text is not of the type -------------------------------------------------------------------

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
_SPECIAL_FLOAT: Final = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def is_null(node: Node) -> bool:
    """Whether no value was written: an empty value, `~`, or one of the words for null, not quoted."""
    return isinstance(node, Scalar) and is_null_text(node.text) and (node.plain or node.tag == _TAG + "null")


def is_null_text(text: str) -> bool:
    """Whether a text means null if it is not quoted."""
    return text in _NULLS


def as_text(scalar: Scalar) -> str | None:
    """Return the text as it was written, or decoded if it is binary. None if it contradicts its tag."""
    if not scalar.tag:
        return scalar.text
    kind = scalar.tag.removeprefix(_TAG)
    number = msgspec.structs.replace(scalar, plain=True, tag="")
    if kind == "binary":
        try:
            return base64.b64decode("".join(scalar.text.split()), validate=True).decode()
        except ValueError:
            return None
    is_valid = {
        "int": _as_integer(number) is not None,
        "float": as_float(number) is not None,
        "bool": scalar.text in _BOOLS,
        "null": scalar.text in _NULLS,
    }
    return scalar.text if is_valid.get(kind, True) else None


def as_bool(scalar: Scalar) -> bool | None:
    """Return the truth value; `true` and `false` count only when they are not quoted."""
    if _is_bare(scalar, "bool") and scalar.text in _BOOLS:
        return _BOOLS[scalar.text]
    return _WORDS.get(scalar.text)


def as_unsigned(scalar: Scalar) -> int | None:
    """Return the number from 0 to 2^64-1; a fraction is cut off."""
    number = _as_integer(scalar) if _is_bare(scalar, "int", "float") else None
    if number is None and (fraction := as_float(scalar)) is not None and 0 <= fraction <= UINT64_MAX:
        number = int(fraction)
    return number if number is not None and 0 <= number <= UINT64_MAX else None


def as_float(scalar: Scalar) -> float | None:
    """Return the number, which may be infinite or NaN."""
    if not _is_bare(scalar, "float", "int"):
        return None
    if _SPECIAL_FLOAT.fullmatch(scalar.text):
        return float(scalar.text.replace(".", ""))
    whole = _as_integer(scalar)
    if whole is not None and abs(whole) <= UINT64_MAX:
        return float(whole)
    text = _digits(scalar)
    number = float(text) if _FLOAT.fullmatch(text) else None
    return None if number in (float("inf"), float("-inf")) else number


def _as_integer(scalar: Scalar) -> int | None:
    match = _INTEGER.fullmatch(_digits(scalar))
    if match is None or match.lastgroup is None:
        return None
    number = int(match.group(match.lastgroup), _BASES[match.lastgroup])
    return -number if match.group("sign") == "-" else number


def _digits(scalar: Scalar) -> str:
    """Return the text without separators, which may stand anywhere after the first digit; empty if it is too long."""
    if scalar.text.startswith("_") or len(scalar.text) > _NUMBER_LENGTH_MAX:
        return ""
    return scalar.text.replace("_", "")


def _is_bare(scalar: Scalar, *kinds: str) -> bool:
    """Whether the value was written without quotes, or with a tag that names one of the kinds."""
    return scalar.plain or any(scalar.tag == _TAG + kind for kind in kinds)


_CONVERTERS: Final[dict[type[inspect.Type], Callable[[Scalar], object]]] = {
    inspect.StrType: as_text,
    inspect.BoolType: as_bool,
    inspect.IntType: as_unsigned,
    inspect.FloatType: as_float,
}
_EXPECTED: Final[dict[type[inspect.Type], str]] = {
    inspect.StructType: "is not a mapping",
    inspect.DictType: "is not a mapping",
    inspect.VarTupleType: "is not a list",
    inspect.BoolType: "is neither true nor false",
    inspect.IntType: f"is not a whole number from 0 to {UINT64_MAX}",
    inspect.FloatType: "is not a number",
}
"""The end of the message about a node that has no value of a type."""
