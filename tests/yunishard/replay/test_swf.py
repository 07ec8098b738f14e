"""The parser takes real logs, names what is wrong with a line, and survives anything."""

import gzip
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.yunishard.replay.swf_lines import swf_line, swf_log
from yunishard.replay.swf import (
    LINE_BYTES_MAX,
    MALFORMED_KEPT_MAX,
    UNKNOWN,
    Comment,
    Job,
    Malformed,
    SwfError,
    entries,
    job_of,
    load,
)

LINE = "2 3 -1 3611 4 -1 512 8 116400 1024 1 12 7 -1 -1 52 -1 -1"


def read(content: bytes) -> list[Job | Malformed | Comment]:
    return list(entries(BytesIO(content)))


def malformed(line: str) -> Malformed:
    entry = job_of(line.encode(), 5)
    assert isinstance(entry, Malformed)
    return entry


def test_a_job_line_has_its_columns_in_their_places() -> None:
    assert job_of(LINE.encode(), 9) == Job(
        line=9,
        number=2,
        submit_s=3,
        wait_s=UNKNOWN,
        run_s=3611,
        processors=4,
        memory_kb=512,
        processors_requested=8,
        memory_requested_kb=1024,
        status=1,
        user=12,
        group=7,
        partition=52,
    )


def test_columns_may_be_apart_by_any_blanks_and_fractions_are_rounded() -> None:
    entry = job_of(LINE.replace(" ", "\t  ").replace("3611", "3610.6").encode(), 1)
    assert isinstance(entry, Job)
    assert entry.run_s == 3611


def test_comments_and_blank_lines_are_no_jobs() -> None:
    header = b"; Version: 2.2\n\n;Partition:  40 lxgate13.cern.ch   \r\n;    # sub\n"
    assert read(header) == [
        Comment("Version", "2.2"),
        Comment("Partition", "40 lxgate13.cern.ch"),
        Comment("", ";    # sub"),
    ]


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
    assert malformed(line) == Malformed(5, malformed(line).text, reason)


def test_a_job_number_is_used_once_except_by_the_parts_of_a_job() -> None:
    part, whole = swf_line(7, status=2), swf_line(7, status=1)
    kinds = [type(entry) for entry in read("\n".join([part, part, whole, whole]).encode())]
    assert kinds == [Job, Job, Job, Malformed]


def test_an_endless_line_is_one_malformed_line() -> None:
    found = read(b"1 " * 3 * LINE_BYTES_MAX + b"\n" + LINE.encode())
    assert [type(entry) for entry in found] == [Malformed, Job]
    assert isinstance(found[0], Malformed)
    assert found[0].reason == f"longer than {LINE_BYTES_MAX} bytes"
    assert isinstance(found[1], Job)
    assert found[1].line == 2


def test_quoted_text_is_short_and_cannot_drive_a_terminal() -> None:
    text = malformed("\x1b[2J\x07\u202e" + "x" * 500).text
    assert len(text) < 70
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
    with pytest.raises(SwfError, match="line 1: 1 columns, expected 18: rubbish"):
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
        with pytest.raises(SwfError, match=text) as error:
            load(path)
        assert "\n" not in str(error.value)


def test_the_example_is_whole() -> None:
    log = load(Path(__file__).parents[3] / "examples" / "lcg-2005.swf.gz", strict=True)
    assert len(log.jobs) == 20_198
    assert {log.sites[job.partition] for job in log.jobs} >= {"lxgate13.cern.ch", "rl.ac.uk"}


@given(st.binary(max_size=300))
def test_no_line_crashes(line: bytes) -> None:
    assert isinstance(job_of(line, 1), Job | Malformed)


@given(
    st.lists(st.sampled_from([LINE, ";", "; Partition: 1 a", "-1", "1e99", " ", "\n", "\r", "\0", "."]), max_size=60)
)
def test_no_file_crashes_and_every_line_has_its_number(pieces: list[str]) -> None:
    content = " ".join(pieces).encode()
    for entry in read(content):
        if isinstance(entry, Malformed):
            assert 1 <= entry.line_number <= content.count(b"\n") + 1


@given(st.lists(st.integers(min_value=0, max_value=10**9), min_size=18, max_size=18))
def test_eighteen_numbers_are_a_job(values: list[int]) -> None:
    entry = job_of(" ".join(map(str, values)).encode(), 1)
    assert isinstance(entry, Job)
    assert [entry.number, entry.submit_s, entry.run_s, entry.partition] == [values[0], values[1], values[3], values[15]]
