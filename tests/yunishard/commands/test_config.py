"""`yunishard config`: what it asks of a running system, and what it makes of the answers."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.yunishard.commands.fake_web import FakeWeb, web
from yunishard.cli.commands.administration import choose_precondition, find_checksum
from yunishard.cli.main import CommandFailed, main
from yunishard.webservice.api import BODY_BYTES_MAX

CLUSTERS = [{"partition": "default", "clusterName": "c", "rmBuildInformation": [{"rmId": "rm-1"}]}]
OLD, NEW = "A" * 64, "B" * 64
CHANGED = {"checksum": NEW, "version": 2, "partitions": ["rm-1_default", "rm-1_gpu"], "file": False, "followers": []}
HISTORY = [
    {"version": 2, "checksum": NEW, "at": 1_700_000_000_000_000_000, "author": "ann", "origin": "api", "current": True},
    {"version": 1, "checksum": OLD, "at": 0, "author": "", "origin": "registration", "current": False},
]


@pytest.fixture
def fake() -> Iterator[FakeWeb]:
    with web() as fake:
        fake.says("GET clusters", CLUSTERS)
        fake.says("GET config?rm=rm-1", "partitions: []\n", tag=OLD)
        fake.says("PUT config?rm=rm-1", CHANGED, tag=NEW)
        fake.says("GET config/history?rm=rm-1", HISTORY)
        yield fake


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "queues.yaml"
    file.write_text("partitions: [{}]\n")
    return file


def config(fake: FakeWeb, *words: str) -> int:
    return main(["config", words[0], "--rest", fake.url, *words[1:]])


def test_get_prints_the_text_as_it_was_written(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert config(fake, "get") == 0
    assert capsys.readouterr().out == "partitions: []\n"


def test_get_in_json_has_the_checksum(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert config(fake, "get", "--rm", "rm-1", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"rm": "rm-1", "checksum": OLD, "config": "partitions: []\n"}
    assert fake.asked == ["GET config?rm=rm-1"]


def test_of_several_resource_managers_one_must_be_named(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [{"partition": "p", "rmBuildInformation": [{"rmId": "b"}, {"rmId": "a"}]}])
    assert config(fake, "get") == 1
    assert capsys.readouterr().err.endswith("name one with --rm: a, b\n")


def test_before_any_resource_manager_get_prints_what_the_first_will_get(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("GET clusters", [])
    fake.says("GET config/default", "partitions: [] # of the file\n", tag=OLD)
    assert config(fake, "get") == 0
    told = capsys.readouterr()
    assert told.out == "partitions: [] # of the file\n"
    assert "no resource manager is registered now" in told.err
    assert "what one gets that sends no configuration" in told.err
    assert config(fake, "get", "--json") == 0
    assert json.loads(capsys.readouterr().out)["checksum"] == OLD


@pytest.mark.parametrize("words", [["put", "FILE"], ["rollback", "1"]])
def test_an_edit_of_the_watched_file_is_overwritten_only_by_force(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    words = [str(file) if word == "FILE" else word for word in words]
    what = "PUT config?rm=rm-1" if words[0] == "put" else "POST config/rollback?rm=rm-1&version=1"
    reason = "the watched file /q.yaml has been edited: overwrite it (`--force`)"
    fake.refuses(what, 409, reason)
    assert config(fake, *words) == 1
    assert capsys.readouterr().err == f"yunishard config {words[0]}: {reason}\n"
    forced = what.replace("rm=rm-1", "rm=rm-1&force=true")
    fake.says(forced, CHANGED, tag=NEW)
    assert config(fake, *words, "--force") == 0


def test_put_prints_the_warnings_that_validate_prints(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warning = {
        "message": "nobody may submit",
        "path": "partitions[0].queues[0]",
        "line": 3,
        "hint": "submitacl",
        "kind": "x",
    }
    fake.says("PUT config?rm=rm-1", {**CHANGED, "warnings": [warning]}, tag=NEW)
    assert config(fake, "put", str(file)) == 0
    told = capsys.readouterr()
    assert told.err == f"{file}:3: warning: partitions[0].queues[0]: nobody may submit (submitacl)\n"
    assert told.out.endswith(f"{NEW}\n")


def test_without_a_resource_manager_there_is_nothing_to_show(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [])
    assert config(fake, "history") == 1
    told = capsys.readouterr().err
    assert "no resource manager is registered now" in told
    assert "--rm ID" in told


def test_put_starts_from_what_is_in_force(fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert config(fake, "put", str(file)) == 0
    assert capsys.readouterr().out == f"rm-1 runs version 2, partitions: rm-1_default, rm-1_gpu\nchecksum {NEW}\n"
    what, headers, body = fake.heard[-1]
    assert (what, headers["If-Match"], body) == ("PUT /ws/v1/config?rm=rm-1", f'"{OLD}"', file.read_bytes())


@pytest.mark.parametrize(
    ("followers", "more"),
    [([], ""), (["filer"], "; filer follows it"), (["filer", "other"], "; filer, other follow it")],
)
@pytest.mark.parametrize("action", ["put", "rollback"])
def test_a_change_that_goes_to_the_watched_file_says_who_follows(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str], followers: list[str], more: str, action: str
) -> None:
    what = "PUT config?rm=rm-1" if action == "put" else "POST config/rollback?rm=rm-1&version=1"
    fake.says(what, {**CHANGED, "file": True, "followers": followers}, tag=NEW)
    assert config(fake, action, str(file) if action == "put" else "1") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [f"written back to the watched file{more}", f"checksum {NEW}"]


def test_put_starts_from_the_checksum_in_the_file(fake: FakeWeb, file: Path) -> None:
    file.write_text(f"checksum: {OLD}\npartitions: []\n")
    assert config(fake, "put", str(file)) == 0
    assert fake.heard[-1][1]["If-Match"] == f'"{OLD}"'


@pytest.mark.parametrize("checksum", ["DEAD", NEW, OLD[:12], "5", "'x'"])
def test_another_checksum_in_the_file_is_refused(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str], checksum: str
) -> None:
    file.write_text(f"partitions: []\nchecksum: {checksum}\n")
    assert config(fake, "put", str(file)) == 1
    told = capsys.readouterr().err
    assert told.startswith("yunishard config put: the key `checksum` of the file is ")
    assert f"in force is {OLD}: look at what has changed" in told
    assert not [what for what in fake.asked if what.startswith("PUT")]


@pytest.mark.parametrize("option", ["put", "rollback"])
def test_what_is_not_in_force_changes_nothing(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert config(fake, option, str(file) if option == "put" else "1", "--if-match", NEW[:12]) == 1
    assert f"--if-match is '{NEW[:12]}', but in force is {OLD}: " in capsys.readouterr().err
    assert {what.split()[0] for what in fake.asked} == {"GET"}


def test_put_of_what_is_in_force_says_so(fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("PUT config?rm=rm-1", {**CHANGED, "checksum": OLD}, tag=OLD)
    assert config(fake, "put", str(file)) == 0
    told = capsys.readouterr().out
    assert told == f"already in force: version 2 of rm-1, partitions: rm-1_default, rm-1_gpu\nchecksum {OLD}\n"


@pytest.mark.parametrize(
    ("given", "sent"), [("*", "*"), (OLD, f'"{OLD}"'), (OLD[:8], f'"{OLD}"'), (OLD[:12].lower(), f'"{OLD}"')]
)
def test_put_starts_from_what_it_is_told(fake: FakeWeb, file: Path, given: str, sent: str) -> None:
    assert config(fake, "put", str(file), "--if-match", given, "--json") == 0
    assert fake.heard[-1][1]["If-Match"] == sent


def test_put_reads_standard_input(fake: FakeWeb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"partitions: [x]")))
    assert config(fake, "put", "-") == 0
    assert fake.heard[-1][2] == b"partitions: [x]"


def test_put_lists_every_problem_like_validate(fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problems = [
        {"line": 3, "path": "partitions[0].name", "message": "no", "hint": "yes", "kind": "k"},
        {"line": 0, "path": "", "message": "again", "hint": "", "kind": "k"},
    ]
    fake.refuses("PUT config?rm=rm-1", 400, "no", problems=problems)
    assert config(fake, "put", str(file)) == 1
    assert capsys.readouterr().err == f"{file}:3: partitions[0].name: no (yes)\n{file}: again\n"
    assert config(fake, "put", str(file), "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"problems": problems}


@pytest.mark.parametrize(
    ("status", "message", "told"),
    [
        (403, "User 'eve' is not a scheduler administrator", "User 'eve' is not a scheduler administrator"),
        (409, "a change is under way", "a change is under way"),
        (412, "it has B", "it has B: it was changed meanwhile; check it (`yunishard config get`), then try"),
    ],
)
def test_what_is_refused_is_told_in_the_systems_words(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str], status: int, message: str, told: str
) -> None:
    fake.refuses("PUT config?rm=rm-1", status, message)
    assert config(fake, "put", str(file)) == 1
    assert capsys.readouterr().err.startswith(f"yunishard config put: {told}")


def test_a_file_that_cannot_be_read_is_status_2(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert config(fake, "put", "/none") == 2
    assert capsys.readouterr().err == "yunishard config put: /none: cannot be read: no such file or directory\n"
    assert [what for what in fake.asked if what.startswith("PUT")] == []


def test_a_file_that_is_no_text_is_status_2(fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(b"ab\xff")
    assert config(fake, "put", str(file)) == 2
    assert capsys.readouterr().err == f"yunishard config put: {file}: cannot be read: not UTF-8 text (byte 2)\n"


def test_a_file_that_no_system_takes_is_not_sent(fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(b"#" * BODY_BYTES_MAX)
    assert config(fake, "put", str(file)) == 0
    file.write_bytes(b"#" * (BODY_BYTES_MAX - 1) + "ü".encode())
    assert config(fake, "put", str(file)) == 1
    assert "larger than 16 MiB" in capsys.readouterr().err
    assert len([what for what in fake.asked if what.startswith("PUT")]) == 1


def test_an_earlier_version_can_be_had(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET config/version/1?rm=rm-1", "partitions: [x]\n", tag=NEW)
    assert config(fake, "get", "1") == 0
    assert capsys.readouterr().out == "partitions: [x]\n"


@pytest.mark.parametrize("words", [("get", "7"), ("diff", "7"), ("rollback", "7")])
def test_a_version_that_is_not_kept_is_told_with_where_to_find_the_others(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert config(fake, *words) == 1
    assert capsys.readouterr().err.endswith(": `yunishard config history --rm rm-1` lists those that are kept\n")


@pytest.mark.parametrize("action", ["get", "history"])
def test_an_unknown_resource_manager_is_told_with_those_there_are(
    fake: FakeWeb, capsys: pytest.CaptureFixture[str], action: str
) -> None:
    assert config(fake, action, "--rm", "rm-2") == 1
    assert "404 page not found (registered: rm-1)" in capsys.readouterr().err


def test_the_history_of_one_that_is_away_can_be_had(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET clusters", [])
    fake.says("GET config/history?rm=rm-7", HISTORY)
    assert config(fake, "history", "--rm", "rm-7") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert config(fake, "get", "--rm", "rm-7") == 1
    assert "its earlier versions: `yunishard config history --rm rm-7`" in capsys.readouterr().err


def test_history_is_a_table_in_plain_columns(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    assert config(fake, "history") == 0
    heading, newest, oldest = capsys.readouterr().out.splitlines()
    assert heading.split() == ["version", "when", "author", "origin", "checksum"]
    assert newest.startswith("2 *      2023-11-1")
    assert newest.endswith("  ann     api           BBBBBBBBBBBB")
    assert oldest.split() == ["1", "-", "-", "registration", "AAAAAAAAAAAA"]


def test_diff_shows_the_last_change(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET config/version/1?rm=rm-1", "partitions: [x]\n")
    assert config(fake, "diff") == 1
    assert capsys.readouterr().out.splitlines() == [
        "--- rm-1 version 1",
        "+++ rm-1 current",
        "@@ -1 +1 @@",
        "-partitions: [x]",
        "+partitions: []",
    ]


def test_diff_with_a_file_and_without_a_difference(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("partitions: []\n")
    assert config(fake, "diff", "current", "--rm", "rm-1", str(file)) == 0, "options stand where they like"
    assert config(fake, "diff", str(file), "--json") == 0
    assert json.loads(capsys.readouterr().out)["diff"] == []


ONE_QUEUE = "partitions: [{queues: [{name: a, maxapplications: 1}]}]"
TWO_QUEUES = """\
# ours
partitions:
- queues:
  - {name: A, maxapplications: 2}
  - {name: b, properties: {x: "a\\nb"}}
