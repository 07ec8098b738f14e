"""Plans over REST: what the worker is asked, who may plan what, and every refusal."""

import json

import httpx
import msgspec
import pytest

from tests.webservice.fakes import FakeLink, loopback_users, partition, request
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.rest.plan import ConfigChange, NewJob, NewNodes, NodeDrain, NodeRemoval, PlanOrder

PATH = "/ws/v1/partition/default/plan"
REPORT = {"partition": "default", "changes": [], "at": 1, "horizon": 3600.0, "baseline": {}, "planned": {}}


def worker(query: Query) -> Answer:
    return Answer(status=200, body=json.dumps(REPORT).encode())


def plan(link: FakeLink, body: object, *, uid: int = 0) -> httpx.Response:
    return request(link, PATH, "POST", body=json.dumps(body).encode(), who=loopback_users(uid))


def order_of(link: FakeLink) -> PlanOrder:
    [(name, query)] = link.asked
    assert (name, query.what) == ("rm-1_default", "plan")
    return msgspec.json.decode(query.args["order"], type=PlanOrder)


def plan_one(**change: object) -> tuple[FakeLink, httpx.Response]:
    link = FakeLink(partition(), worker=worker)
    return link, plan(link, {"changes": [change]})


def test_changes_of_nodes_are_passed_on_with_amounts_in_base_units() -> None:
    link = FakeLink(partition(), worker=worker)
    changes: list[dict[str, object]] = [
        {"kind": "drain-node", "node": "n1"},
        {"kind": "remove-node", "node": "n2"},
        {"kind": "add-nodes", "count": 2, "resources": {"vcore": "4", "memory": "1Gi", "gpu": 2}},
    ]
    found = plan(link, {"changes": changes, "horizon": 60})
    assert (found.status_code, found.json()["partition"]) == (200, "default")
    size = {"vcore": 4000, "memory": 1 << 30, "gpu": 2}
    assert order_of(link) == PlanOrder([NodeDrain("n1"), NodeRemoval("n2"), NewNodes(2, size, {})], 60.0)


def test_a_configuration_is_validated_and_passed_on_with_the_difference_in_words() -> None:
    link, found = plan_one(
        kind="config", config="partitions:\n- name: default\n  queues:\n  - {name: a, resources: {max: {vcore: 1}}}\n"
    )
    assert found.status_code == 200
    [change] = order_of(link).changes
    assert isinstance(change, ConfigChange)
    assert change.text == "configuration: default root.a resources.max.vcore: nothing -> 1"
    assert change.config is not None
    assert change.config.root.queues[0].resources.max == {"vcore": "1"}


def test_limits_are_those_of_the_configuration_in_force_with_one_queue_changed() -> None:
    link, found = plan_one(kind="limit-queue", queue="root.a", max={"vcore": "2"}, maxApplications=3)
    assert found.status_code == 200, found.text
    [change] = order_of(link).changes
    assert isinstance(change, ConfigChange)
    assert change.config is not None
    assert (change.config.root.queues[0].resources.max, change.config.root.queues[0].max_applications) == (
        {"vcore": "2"},
        3,
    )


def test_a_partition_that_leaves_the_configuration_is_planned_as_its_removal() -> None:
    link, _ = plan_one(kind="config", config="partitions: [{name: other, queues: [{name: a}]}]")
    [change] = order_of(link).changes
    assert isinstance(change, ConfigChange)
    assert change.config is None


def test_a_job_of_an_administrator_names_its_user() -> None:
    link, found = plan_one(
        kind="submit", job={"user": "eve", "queue": "root.a", "resources": {"vcore": 1}, "tasks": 2, "runTime": "90s"}
    )
    assert found.status_code == 200
    assert order_of(link).changes == [
        NewJob("", "root.a", "eve", [], {}, {}, {"vcore": 1000}, 2, run_s=90.0, priority=0, gang=False)
    ]
    _, found = plan_one(kind="submit", job={"resources": {"vcore": 1}})
    assert (found.status_code, "needs the key user" in found.text) == (400, True)


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"kind": "drain-node"}, 400, "needs the key node"),
        ({"kind": "add-nodes"}, 400, "resources of a new node are missing"),
        ({"kind": "add-nodes", "resources": {"vcore": "x"}}, 400, "vcore 'x': invalid quantity"),
        ({"kind": "add-nodes", "count": 0, "resources": {"vcore": 1}}, 400, "$.changes[0].count"),
        ({"kind": "submit"}, 400, "needs the key job"),
        ({"kind": "submit", "job": {"user": "eve", "resources": {"vcore": 1}, "runTime": "soon"}}, 400, "duration"),
        ({"kind": "config"}, 400, "needs the key config"),
        ({"kind": "config", "config": "partitions: [{queues: [{name: a}, {name: A}]}]"}, 400, "duplicate"),
        ({"kind": "limit-queue", "queue": "root.a"}, 400, "names no limit"),
        ({"kind": "limit-queue", "queue": "root.dynamic", "max": {"vcore": "1"}}, 409, "root.dynamic"),
        ({"kind": "explode"}, 400, "is no plan"),
    ],
)
def test_a_request_that_cannot_be_planned_is_refused_with_its_reason(
    change: dict[str, object], status: int, words: str
) -> None:
    link, found = plan_one(**change)
    assert (found.status_code, words in found.json()["message"], link.asked) == (status, True, []), found.text


def test_more_changes_or_a_farther_horizon_than_the_limits_are_refused() -> None:
    link = FakeLink(partition(), worker=worker)
    assert plan(link, {"changes": [{"kind": "drain-node", "node": "n"}] * 17}).status_code == 400
    assert plan(link, {"horizon": 31 * 86_400}).status_code == 400
    assert request(link, PATH, "POST", body=b" " * (16 << 20) + b"{}", who=loopback_users(0)).status_code == 413
    assert link.asked == []
