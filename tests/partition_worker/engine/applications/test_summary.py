"""What is left of an application in the log when it ends."""

from partition_worker.engine.applications.history import Use
from partition_worker.engine.effects import Note
from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial


def summaries(one: Trial) -> list[str]:
    notes = (effect.part for effect in one.effects if isinstance(effect.part, Note))
    return [note.text for note in notes if note.text.startswith("summary") and note.for_people]


def test_an_application_that_ran_leaves_a_line_with_what_it_used() -> None:
    one = Trial().does(nodes("n1 memory=10 tag.si/instance-type=large"), apps("app-1 root.a user=bob"))
    one.does(asks("app-1 a1 memory=4")).waits(5.5).does(released("app-1 a1")).waits(30)
    (line,) = summaries(one)
    assert line == (
        "summary of application app-1: Completed, user bob, queue root.a, submitted 2023-11-14T22:13:20+00:00, "
        "started 2023-11-14T22:13:20+00:00, finished 2023-11-14T22:13:55+00:00, used {large: memory=20}, "
        "preempted {}, placeholders {} (amounts times seconds, by type of instance)"
    )
    (ended,) = one.partition.ended.values()
    assert ended.history == {(Use.REAL, "large"): {"memory": 20}}, "for those who keep a history"


def test_one_that_was_killed_leaves_one_too() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4")).waits(2.5)
    one.kills("app-1")
    (line,) = summaries(one)
    assert line.startswith("summary of application app-1: Failed, ")
    assert "used {UNKNOWN: memory=8}" in line


def test_one_that_never_ran_leaves_none() -> None:
    one = Trial().does(apps("app-1 root.a"), asks("app-1 a1 memory=4"), gone("app-1"))
    assert summaries(one) == []
