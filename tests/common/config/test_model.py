"""When two texts count as the same."""

import hashlib

from yunishard.common.config.model import compute_checksum

TEXT = "partitions:\n- name: default\n"


def test_the_checksum_is_the_hash_of_the_text() -> None:
    assert compute_checksum(TEXT) == hashlib.sha256(TEXT.encode()).hexdigest().upper()


def test_a_checksum_in_the_text_does_not_count() -> None:
    assert compute_checksum(f"{TEXT}checksum: {compute_checksum(TEXT)}") == compute_checksum(TEXT)
    assert compute_checksum(f"{TEXT}checksum: X") == compute_checksum(TEXT)


def test_the_line_break_behind_a_checksum_counts() -> None:
    assert compute_checksum(f"{TEXT}checksum: X\n") == compute_checksum(f"{TEXT}\n") != compute_checksum(TEXT)
    assert compute_checksum(f"checksum: {'A' * 64}\n{TEXT}") == compute_checksum(f"\n{TEXT}")


def test_only_64_characters_are_taken_for_a_checksum() -> None:
    assert compute_checksum(f"{TEXT}checksum: {'A' * 64}BC") == compute_checksum(f"{TEXT}BC")


def test_a_repeated_checksum_is_left_out_everywhere() -> None:
    carried = f"checksum: {'A' * 64}"
    assert compute_checksum(f"{carried}{TEXT}{carried}") == compute_checksum(TEXT)
