"""Which answer a question gets."""

import json

import pytest

from common.query_messages import Answer, Query
from partition_worker.answers import queries
from tests.builders import apps, asks, nodes, released
from tests.trial import Trial


@pytest.fixture(scope="module")
def trial() -> Trial:
    """app-1 runs, app-2 waits, app-3 has completed, app-4 was rejected."""
    one = Trial("root.a; root.p.b").does(nodes("n2 memory=10", "n1 memory=10"))
    one.does(apps("app-1 root.a user=bob", "app-2 root.p.b user=eve", "app-3 root.a", "app-4 root.x"))
    one.does(asks("app-3 c1 memory=1"), released("app-3 c1")).waits(30)
    return one.does(asks("app-1 a1 memory=4"), asks("app-2 b1 memory=40"))


def answer(trial: Trial, what: str, **args: str) -> Answer:
    return queries.answer(trial.partition, "rm-1", Query(what=what, name="default", args=args))


def told(trial: Trial, what: str, **args: str) -> object:
    answered = answer(trial, what, **args)
    assert answered.status == 200, answered.body
    return json.loads(answered.body)


def ids(trial: Trial, what: str, **args: str) -> list[str]:
    found = told(trial, what, **args)
    assert isinstance(found, list)
    return [one["applicationID"] for one in found]


def test_the_partition_is_shown_under_the_name_that_the_asker_knows(trial: Trial) -> None:
    shown = told(trial, "partition")
    assert isinstance(shown, dict)
    assert (shown["clusterId"], shown["name"], shown["totalNodes"]) == ("rm-1", "default", 2)


def test_queues_are_a_tree_from_the_root(trial: Trial) -> None:
    root = told(trial, "queues")
    assert isinstance(root, dict)
    assert (root["queuename"], root["partition"]) == ("root", "default")
    assert [child["queuename"] for child in root["children"]] == ["root.a", "root.p"]
    assert [child["queuename"] for child in root["children"][1]["children"]] == ["root.p.b"]


def test_one_queue_is_shown_alone_or_with_what_is_below(trial: Trial) -> None:
    alone, whole = told(trial, "queue", queue="root.P"), told(trial, "queue", queue="root.p", subtree="")
    assert isinstance(alone, dict)
    assert isinstance(whole, dict)
    assert (alone["partition"], alone["childNames"], "children" in alone) == ("", ["root.p.b"], False)
    assert [child["queuename"] for child in whole["children"]] == ["root.p.b"]


def test_applications_of_a_queue(trial: Trial) -> None:
    assert ids(trial, "queue-applications", queue="root.a") == ["app-1"]
    assert ids(trial, "queue-applications", queue="root.p") == []


def test_applications_by_state(trial: Trial) -> None:
    assert ids(trial, "applications", state="active") == ["app-1", "app-2"]
    assert ids(trial, "applications", state="active", status="running") == ["app-1"]
    assert ids(trial, "applications", state="active", status="accepted", queue="root.p.b") == ["app-2"]
    assert ids(trial, "applications", state="active", queue="root.p.b", status="running") == []
    assert ids(trial, "applications", state="completed") == ["app-3"]
    assert ids(trial, "applications", state="rejected") == ["app-4"]


def test_one_application_in_the_partition_or_in_its_queue(trial: Trial) -> None:
    for args in ({}, {"queue": "root.a"}):
        shown = told(trial, "application", application="app-1", **args)
        assert isinstance(shown, dict)
        assert (shown["applicationID"], shown["queueName"]) == ("app-1", "root.a")


def test_nodes_come_in_the_order_of_their_ids(trial: Trial) -> None:
    shown = told(trial, "nodes")
    assert isinstance(shown, list)
    assert [one["nodeID"] for one in shown] == ["n1", "n2"]


def test_one_node(trial: Trial) -> None:
    shown = told(trial, "node", node="n1")
    assert isinstance(shown, dict)
    assert shown["nodeID"] == "n1"


def test_users_of_applications_that_use_something_or_were_tried(trial: Trial) -> None:
    shown = told(trial, "users")
    assert isinstance(shown, list)
    assert [one["userName"] for one in shown] == ["bob", "eve"]
    assert told(trial, "groups") == []
    assert told(trial, "user", user="bob") == shown[0]


