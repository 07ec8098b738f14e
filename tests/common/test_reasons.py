import re
from pathlib import Path

from yunishard.common.messages.reasons import MEANINGS, REMEDY_MEANINGS, Reason, Remedy

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "reasons.md"
CODE = re.compile(r"[a-z]+(-[a-z]+)*")


def test_every_code_has_a_meaning_in_one_line() -> None:
    assert list(MEANINGS) == list(Reason)
    assert list(REMEDY_MEANINGS) == list(Remedy)
    for meaning in (*MEANINGS.values(), *REMEDY_MEANINGS.values()):
        assert meaning.endswith(".")
        assert "\n" not in meaning


def test_codes_are_words_with_hyphens_made_from_their_names() -> None:
    for code in (*Reason, *Remedy):
        assert CODE.fullmatch(code)
        assert code == code.name.lower().replace("_", "-")


def test_the_page_of_reason_codes_has_each_of_them_with_its_meaning() -> None:
    page = PAGE.read_text()
    for code, meaning in (*MEANINGS.items(), *REMEDY_MEANINGS.items()):
        assert f"| `{code}` | {meaning} |" in page
