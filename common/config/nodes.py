"""YAML text to a tree of values that remember their line, within bounds that keep hostile text harmless.

PyYAML's events are put together here, not by its composer, which reads past the first document and recurses as deep as
the text is nested (libyaml's without a check). What the values mean is decided in `parse.py`.

Not here: types (`fields.py`).
"""

from dataclasses import dataclass
from typing import Final, NoReturn

import yaml

from common.config.problems import UNKNOWN_LINE, ConfigError, Problem

TEXT_BYTES_MAX: Final = 16 * 1024 * 1024
VALUES_MAX: Final = 1_000_000  # values in a text, and again values after its aliases have been followed
DEPTH_MAX: Final = 128  # mappings and lists within one another; a level of queues takes two

# libyaml reads ten times as fast and accepts the same texts; PyYAML may come without it.
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. `plain`: neither quoted nor tagged, so that its text decides its type."""

    line: int  # 1-based, as in all nodes
    text: str
    plain: bool
    tag: str  # as written, in full; empty if none


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    line: int
    items: list["Node"]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map, its keys in the order they were written, merge keys (`<<`) and repeated keys among them."""

    line: int
    entries: list[tuple["Node", "Node"]]


Node = Scalar | Sequence | Mapping


def compose(text: str) -> Node | None:
    """Return the first document of the text, None if there is none; what follows that document is not even read.

    An alias stands for the very node it names, so the tree may share nodes, but never contains itself.
    Raises ConfigError with one problem of kind `parse`.
    """
    _require_readable(text)
    composer = _Composer()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            composer.take(event)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text) from error
    return composer.document


def refuse(message: str, *, line: int = UNKNOWN_LINE, hint: str = "") -> NoReturn:
    """Give up on the whole text."""
    raise ConfigError([Problem(line=line, message=message, kind="parse", hint=hint)])


def _require_readable(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        refuse("the text is not valid Unicode", line=text.count("\n", 0, error.start) + 1)
    if size > TEXT_BYTES_MAX:
        refuse(f"the text has {size} bytes, a configuration may have at most {TEXT_BYTES_MAX}")


def _syntax_error(error: yaml.YAMLError, text: str) -> ConfigError:
    line, told = UNKNOWN_LINE, str(error)
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else UNKNOWN_LINE
        told = " ".join(part for part in (error.context, error.problem) if part)
    elif isinstance(error, yaml.reader.ReaderError):
        # libyaml counts bytes, PyYAML's own reader characters.
        before = text.encode()[: error.position] if yaml.__with_libyaml__ else text[: error.position].encode()
        line, told = before.count(b"\n") + 1, error.reason
    return ConfigError([Problem(line=line, message=f"this is not YAML: {told}", kind="parse")])


@dataclass(slots=True)
class _Open:
    """A list or map whose end has not been read."""

    node: Sequence | Mapping
    anchor: str | None
    height: int = 1  # levels at and below it
    key: Node | None = None  # of a map: what its next value belongs to


class _Composer:
    """Puts events together without recursing; `open` holds what is unfinished, outermost first."""

    def __init__(self) -> None:
        self.document: Node | None = None
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}  # node and its height; None while it is open
        self._values = 0

    def take(self, event: yaml.Event) -> None:
        """Take the next event of the first document; what frames the document is ignored."""
        line = event.start_mark.line + 1 if event.start_mark else UNKNOWN_LINE
        if isinstance(event, yaml.ScalarEvent):
            tag = "" if event.tag in (None, "!") else event.tag
            scalar = Scalar(line=line, text=event.value, plain=not event.style and not tag, tag=tag)
            self._place(scalar, event.anchor, height=0)
        elif isinstance(event, yaml.AliasEvent) and event.anchor is not None:
            self._follow(event.anchor, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._begin(Sequence(line=line, items=[]), event.anchor)
        elif isinstance(event, yaml.MappingStartEvent):
            self._begin(Mapping(line=line, entries=[]), event.anchor)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            done = self._open.pop()
            self._place(done.node, done.anchor, height=done.height)

    def _begin(self, node: Sequence | Mapping, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = None
        self._open.append(_Open(node=node, anchor=anchor))
        self._require_shallow(len(self._open), node.line)

    def _follow(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            refuse(f"unknown anchor '{anchor}' referenced", line=line)
        target = self._anchors[anchor]
        if target is None:
            refuse(f"anchor '{anchor}' value contains itself", line=line)
        self._place(target[0], None, height=target[1])

    def _place(self, node: Node, anchor: str | None, *, height: int) -> None:
        """Put a finished node where it belongs: the list or map it stands in, or the top."""
        self._values += 1
        if self._values > VALUES_MAX:
            refuse(f"the text has more than {VALUES_MAX} values", line=node.line)
        if anchor is not None:
            self._anchors[anchor] = (node, height)
        if not self._open:
            self.document = node
            return
        around = self._open[-1]
        around.height = max(around.height, height + 1)
        self._require_shallow(len(self._open) + height, node.line)
        if isinstance(around.node, Sequence):
            around.node.items.append(node)
        elif around.key is None:
            around.key = node
        else:
            around.node.entries.append((around.key, node))
            around.key = None

    def _require_shallow(self, depth: int, line: int) -> None:
        if depth > DEPTH_MAX:
            refuse(f"values are nested more than {DEPTH_MAX} levels deep", line=line)
