"""The indented document, written as its parts come."""

import asyncio
import json
from collections.abc import AsyncIterator

from webservice.dump.layout import Listed, Part, Whole, written


async def pages(*texts: str) -> AsyncIterator[bytes]:
    for text in texts:
        yield text.encode()


def document(*parts: Part) -> str:
    async def given() -> AsyncIterator[Part]:
        for part in parts:
            yield part

    async def run() -> str:
        return b"".join([piece async for piece in written(given())]).decode()

    return asyncio.run(run())


def test_it_is_written_as_if_it_had_been_there_at_once() -> None:
    text = document(
        Whole("at", b"7"),
        Listed("queues", pages('[{"name":"a","children":[{"name":"b"}]}]', '[1,{"text":"x\\ny"}]\n')),
        Whole("config", b'{"a":{"b":[1,2]}}'),
        Listed("nodes", pages("[[]]")),
    )
    whole = {
        "at": 7,
        "queues": [{"name": "a", "children": [{"name": "b"}]}, 1, {"text": "x\ny"}],
        "config": {"a": {"b": [1, 2]}},
        "nodes": [[]],
    }
    assert text == json.dumps(whole, indent=2) + "\n"


def test_what_is_empty_is_left_out() -> None:
    text = document(
        Whole("none", b"null"),
        Whole("list", b"[ ]\n"),
        Listed("pages", pages()),
        Listed("empty", pages("[]", "[]\n")),
        Whole("zero", b"0"),
        Listed("late", pages("[]", "[1]", "[]", "[2]")),
        Whole("object", b"{}"),
        Whole("text", b'""'),
    )
    assert text == json.dumps({"zero": 0, "late": [1, 2]}, indent=2) + "\n"


def test_without_any_part_it_is_an_empty_object() -> None:
    assert document() == "{}\n"
    assert document(Whole("none", b"null")) == "{}\n"
