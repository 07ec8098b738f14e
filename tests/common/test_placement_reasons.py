"""Reason codes of placement, and the page that lists them. With DOCS=rewrite the tables are written again."""

import os
import re
from pathlib import Path

from yunishard.partition_worker.placement_reasons import MEANINGS, PlacementReason

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "reasons.md"


def write_rows() -> str:
    return "".join(f"| `{code}` | {meaning} | {action} |\n" for code, (meaning, action) in MEANINGS.items())


def replace_table(text: str, heading: str, rows: str) -> str:
    """The page with these rows in the first table below a heading."""
    pattern = rf"(\n## {heading}\n(?:(?!\n## ).)*?\n\|---(?:\|---)+\|\n)(?:\|.*\n)*"
    return re.sub(pattern, lambda found: found.group(1) + rows, text, count=1, flags=re.DOTALL)


def test_every_code_has_a_meaning_and_an_action() -> None:
    assert list(MEANINGS) == list(PlacementReason)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", code) for code in PlacementReason)
    assert all(text.endswith(".") for one in MEANINGS.values() for text in one)


def test_the_page_lists_the_codes_with_their_meanings() -> None:
    text = PAGE.read_text()
    wanted = replace_table(text, "Placement", write_rows())
    if os.environ.get("DOCS") == "rewrite":
        PAGE.write_text(wanted)
        text = wanted
    assert wanted == text
    assert f"| `{PlacementReason.QUEUE_ACL}` |" in text
