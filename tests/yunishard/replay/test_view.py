"""Progress says the same in a line and in a table."""

from io import StringIO

import pytest
from rich.console import Console

from tests.yunishard.replay.small_core import SmallCore
from tests.yunishard.replay.swf_lines import swf_line, swf_log
from tests.yunishard.replay.test_machine import play, turn
from yunishard.replay.machine import Replay
from yunishard.replay.plan import plan
from yunishard.replay.view import LineView, LiveView, line_of, progress, table_of, view_for


def halfway() -> Replay:
    lines = [swf_line(1, run=30), swf_line(2, run=60), swf_line(3, run=10), swf_line(4, submit=900, site=2, run=100)]
    replay, core = Replay(plan(swf_log(*lines), rm_id="replay", nodes=1), rm_id="replay"), SmallCore()
    for now in (0.0, 0.0, 30.0):
        turn(replay, core, now)
    return replay


def test_a_line_counts_all_partitions_and_the_rest_is_at_least_that_of_the_log() -> None:
    now = progress(halfway(), log_s=40.0, elapsed_s=4.0, allocations_per_s=12.3)
    assert line_of(now) == (
        "  4.0 s  replaying: 3 of 4 jobs submitted, 1 running, 2 done; 12 allocations/s, at least 96 s to go"
    )


def test_a_partition_with_much_work_left_decides_how_long_it_takes() -> None:
    # One processor, ten jobs of 100 s: after 200 s, four fifths are left.
    lines = [swf_line(n, run=100) for n in range(10)]
    replay, core = Replay(plan(swf_log(*lines), rm_id="replay", load=50), rm_id="replay"), SmallCore()
    for moment in (0.0, 0.0, 100.0):
        turn(replay, core, moment)
    now = progress(replay, log_s=200.0, elapsed_s=1.0, allocations_per_s=0.0)
    assert now.remaining_s == pytest.approx(4.0)


def test_nothing_is_guessed_before_the_start() -> None:
    replay = Replay(plan(swf_log(swf_line(1)), rm_id="replay"), rm_id="replay")
    assert "to go" not in line_of(progress(replay, log_s=0.0, elapsed_s=0.0, allocations_per_s=0.0))


def test_nothing_is_left_to_guess_at_the_end() -> None:
    replay = halfway()
    replay = Replay(replay.plan, rm_id="replay")
    play(replay, SmallCore())
    assert line_of(progress(replay, log_s=1000.0, elapsed_s=9.0, allocations_per_s=0.0)).endswith("at least 0 s to go")


def test_the_table_has_a_row_for_each_partition() -> None:
    out = StringIO()
    Console(file=out, width=100).print(table_of(progress(halfway(), log_s=40.0, elapsed_s=4.0, allocations_per_s=12.3)))
    rows = {words[0]: words[1:] for line in out.getvalue().splitlines() if (words := line.replace("│", " ").split())}
    assert rows["site-1"] == ["3", "3", "0", "1", "2", "0"]
    assert rows["site-2"] == ["1", "0", "0", "0", "0", "0"]
    assert rows["all"] == ["4", "3", "0", "1", "2", "0"]


def test_without_a_terminal_lines_are_printed_and_with_json_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    now = progress(halfway(), log_s=40.0, elapsed_s=4.0, allocations_per_s=12.3)
    for json, lines in ((True, 0), (False, 1)):
        with view_for(json=json) as view:
            assert isinstance(view, LineView)
            view.show(now)
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_a_terminal_has_a_live_table_that_is_wiped_at_the_end() -> None:
    out = StringIO()
    with LiveView(Console(file=out, force_terminal=True, width=100)) as view:
        view.show(progress(halfway(), log_s=40.0, elapsed_s=4.0, allocations_per_s=12.3))
        assert "site-1" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")
