"""docs/protocol.md says what is so: its reference is made from the messages, its codes are those of the source.

`DOCS=rewrite python -m pytest tests/protocol` writes the reference anew.
"""

import json
import os
import re
from pathlib import Path
from typing import Final

import msgpack
import pytest

from tests.protocol.examples import HEARD, SAID
from tests.protocol.meanings import MEANINGS
from tests.protocol.reference import DOCSTRINGS, heard_kinds, parts, said_kinds, written
from tests.protocol.refusals import spoken
from yunishard.common.messages.kinds import Header, Message
from yunishard.common.messages.rm_messages import NUMBERED, UNNUMBERED
from yunishard.common.messages.wire import PROTOCOL, decode_body, decode_header

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "protocol.md"
MARK: Final = "\n### From an RM to the core\n"
GO: Final = ROOT / "tests" / "interop" / "go"
PLAIN: Final = ROOT / "examples" / "plain_rm.py"
EXAMPLE: Final = re.compile(
    r"```json\n(\[.*?\])\n(\{.*?\})\n```\n\n```\n([0-9a-f\n]+?)\n\n([0-9a-f\n]+?)\n```", re.DOTALL
)


@pytest.fixture
def text() -> str:
    return DOCUMENT.read_text(encoding="utf-8")


def sections(text: str) -> dict[str, str]:
    """The reference by heading: a kind or a part."""
    found = re.split(r"^#### (\w+)$", text[text.index(MARK) :], flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def fields_of(found: dict[str, str]) -> set[str]:
    return {field for section in found.values() for field in re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)}


def test_the_reference_is_up_to_date(text: str) -> None:
    before, mark, after = text.partition(MARK)
    if os.environ.get("DOCS") == "rewrite":
        DOCUMENT.write_text(before + "\n" + written(), encoding="utf-8")
        return
    assert mark
    assert mark[1:] + after == written(), "make it anew with DOCS=rewrite"


def test_every_kind_and_part_has_a_section_and_every_kind_an_example(text: str) -> None:
    found = sections(text)
    assert found.keys() == said_kinds() | heard_kinds() | {part.__name__ for part in parts()}
    assert {header.kind for header, _ in SAID} == said_kinds()
    assert {header.kind for header, _ in HEARD} == heard_kinds()
    assert [name for name in said_kinds() | heard_kinds() if not EXAMPLE.search(found[name])] == []


def test_every_field_is_in_its_section(text: str) -> None:
    found = sections(text)
    structs = [*(Message.kinds[name] for name in said_kinds() | heard_kinds()), *parts()]
    missing = [
        f"{struct.__name__}.{field}"
        for struct in structs
        for field in struct.__struct_encode_fields__
        if f"\n| `{field}` | " not in found[struct.__name__]
    ]
    assert missing == []


@pytest.mark.parametrize("name", sorted(said_kinds() | heard_kinds()))
def test_an_example_is_what_any_reader_of_message_pack_reads(name: str, text: str) -> None:
    shown = EXAMPLE.findall(sections(text)[name])
    assert shown
    for header, body, packed_header, packed_body in shown:
        frames = [bytes.fromhex(packed.replace("\n", "")) for packed in (packed_header, packed_body)]
        assert [msgpack.unpackb(frame) for frame in frames] == [json.loads(header), json.loads(body)]
        assert decode_header([PROTOCOL, *frames]).kind == name
        assert decode_body(Message.kinds[name], frames[1]) in [message for _, message in (*SAID, *HEARD)]


def test_every_link_within_the_document_leads_somewhere(text: str) -> None:
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    assert set(re.findall(r"\]\(#([\w-]+)\)", text)) <= {heading.lower().replace(" ", "-") for heading in headings}


def test_every_file_that_is_linked_is_there(text: str) -> None:
    files = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert len(files) > 5
    assert [file for file in files if not (DOCUMENT.parent / file).exists()] == []


def test_the_header_is_told_element_by_element(text: str) -> None:
    rows = re.findall(r"^\| (\d) \| `(\w+)` \|", text, flags=re.MULTILINE)
    assert [(int(place), name) for place, name in rows] == list(enumerate(Header.__struct_fields__))


def test_the_commands_that_are_numbered_are_told(text: str) -> None:
    row = next(line for line in text.splitlines() if line.startswith("| `NodeRequest`, `ApplicationRequest`"))
    assert set(re.findall(r"`(\w+)`", row.split("|")[1])) == set(NUMBERED)
    assert not UNNUMBERED & set(re.findall(r"`(\w+)`", row))


def test_every_code_of_a_refusal_is_told_with_who_says_it(text: str) -> None:
    table = text[text.index("\n## Refusals") : text.index("\n## Versions")]
    told = {
        code: set(speakers.split(", "))
        for code, speakers in re.findall(r"^\| `([a-z-]+)` \| ([a-z, ]+) \|", table, flags=re.MULTILINE)
    }
    assert told == spoken()


def test_no_name_in_the_text_is_one_of_the_past(text: str) -> None:
    """Code in the prose is a kind, a part, a field, or a word that is told here."""
    prose = text[: text.index(MARK)]
    found = sections(text)
    named = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", prose))
    assert named - found.keys() <= {"MessagePack", "YuniKorn"}
    assert set(re.findall(r"`([a-z]+[A-Z]\w*)`", prose)) <= fields_of(found)


def test_what_other_readers_say_and_hear_is_told(text: str) -> None:
    found = sections(text)
    go = "".join(file.read_text(encoding="utf-8") for file in (GO / "main.go", GO / "session.go"))
    plain = PLAIN.read_text(encoding="utf-8")
    kinds = set(re.findall(r'"((?:[A-Z][a-z]+)+)"', go + plain)) - {"Running"}
    assert len(kinds) > 12
    assert kinds <= found.keys()
    fields = set(re.findall(r'"([a-z]+[A-Z]\w*)"', go + plain))
    assert len(fields) >= 12
    assert fields <= fields_of(found)


def test_nothing_is_explained_that_is_not_there() -> None:
    assert {name for name in MEANINGS if "." not in name} <= DOCSTRINGS.keys()
    structs = [*(Message.kinds[name] for name in said_kinds() | heard_kinds()), *parts()]
    there = {f"{struct.__name__}.{field}" for struct in structs for field in struct.__struct_fields__}
    there |= {f"*.{field}" for struct in structs for field in struct.__struct_fields__}
    assert {name for name in MEANINGS if "." in name} <= there
