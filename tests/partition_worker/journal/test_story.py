"""`yunishard journal story`: what happened to an ask, in sentences."""

import json
import re
from pathlib import Path

import pytest

from tests.builders import apps, asks, config, gone, nodes, released
from tests.partition_worker.journal.session import QUEUES, START_S, Session, preempting
from yunishard.cli.main import main
from yunishard.journal_tools.sources import find_journal
from yunishard.journal_tools.story import EXPLAINED_MAX, tell_story


def told(one: Session, folder: Path, ask: str) -> list[tuple[float, str]]:
    """The sentences, with the seconds since the start."""
    source = find_journal(str(one.write(folder)), state=None, store=None)
    story, _ = tell_story(source, ask)
    return [(round(entry.time - START_S, 3), entry.text) for entry in story.entries]


def test_the_story_of_a_victim(tmp_path: Path) -> None:
    assert told(preempting(), tmp_path, "etl-2") == [
        (0, "Application etl-job of user alice was placed in queue root.batch."),
        (1, "Submitted: 5 B, application etl-job."),
        (1, "Allocated on node node-east after 0 s."),
        (
            40,
            (
                "Preempted for ask web-1 of application web-job in queue root.prod, which was below its guarantee. "
                "It had run for 39 s."
            ),
        ),
        (60, "Released: the RM confirmed it. It ran for 59 s."),
    ]


def test_the_story_of_an_ask_that_preempts(tmp_path: Path) -> None:
    sentences = told(preempting(), tmp_path, "web-1")
    assert sentences.pop(2)[1].startswith(
        "Waits because the nodes together have 10 B: 10 B are used, this ask needs 5 B"
    )
    assert sentences == [
        (2, "Application web-job of user bob was placed in queue root.prod."),
        (10, "Submitted: 5 B, application web-job."),
        (10.5, "Reported to the RM as an ask that only a larger cluster could place."),
        (40, "Reserved node node-east."),
        (40, "Preempted 1 allocation of root.batch on node node-east for it: etl-2."),
        (60, "Allocated on node node-east after 50 s."),
        (90, "Released: the RM released it. It ran for 30 s."),
    ]


def test_the_reasons_of_a_wait_change_with_the_partition(tmp_path: Path) -> None:
    waits = [text for _, text in told(preempting(), tmp_path, "etl-3") if re.match("Waits|Passes", text)]
    assert [text[:50] for text in waits] == [
        "Waits because root.batch may use 10 B at most: 10 ",
        "Waits because the nodes together have 10 B: 10 B a",
        "Passes all checks, and waits for its turn: root.pr",
    ]


def test_the_story_of_a_placeholder_and_its_replacement(tmp_path: Path) -> None:
    one = Session(config("root.a"))
    one.tell(0, nodes("n1 memory=10"), apps("gang root.a gang=memory:6 timeout=500000"))
    one.tell(1, asks("gang p1 memory=3 group=g placeholder", "gang p2 memory=3 group=g placeholder"))
    one.tell(5, asks("gang a1 memory=3 group=g"))
    placeholder = next(key for key, found in one.partition.allocations.items() if found.released)
    one.tell(6, released(f"gang {placeholder} type=PLACEHOLDER_REPLACED"))
    assert told(one, tmp_path / "1", placeholder)[1:] == [
        (1, "Submitted: 3 B, placeholder of task group g, application gang."),
        (1, "Allocated on node n1 after 0 s."),
        (5, "The placeholder is being replaced by a1."),
        (5, "The RM is asked to release it: replacing allocationKey: a1."),
        (6, "Released: the RM confirmed it. It ran for 5 s."),
    ]
    assert told(one, tmp_path / "2", "a1")[1:] == [
        (5, "Submitted: 3 B, application gang."),
        (
            5,
            (
                "Waits because it needs a placeholder of task group g: of the 2 left for 1 ask, 2 can be replaced, and "
                "0 have no node yet."
            ),
        ),
        (5, f"Replaces the placeholder {placeholder}; waits until its release is confirmed."),
        (5, f"Waits because it replaces the placeholder {placeholder} on n1, whose release the RM has not confirmed."),
        (6, "Allocated on node n1 after 1 s."),
    ]


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (nodes("n1", action=4), "Released: its node was removed. It ran for 9 s."),
        (gone("app"), "Released: its application was removed. It ran for 9 s."),
        (released("app a1"), "Released: the RM released it. It ran for 9 s."),
    ],
)
def test_the_end_has_its_cause(tmp_path: Path, end: object, text: str) -> None:
    one = Session(config("root.a"))
    one.tell(0, nodes("n1 memory=10"), apps("app root.a"), asks("app a1 memory=3"))
    one.tell(9, end)  # type: ignore[arg-type]
    assert told(one, tmp_path, "a1")[-1] == (9, text)


