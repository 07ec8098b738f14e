"""`yunishard journal replay --config`: what another configuration decides from a moment on."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders import apps, asks, config, foreign, gone, nodes, released
from tests.machines import PARTITION
from tests.partition_worker.journal.session import START_S, Session, preempting
from tests.properties.workload import Workload
from yunishard.cli.main import main
from yunishard.common.config.model import PartitionConfig
from yunishard.common.messages.rm_messages import NODE_DRAIN, NODE_UPDATE
from yunishard.journal_tools.other_config import (
    AskOutcome,
    compare_runs,
    describe_assumptions,
    list_recorded,
    measure_agreement,
    play,
    summarize_run,
)
from yunishard.journal_tools.recorded_inputs import RecordedInputs, collect_inputs
from yunishard.journal_tools.replay import replay_until, restore
from yunishard.journal_tools.sources import find_journal
from yunishard.journal_tools.views import Source

OTHER = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues:
          - name: batch
            resources: {max: {memory: 10}}
          - name: prod
"""


@dataclass
class Replayed:
    """The rest of a journal after a step, and how to play it."""

    journal: Path
    step: int

    def __post_init__(self) -> None:
        self.inputs = collect_inputs(replay_until(self.source, step=self.step))

    @property
    def source(self) -> Source:
        return find_journal(str(self.journal), state=None, store=None)

    def play(self, wanted: PartitionConfig | None = None) -> dict[str, AskOutcome]:
        replay = replay_until(self.source, step=self.step)
        self.run = play(restore(replay.recovery, PARTITION), self.inputs, wanted)
        return self.run.asks

    def agreement(self) -> tuple[int, int]:
        self.play()
        return measure_agreement(list_recorded(self.inputs), self.run, self.inputs)


def starts(run: dict[str, AskOutcome]) -> dict[str, float | None]:
    return {key: None if one.started is None else round(one.started - START_S, 3) for key, one in run.items()}


@pytest.mark.parametrize("step", [2, 4, 6, 9, 12, 15, 19])
def test_the_recorded_configuration_decides_the_same_again(tmp_path: Path, step: int) -> None:
    replayed = Replayed(preempting().write(tmp_path), step)
    same, total = replayed.agreement()
    assert same == total
    assert summarize_run(replayed.run, replayed.inputs) == summarize_run(
        list_recorded(replayed.inputs), replayed.inputs
    )


def test_without_a_guarantee_nothing_is_preempted(tmp_path: Path) -> None:
    replayed = Replayed(preempting().write(tmp_path), 9)
    before = replayed.play()
    assert starts(before) == {"etl-1": 1, "etl-2": 1, "etl-3": 90, "web-1": 60, "web-2": None}
    assert (before["etl-2"].evicted, before["etl-2"].by) == (START_S + 40, "web-1")
    assert before["etl-3"].queue == "root.batch"
    run = replayed.run
    after = replayed.play(config("root.batch max=memory:10; root.prod"))
    assert starts(after) == {"etl-1": 1, "etl-2": 1, "etl-3": None, "web-1": 95, "web-2": None}
    assert {one.ask: one.text for one in compare_runs(run, replayed.run, replayed.inputs)[0]} == {
        "etl-2": "not evicted",
        "etl-3": "does not start",
        "web-1": "starts 35 s later, on node-east; running at the end in place of ended",
    }


def test_a_larger_queue_starts_more_and_earlier(tmp_path: Path) -> None:
    one = Session(config("root.a max=memory:4"))
    one.tell(0, nodes("n1 memory=20"), apps("app root.a"))
    one.tell(1, asks("app a1 memory=4", "app a2 memory=4", "app a3 memory=4"))
    one.tell(11, released("app a1"))
    one.tell(31, released("app a2"))
    one.tell(40, foreign("f1 n1 memory=1"), gone("app"))
    replayed = Replayed(one.write(tmp_path), 4)
    assert starts(replayed.play()) == {"a1": 1, "a2": 11, "a3": 31}
    after = replayed.play(config("root.a max=memory:12"))
    assert starts(after) == {"a1": 1, "a2": 1, "a3": 1}
    assert [round((found.ended or 0) - START_S) for found in after.values()] == [11, 21, 10], "as long as recorded"