def test_groups_that_have_a_limit() -> None:
    one = Trial("root limit.group.dev=apps:1")
    shown = {"groupName": "dev", "queues": {"queuePath": "root", "maxApplications": 1}}
    assert told(one, "groups") == [shown]
    assert told(one, "group", group="dev") == shown


def test_health_is_what_the_latest_round_of_the_auditor_found(trial: Trial) -> None:
    shown = told(trial, "health")
    assert isinstance(shown, dict)
    assert (shown["nodes"], shown["drift"]) == (0, []), "there was no round yet since the partition began, empty"
    trial.partition.auditor.go_on(trial.partition)
    shown = told(trial, "health")
    assert isinstance(shown, dict)
    assert shown["nodes"] == len(trial.partition.fleet)


def page(trial: Trial, what: str, key: str, **args: str) -> tuple[list[str], str]:
    answered = answer(trial, what, **args)
    return [one[key] for one in json.loads(answered.body)], answered.next


def test_lists_come_in_pages_on_request(trial: Trial) -> None:
    assert page(trial, "nodes", "nodeID", limit="1") == (["n1"], "n1")
    assert page(trial, "nodes", "nodeID", limit="1", after="n1") == (["n2"], "")
    assert page(trial, "users", "userName", limit="1") == (["bob"], "bob")
    assert page(trial, "users", "userName", limit="1", after="bob") == (["eve"], "")
    assert page(trial, "groups", "groupName", limit="1") == ([], "")
    assert page(trial, "applications", "applicationID", state="active", limit="1") == (["app-1"], "app-1")
    assert page(trial, "applications", "applicationID", state="active", limit="1", after="app-1") == (["app-2"], "")
    assert page(trial, "applications", "applicationID", state="rejected", limit="1") == (["app-4"], "")
    assert page(trial, "queue-applications", "applicationID", queue="root.a", limit="5") == (["app-1"], "")


def test_a_page_of_applications_with_a_status_has_no_others(trial: Trial) -> None:
    wanted = {"state": "active", "status": "accepted", "limit": "1"}
    assert page(trial, "applications", "applicationID", **wanted) == (["app-2"], "")


def test_ended_applications_of_one_name_are_different_entries() -> None:
    one = Trial("root.a").does(nodes("n1 memory=10"))
    for _ in range(2):
        one.does(apps("app-1 root.a"), asks("app-1 a1 memory=1"), released("app-1 a1")).waits(31)
    first, after = page(one, "applications", "applicationID", state="completed", limit="1")
    assert (first, after.startswith("app-1-")) == (["app-1"], True)
    assert page(one, "applications", "applicationID", state="completed", limit="1", after=after) == (["app-1"], "")


@pytest.mark.parametrize(
    ("what", "args", "status", "reason"),
    [
        ("weather", {}, 400, "unknown question 'weather'"),
        ("queue", {"queue": "root.x"}, 404, "Queue not found"),
        ("queue", {}, 404, "Queue not found"),
        ("queue-applications", {"queue": "root.x"}, 404, "Queue not found"),
        ("applications", {"state": "active", "queue": "root.x"}, 404, "Queue not found"),
        ("applications", {}, 400, "unknown state None, expected active, completed or rejected"),
        ("applications", {"state": "lost"}, 400, "unknown state 'lost', expected active, completed or rejected"),
        ("application", {"application": "app-9"}, 404, "Application not found"),
        ("application", {"application": "app-1", "queue": "root.p.b"}, 404, "Application not found"),
        ("application", {"application": "app-1", "queue": "root.x"}, 404, "Queue not found"),
        ("node", {"node": "n9"}, 404, "Node not found"),
        ("node", {}, 404, "Node not found"),
        ("user", {"user": "joe"}, 404, "User not found"),
        ("user", {}, 404, "User not found"),
        ("group", {"group": "dev"}, 404, "Group not found"),
        ("group", {}, 404, "Group not found"),
    ],
)
def test_what_cannot_be_answered_is_told_with_a_status(
    trial: Trial, what: str, args: dict[str, str], status: int, reason: str
) -> None:
    assert answer(trial, what, **args) == Answer(status=status, body=reason.encode())


@pytest.mark.parametrize("what", ["partition", "queues", "nodes", "users"])
def test_a_question_changes_nothing(trial: Trial, what: str) -> None:
    step, deadline = trial.partition.step, trial.partition.deadline
    assert answer(trial, what) == answer(trial, what)
    assert (trial.partition.step, trial.partition.deadline) == (step, deadline)
