"""The parser takes real logs, names what is wrong with a line, and survives anything."""

import gzip
from contextlib import suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.yunishard.replay.swf_lines import swf_line, swf_log
from yunishard.cli.main import CommandUnusable
from yunishard.common.config.validation import find_build_problems
from yunishard.common.config.validation import load as load_configuration
from yunishard.common.names import PARTITION, QUEUE, USER
from yunishard.workloads.replay import workload
from yunishard.workloads.replay.workload import (
    ASKS_PER_SECOND_MAX,
    LINE_BYTES_MAX,
    MALFORMED_KEPT_MAX,
    NODES_MAX,
    TASKS_MAX,
    WATCHED_S,
    Job,
    Log,
    MalformedLineError,
    Plan,
    load,
    parse_job,
    parse_log,
    plan,
)

LINE = "2 3 -1 3611 4 -1 512 8 116400 1024 1 12 7 -1 -1 52 -1 -1"


def read(content: bytes) -> Log:
    return parse_log(BytesIO(content))


def test_a_job_line_has_its_columns_in_their_places() -> None:
    assert parse_job(LINE.encode()) == Job(
        number=2,
        submit_s=3,
        run_s=3611,
        processors=4,
        memory=1024 * 1024,
        is_part=False,
        user="u12",
        group="g7",
        site=52,
        estimate_s=116400,
    )


def test_columns_may_be_apart_by_any_blanks_and_fractions_are_rounded() -> None:
    assert parse_job(LINE.replace(" ", "\t  ").replace("3611", "3610.6").encode()).run_s == 3611


def test_comments_and_blank_lines_are_no_jobs() -> None:
    header = b"; Version: 2.2\n\n;Partition:  40 lxgate13.cern.ch   \r\n;    # sub\n"
    assert read(header) == Log(sites={40: "lxgate13.cern.ch"})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3", "3 columns, expected 18"),
        (LINE + " 5", "19 columns, expected 18"),
        (LINE.replace("3611", "abc"), "column 4 is no number: abc"),
        (LINE.replace("3611", "1_000"), "column 4 is no number: 1_000"),
        (LINE.replace("3611", "nan"), "column 4 is no number: nan"),
        (LINE.replace("3611", "1e13"), "column 4 is out of range: 1e13"),
        (LINE.replace("3611", "-2"), "column 4 is out of range: -2"),
        ("-1" + LINE[1:], "job number and submit time must be known"),
        (LINE.replace("2 3 ", "2 -1 "), "job number and submit time must be known"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: str, reason: str) -> None:
    with pytest.raises(MalformedLineError) as error:
        parse_job(line.encode())
    assert str(error.value) == reason


def test_a_job_number_is_used_once_except_by_the_parts_of_a_job() -> None:
    part, whole = swf_line(7, status=2), swf_line(7, status=1)
    log = read("\n".join([part, part, whole, whole]).encode())
    assert len(log.jobs) == 3
    assert log.malformed[0].startswith("line 4: job 7 appeared before: 7 ")


def test_an_endless_line_is_one_malformed_line() -> None:
    log = read(b"1 " * 3 * LINE_BYTES_MAX + b"\n" + LINE.encode())
    assert len(log.jobs) == 1
    [line] = log.malformed
    assert line.startswith(f"line 1: longer than {LINE_BYTES_MAX} bytes: 1 1 ")


def test_quoted_text_is_short_and_cannot_drive_a_terminal() -> None:
    [text] = read(b"\x1b[2J\x07\xe2\x80\xae" + b"x" * 500).malformed
    assert len(text) < 110
    assert text.isprintable()
    assert text.isascii()


