"""Strict reading of YAML nodes: each key is asked for by name and type, and what nobody asked for is unknown.

A problem does not stop the reading: the value counts as not written, and everything else is still looked at. Which keys
there are is the business of `parse.py`.

Not here: which keys there are (`parse.py`).
"""

from collections.abc import Callable
from typing import Final, TypeVar

from common.config import scalars
from common.config.nodes import TEXT_BYTES_MAX, VALUES_MAX, Mapping, Node, Scalar, Sequence, refuse
from common.config.problems import Problem, Report, under

Value = TypeVar("Value")

_MERGE: Final = "<<"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_TEXT_SHOWN_MAX: Final = 60  # characters of a wrong value that a message repeats


class Reading:
    """What the readers of one text share: its problems, the lines of its values, and how much may still be built."""

    def __init__(self) -> None:
        self.report = Report()
        self.lines: dict[str, int] = {}
        self._values = 0
        self._characters = 0

    def wrong(self, node: Node, path: str, message: str, *, hint: str = "") -> None:
        """Note a problem with a node."""
        self.report.note(Problem(line=node.line, path=path, message=message, kind="parse", hint=hint))

    def count(self, *nodes: Node) -> None:
        """Count a visit to nodes against the bounds: a small text with aliases to aliases can ask for billions."""
        for node in nodes:
            self._values += 1
            if isinstance(node, Scalar):
                self._characters += len(node.text)
        if self._values > VALUES_MAX:
            refuse(f"aliases expand to more than {VALUES_MAX} values", line=nodes[-1].line)
        if self._characters > TEXT_BYTES_MAX:
            refuse(f"aliases expand to more than {TEXT_BYTES_MAX} characters", line=nodes[-1].line)


class Fields:
    """The keys of one mapping. A key that is absent or null reads as the default of its type."""

    def __init__(self, reading: Reading, node: Mapping, path: str) -> None:
        self._reading = reading
        self._prefix = f"{path}." if path else ""
        self._entries = _entries(reading, node, path)
        self._asked: list[str] = []  # each key that was read, once

    def text(self, key: str) -> str:
        """Return the literal text of any single value."""
        node = self._written(key)
        return "" if node is None else self._text_of(node, self._at(key)) or ""

    def flag(self, key: str) -> bool | None:
        """Return yes, no, or None if it was not written."""
        node = self._written(key)
        if node is None:
            return None
        value = scalars.as_bool(node) if isinstance(node, Scalar) else None
        if value is None:
            self._reading.wrong(node, self._at(key), f"{_shown(node)} is neither true nor false")
        return value

    def count(self, key: str) -> int:
        """Return a whole number, 0 if it was not written."""
        node = self._written(key)
        if node is None:
            return 0
        value = scalars.as_unsigned(node) if isinstance(node, Scalar) else None
        if value is None:
            message = f"{_shown(node)} is not a whole number from 0 to {scalars.UINT64_MAX}"
            self._reading.wrong(node, self._at(key), message, hint=_unquoted(node))
        return value or 0

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        found = (self._text_of(node, path) for node, path in self._items(key) or ())
        return tuple(text for text in found if text is not None)

    def text_map(self, key: str) -> dict[str, str] | None:
        """Return a map of any keys to texts, None if it was not written."""
        entries = self._free_entries(key)
        if entries is None:
            return None
        texts = {name: self._text_of(node, path) for name, node, path in entries}
        return {name: text for name, text in texts.items() if text is not None}

    def number_map(self, key: str) -> dict[str, float]:
        """Return a map of any keys to numbers."""
        numbers: dict[str, float] = {}
        for name, node, path in self._free_entries(key) or ():
            number = scalars.as_float(node) if isinstance(node, Scalar) else None
            if _is_null(node):
                numbers[name] = 0.0
            elif number is None:
                self._reading.wrong(node, path, f"{_shown(node)} is not a number", hint=_unquoted(node))
            else:
                numbers[name] = number
        return numbers

    def part(self, key: str, read: Callable[["Fields"], Value]) -> Value | None:
        """Return the mapping at a key as `read` makes it, None if it was not written."""
        node = self._written(key)
        return None if node is None else read_mapping(self._reading, node, self._at(key), read)

    def parts(self, key: str, read: Callable[["Fields"], Value]) -> tuple[Value, ...] | None:
        """Return a list of mappings as `read` makes them, None if it was not written."""
        items = self._items(key)
        if items is None:
            return None
        made = (read_mapping(self._reading, item, path, read) for item, path in items)
        return tuple(value for value in made if value is not None)

    def refuse_the_rest(self) -> None:
        """Note each key that nobody asked for."""
        for name, (key, _) in self._entries.items():
            if name not in self._asked:
                near = name.lower().replace("_", "").replace("-", "")
                hint = f"did you mean {near}" if near in self._asked else f"known are {', '.join(self._asked)}"
                self._reading.wrong(key, self._at(_cut(name)), f"unknown key {_shown(key)}", hint=hint)

    def _at(self, key: str) -> str:
        return f"{self._prefix}{key}"

    def _written(self, key: str) -> Node | None:
        """Return the value of a key, None if there is none."""
        self._asked.append(key)
        if key not in self._entries:
            return None
        written, node = self._entries[key]
        self._reading.lines[self._at(key)] = written.line
        return None if _is_null(node) else node

    def _text_of(self, node: Node, path: str) -> str | None:
        if isinstance(node, Scalar) and not node.tag:
            return "" if scalars.is_null(node) else node.text
        text = None
        if isinstance(node, Scalar):
            text = "" if scalars.is_null(node) else scalars.as_text(node)
        if text is None:
            kind = node.tag.rpartition(":")[2] if isinstance(node, Scalar) else "text"
            self._reading.wrong(node, path, f"{_shown(node)} is not a {kind}")
        return text

    def _items(self, key: str) -> list[tuple[Node, str]] | None:
        """Return the items of a list with their paths; those that are null count as not written, in the paths too."""
        node = self._written(key)
        if node is None:
            return None
        if not isinstance(node, Sequence):
            self._reading.wrong(node, self._at(key), f"{_shown(node)} is not a list")
            return None
        found: list[tuple[Node, str]] = []
        for item in node.items:
            self._reading.count(item)
            if not _is_null(item):
                path = f"{self._at(key)}[{len(found)}]"
                self._reading.lines[path] = item.line
                found.append((item, path))
        return found

    def _free_entries(self, key: str) -> list[tuple[str, Node, str]] | None:
        """Return name, value and path for each key of a map that may have any."""
        node = self._written(key)
        if node is None:
            return None
        if not isinstance(node, Mapping):
            self._reading.wrong(node, self._at(key), f"{_shown(node)} is not a mapping")
            return None
        found = []
        around = self._at(key)
        for name, (written, value) in _entries(self._reading, node, around).items():
            path = f"{around}.{name}"
            self._reading.lines[path] = written.line
            found.append((name, value, path))
        return found


