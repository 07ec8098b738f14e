"""YAML text to a tree of values that remember their line, within bounds that keep hostile text harmless.

PyYAML's events are put together here, not by its composer, which reads past the first document and recurses as deep as
the text is nested (libyaml's without a check). What the values mean is decided in `parse.py`.

Not here: types (`fields.py`).
"""

from typing import Final, NoReturn

import msgspec
import yaml

from common.config.problems import UNKNOWN_LINE, ConfigError, Problem

TEXT_BYTES_MAX: Final = 16 * 1024 * 1024
VALUES_MAX: Final = 1_000_000  # values in a text, and again values after its aliases have been followed
DEPTH_MAX: Final = 128  # mappings and lists within one another; a level of queues takes two

Reader = type[yaml.CSafeLoader] | type[yaml.SafeLoader]
"""What turns a text into events: libyaml or PyYAML's own reader."""

# libyaml reads ten times as fast, and YuniKorn's reader was made from it. PyYAML may come without it; its own reader
# accepts the same texts but for corners that nobody writes, such as a tab before a comment.
READER: Final[Reader] = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """A single value. `plain`: neither quoted nor tagged, so that its text decides its type.

    A large text has hundreds of thousands. As no node contains itself, the garbage collector passes all of them over.
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
    """A map, its keys in the order they were written, merge keys (`<<`) and repeated keys among them."""

    line: int
    entries: list[tuple["Scalar | Sequence | Mapping", "Scalar | Sequence | Mapping"]]


Node = Scalar | Sequence | Mapping

_ENDS: Final = (yaml.DocumentEndEvent, yaml.StreamEndEvent)


def compose(text: str, *, reader: Reader = READER) -> Node | None:
    """Return the first document of the text, None if there is none; what follows that document is not even read.

    An alias stands for the very node it names, so the tree may share nodes, but never contains itself.
    Raises ConfigError with one problem of kind `parse`.
    """
    _require_readable(text)
    composer = _Composer()
    try:
        events = reader(text)
        while type(event := events.get_event()) not in _ENDS:
            composer.take(event)
    except yaml.YAMLError as error:
        raise _syntax_error(error, text, reader) from error
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


def _syntax_error(error: yaml.YAMLError, text: str, reader: Reader) -> ConfigError:
    line, told, hint = UNKNOWN_LINE, str(error), ""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else UNKNOWN_LINE
        told = " ".join(part for part in (error.context, error.problem) if part)
        hint = likely(told, text, mark.line + 1, mark.column) if mark else ""
    elif isinstance(error, yaml.reader.ReaderError):
        # libyaml counts bytes, PyYAML's own reader characters.
        before = text.encode()[: error.position] if reader is not yaml.SafeLoader else text[: error.position].encode()
        line, told = before.count(b"\n") + 1, error.reason
    line = min(line, text.count("\n") + 1)  # a text that ends too early is at fault in its last line, not behind it
    return ConfigError([Problem(line=line, message=f"this is not YAML: {told}", kind="parse", hint=hint)])


class _Open:
    """A list or map whose end has not been read."""

    __slots__ = ("anchor", "height", "key", "node")

    def __init__(self, node: Sequence | Mapping, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.height = 1  # levels at and below it
        self.key: Node | None = None  # of a map: what its next value belongs to


class _Composer:
    """Puts events together without recursing; `open` holds what is unfinished, outermost first.

    Large texts spend most of their time here, so what happens for each value is kept short.
    """

    def __init__(self) -> None:
        self.document: Node | None = None
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}  # node and its height; None while it is open
        self._values = 0

    def take(self, event: object) -> None:
        """Take the next event of the first document; what frames the document is ignored."""
        match event:
            case yaml.ScalarEvent():
                tag = "" if event.tag in (None, "!") else event.tag
                scalar = Scalar(_line(event), event.value, not event.style and not tag, tag)
                self._place(scalar, event.anchor, 0)
            case yaml.MappingStartEvent():
                self._begin(Mapping(_line(event), []), event.anchor)
            case yaml.SequenceStartEvent():
                self._begin(Sequence(_line(event), []), event.anchor)
            case yaml.CollectionEndEvent():
                done = self._open.pop()
                self._place(done.node, done.anchor, done.height)
            case yaml.AliasEvent():
                self._follow(event.anchor or "", _line(event))

    def _begin(self, node: Sequence | Mapping, anchor: str | None) -> None:
        if anchor is not None:
            self._anchors[anchor] = None
        self._open.append(_Open(node, anchor))
        self._require_shallow(len(self._open), node.line)

    def _follow(self, anchor: str, line: int) -> None:
        if anchor not in self._anchors:
            refuse(f"unknown anchor '{anchor}' referenced", line=line, hint=special("*"))
        target = self._anchors[anchor]
        if target is None:
            refuse(f"anchor '{anchor}' value contains itself", line=line)
        self._place(target[0], None, target[1])

    def _place(self, node: Node, anchor: str | None, height: int) -> None:
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
        if height:  # a single value is as deep as what it stands in
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


def _line(event: yaml.NodeEvent) -> int:
    """Return where the event begins, 1-based."""
    return event.start_mark.line + 1 if event.start_mark else UNKNOWN_LINE


# Hints for texts that are not YAML ------------------------------------------------------------------------------------

_CALLED: Final = {"*": "an alias", "&": "an anchor", "!": "a tag", "%": "a directive"}
"""What a value is taken for that begins with this character; of other special ones YAML makes nothing."""

_SPECIAL: Final = "*&!%@`"
_TAB: Final = "a tab is used for indentation: YAML is indented with blanks only"
_INDENTED: Final = "wrong indentation? What belongs together begins in the same column"
_OPEN: Final = "a quote that was opened further up is not closed"


def likely(told: str, text: str, line: int, column: int) -> str:
    """What to look for at a place where the reader stopped, and what it told; empty if nothing comes to mind.

    `line` counts from 1 and `column` from 0, as the reader gives them; either may lie behind the end of the text.
    """
    lines = text.splitlines()
    here = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())] and not _is_quoted(told):
        return _TAB
    if "cannot start any token" in told or "scanning an alias" in told or "scanning an anchor" in told:
        return special(_character(here, column))
    if "\t" in here and "tab" in told:
        return _TAB
    if "mapping values are not allowed" in told:
        return "wrong indentation, or a value with `: ` in it that must be quoted?"
    if "simple key" in told:
        return "a key without `:`, or wrong indentation, here or in the line before?"
    if "found unexpected end of stream" in told and _is_quoted(told):
        return _OPEN
    if "parsing a flow" in told:
        return "a `]`, `}` or `,` is missing, here or further up"
    if "block mapping" in told and here[:column].rstrip().endswith(("'", '"')):
        return "a value that begins with a quote ends with the next one: quote all of it"
    if "block mapping" in told or "block collection" in told:
        return _INDENTED
    return ""


def special(character: str) -> str:
    """What to say of a value that begins with this character; empty if it may begin one."""
    if not character or character not in _SPECIAL:
        return ""
    called = f": without quotes it is {_CALLED[character]}" if character in _CALLED else ""
    return f"a value that begins with {character} must be quoted{called}"


def _is_quoted(told: str) -> bool:
    return "quoted scalar" in told


def _character(here: str, column: int) -> str:
    """The special character at this place, or right before it, where an alias has begun."""
    near = here[max(column - 1, 0) : column + 1]
    return next((character for character in reversed(near) if character in _SPECIAL), "")
