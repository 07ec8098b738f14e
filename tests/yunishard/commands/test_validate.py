"""`yunishard validate`: what it says of files, and how it ends."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from yunishard.cli.main import main
from yunishard.common.config.parse import TEXT_BYTES_MAX

GOOD = "partitions:\n  - queues:\n      - name: root\n        submitacl: '*'\n        queues:\n          - name: a\n"
UNKNOWN_KEY = GOOD + "            shape: round\n"
MOVED = """\
partitions:
  - name: one
    queues:
      - {name: a, submitacl: '*', queues: [{name: x}]}
      - {name: b, submitacl: '*'}
  - name: two
    queues:
      - {name: a, submitacl: '*'}
      - name: b
        queues:
          - {name: x, submitacl: '*'}
"""


def judged(file: Path, text: str, *options: str) -> int:
    file.write_text(text)
    return main(["validate", *options, str(file)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queues.yaml"


def test_a_valid_file_is_status_0(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, GOOD) == 0
    assert capsys.readouterr().out == f"{file}: valid, 1 partition, 2 queues\n"


def test_every_problem_has_its_place_and_its_hint(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, UNKNOWN_KEY + "            parent: perhaps\n") == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{file}:7: partitions[0].queues[0].queues[0].shape: unknown key 'shape' (known are name, ")
    assert second.startswith(f"{file}:8: partitions[0].queues[0].queues[0].parent: ")


def test_what_cannot_be_loaded_although_it_is_allowed_counts_and_is_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged(file, GOOD + '            submitacl: "a  b"\n') == 1
    told = capsys.readouterr().out
    path = "partitions[0].queues[0].queues[0].submitacl"
    assert told.startswith(f"{file}:7: {path}: cannot be loaded: multiple spaces found in ACL: 'a  b' (")


def test_the_place_is_right_where_root_was_not_written(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, 'partitions:\n  - queues:\n      - name: a\n      - {name: b, adminacl: "a  b"}\n') == 1
    assert capsys.readouterr().out.startswith(f"{file}:4: partitions[0].queues[1].adminacl: cannot be loaded: ")


def test_rules_that_cannot_be_built_count_and_are_named(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, GOOD + "    placementrules:\n      - name: fixd\n") == 1
    told = capsys.readouterr().out
    path = "partitions[0].placementrules[0].name"
    assert told.startswith(f"{file}:8: {path}: placement rules cannot be built: unknown rule name specified fixd")


def test_a_queue_that_moves_between_partitions_is_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, MOVED) == 0
    warning, verdict = capsys.readouterr().out.splitlines()
    assert warning.startswith(f"{file}:11: warning: partitions[1].queues[1].queues[0].name: queue x is below root.b")
    assert verdict.startswith(f"{file}: valid")


def test_a_queue_that_moves_is_an_error_if_that_is_enforced(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, MOVED, "--same-hierarchy", "enforce") == 1
    assert "warning" not in capsys.readouterr().out


def test_a_queue_that_moves_is_not_looked_for_if_that_is_off(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, MOVED, "--same-hierarchy", "off") == 0
    assert "queue x" not in capsys.readouterr().out


def test_json_has_the_verdict_and_every_problem(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, UNKNOWN_KEY, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["valid"], document["warnings"]) == (False, [])
    [problem] = document["problems"]
    assert list(problem) == ["file", "line", "path", "message", "hint", "kind"]
    assert (problem["file"], problem["line"], problem["kind"]) == (str(file), 7, "parse")


def test_what_is_allowed_and_hardly_meant_is_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, GOOD + "            properties: {priority.polcy: fence}\n") == 0
    warning, verdict = capsys.readouterr().out.splitlines()
    path = "partitions[0].queues[0].queues[0].properties.priority.polcy"
    assert (
        warning == f"{file}:7: warning: {path}: priority.polcy means nothing to a queue (did you mean priority.policy?)"
    )
    assert verdict.startswith(f"{file}: valid")


def test_json_has_such_warnings_beside_the_verdict(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, GOOD + "            submitacl: 'ann, bob'\n", "--json", "--same-hierarchy", "enforce") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["valid"], document["problems"]) == (True, [])
    assert [(warning["line"], warning["kind"]) for warning in document["warnings"]] == [(7, "doubt")]


def test_several_files_are_all_judged_and_the_worst_decides(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.yaml").write_text(GOOD)
    missing = str(tmp_path / "none")
    file.write_text(UNKNOWN_KEY)
    assert main(["validate", missing, str(file), str(tmp_path / "other.yaml")]) == 2
    told = capsys.readouterr()
    assert told.err == f"yunishard validate: {missing}: cannot be read: no such file or directory\n"
    assert len(told.out.splitlines()) == 2


def test_options_may_stand_between_files(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(MOVED)
    assert main(["validate", str(file), "--same-hierarchy", "enforce", str(file)]) == 1
    assert capsys.readouterr().out.count(": queue x is below root.b") == 2


def test_a_partition_name_that_no_core_takes_is_a_problem(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, "partitions:\n- name: rm 1\n  queues: []\n") == 1
    assert capsys.readouterr().out.startswith(f"{file}:2: partitions[0].name: partition name 'rm 1' must be")


def test_standard_input_is_a_file_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
    assert main(["validate", "-"]) == 0
    assert capsys.readouterr().out.startswith("<stdin>: valid")


def test_bytes_that_are_no_text_cannot_be_read(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_bytes(b"\xff\xfe")
    assert main(["validate", "--json", str(file)]) == 2
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["kind"], problem["line"]) == ("unreadable", None)


@pytest.mark.parametrize("large", ["/dev/zero", "-"])
def test_a_file_without_an_end_is_too_large(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], large: str
) -> None:
    with Path("/dev/zero").open("rb") as zeros:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(zeros))
        assert main(["validate", large]) == 2
    name = "<stdin>" if large == "-" else large
    reason = "larger than 16 MiB, the most a configuration may have"
    assert capsys.readouterr().err == f"yunishard validate: {name}: cannot be read: {reason}\n"


def test_a_file_as_large_as_may_be_is_judged(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, GOOD + "#" * (TEXT_BYTES_MAX - len(GOOD))) == 0
    assert judged(file, GOOD + "#" * (TEXT_BYTES_MAX + 1 - len(GOOD))) == 2


def test_an_empty_file_is_valid_with_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(file, "") == 0
    assert capsys.readouterr().out.startswith(f"{file}: warning: there is no partition (")


def test_nothing_of_the_system_but_the_configuration_is_loaded(file: Path) -> None:
    file.write_text(GOOD)
    validate = f"main(['validate', {str(file)!r}])"
    script = f"import sys; from yunishard.cli.main import main; {validate}; print(sorted(sys.modules), end='')"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    loaded = done.stdout.splitlines()[-1]
    others = ("zmq", "asyncio", "uvloop", "deploy", "rich", "urllib.request")
    assert not [name for name in others if f"'{name}'" in loaded]