def read_mapping(reading: Reading, node: Node, path: str, read: Callable[[Fields], Value]) -> Value | None:
    """Return a mapping as `read` makes it, None and a problem if the node is none or has keys unknown to `read`."""
    if not isinstance(node, Mapping):
        reading.wrong(node, path, f"{_shown(node)} is not a mapping")
        return None
    fields = Fields(reading, node, path)
    value = read(fields)
    fields.refuse_the_rest()
    return value


def _entries(reading: Reading, node: Mapping, path: str) -> dict[str, tuple[Scalar, Node]]:
    """Return the entries of a mapping by key: its own, then what its merge key adds, which never replaces anything."""
    own: dict[str, tuple[Scalar, Node]] = {}
    merge_key: Scalar | None = None
    merged: list[Node] = []
    for key, value in node.entries:
        reading.count(key, value)
        if not isinstance(key, Scalar):
            reading.wrong(key, path, f"{_shown(key)} is not a key")
            continue
        name = key.text
        first = own[name][0] if name in own else merge_key if name == _MERGE else None
        if first is not None:
            message = f"key {_shown(key)} is already defined at line {first.line}"
            reading.wrong(key, under(path, _cut(name)), message)
        elif name == _MERGE and (key.plain or key.tag == _MERGE_TAG):
            merge_key = key
            merged = value.items if isinstance(value, Sequence) else [value]
        else:
            own[name] = (key, value)
    for source in merged:
        reading.count(source)
        if not isinstance(source, Mapping):
            hint = "<< takes a mapping or a list of them"
            reading.wrong(source, path, f"{_shown(source)} cannot be merged", hint=hint)
            continue
        for name, entry in _entries(reading, source, path).items():
            own.setdefault(name, entry)
    return own


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and scalars.is_null(node)


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_SHOWN_MAX else f"{text[:_TEXT_SHOWN_MAX]}..."


def _shown(node: Node) -> str:
    """Return how a message names a value."""
    if isinstance(node, Scalar):
        return f"'{_cut(node.text)}'"
    return "a list" if isinstance(node, Sequence) else "a mapping"


def _unquoted(node: Node) -> str:
    """Return the hint for a number in quotes."""
    bare = isinstance(node, Scalar) and not node.plain and node.text.isdigit()
    return "a number stands without quotes" if bare else ""