def test_the_header_names_sites() -> None:
    assert swf_log("; Partition: 40 lxgate13.cern.ch", "; Partition: x", LINE).sites == {40: "lxgate13.cern.ch"}


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_packed_or_not_whatever_its_name(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.log"
    content = (LINE + "\n").encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    assert len(load(path).jobs) == 1


def test_malformed_lines_are_counted_and_the_first_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text("rubbish\n" * 50 + LINE)
    log = load(path)
    assert (len(log.jobs), log.malformed_count, len(log.malformed)) == (1, 50, MALFORMED_KEPT_MAX)
    with pytest.raises(CommandUnusable, match="line 1: 1 columns, expected 18: rubbish"):
        load(path, strict=True)


def test_files_that_cannot_be_used_are_refused_in_one_line(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(LINE.encode() * 100)[:40])
    broken = tmp_path / "broken.gz"
    broken.write_bytes(b"\x1f\x8b" + b"no gzip")
    deflate = tmp_path / "deflate.gz"
    deflate.write_bytes(gzip.compress(LINE.encode())[:12] + b"\xff" * 40)
    empty = tmp_path / "empty.swf"
    empty.touch()
    for path, text in [
        (cut, "damaged gzip"),
        (broken, "cannot read"),
        (deflate, "cannot read"),
        (empty, "no job in it"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file"),
    ]:
        with pytest.raises(CommandUnusable, match=text) as error:
            load(path)
        assert "\n" not in str(error.value)


def test_the_example_is_whole() -> None:
    log = load(Path(__file__).parents[3] / "examples" / "lcg-2005.swf.gz", strict=True)
    assert len(log.jobs) == 20_198
    assert {log.sites[job.site] for job in log.jobs} >= {"lxgate13.cern.ch", "rl.ac.uk"}


@given(st.binary(max_size=300))
def test_no_line_crashes(line: bytes) -> None:
    with suppress(MalformedLineError):
        parse_job(line)


@given(
    st.lists(st.sampled_from([LINE, ";", "; Partition: 1 a", "-1", "1e99", " ", "\n", "\r", "\0", "."]), max_size=60)
)
def test_no_file_crashes_and_every_line_has_its_number(pieces: list[str]) -> None:
    content = " ".join(pieces).encode()
    for text in read(content).malformed:
        number = int(text.removeprefix("line ").partition(":")[0])
        assert 1 <= number <= content.count(b"\n") + 1


@given(st.lists(st.integers(min_value=0, max_value=10**9), min_size=18, max_size=18))
def test_eighteen_numbers_are_a_job(values: list[int]) -> None:
    entry = parse_job(" ".join(map(str, values)).encode())
    assert [entry.number, entry.submit_s, entry.run_s, entry.site] == [values[0], values[1], values[3], values[15]]


def planned(*lines: str, partitions: int = 6, load: float = 0.7, nodes: int | None = None) -> Plan:
    return plan(swf_log(*lines), rm_id="replay", partitions=partitions, load=load, nodes=nodes)


def partitions(of: Plan) -> dict[str, int]:
    return {site.partition: sum(job.partition == site.partition for job in of.jobs) for site in of.sites}


def test_the_busiest_sites_are_partitions_and_the_others_share_one() -> None:
    sites = [1, 2, 2, 2, 3, 3, 4]
    wanted = planned(
        "; Partition: 2 rl.ac.uk", *(swf_line(n, site=site) for n, site in enumerate(sites, start=1)), partitions=2
    )
    assert partitions(wanted) == {"rl.ac.uk": 3, "site-3": 2, "other": 2}
    assert wanted.folded_sites == 2


def test_a_log_without_sites_is_one_partition() -> None:
    assert partitions(planned(swf_line(1, site=-1))) == {"default": 1}


def test_names_are_ones_that_the_core_takes_each_once() -> None:
    names = ["a b/c", "A-b-c", "replay_x", "x", "other", "x" * 200]
    header = [f"; Partition: {number} {name}" for number, name in enumerate(names, start=1)]
    jobs = [swf_line(10 * site + n, site=site) for site in range(1, 8) for n in range(10 - site)]
    found = list(partitions(planned(*header, *jobs)))
    assert found == ["a-b-c", "A-b-c-2", "replay_x", "x-2", "other", "x" * 56, "other-2"]
    assert all(PARTITION.fullmatch(name) for name in found)


def test_a_job_becomes_an_application_of_its_group_and_user() -> None:
    (job,) = planned(swf_line(5, run=90, processors=3, memory=100, user=34, group=12)).jobs
    assert job == Job(
        number=5,
        partition="site-1",
        site=1,
        group="g12",
        user="u34",
        submit_s=0,
        run_s=90,
        processors=3,
        memory=102_400,
        is_part=False,
    )
    assert job.application_id == "job-5"
    assert job.queue == "root.g12.u34"
    assert job.split_tasks() == {"job-5.1": 1, "job-5.2": 1, "job-5.3": 1}


def test_unknown_users_and_groups_have_a_name() -> None:
    (job,) = planned(swf_line(5, user=-1, group=-1)).jobs
    assert job.queue == "root.unknown.unknown"
    assert USER.fullmatch(job.user)
    assert QUEUE.fullmatch(job.group)


def test_jobs_are_submitted_in_order_from_the_first_one() -> None:
    wanted = planned(swf_line(1, submit=500), swf_line(2, submit=200), swf_line(3, submit=500))
    assert [(job.application_id, job.submit_s) for job in wanted.jobs] == [("job-2", 0), ("job-1", 300), ("job-3", 300)]


def test_what_cannot_be_replayed_is_counted_by_reason() -> None:
    wanted = planned(
        swf_line(1),
        swf_line(1, status=3),
        swf_line(2, run=-1),
        swf_line(3, run=-1),
        swf_line(4, processors=0),
        swf_line(5, processors=2_000_000),
        swf_line(6, memory=10**12),
        swf_line(7, processors=-1, requested=2),
    )
    assert [job.application_id for job in wanted.jobs] == ["job-1", "job-7"]
    assert wanted.jobs[1].processors == 2
    assert list(wanted.left_out.values()) == [1, 2, 1, 1, 1]


def test_a_site_has_the_processors_that_its_load_wants() -> None:
    lines = [swf_line(n, submit=n, run=1000) for n in range(100)]
    assert planned(*lines, load=1.0).sites[0].processors == 6 * 16  # the first multiple above 100,000 / 1,099
    assert planned(*lines, load=0.5).sites[0].processors > 180
    assert planned(*lines, nodes=3).sites[0].processors == 48


def test_a_small_site_has_one_small_node() -> None:
    (site,) = planned(swf_line(1, run=100), swf_line(2, submit=1000, run=100)).sites
    assert (site.nodes, site.node_processors) == (1, 1)


@given(st.integers(min_value=1, max_value=1_000_000))
def test_tasks_are_even_bounded_and_together_the_job(processors: int) -> None:
    (job,) = planned(swf_line(1, processors=processors)).jobs
    tasks = list(job.split_tasks().values())
    assert sum(tasks) == processors
    assert len(tasks) <= TASKS_MAX
    assert max(tasks) - min(tasks) <= 1


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 10**6)), min_size=1, max_size=30),
    st.sampled_from([0.01, 0.7, 5.0]),
    st.sampled_from([None, 1, 7]),
)
def test_every_task_fits_a_node(jobs: list[tuple[int, int, int]], load: float, nodes: int | None) -> None:
    lines = [swf_line(n, submit=s, run=r, processors=p, memory=p) for n, (s, r, p) in enumerate(jobs)]
    wanted = planned(*lines, load=load, nodes=nodes)
    (site,) = wanted.sites
    assert site.nodes <= NODES_MAX
    for job in wanted.jobs:
        assert max(job.split_tasks().values()) <= site.node_processors
        assert max(job.split_tasks().values()) * job.memory <= site.node_memory < 2**63
        if nodes is None:
            assert job.processors <= site.processors


