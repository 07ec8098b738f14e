"""When two texts count as the same."""

import hashlib

from common.config.checksum import checksum_of

TEXT = "partitions:\n- name: default\n"


def test_the_checksum_is_the_hash_of_the_text() -> None:
    assert checksum_of(TEXT) == hashlib.sha256(TEXT.encode()).hexdigest().upper()


def test_a_checksum_in_the_text_does_not_count() -> None:
    assert checksum_of(f"{TEXT}checksum: {checksum_of(TEXT)}") == checksum_of(TEXT)
    assert checksum_of(f"{TEXT}checksum: X") == checksum_of(TEXT)


def test_the_line_break_behind_a_checksum_counts() -> None:
    assert checksum_of(f"{TEXT}checksum: X\n") == checksum_of(f"{TEXT}\n") != checksum_of(TEXT)
    assert checksum_of(f"checksum: {'A' * 64}\n{TEXT}") == checksum_of(f"\n{TEXT}")


def test_only_64_characters_are_taken_for_a_checksum() -> None:
    assert checksum_of(f"{TEXT}checksum: {'A' * 64}BC") == checksum_of(f"{TEXT}BC")


def test_a_repeated_checksum_is_left_out_everywhere() -> None:
    carried = f"checksum: {'A' * 64}"
    assert checksum_of(f"{carried}{TEXT}{carried}") == checksum_of(TEXT)
