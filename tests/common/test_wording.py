import pytest

from common.text_formats import format_count


@pytest.mark.parametrize(("count", "text"), [(0, "0 RMs"), (1, "1 RM"), (2, "2 RMs")])
def test_one_thing_is_singular(count: int, text: str) -> None:
    assert format_count(count, "RM") == text
