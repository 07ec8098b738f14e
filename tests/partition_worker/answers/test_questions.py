"""Versions of answers, what may be asked by whom, and how large an answer may be."""

import json

import pytest

from common.histogram import Histogram
from common.query_messages import NOT_MODIFIED, TOO_LONG, Actor, Answer, Query
from common.rm_messages import NodeInfo, NodeRequest
from common.wire import decoded
from partition_worker.answers import pages, questions
from partition_worker.replica import Replica
from tests.partition_worker.bench import NOW, Bench, ask

ANN = Actor(user="ann")
NODES_ASKED = Query(what="nodes", name="default")


@pytest.fixture
def bench() -> Bench:
    one = Bench()
    one.furnish()
    one.tell(ask("a1"))
    one.schedule()
    return one


def told(bench: Bench, query: Query) -> Answer:
    [sent] = bench.hear(query, ref="r1")
    return decoded(Answer, sent.body)


def asked(what: str, known: str = "", viewer: Actor | None = None, **args: str) -> Query:
    return Query(what=what, name="default", known=known, viewer=viewer, args=args)


def test_an_answer_holds_until_something_changes(bench: Bench) -> None:
    first = told(bench, asked("nodes"))
    assert json.loads(first.body)[0]["nodeID"] == "n1"
    assert told(bench, asked("nodes", first.version)) == Answer(status=NOT_MODIFIED, body=b"", version=first.version)
    bench.tell(ask("a2"))
    second = told(bench, asked("nodes", first.version))
    assert (second.status, second.version != first.version) == (200, True)
    bench.schedule()
    assert told(bench, asked("nodes", second.version)).status == 200


def test_time_that_changes_nothing_leaves_the_version(bench: Bench) -> None:
    first = told(bench, asked("queues"))
    bench.worker.tick(NOW)
    assert told(bench, asked("queues", first.version)).status == NOT_MODIFIED


def test_each_question_and_each_viewer_has_versions_of_its_own(bench: Bench) -> None:
    everything = [
        asked("queues"),
        asked("nodes"),
        asked("nodes", limit="1"),
        asked("nodes", viewer=ANN),
        asked("nodes", viewer=Actor(user="ann", groups=["dev"])),
        asked("nodes", viewer=Actor(user="ann", scheduler_admin=True)),
        Query(what="nodes", name="rm-1_default"),
    ]
    versions = [told(bench, query).version for query in everything]
    assert all(versions)
    assert len(set(versions)) == len(everything)


def test_a_successor_has_other_versions(bench: Bench) -> None:
    other = Replica(partition=bench.worker.name, epoch=bench.worker.epoch + 1)
    other.partition, other.changes = bench.worker.partition, bench.worker.replica.changes
    first = questions.answer(bench.worker.replica, NODES_ASKED, NOW, cycles=Histogram())
    assert questions.answer(other, NODES_ASKED, NOW, cycles=Histogram()).version != first.version


def test_another_process_under_the_same_lease_has_other_versions_however_often_it_changed(bench: Bench) -> None:
    other = Bench()
    other.furnish()
    other.tell(ask("a2"))
    other.schedule()
    other.worker.replica.pass_by(NOW + 60, 0)
    bench.worker.replica.pass_by(NOW + 30, 0)
    mine, theirs = bench.worker.replica, other.worker.replica
    assert (mine.epoch, mine.changes) == (theirs.epoch, theirs.changes)
    assert told(bench, NODES_ASKED).version != told(other, NODES_ASKED).version


def test_what_is_not_there_and_what_depends_on_the_time_has_no_version(bench: Bench) -> None:
    assert told(bench, asked("node", node="n9")).version == ""
    for what in ("health", "metrics", "events"):
        assert told(bench, asked(what)).version == "", what


def test_a_list_that_is_too_long_has_the_version_it_would_have(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.tell(NodeRequest(nodes=[NodeInfo(node_id="n2", action=1, schedulable_resource={})]))
    monkeypatch.setattr(pages, "WEIGHT_MAX", 1)
    first = told(bench, asked("nodes"))
    assert (first.status, bool(first.version)) == (TOO_LONG, True)
    assert told(bench, asked("nodes", first.version)).status == NOT_MODIFIED
    page = told(bench, asked("nodes", limit="5"))
    assert (page.status, page.next) == (200, "n1")


@pytest.mark.parametrize("what", ["metrics", "events"])
def test_what_is_not_made_for_viewers_is_for_those_who_see_everything(bench: Bench, what: str) -> None:
    refused = told(bench, asked(what, viewer=ANN))
    assert (refused.status, refused.body) == (403, f"who may not see everything may not ask for {what}".encode())
    assert told(bench, asked(what, viewer=Actor(user="op", scheduler_admin=True))).status == 200


def test_an_answer_that_is_larger_than_a_message_is_refused_with_advice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "ANSWER_BYTES_MAX", 10)
    found = told(bench, asked("nodes"))
    assert found.status == 503
    assert found.body.endswith(b"at most 10 can be sent: ask for a part of it, a list with limit")


def test_the_shell_says_how_long_it_took(bench: Bench) -> None:
    assert told(bench, asked("nodes")).took_micro_seconds == 0, "without a stopwatch"
    times = iter((7.0, 7.25))
    bench.worker.stopwatch = lambda: next(times)
    assert told(bench, asked("nodes")).took_micro_seconds == 250_000


def test_a_partition_that_has_not_begun_says_so() -> None:
    replica = Replica(partition="rm-1_default", epoch=1)
    assert questions.answer(replica, NODES_ASKED, NOW, cycles=Histogram()).status == 503