def test_a_queue_that_is_missing_refuses_its_applications(tmp_path: Path) -> None:
    one = Session(config("root.a; root.b"))
    one.tell(0, nodes("n1 memory=20"), apps("app-1 root.a", "app-2 root.b"))
    one.tell(1, asks("app-1 a1 memory=4", "app-2 b1 memory=4"))
    replayed = Replayed(one.write(tmp_path), 2)
    before, first = replayed.play(), replayed.run
    assert before["b1"].state == "running"
    after = replayed.play(config("root.a"))
    assert after["b1"].state == "rejected"
    [found], _ = compare_runs(first, replayed.run, replayed.inputs)
    assert (found.ask, found.text.partition(":")[0]) == ("b1", "rejected")
    assert summarize_run(replayed.run, replayed.inputs).rejected == 1


def test_changes_of_nodes_and_of_the_configuration_are_replayed(tmp_path: Path) -> None:
    one = Session(config("root.a max=memory:4"))
    one.tell(0, nodes("n1 memory=4"), apps("app root.a"))
    one.tell(1, asks("app a1 memory=4", "app a2 memory=4", "app a3 memory=4", "app a4 memory=4"))
    one.configure(config("root.a max=memory:100"), 10)
    one.tell(20, nodes("n2 memory=4"))
    one.tell(30, nodes("n3 memory=4", "n4 memory=4"), nodes("n3", action=NODE_DRAIN))
    replayed = Replayed(one.write(tmp_path), 4)
    assert starts(replayed.play()) == {"a1": 1, "a2": 20, "a3": 30, "a4": None}
    assert starts(replayed.play(config("root.a max=memory:8"))) == {"a1": 1, "a2": 20, "a3": None, "a4": None}
    assert "Left out: 1 later change of the configuration." in describe_assumptions(
        replayed.inputs, ignores_configs=True
    )


def test_changed_attributes_of_a_node_are_replayed(tmp_path: Path) -> None:
    one = Session(config("root.a"))
    one.tell(0, nodes("n1 memory=4"), apps("app root.a"))
    one.tell(1, asks("app a1 memory=4 tag.yunishard/nodeSelector=zone=b"))
    one.tell(9, nodes("n1 tag.zone=b", action=NODE_UPDATE))
    assert starts(Replayed(one.write(tmp_path), 3).play()) == {"a1": 9}


def test_gangs_are_replayed(tmp_path: Path) -> None:
    one = Session(config("root.a"))
    one.tell(0, nodes("n1 memory=10"), apps("gang root.a gang=memory:6 timeout=500000"))
    one.tell(1, asks("gang p1 memory=3 group=g placeholder", "gang p2 memory=3 group=g placeholder"))
    one.tell(5, asks("gang a1 memory=3 group=g", "gang a2 memory=3 group=g"))
    for key in [key for key, found in one.partition.allocations.items() if found.released]:
        one.tell(6, released(f"gang {key} type=PLACEHOLDER_REPLACED"))
    replayed = Replayed(one.write(tmp_path), 2)
    assert replayed.play().keys() == {"a1", "a2"}
    assert {one.node for one in replayed.run.asks.values()} == {"n1"}


