"""`yunishard journal replay`: the state at any moment that a journal holds."""

import json
import random
from datetime import datetime
from pathlib import Path

import pytest

from tests.builders import config
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import files_in, reader
from tests.partition_worker.journal.session import START_S, Session, preempting
from tests.properties.workload import Workload
from tests.recorded import content
from yunishard.cli.main import main
from yunishard.journal_tools.replay import parse_moment, replay_until, restore, verify_partition
from yunishard.journal_tools.sources import find_journal
from yunishard.partition_worker.engine.amounts import sum_of
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.recovery import recover


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return preempting().write(tmp_path)


def run(journal: Path, *words: str) -> int:
    return main(["journal", "replay", str(journal), *words])


def asks_of(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {row["ask"]: row["state"] for row in rows}


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (["--step", "5"], {"etl-1": "pending", "etl-2": "pending"}),
        (["--step", "6"], {"etl-1": "allocated", "etl-2": "allocated"}),
        (["--until", f"{START_S + 1.5}"], {"etl-1": "allocated", "etl-2": "allocated"}),
        (["--until", datetime.fromtimestamp(START_S).isoformat()], {}),
        (["--until", "93s"], {"etl-1": "allocated", "etl-2": "allocated", "etl-3": "pending"}),
    ],
)
def test_the_state_is_that_of_the_moment(
    journal: Path, capsys: pytest.CaptureFixture[str], moment: list[str], expected: dict[str, str]
) -> None:
    assert run(journal, *moment, "--asks", "--json") == 0
    assert asks_of(capsys) == expected


def test_a_time_as_it_is_printed_includes_its_step(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = datetime.fromtimestamp(START_S + 10).isoformat(sep=" ", timespec="milliseconds")
    assert run(journal, "--until", printed) == 0
    assert capsys.readouterr().out.startswith(f"{PARTITION} after step 9, {printed}\n")


def test_without_a_table_the_counts_and_the_queues_are_printed(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(journal, "--step", "9", "--check") == 0
    printed = capsys.readouterr()
    lines = [line.split() for line in printed.out.splitlines()]
    assert ["asks", "allocated", "2,", "pending", "2"] in lines
    assert ["root.batch", "Active", "1", "1", "2", *["memory", "5", "memory", "10", "-", "memory", "10"]] in lines
    assert printed.err == "restored: 8 objects verified\n"


def test_for_programs_the_whole_state_is_one_document(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(journal, "--step", "9", "--json", "--check") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["counts"]["last_step"] == 9
    assert {one["queue"]: one["allocations"] for one in document["queues"]} == {
        "root": 2,
        "root.batch": 2,
        "root.prod": 0,
    }
    assert [len(document[kind]) for kind in ("applications", "asks", "nodes")] == [2, 4, 1]
    assert document["checked"] == 8


@pytest.mark.parametrize("moment", [["--step", "0"], ["--until", "1h"], ["--until", "1"]])
def test_a_moment_before_the_journal_is_refused_with_its_extent(
    journal: Path, capsys: pytest.CaptureFixture[str], moment: list[str]
) -> None:
    assert run(journal, *moment) == 2
    assert "the journal does not hold this moment: it has steps 1 to " in capsys.readouterr().err


def test_a_moment_before_the_snapshot_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = preempting()
    journal = one.write(tmp_path, snapshot_after=len(one.steps))
    assert run(journal, "--step", "5") == 2
    assert f"it has a snapshot after step {len(one.steps)} and no later step" in capsys.readouterr().err
    assert run(journal) == 0


def test_a_step_after_the_last_is_refused(journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(journal, "--step", "999") == 2
    assert "there is no step 999: the journal has steps 1 to " in capsys.readouterr().err


def test_before_the_partition_starts_there_is_nothing_to_verify(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(journal, "--step", "1", "--check") == 1
    assert "at this moment there is no partition yet" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["soon", "2026-13-01", "12:00:00x"])
def test_a_time_that_is_none_is_refused(journal: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(journal, "--until", text)
    assert ended.value.code == 2
    assert f"got {text!r}" in capsys.readouterr().err


def test_a_duration_counts_back_from_the_end() -> None:
    assert parse_moment("90s")(1000.0) == parse_moment("-90s")(1000.0) == parse_moment("910")(0.0) == 910.0


@pytest.mark.parametrize("seed", range(10))
def test_a_replay_to_the_end_equals_recovery(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    one = Session(config("root.a max=memory:30; root.b guaranteed=memory:20"))
    workload, at = Workload(rng, leaves=("root.a", "root.b")), 0.0
    for command in [*workload.start(), *(workload.next() for _ in range(40))]:
        one.tell(at, command)
        at += rng.choice((0.0, 0.6, 2.7, 31.0))
    journal = one.write(tmp_path, snapshot_after=rng.choice((0, len(one.steps))))
    replay = replay_until(find_journal(str(journal), state=None, store=None))
    opened = reader(files_in(tmp_path))
    meta, snapshot = opened.open_snapshot()
    host = PartitionHost(partition=PARTITION, epoch=2)
    recovered = recover(host, snapshot, opened.read_steps(meta.begins))
    assert content(replay.recovery.image) == content(recovered.image)
    assert (replay.recovery.last, replay.recovery.at) == (recovered.last, recovered.at)
    assert verify_partition(restore(replay.recovery, PARTITION))[1] == []


def test_a_partition_with_a_wrong_sum_does_not_pass(tmp_path: Path) -> None:
    replay = replay_until(find_journal(str(preempting().write(tmp_path)), state=None, store=None), step=9)
    partition = restore(replay.recovery, PARTITION)
    partition.tree.root.allocated_sum = sum_of({"memory": 1})
    assert "root" in " ".join(verify_partition(partition)[1])
