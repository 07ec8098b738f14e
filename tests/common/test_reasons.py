import re

from common.reasons import MEANINGS, REMEDY_MEANINGS, Reason, Remedy

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
