"""Who sees what, role by role."""

import json

import pytest

from tests.builders import apps, asks, foreign, nodes
from tests.trial import Trial
from yunishard.common.config.acl import Acl
from yunishard.common.messages.query_messages import Actor, Query
from yunishard.partition_worker import queries
from yunishard.partition_worker.engine.durable_records import PreemptionRecord, VictimRecord
from yunishard.partition_worker.engine.user_resolution import User
from yunishard.partition_worker.redaction import Right, Visibility, redact_node, redact_queue

SUBMITTER = Actor(user="sue")
"""May submit below root.p."""
ADMINISTRATOR = Actor(user="al")
"""Administers root.p.a."""
OWNER = Actor(user="bob")
"""Has app-1 in root.p.a and app-3 in root.b, and no right at all any more."""
STRANGER = Actor(user="joe")
ROOT = Actor(user="rita")
"""Administers the root."""
SCHEDULER = Actor(user="op", scheduler_admin=True)


def acl(*users: str) -> Acl:
    return Acl(users=frozenset(users))


@pytest.fixture(scope="module")
def trial() -> Trial:
    one = Trial("root.p.a; root.p.b max=memory:9; root.b; root.q limit.user.bob=memory:3")
    one.does(nodes("n1 memory=50"), foreign("f1 n1 memory=1 foreign=default"))
    one.does(
        apps("app-1 root.p.a user=bob", "app-2 root.p.a user=eve", "app-3 root.b user=bob", "app-4 root.x user=eve")
    )
    one.does(asks("app-1 a1 memory=1", "app-2 a2 memory=2", "app-3 a3 memory=3"))
    find = one.partition.tree.find
    for path, submit, admin in (
        ("root", (), ("rita",)),
        ("root.p", ("sue",), ()),
        ("root.p.a", (), ("al",)),
        ("root.b", (), ()),
    ):
        queue = find(path)
        assert queue is not None
        queue.submit_acl, queue.admin_acl = acl(*submit), acl(*admin)
    return one


def status(trial: Trial, viewer: Actor, what: str, **args: str) -> int:
    query = Query(what=what, name="default", args=args, viewer=viewer)
    return queries.answer_partition_query(trial.partition, "rm-1", query).status


def told(trial: Trial, viewer: Actor, what: str, **args: str) -> object:
    query = Query(what=what, name="default", args=args, viewer=viewer)
    answer = queries.answer_partition_query(trial.partition, "rm-1", query)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def objects(shown: object) -> list[dict[str, object]]:
    assert isinstance(shown, list)
    return shown


def tree(trial: Trial, viewer: Actor) -> set[str]:
    text = json.dumps(told(trial, viewer, "queues"))
    return {one.path for one in trial.partition.tree if f'"queuename": "{one.path}"' in text}


EVERY_QUEUE = {"root", "root.p", "root.p.a", "root.p.b", "root.b", "root.q"}


@pytest.mark.parametrize(
    ("viewer", "queues", "applications", "users"),
    [
        (SUBMITTER, {"root", "root.p", "root.p.a", "root.p.b"}, [], []),
        (ADMINISTRATOR, {"root", "root.p", "root.p.a"}, ["app-1", "app-2"], []),
        (OWNER, {"root"}, ["app-1", "app-3"], ["bob"]),
        (STRANGER, {"root"}, [], []),
        (ROOT, EVERY_QUEUE, ["app-1", "app-2", "app-3"], ["bob", "eve"]),
        (SCHEDULER, EVERY_QUEUE, ["app-1", "app-2", "app-3"], ["bob", "eve"]),
    ],
    ids=["submitter", "administrator", "owner", "stranger", "root", "scheduler"],
)
def test_each_role_sees_its_queues_applications_and_users(
    trial: Trial, viewer: Actor, queues: set[str], applications: list[str], users: list[str]
) -> None:
    assert tree(trial, viewer) == queues
    active = objects(told(trial, viewer, "applications", state="active"))
    assert [one["applicationID"] for one in active] == applications
    assert [one["userName"] for one in objects(told(trial, viewer, "users"))] == users
    [node] = objects(told(trial, viewer, "nodes"))
    running = node.get("allocations", [])
    assert isinstance(running, list)
    assert [one["applicationId"] for one in running] == applications
    assert node["capacity"] == {"memory": 50}


def test_what_may_not_be_seen_is_not_found_as_if_it_were_not_there(trial: Trial) -> None:
    assert status(trial, STRANGER, "queue", queue="root.b") == 404
    assert status(trial, STRANGER, "queue-applications", queue="root.b") == 404
    assert status(trial, STRANGER, "application", application="app-1") == 404
    assert status(trial, STRANGER, "user", user="bob") == 404
    assert status(trial, SUBMITTER, "queue", queue="root.p.b") == 200
    assert status(trial, SUBMITTER, "application", application="app-1", queue="root.p.a") == 404


def test_a_queue_on_the_way_shows_its_name_and_its_place_only(trial: Trial) -> None:
    shown = told(trial, ADMINISTRATOR, "queue", queue="root.p")
    assert shown == {
        "queuename": "root.p",
        "status": "Active",
        "partition": "",
        "isLeaf": False,
        "isManaged": True,
        "parent": "root",
        "childNames": ["root.p.a"],
        "currentPriority": -(2**31),
        "sortingPolicy": "",
        "prioritySorting": False,
        "preemptionEnabled": False,
        "isPreemptionFence": False,
        "preemptionDelay": "0s",
        "quotaPreemptionDelay": "0s",
        "isPriorityFence": False,
    }


