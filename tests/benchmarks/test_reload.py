"""What is measured is what the table says."""

import pytest

from benchmarks.configuration import text_of
from benchmarks.reload import LITTLE, stalled, waited
from common.config.model import parse_amounts
from common.config.validation import load


def test_the_longest_piece_of_work_is_a_part_of_the_whole() -> None:
    stall = stalled(300, text_of(300, maximum=200))
    assert 0 < stall.longest_ms <= stall.whole_ms
    assert stall.steps > 0


def test_no_ask_waits_for_room() -> None:
    leaf = load(text_of(300)).partitions[0].root.queues[0].queues[1]
    assert leaf.name == "leaf1"
    room = parse_amounts(leaf.resources.max or {})
    assert all(room[kind] >= 1_000_000 * amount for kind, amount in LITTLE.items())


@pytest.mark.processes
def test_asks_wait_while_a_configuration_is_taken() -> None:
    usual_ms, longest_ms = waited(300, text_of(300, maximum=200))
    assert usual_ms > 0
    assert longest_ms > 0