def test_an_ask_that_is_withdrawn_was_never_allocated(tmp_path: Path) -> None:
    one = Session(config("root.a max=memory:2"))
    one.tell(0, nodes("n1 memory=10"), apps("app root.a"), asks("app a1 memory=3")).tell(9, released("app a1"))
    assert told(one, tmp_path, "a1")[-1] == (9, "Removed: the RM released it.")


def test_what_is_reported_resized_or_rejected_is_told(tmp_path: Path) -> None:
    one = Session(config("root.a max=memory:8"))
    one.tell(0, nodes("n1 memory=10"), apps("app root.a"), asks("app a1 memory=3 on=n1"))
    one.tell(1, asks("app a1 memory=4 on=n1"), asks("other x1 memory=1"))
    assert [text for _, text in told(one, tmp_path / "1", "a1")][1:] == [
        "Reported by the RM as running on node n1: 3 B, application app.",
        "Its resources changed from 3 B to 4 B.",
    ]
    [(_, rejected)] = told(one, tmp_path / "2", "x1")
    assert rejected.startswith("Rejected: ")


def test_after_a_snapshot_the_story_begins_with_its_state(tmp_path: Path) -> None:
    one = preempting()
    journal = one.write(tmp_path, snapshot_after=len(one.steps))
    story, _ = tell_story(find_journal(str(journal), state=None, store=None), "web-2")
    first = story.entries[0]
    assert first.text == (
        "The journal begins; the ask is 25 s old, and it waits: 20 B, application web-job of user bob in queue "
        "root.prod."
    )
    assert story.entries[1].reason == "cluster-full"


def test_the_explained_moments_are_bounded(tmp_path: Path) -> None:
    one = Session(config(QUEUES))
    one.tell(0, nodes("n1 memory=10"), apps("app root.batch"), asks("app a0 memory=20"))
    for number in range(40):
        one.tell(number + 1, asks(f"app a{number + 1} memory=1"))
    waits = [text for _, text in told(one, tmp_path, "a0") if text.startswith("Waits")]
    assert 0 < len(waits) <= EXPLAINED_MAX


def test_the_story_is_printed_with_times_or_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal = str(preempting().write(tmp_path))
    assert main(["journal", "story", journal, "web-1"]) == 0
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}  Application web-job ", capsys.readouterr().out)
    assert main(["journal", "story", journal, "web-1", "--json", "--no-reasons"]) == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["what"] for one in entries] == [
        "placed",
        "submitted",
        "unschedulable",
        "reserved",
        "preempting",
        "allocated",
        "released",
    ]
    assert entries[1] == {
        "step": 9,
        "time": START_S + 10,
        "what": "submitted",
        "text": "Submitted: 5 B, application web-job.",
    }


def test_an_unknown_ask_is_refused_with_the_extent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["journal", "story", str(preempting().write(tmp_path)), "nope"]) == 2
    assert "nothing about ask nope: the journal has steps 1 to " in capsys.readouterr().err
