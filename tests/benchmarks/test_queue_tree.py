"""What is measured is what the table says."""

import json

from benchmarks.one_worker import OneWorker
from benchmarks.queue_tree import TREE, measured
from benchmarks.rest import configuration
from common.query_messages import Query


def test_the_whole_tree_is_answered_after_changes_and_without() -> None:
    found = measured(60, rounds=2)
    assert found.changed_ms > 0
    assert found.unchanged_ms > 0
    assert found.answer_bytes > 60 * 100


def test_the_question_is_the_one_of_the_web_service() -> None:
    root = json.loads(OneWorker(configuration(60)).answer(TREE).body)

    def count(queue: dict) -> int:  # type: ignore[type-arg]
        return 1 + sum(map(count, queue.get("children") or []))

    assert count(root) == 60


def test_a_worker_in_this_process_takes_another_configuration() -> None:
    worker = OneWorker(configuration(3))
    before = worker.worker.partition
    pieces = worker.reconfigure(configuration(40))
    assert all(seconds >= 0 for seconds in pieces)
    assert len(pieces) >= 2
    assert worker.answer(Query(what="nonsense")).status == 400
    partition = worker.worker.partition
    assert partition is not None
    assert partition is before, "it has begun anew instead"
    assert len(list(partition.tree)) == 40