def test_a_queue_that_may_be_seen_is_shown_whole(trial: Trial) -> None:
    assert told(trial, SUBMITTER, "queue", queue="root.p.b") == told(trial, ROOT, "queue", queue="root.p.b")


def test_what_was_refused_is_shown_to_whoever_submitted_it(trial: Trial) -> None:
    for viewer, names in ((Actor(user="eve"), ["app-4"]), (OWNER, []), (SUBMITTER, []), (ROOT, ["app-4"])):
        refused = objects(told(trial, viewer, "applications", state="rejected"))
        assert [one["applicationID"] for one in refused] == names


def test_tags_of_what_others_run_are_for_those_who_see_everything(trial: Trial) -> None:
    for viewer, shown in ((OWNER, False), (SCHEDULER, True)):
        [node] = objects(told(trial, viewer, "nodes"))
        foreign_ones = node["foreignAllocations"]
        assert isinstance(foreign_ones, list)
        assert ["allocationTags" in one for one in foreign_ones] == [shown]


def test_a_user_sees_no_queue_by_a_limit_alone(trial: Trial) -> None:
    [whole] = [one for one in objects(told(trial, ROOT, "users")) if one["userName"] == "bob"]
    assert "root.q" in json.dumps(whole)
    [own] = objects(told(trial, OWNER, "users"))
    assert "root.q" not in json.dumps(own)
    assert "root.p.a" in json.dumps(own), "where an application of theirs is"


@pytest.mark.parametrize(
    ("viewer", "submit", "admin"),
    [
        (SUBMITTER, ["root.p"], []),
        (ADMINISTRATOR, ["root.p.a"], ["root.p.a"]),
        (STRANGER, [], []),
        (ROOT, ["root"], ["root"]),
        (SCHEDULER, ["root"], ["root"]),
    ],
    ids=["submitter", "administrator", "stranger", "root", "scheduler"],
)
def test_others_are_told_where_the_rights_of_a_viewer_begin(
    trial: Trial, viewer: Actor, submit: list[str], admin: list[str]
) -> None:
    assert told(trial, viewer, "visible") == {"submit": submit, "admin": admin}


def test_a_preemption_is_shown_to_those_whom_it_touches_without_the_others() -> None:
    one = Trial("root.a; root.b; root.c").does(nodes("n1 memory=50"))
    one.does(apps("app-1 root.a user=bob", "app-2 root.b user=eve", "app-3 root.c user=joe"))
    lost = (
        VictimRecord("a1", "app-1", "root.a", "n1", {"memory": 1}, 5),
        VictimRecord("a3", "app-3", "root.c", "n1", {}, 5),
    )
    entry = PreemptionRecord(
        one.now, "guaranteed", "root.b", "app-2", "a2", "n1", lost, 2, {"memory": 1}, {"memory": 5}
    )
    one.partition.preemptions.entries.append(entry)
    one.partition.tree.root.submit_acl = acl()
    find = one.partition.tree.find
    queue = find("root.c")
    assert queue is not None
    queue.admin_acl = acl("al")

    def names(viewer: Actor) -> list[tuple[object, ...]]:
        shown = objects(told(one, viewer, "preemptions"))
        return [(each["queueName"], each.get("applicationID"), *_ids(each["victims"])) for each in shown]

    assert names(SCHEDULER) == [("root.b", "app-2", "app-1", "app-3")]
    assert names(Actor(user="bob")) == [("", None, "app-1")], "whose allocation had to go"
    assert names(Actor(user="eve")) == [("root.b", "app-2")], "for whom it was done"
    assert names(ADMINISTRATOR) == [("", None, "app-3")], "in whose queue it was"
    assert names(SUBMITTER) == []


def _ids(victims: object) -> list[object]:
    return [one["applicationID"] for one in objects(victims)]


def test_nobody_in_particular_has_no_application() -> None:
    one = Trial("root.a").does(apps("app-1 root.a user=bob"))
    queue = one.partition.tree.root
    queue.submit_acl = acl()
    one.partition.applications["app-1"].user = type(one.partition.applications["app-1"].user)("")
    assert told(one, Actor(user=""), "applications", state="active") == []


@pytest.mark.parametrize("viewer", [SUBMITTER, ADMINISTRATOR, OWNER, STRANGER, ROOT])
def test_rights_are_those_that_queues_grant(trial: Trial, viewer: Actor) -> None:
    visible, user = Visibility(trial.partition, viewer), User(viewer.user, tuple(viewer.groups))
    for queue in trial.partition.tree:
        granted = Right.SUBMIT if queue.admits_submission(user) else Right.NOTHING
        assert visible.find_right(queue) is (Right.ADMINISTER if queue.admits_administration(user) else granted), (
            queue.path
        )


# Marks of operators ---------------------------------------------------------------------------------------------------


def test_the_user_who_stopped_a_queue_or_cordoned_a_node_is_shown_to_administrators_only() -> None:
    trial = Trial("root.a adminacl=ann submitacl=bob").does(nodes("n1 memory=1")).stops("root.a", "why").cordons("n1")
    for user, named in (("ann", True), ("bob", False)):
        visible = Visibility(trial.partition, Actor(user=user))
        stopped = redact_queue(trial.queue("root.a"), visible, subtree=False, partition="").stopped
        cordoned = redact_node(trial.node("n1"), visible).cordoned
        assert stopped is not None
        assert cordoned is not None
        assert (stopped.user, stopped.reason, cordoned.user) == ("op" if named else "", "why", "")
    cordoned = redact_node(trial.node("n1"), Visibility(trial.partition, None)).cordoned
    assert cordoned is not None
    assert cordoned.user == "op"
