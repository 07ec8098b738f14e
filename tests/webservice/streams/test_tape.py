"""The newest lines, by number."""

from webservice.streams.tape import PIECE_BYTES, Tape


def tape(*lines: bytes, first: int = 10, bytes_max: int = 1000) -> Tape:
    one = Tape(first, bytes_max=bytes_max)
    one.add(lines)
    return one


def test_lines_are_numbered_from_where_the_tape_begins() -> None:
    one = tape(b"a\n", b"b\n")
    assert (one.first, one.end) == (10, 12)
    assert one.since(10) == (b"a\nb\n", 12)
    assert one.since(11) == (b"b\n", 12)


def test_at_the_end_and_beyond_it_there_is_nothing_yet() -> None:
    one = tape(b"a\n")
    assert one.since(11) == (b"", 11)
    assert one.since(15) == (b"", 15)


def test_a_piece_ends_with_the_line_that_makes_it_large_enough() -> None:
    large = b"x" * PIECE_BYTES
    one = tape(b"a", large, b"b", bytes_max=3 * PIECE_BYTES)
    assert one.since(10) == (b"a" + large, 12)
    assert one.since(12) == (b"b", 13)


def test_the_oldest_lines_go_when_there_is_no_room() -> None:
    one = tape(b"123", b"456", b"789", bytes_max=8)
    assert (one.first, one.end) == (11, 13)
    one.add([b"0", b"1"])
    assert one.since(11) == (b"45678901", 15)
    one.add([b"2"])
    assert one.first == 12


def test_a_line_that_is_larger_than_the_tape_is_kept_alone() -> None:
    one = tape(b"1", b"2", b"x" * 2000)
    assert (one.first, one.end) == (12, 13)


def test_what_nobody_needs_goes_and_what_comes_keeps_its_number() -> None:
    one = tape(b"a", b"b")
    one.forget(11)
    assert one.first == 11
    one.forget(100)
    assert (one.first, one.end) == (12, 12)
    one.add([b"c"])
    assert one.since(12) == (b"c", 13)
    one.forget(5)
    assert one.first == 12


def test_what_went_makes_room() -> None:
    one = tape(b"123", b"456", bytes_max=6)
    one.forget(11)
    one.add([b"789"])
    assert one.first == 11
