"""The list of preemptions over REST."""

import json

from common.query_messages import Query
from partition_worker.answers import queries
from tests.partition_worker.engine.preemption.clusters import cluster, question
from tests.trial import Trial


def shown(trial: Trial, **args: str) -> object:
    answer = queries.answer(trial.partition, "rm-1", Query(what="preemptions", name="default", args=args))
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def preempted() -> Trial:
    trial = cluster("root.a; root.b guaranteed=memory:4", "n1 memory=4 gpu=1", "root.a a1 n1 memory=4 gpu=1")
    ask, running = question(trial, "root.b b1 memory=4"), list(trial.app("root.a").allocations.values())
    trial.partition.preemptions.record(trial.now + 42, ask, trial.node("n1"), running)
    trial.partition.preemptions.record_quota(trial.now + 43, trial.queue("root.a"), running)
    return trial


def test_an_entry_for_an_ask_and_one_for_a_quota() -> None:
    victim = {
        "allocationKey": "a1",
        "applicationID": "root.a",
        "queueName": "root.a",
        "nodeID": "n1",
        "resource": {"memory": 4, "gpu": 1},
    }
    assert shown(preempted()) == [
        {
            "time": 1_700_000_043 * 10**9,
            "kind": "quota",
            "queueName": "root.a",
            "victimCount": 1,
            "victims": [{**victim, "ranSeconds": 43}],
            "resource": {"memory": 4, "gpu": 1},
            "lost": {"memory": 172, "gpu": 43},
        },
        {
            "time": 1_700_000_042 * 10**9,
            "kind": "guaranteed",
            "queueName": "root.b",
            "applicationID": "root.b",
            "allocationKey": "b1",
            "nodeID": "n1",
            "victimCount": 1,
            "victims": [{**victim, "ranSeconds": 42}],
            "resource": {"memory": 4, "gpu": 1},
            "lost": {"memory": 168, "gpu": 42},
        },
    ]


def test_no_more_than_are_wanted() -> None:
    def kinds(**args: str) -> list[str]:
        found = shown(preempted(), **args)
        assert isinstance(found, list)
        return [one["kind"] for one in found]

    assert kinds(limit="1") == ["quota"]
    assert kinds(limit="0") == []
    assert kinds(limit="9") == ["quota", "guaranteed"]


def test_nothing_was_preempted_yet() -> None:
    assert shown(cluster("root.a")) == []


def test_pages_of_entries_go_on_where_the_one_before_ended_even_within_a_moment() -> None:
    trial = preempted()
    running = list(trial.app("root.a").allocations.values())
    for _ in range(3):
        trial.partition.preemptions.record_quota(trial.now + 50, trial.queue("root.a"), running)
    whole = shown(trial)
    assert isinstance(whole, list)
    found: list[object] = []
    after, more = "", True
    while more:
        query = Query(what="preemptions", name="default", args={"limit": "2", "after": after})
        answer = queries.answer(trial.partition, "rm-1", query)
        trial.partition.preemptions.record_quota(trial.now + 60, trial.queue("root.a"), running)  # newer ones may come
        found += json.loads(answer.body)
        after, more = answer.next, bool(answer.next)
    assert found == whole
