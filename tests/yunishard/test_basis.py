"""What a change starts from: what counts as a checksum, and which one counts."""

import pytest

from yunishard.basis import key_of, required
from yunishard.rest import Failed

IN_FORCE = "0123456789ABCDEF" * 4


@pytest.mark.parametrize("option", [IN_FORCE, IN_FORCE.lower(), IN_FORCE[:8], IN_FORCE[:63], ""])
def test_the_first_digits_are_enough(option: str) -> None:
    assert required(option=option, text="", in_force=IN_FORCE) == IN_FORCE


@pytest.mark.parametrize("option", ["0123456", "01234567x", IN_FORCE + "0", "latest", "-", "x" * 500])
def test_what_is_no_checksum_is_wrong_usage(option: str) -> None:
    with pytest.raises(Failed, match="--if-match: expected a checksum") as failed:
        required(option=option, text="", in_force=IN_FORCE)
    assert failed.value.status == 2
    assert len(str(failed.value)) < 200


def test_the_option_counts_before_the_text() -> None:
    assert required(option="*", text="checksum: DEAD", in_force=IN_FORCE) == "*"
    assert required(option=IN_FORCE[:8], text="checksum: DEAD", in_force=IN_FORCE) == IN_FORCE


@pytest.mark.parametrize(
    "text", [f"checksum: {IN_FORCE}", f"a: b\nchecksum: '{IN_FORCE.lower()}'  # mine", f"{{checksum: {IN_FORCE}}}"]
)
def test_the_key_of_the_text_counts_where_it_stands(text: str) -> None:
    assert required(option="", text=text, in_force=IN_FORCE) == IN_FORCE


@pytest.mark.parametrize(
    "text", ["", "checksum:", "checksum: ''", "# checksum: DEAD", "a:\n  checksum: DEAD", "checksum: ["]
)
def test_a_text_without_one_starts_from_what_is_in_force(text: str) -> None:
    assert key_of(text) == ""
    assert required(option="", text=text, in_force=IN_FORCE) == IN_FORCE


def test_a_list_or_a_map_is_no_checksum_and_is_left_to_the_system_to_refuse() -> None:
    assert key_of("checksum: [a]") == ""


def test_a_byte_order_mark_hides_nothing() -> None:
    assert key_of("\ufeffchecksum: DEAD") == "DEAD"
