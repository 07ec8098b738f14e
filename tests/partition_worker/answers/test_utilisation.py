"""Every node is in one of ten buckets for each resource type that it has."""

import doctest
import json

import pytest

from common.query_messages import Query
from partition_worker.answers import queries, utilisation
from tests.builders import apps, asks, nodes
from tests.trial import Trial


def shown(trial: Trial) -> dict[str, dict[str, list[str]]]:
    """By type and bucket, the names of the nodes; empty buckets are left out."""
    body = queries.answer(trial.partition, "rm-1", Query(what="utilisation", name="gpu")).body
    document = json.loads(body)
    assert (document["clusterId"], document["partition"]) == ("rm-1", "gpu")
    found = {}
    for one in document.get("utilizations", []):
        assert [bucket["bucketName"] for bucket in one["utilization"]] == [f"{n}-{n + 10}%" for n in range(0, 100, 10)]
        filled = [bucket for bucket in one["utilization"] if "nodeNames" in bucket]
        assert all(bucket["numOfNodes"] == len(bucket["nodeNames"]) for bucket in filled)
        found[one["type"]] = {bucket["bucketName"]: bucket["nodeNames"] for bucket in filled}
    return found


def test_a_node_counts_for_every_type_that_it_has_and_for_no_other() -> None:
    trial = Trial("root.a").does(nodes("n2 memory=100", "n1 memory=100 gpu=4"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=10 on=n1", "app-1 a2 memory=11 on=n2"))
    assert shown(trial) == {"gpu": {"0-10%": ["n1"]}, "memory": {"0-10%": ["n1"], "10-20%": ["n2"]}}


def test_a_node_with_more_than_it_can_hold_is_in_the_last_bucket() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=100"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=90 on=n1")).does(asks("app-1 a2 memory=160 on=n1"))
    assert shown(trial) == {"memory": {"90-100%": ["n1"]}}


def test_without_nodes_there_is_nothing_to_list() -> None:
    assert shown(Trial("root.a")) == {}


@pytest.mark.parametrize(
    ("percent", "expected"), [(-5, 0), (1, 0), (20, 1), (21, 2), (99, 9), (101, 9), (2**31 - 1, 9)]
)
def test_a_bucket_includes_its_upper_bound(percent: int, expected: int) -> None:
    assert utilisation.bucket(percent) == expected


def test_the_examples_are_true() -> None:
    assert doctest.testmod(utilisation).failed == 0