def test_the_default_speed_is_about_a_minute_but_not_too_many_asks_a_second() -> None:
    day = planned(swf_line(1), swf_line(2, submit=86_400, run=0))
    assert day.default_speed == pytest.approx(86_400 / WATCHED_S)
    assert planned(swf_line(1, run=0)).default_speed == 1.0
    many = replace(day, jobs=day.jobs * 50_000)
    assert many.span_s / many.default_speed == pytest.approx(100_000 / ASKS_PER_SECOND_MAX)


def test_the_core_accepts_the_configuration() -> None:
    configuration = load_configuration(
        planned("; Partition: 1 0", swf_line(1), swf_line(2, site=2)).build_configuration()
    )
    assert [part.name for part in configuration.partitions] == ["0", "site-2"]
    assert not [problem for part in configuration.partitions for problem in find_build_problems(part)]


def test_the_example_has_six_busy_partitions() -> None:
    log = workload.load(Path(__file__).parents[3] / "examples" / "lcg-2005.swf.gz")
    wanted = plan(log, rm_id="replay")
    assert len(wanted.jobs) == len(log.jobs)
    assert wanted.sites[0].partition == "lxgate13.cern.ch"
    assert len(wanted.sites) == 6
    assert 1000 < sum(site.processors for site in wanted.sites) < 2000
