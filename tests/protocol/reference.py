"""The reference at the end of docs/protocol.md, made from common/messages/rm_messages.py: each kind that a resource
manager says or hears, with its fields, and the examples of `examples.py` as JSON and as bytes.

What a kind or a field means is its docstring, unless `meanings.py` has words that need none of our code.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Final, get_args, get_origin

import msgspec

from tests.protocol.examples import HEARD, SAID
from tests.protocol.meanings import MEANINGS
from yunishard.common.messages import kinds, rm_messages
from yunishard.common.messages.kinds import Call, Command, Header, Message, News, Part, Reply, interface_name
from yunishard.common.messages.rm_messages import Heartbeat
from yunishard.common.messages.wire import encode_body, encode_frames

Struct = type[Message] | type[Part]

Example = tuple[Header, Message]

WIDTH: Final = 118
_ABSTRACT: Final = {kind.__name__ for kind in (Call, Command, News, Reply)}
_PLAIN: Final = {str: "text", bool: "bool", int: "integer", kinds.Amount: "int64", kinds.Int32: "int32"}
_WRITTEN: Final = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")


def said_kinds() -> set[str]:
    """What a resource manager may say."""
    return {name for name, kind in Message.kinds.items() if issubclass(kind, Call | Command | Heartbeat)} - _ABSTRACT


def heard_kinds() -> set[str]:
    """What a resource manager may hear."""
    return {name for name, kind in Message.kinds.items() if issubclass(kind, Reply | News | Heartbeat)} - _ABSTRACT


def parts() -> list[type[Part]]:
    """What those are made of, in the order in which they are met."""
    return _parts_of([*_kinds_in(SAID), *_kinds_in(HEARD)])


def _kinds_in(examples: Sequence[Example]) -> list[str]:
    return list(dict.fromkeys(header.kind for header, _ in examples))


def _parts_of(kinds: list[str]) -> list[type[Part]]:
    found: dict[type[Part], None] = {}
    waiting: list[Struct] = [Message.kinds[kind] for kind in kinds]
    while waiting:
        for field in msgspec.structs.fields(waiting.pop(0)):
            for part in _parts_in(field.type):
                if part not in found:
                    found[part] = None
                    waiting.append(part)
    return list(found)


def written() -> str:
    """The whole reference."""
    sections = ["### From an RM to the core", *(_kind(name, SAID) for name in _kinds_in(SAID))]
    sections += ["### From the core to an RM"]
    sections += [_kind(name, HEARD) for name in _kinds_in(HEARD) if name not in _kinds_in(SAID)]
    sections += ["### Parts of messages", *map(_described, parts())]
    return "\n\n".join(sections) + "\n"


# One kind -------------------------------------------------------------------------------------------------------------


def _kind(name: str, examples: Sequence[Example]) -> str:
    shown = [_example(header, body) for header, body in examples if header.kind == name]
    return "\n\n".join([_described(Message.kinds[name]), *shown])


def _described(struct: Struct) -> str:
    text = meaning(struct)
    pieces = [f"#### {struct.__name__}", text if text.endswith("?") else f"{text}."]
    return "\n\n".join([*pieces, *filter(None, [_table(struct)])])


def _table(struct: Struct) -> str:
    rows = [
        f"| `{field.encode_name}` | {_type(field.type)} | {meaning(struct, field.name)} |"
        for field in msgspec.structs.fields(struct)
    ]
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]) if rows else ""


def _type(annotation: object) -> str:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    arguments = get_args(annotation)
    if get_origin(annotation) is list:
        return f"array of {_type(arguments[0])}"
    if get_origin(annotation) is dict:
        return f"map, text to {_type(arguments[1])}"
    if get_origin(annotation) is UnionType:
        return " or ".join("nil" if one is type(None) else _type(one) for one in arguments)
    if get_origin(annotation) is Annotated:
        return _type(arguments[0])
    assert isinstance(annotation, type), annotation
    assert issubclass(annotation, Part), annotation
    return f"[{annotation.__name__}](#{annotation.__name__.lower()})"


def _parts_in(annotation: object) -> Iterator[type[Part]]:
    if isinstance(annotation, type) and issubclass(annotation, Part):
        yield annotation
    for argument in get_args(annotation):
        yield from _parts_in(argument)


# Meanings -------------------------------------------------------------------------------------------------------------


def _docstrings() -> dict[str, str]:
    """Of classes, by name, and of their fields, as `Class.field`."""
    found: dict[str, str] = {}
    trees = [ast.parse(Path(file).read_text(encoding="utf-8")) for file in (kinds.__file__, rm_messages.__file__)]
    for node in (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)):
        found[node.name] = ast.get_docstring(node) or ""
        for field, after in zip(node.body, node.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(after, ast.Expr):
                assert isinstance(after.value, ast.Constant)
                found[f"{node.name}.{field.target.id}"] = str(after.value.value)
    return found


DOCSTRINGS: Final = _docstrings()


def meaning(struct: Struct, field: str = "") -> str:
    """What a struct or one of its fields means; of an inherited field what it means where it comes from."""
    if not field:
        names = [struct.__name__]
    else:
        names = [*(f"{owner.__name__}.{field}" for owner in struct.__mro__), f"*.{field}"]
    for name in names:
        text = MEANINGS.get(name) or DOCSTRINGS.get(name)
        if text:
            return _WRITTEN.sub(lambda found: f"`{interface_name(found[1])}`", " ".join(text.split())).rstrip(".")
    raise LookupError(f"{names[0]}: say what it means, in common/messages/rm_messages.py or in meanings.py")


# Examples -------------------------------------------------------------------------------------------------------------


def _example(header: Header, message: Message) -> str:
    _, packed, body = encode_frames(header, encode_body(message))
    shown = [laid_out(msgspec.msgpack.decode(packed)), laid_out(msgspec.msgpack.decode(body))]
    lines = [*_hexadecimal(packed), "", *_hexadecimal(body)]
    return "\n".join(["```json", *shown, "```", "", "```", *lines, "```"])


def _hexadecimal(data: bytes) -> list[str]:
    digits = data.hex()
    return [digits[start : start + 2 * (WIDTH // 4) * 2] for start in range(0, len(digits), 2 * (WIDTH // 4) * 2)]


def laid_out(value: object, before: str = "") -> str:
    """JSON in one line where that is short enough, else with a line for each item."""
    line = json.dumps(value, ensure_ascii=False)
    if len(before) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = before + "  "
    if isinstance(value, dict):
        items = [f"{inner}{json.dumps(key)}: {laid_out(item, inner)}" for key, item in value.items()]
        return "\n".join(["{", ",\n".join(items), before + "}"])
    return "\n".join(["[", ",\n".join(inner + laid_out(item, inner) for item in value), before + "]"])
