"""The summary's numbers are those of the jobs, and its two forms tell the same."""

import json
from io import StringIO

import pytest
from rich.console import Console

from tests.yunishard.replay.swf_lines import swf_line, swf_log
from tests.yunishard.replay.test_machine import play, turn, with_core
from yunishard.workloads.replay.machine import Replay
from yunishard.workloads.replay.report import (
    MISSING_SHOWN_MAX,
    QUEUES_SHOWN_MAX,
    WAITS,
    Progress,
    Report,
    format_json,
    format_text,
    open_view,
    summarize,
)
from yunishard.workloads.replay.workload import plan


def replayed(*lines: str, nodes: int | None = None) -> Replay:
    replay = Replay(plan(swf_log(*lines), rm_id="replay", nodes=nodes), rm_id="replay")
    play(*with_core(replay))
    return replay


def summary_of(replay: Replay, *, malformed: int = 0) -> Report:
    return summarize(replay, elapsed_s=2.0, speed=1000.0, tick_s=0.02, malformed=malformed)


def test_waits_and_utilisation_of_a_partition_and_its_queues() -> None:
    # One processor, twenty jobs of 10 s each at once: they wait 0, 10, ... 190 s. With equal usage the queue with more
    # pending asks is first, so that the last ten jobs are of both queues in turn.
    lines = [swf_line(n, run=10, user=1 if n < 15 else 2) for n in range(20)]
    (site,) = replayed(*lines, "; Partition: 1 rl.ac.uk").plan.sites
    replay = Replay(plan(swf_log(*lines), rm_id="replay", load=20), rm_id="replay")
    assert site.partition == "rl.ac.uk"
    assert replay.plan.sites[0].processors == 1
    play(*with_core(replay))
    (partition,) = summary_of(replay).partitions
    assert (partition.total.wait_median_s, partition.total.wait_p95_s) == (95.0, 180.0)
    assert partition.total.utilisation == pytest.approx(1.0)
    assert [(row.name, row.jobs) for row in partition.queues] == [("root.g1.u1", 15), ("root.g1.u2", 5)]
    assert [row.utilisation for row in partition.queues] == [pytest.approx(0.75), pytest.approx(0.25)]
    assert (partition.queues[1].wait_median_s, partition.queues[1].wait_p95_s) == (150.0, 190.0)


def test_a_complete_replay_says_so() -> None:
    summary = summary_of(replayed(swf_line(1), swf_line(2, site=2)))
    assert summary.complete
    assert (summary.total.jobs, summary.total.done, summary.allocations) == (2, 2, 2)
    assert summary.log_s == 60.0
    assert summary.tick_log_s == 20.0
    text = format_text(summary)
    assert WAITS in text
    assert json.loads(format_json(summary))["waits"] == WAITS
    assert "2 of 2 jobs done, 2 allocations in 2.0 s (1 a second)" in text
    assert text.endswith("Every job ran, every allocation was released and confirmed, no application is left.")


def test_the_document_has_all_that_the_report_has() -> None:
    summary = summary_of(replayed(swf_line(1), swf_line(2, run=-1)), malformed=3)
    document = json.loads(format_json(summary))
    assert document["complete"] is True
    assert document["malformed"] == 3
    assert document["left_out"] == {"run time unknown": 1}
    assert document["partitions"][0]["total"]["name"] == "site-1"
    assert document["partitions"][0]["queues"][0]["jobs"] == 1
    text = format_text(summary)
    assert "Left out: 1 jobs (run time unknown)." in text
    assert "Skipped: 3 malformed lines." in text


def test_the_smaller_queues_of_a_partition_share_a_line_of_the_table() -> None:
    replay = replayed(*(swf_line(n, user=n % 8) for n in range(16)))
    summary = summary_of(replay)
    assert len(summary.partitions[0].queues) == 8
    lines = format_text(summary).splitlines()
    (rest,) = [line for line in lines if "more queues" in line]
    assert rest.split()[:4] == [str(8 - QUEUES_SHOWN_MAX), "more", "queues", "6"]
    table = lines[: lines.index("")]
    assert len({len(line) for line in table[:-1]}) == 1  # the last one, of all partitions, has no utilisation
    assert all(line == line.rstrip() for line in table)


def test_what_is_missing_is_listed_up_to_a_bound() -> None:
    replay = Replay(plan(swf_log(*(swf_line(n) for n in range(50))), rm_id="replay"), rm_id="replay")
    turn(*with_core(replay), 0.0)
    replay.note("interrupted")
    summary = summary_of(replay)
    assert not summary.complete
    assert summary.missing[0] == "interrupted"
    assert (len(summary.missing), summary.missing_count) == (MISSING_SHOWN_MAX, 51)
    assert summary.total.wait_median_s is None
    text = format_text(summary)
    assert "INCOMPLETE, 51 things are missing:" in text
    assert text.endswith(f"  and {51 - MISSING_SHOWN_MAX} more")


def halfway() -> Replay:
    lines = [swf_line(1, run=30), swf_line(2, run=60), swf_line(3, run=10), swf_line(4, submit=900, site=2, run=100)]
    replay, core = with_core(Replay(plan(swf_log(*lines), rm_id="replay", nodes=1), rm_id="replay"))
    for now in (0.0, 0.0, 30.0):
        turn(replay, core, now)
    return replay


def moment(replay: Replay, *, log_s: float = 40.0) -> Progress:
    return Progress(replay=replay, log_s=log_s, elapsed_s=4.0, allocations_per_s=12.3)


def test_a_line_counts_all_partitions_and_the_rest_is_at_least_that_of_the_log() -> None:
    now = moment(halfway())
    assert str(now) == (
        "  4.0 s  replaying: 3 of 4 jobs submitted, 1 running, 2 done; 12 allocations/s, at least 96 s to go"
    )


def test_nothing_is_guessed_before_the_start() -> None:
    replay = Replay(plan(swf_log(swf_line(1)), rm_id="replay"), rm_id="replay")
    assert "to go" not in str(Progress(replay=replay, log_s=0.0, elapsed_s=0.0, allocations_per_s=0.0))


def test_nothing_is_left_to_guess_at_the_end() -> None:
    replay = halfway()
    replay = Replay(replay.plan, rm_id="replay")
    play(*with_core(replay))
    progress = Progress(replay=replay, log_s=1000.0, elapsed_s=9.0, allocations_per_s=0.0)
    assert str(progress).endswith(" allocations/s")


def test_the_table_has_a_row_for_each_partition() -> None:
    out = StringIO()
    Console(file=out, width=100).print(moment(halfway()).build_table())
    rows = {words[0]: words[1:] for line in out.getvalue().splitlines() if (words := line.replace("│", " ").split())}
    assert rows["site-1"] == ["3", "3", "0", "1", "2", "0"]
    assert rows["site-2"] == ["1", "0", "0", "0", "0", "0"]
    assert rows["all"] == ["4", "3", "0", "1", "2", "0"]


def test_without_a_terminal_lines_are_printed_and_with_json_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    now = moment(halfway())
    for in_json, lines in ((True, 0), (False, 1)):
        with open_view(in_json=in_json) as (_, show):
            show(now)
        assert len(capsys.readouterr().out.splitlines()) == lines


def test_a_terminal_has_a_live_table_that_is_wiped_at_the_end() -> None:
    out = StringIO()
    with open_view(in_json=False, console=Console(file=out, force_terminal=True, width=100)) as (_, show):
        show(moment(halfway()))
        assert "site-1" in out.getvalue()
    assert out.getvalue().endswith("\x1b[2K")