@pytest.mark.parametrize("seed", range(10))
def test_random_sessions_are_replayed_as_they_were(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    one = Session(config("root.a max=memory:30; root.b max=memory:20"))
    one.tell(0, nodes("n1 memory=20", "n2 memory=15"), apps("app-1 root.a", "app-2 root.b"))
    waiting: list[str] = []
    for number in range(40):
        job = rng.choice(("app-1", "app-2"))
        waiting.append(f"{job} k{number:02}")
        one.tell(number * 3, asks(f"{waiting[-1]} memory={rng.randint(1, 9)} priority={rng.randint(0, 2)}"))
        if rng.random() < 0.7:
            one.tell(number * 3 + 1, released(waiting.pop(rng.randrange(len(waiting)))))
    replayed = Replayed(one.write(tmp_path), rng.randint(2, len(one.steps)))
    same, total = replayed.agreement()
    assert same == total


@pytest.mark.parametrize("seed", range(5))
def test_any_session_can_be_replayed_under_another_configuration(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    one = Session(config("root.a max=memory:30; root.b guaranteed=memory:20"))
    workload, at = Workload(rng, leaves=("root.a", "root.b")), 0.0
    for command in [*workload.start(), *(workload.next() for _ in range(40))]:
        one.tell(at, command)
        at += rng.choice((0.0, 0.6, 2.7, 31.0))
    replayed = Replayed(one.write(tmp_path), rng.randint(2, len(one.steps)))
    replayed.play(config("root.a guaranteed=memory:10; root.b max=memory:10"))
    assert summarize_run(replayed.run, replayed.inputs).asks >= 0
    assert describe_assumptions(replayed.inputs, ignores_configs=True)


# The command ----------------------------------------------------------------------------------------------------------


def run(journal: Path, *words: str, text: str = OTHER) -> int:
    file = journal.with_name("other.yaml")
    file.write_text(text)
    return main(["journal", "replay", str(journal), *words, "--config", str(file)])


def test_the_differences_are_printed_with_what_is_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(preempting().write(tmp_path), "--step", "9", "--diff") == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["recorded", "3", "2", *["1", "min", "5", "s"], "1", "0", "1"] in lines
    assert ["other.yaml", "3", "1", *["1", "min", "25", "s"], "2", "0", "0"] in lines
    assert ["root.batch", "replayed", "1", "1", *["1", "min", "20", "s"], "0", "0", "1"] in lines
    assert "agrees with the journal for 3 of 3 asks.\n\n3 asks differ:\n" in out
    assert "\nAssumed:\n- An allocation runs as long as in the journal, whenever it starts.\n" in out


def test_the_differences_are_one_json_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(preempting().write(tmp_path), "--step", "9", "--diff", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["agreement"] == {"same": 3, "asks": 3}
    assert document["summary"]["other.yaml"]["waiting"] == 2
    found = {one["ask"]: one for one in document["differences"]}
    assert found["web-1"]["wait_change_s"] == 35
    assert (found["web-1"]["before"]["started"], found["web-1"]["after"]["node"]) == (START_S + 60, "node-east")


def test_an_equal_configuration_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = OTHER.replace("- name: prod", "- name: prod\n            resources: {guaranteed: {memory: 6}}")
    assert run(preempting().write(tmp_path), "--step", "9", "--diff", text=text) == 0
    assert "\nNo ask differs.\n" in capsys.readouterr().out


def test_without_diff_the_state_at_the_end_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = preempting().write(tmp_path)
    assert run(journal, "--step", "9") == 0
    out = capsys.readouterr().out
    assert "if other.yaml were in force from step 9 on\n" in out
    assert "root.prod   Active  1             1     1            memory 20  memory 5" in out
    assert run(journal, "--step", "9", "--asks", "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["ask"]: row["state"] for row in rows} == {
        "etl-2": "allocated",
        "etl-3": "pending",
        "web-1": "allocated",
        "web-2": "pending",
    }


def test_an_anonymised_export_can_be_replayed_under_another_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, target = preempting().write(tmp_path), tmp_path / "bug.jsonl.gz"
    assert main(["journal", "export", str(journal), "--anonymise", "--output", str(target)]) == 0
    text = OTHER.replace("batch", "queue-1").replace("prod", "queue-2")
    assert run(target, "--step", "9", "--diff", text=text) == 0
    assert "agrees with the journal for 3 of 3 asks.\n\n3 asks differ:\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("partitions: [", "other.yaml: "),
        (OTHER.replace("name: default", "name: gpu") + "  - name: cpu\n    queues: [{name: root}]\n", "no partition"),
        (
            OTHER + "    placementrules: [{name: tag}]\n",
            "cannot take this configuration at this moment: a tag queue rule",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    assert run(preempting().write(tmp_path), "--step", "9", text=text) == 2
    assert problem in capsys.readouterr().err


def test_options_that_need_each_other_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = preempting().write(tmp_path)
    assert main(["journal", "replay", str(journal), "--diff"]) == 2
    assert "--diff needs --config FILE" in capsys.readouterr().err
    assert run(journal, "--check") == 2
    assert "--check does not apply to --config" in capsys.readouterr().err


def test_what_cannot_be_replayed_is_counted() -> None:
    inputs = RecordedInputs()
    inputs.left_out["operator change"] = 2
    assert "Left out: 2 operator changes." in describe_assumptions(inputs, ignores_configs=False)