"""


def test_a_summary_says_in_words_what_changes(fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET config?rm=rm-1", ONE_QUEUE)
    file.write_text(TWO_QUEUES)
    assert config(fake, "diff", "--summary", "current", str(file)) == 1
    told = capsys.readouterr().out.splitlines()
    assert told == ["queue default root.b added", "default root.a maxapplications: 1 -> 2"]
    assert config(fake, "diff", "current", str(file), "--summary", "--json") == 1
    assert json.loads(capsys.readouterr().out)[1] == {
        "kind": "queue-changed",
        "path": "default root.a maxapplications",
        "before": "1",
        "after": "2",
    }


def test_a_summary_has_one_line_for_a_change_whatever_its_value(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("GET config?rm=rm-1", TWO_QUEUES)
    file.write_text(TWO_QUEUES.replace('b"', 'c"'))
    assert config(fake, "diff", "--summary", str(file), "current") == 1
    assert capsys.readouterr().out == "default root.b properties.x: 'a c' -> 'a b'\n"


def test_a_summary_of_what_is_only_written_in_another_way_is_empty(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.says("GET config?rm=rm-1", TWO_QUEUES)
    file.write_text(TWO_QUEUES.replace("# ours", "# mine"))
    assert config(fake, "diff", "--summary", "current", str(file)) == 0
    assert config(fake, "diff", "--summary", "--json", "current", str(file)) == 0
    assert capsys.readouterr().out == "[]\n"


def test_what_is_no_configuration_cannot_be_summarised(
    fake: FakeWeb, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text("partitions: [{shape: round, size: 1}]")
    assert config(fake, "diff", "--summary", "current", str(file)) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith(
        f"yunishard config diff: {file}: no configuration to compare: line 1, partitions[0].shape"
    )
    assert "(and 1 more: see `yunishard validate`)" in told.err


def test_diff_needs_something_to_compare_with(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("GET config/history?rm=rm-1", HISTORY[:1])
    assert config(fake, "diff") == 1
    assert "there is no version before current of rm-1" in capsys.readouterr().err


def test_rollback_names_the_version_and_what_is_in_force(fake: FakeWeb, capsys: pytest.CaptureFixture[str]) -> None:
    fake.says("POST config/rollback?rm=rm-1&version=1", CHANGED)
    assert config(fake, "rollback", "1") == 0
    assert fake.heard[-1][1]["If-Match"] == f'"{OLD}"'
    assert capsys.readouterr().out.startswith("rm-1 runs version 2")


@pytest.mark.parametrize("version", ["0", "x", "-1", "1.5", "9" * 30])
def test_a_version_is_a_number(fake: FakeWeb, version: str) -> None:
    with pytest.raises(SystemExit) as ended:
        config(fake, "rollback", version)
    assert ended.value.code == 2


IN_FORCE = "0123456789ABCDEF" * 4


@pytest.mark.parametrize("option", [IN_FORCE, IN_FORCE.lower(), IN_FORCE[:8], IN_FORCE[:63], ""])
def test_the_first_digits_are_enough(option: str) -> None:
    assert choose_precondition(option=option, text="", in_force=IN_FORCE) == IN_FORCE


@pytest.mark.parametrize("option", ["0123456", "01234567x", IN_FORCE + "0", "latest", "-", "x" * 500])
def test_what_is_no_checksum_is_wrong_usage(option: str) -> None:
    with pytest.raises(CommandFailed, match="--if-match: expected a checksum") as failed:
        choose_precondition(option=option, text="", in_force=IN_FORCE)
    assert failed.value.status == 2
    assert len(str(failed.value)) < 200


def test_the_option_counts_before_the_text() -> None:
    assert choose_precondition(option="*", text="checksum: DEAD", in_force=IN_FORCE) == "*"
    assert choose_precondition(option=IN_FORCE[:8], text="checksum: DEAD", in_force=IN_FORCE) == IN_FORCE


@pytest.mark.parametrize(
    "text", [f"checksum: {IN_FORCE}", f"a: b\nchecksum: '{IN_FORCE.lower()}'  # mine", f"{{checksum: {IN_FORCE}}}"]
)
def test_the_key_of_the_text_counts_where_it_stands(text: str) -> None:
    assert choose_precondition(option="", text=text, in_force=IN_FORCE) == IN_FORCE


@pytest.mark.parametrize(
    "text", ["", "checksum:", "checksum: ''", "# checksum: DEAD", "a:\n  checksum: DEAD", "checksum: ["]
)
def test_a_text_without_one_starts_from_what_is_in_force(text: str) -> None:
    assert find_checksum(text) == ""
    assert choose_precondition(option="", text=text, in_force=IN_FORCE) == IN_FORCE


def test_a_list_or_a_map_is_no_checksum_and_is_left_to_the_system_to_refuse() -> None:
    assert find_checksum("checksum: [a]") == ""


def test_a_byte_order_mark_hides_nothing() -> None:
    assert find_checksum("\ufeffchecksum: DEAD") == "DEAD"
