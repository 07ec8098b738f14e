"""Rows of each table: which match, in which order, what a viewer sees of them."""

import json
from typing import cast

import pytest

from tests.builders import apps, asks, foreign, nodes, released
from tests.partition_worker.test_redaction import acl
from tests.trial import START_S, Trial
from yunishard.common.messages.query_messages import Actor, Answer, Query
from yunishard.common.rest.catalogue import TABLES, TableName
from yunishard.common.rest.views import Cell
from yunishard.partition_worker import queries, tables
from yunishard.partition_worker.tables import _BUILDERS, _sort

ADMINISTRATOR = Actor(user="al")
"""Administers root.p.a."""
SUBMITTER = Actor(user="sue")
"""May submit below root.p."""
OWNER = Actor(user="bob")
STRANGER = Actor(user="joe")

Row = dict[str, Cell]


@pytest.fixture(scope="module")
def trial() -> Trial:
    """app-1 runs and has two equal asks that wait, app-2 waits, app-3 has completed, app-4 was rejected."""
    one = Trial(
        "root.p.a max=memory:20 maxapps=5; root.p.b guaranteed=memory:5; root.p-c limit.user.eve=memory:8,apps:2"
    )
    one.does(
        nodes("n2 memory=10 gpu=2 tag.si/hostname=host-2 tag.zone=x", "n1 memory=10 tag.si/rackname=r1"),
        foreign("f1 n1 memory=1"),
    )
    one.does(apps("app-1 root.p.a user=bob groups=dev,qa", "App-2 root.p.b user=eve", "app-3 root.p.a user=bob"))
    one.does(apps("app-4 root.nosuch user=eve"), asks("app-3 c1 memory=1"))
    one.does(
        asks("app-1 a1 memory=4 on=n2", "app-1 a2 memory=15", "app-1 a3 memory=15", "app-1 a4 memory=12 priority=3")
    )
    one.does(asks("App-2 b1 gpu=3 required=n2", "App-2 b2 memory=2"))
    one.does(apps("app-5 root.p-c user=eve"), asks("app-5 e1 memory=2"))
    for path, submit, admin in (
        ("root", (), ()),
        ("root.p", ("sue",), ()),
        ("root.p.a", (), ("al",)),
    ):
        one.queue(path).submit_acl, one.queue(path).admin_acl = acl(*submit), acl(*admin)
    return one


def answer(trial: Trial, table: str, viewer: Actor | None = None, **args: str) -> Answer:
    query = Query(what=f"table-{table}", name="default", args=args, viewer=viewer)
    return queries.answer_partition_query(trial.partition, "rm-1", query)


def document(trial: Trial, table: str, viewer: Actor | None = None, **args: str) -> dict[str, object]:
    answered = answer(trial, table, viewer, **args)
    assert answered.status == 200, answered.body
    found = json.loads(answered.body)
    assert isinstance(found, dict)
    return found


def rows(trial: Trial, table: str, viewer: Actor | None = None, **args: str) -> list[Row]:
    found = document(trial, table, viewer, **args)
    columns, lines = cast("list[str]", found["columns"]), cast("list[list[Cell]]", found["rows"])
    return [dict(zip(columns, line, strict=True)) for line in lines]


def names(trial: Trial, table: str, viewer: Actor | None = None, **args: str) -> list[Cell]:
    return [next(iter(row.values())) for row in rows(trial, table, viewer, **args)]


def refusal(trial: Trial, table: str, **args: str) -> tuple[int, str]:
    answered = answer(trial, table, **args)
    return answered.status, answered.body.decode()


@pytest.mark.parametrize("table", TABLES)
def test_every_table_has_its_columns_and_can_be_sorted_by_each(trial: Trial, table: TableName) -> None:
    definition = TABLES[table]
    whole = document(trial, table)
    assert whole["columns"] == [one.name for one in definition.columns]
    assert whole["resources"] == ["gpu", "memory"]
    expected = sorted(map(json.dumps, cast("list[object]", whole["rows"])))
    amounts = [f"{column.name}.memory" for column in definition.columns if column.has_amounts]
    for column in (*definition.sortable, *amounts):
        for order in (column, f"-{column}"):
            found = document(trial, table, sort=order)
            assert sorted(map(json.dumps, cast("list[object]", found["rows"]))) == expected, order


@pytest.mark.parametrize("table", TABLES)
def test_a_part_of_a_sorted_table_is_cut_out_of_the_whole(trial: Trial, table: TableName) -> None:
    for column in TABLES[table].sortable:
        for order in (column, f"-{column}"):
            whole = document(trial, table, sort=order)
            everything = cast("list[object]", whole["rows"])
            for offset in range(len(everything) + 1):
                part = document(trial, table, sort=order, limit="2", offset=str(offset))
                assert part == {**whole, "rows": everything[offset : offset + 2]}, (order, offset)


def test_a_partial_sort_gives_the_same_rows_as_a_whole_one() -> None:
    items = [(number * 7 % 10 if number % 5 else None, number) for number in range(100)]
    for is_descending in (False, True):
        whole = _sort(items, lambda one: one[0], 100, is_descending=is_descending)
        assert len(whole) == 100
        assert [number for value, number in whole[-20:]] == list(range(0, 100, 5)), "null is last, in default order"
        for end in range(1, 100):
            assert _sort(items, lambda one: one[0], end, is_descending=is_descending) == whole[:end]


# Applications ---------------------------------------------------------------------------------------------------------


def test_an_application_has_its_amounts_and_counts(trial: Trial) -> None:
    [row] = rows(trial, "applications", text="P-1")
    assert row == {
        "application": "app-1",
        "state": "running",
        "queue": "root.p.a",
        "user": "bob",
        "groups": ["dev", "qa"],
        "pending": {"memory": 42},
        "asks": 3,
        "used": {"memory": 4},
        "allocations": 1,
        "submitted": row["submitted"],
        "started": row["started"],
        "finished": 0,
        "priority": 3,
        "reason": "cluster-full",
        "message": "",
    }
    assert row["submitted"] == pytest.approx(START_S * 1e9)


def test_a_rejected_application_has_the_reason(trial: Trial) -> None:
    [row] = rows(trial, "applications", state="rejected")
    assert (row["application"], row["state"], row["queue"], row["priority"]) == (
        "app-4",
        "rejected",
        "",
        None,
    )
    assert row["reason"] == "placement-rejected"
    assert "no placement rule matched" in str(row["message"])


def test_applications_are_filtered() -> None:
    one = Trial("root.p.a; root.p.b; root.pb").does(nodes("n1 memory=10", "n2 memory=10"))
    one.does(apps("app-1 root.p.a user=bob", "app-2 root.p.b user=eve", "app-3 root.pb user=eve"))
    one.does(asks("app-1 a memory=1 on=n1", "app-2 b memory=1 on=n2", "app-3 c memory=20"))
    one.does(apps("app-4 root.nosuch user=bob"))
    assert names(one, "applications") == ["app-1", "app-2", "app-3"]
    assert names(one, "applications", state="running") == ["app-1", "app-2"]
    assert names(one, "applications", state="accepted") == ["app-3"]
    assert names(one, "applications", state="ended") == ["app-4"]
    assert names(one, "applications", state="all") == ["app-1", "app-2", "app-3", "app-4"]
    assert names(one, "applications", queue="root.p") == []
    assert names(one, "applications", queue="root.p", subtree="true") == ["app-1", "app-2"]
    assert names(one, "applications", queue="root.p.b", subtree="false") == ["app-2"]
    assert names(one, "applications", user="eve") == ["app-2", "app-3"]
    assert names(one, "applications", node="n2") == ["app-2"]
    assert names(one, "applications", node="n2", user="bob") == []
    assert names(one, "applications", text="APP-1") == ["app-1"]
    assert names(one, "applications", state="all", user="bob", text="4") == ["app-4"]
    assert names(one, "applications", state="all", node="n1") == ["app-1"]


def test_completed_applications_are_found_by_their_state() -> None:
    one = Trial("root.a").does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    one.does(asks("app-1 a memory=1", "app-2 b memory=1"), released("app-2 b")).waits(40)
    assert names(one, "applications") == ["app-1"]
    for state in ("completed", "ended"):
        [row] = rows(one, "applications", state=state)
        assert (row["application"], row["state"], row["used"]) == ("app-2", "completed", {})
        assert int(str(row["finished"])) > int(str(row["submitted"]))
    assert names(one, "applications", state="all") == ["app-1", "app-2"]
    assert names(one, "applications", state="failed") == []


def test_what_is_not_there_is_an_error_that_names_it(trial: Trial) -> None:
    assert refusal(trial, "applications", queue="root.nosuch") == (404, "Queue not found: root.nosuch")
    assert refusal(trial, "applications", node="n9") == (404, "Node not found: n9")
    assert refusal(trial, "asks", application="app-9") == (404, "Application not found: app-9")
    assert refusal(trial, "users", queue="root.nosuch") == (404, "Queue not found: root.nosuch")
    assert refusal(trial, "nodes", sort="user")[1].startswith("nodes cannot be sorted by 'user', but by node, state,")


def test_amounts_sort_by_the_largest_share_of_the_cluster_or_by_one_type() -> None:
    one = Trial("root.a").does(nodes("n1 memory=1000 vcore=10"))
    one.does(apps("app-1 root.a", "app-2 root.a", "app-3 root.a", "app-4 root.a"))
    one.does(asks("app-1 a memory=2000", "app-2 b vcore=50", "app-3 c memory=3000 vcore=1"))
    assert names(one, "applications", sort="-pending") == ["app-2", "app-3", "app-1", "app-4"]
    assert names(one, "applications", sort="pending") == ["app-4", "app-1", "app-3", "app-2"]
    assert names(one, "applications", sort="-pending.memory") == ["app-3", "app-1", "app-2", "app-4"]
    assert names(one, "applications", sort="-pending.nosuch") == ["app-1", "app-2", "app-3", "app-4"]


def test_amounts_sort_by_what_is_asked_for_if_there_are_no_nodes() -> None:
    one = Trial("root.a").does(apps("app-1 root.a", "app-2 root.a"), asks("app-1 a memory=1", "app-2 b memory=2"))
    assert names(one, "applications", sort="-pending") == ["app-2", "app-1"]
    assert document(one, "applications")["resources"] == ["memory"]


# Asks -----------------------------------------------------------------------------------------------------------------


def test_equal_asks_are_one_row(trial: Trial) -> None:
    found = rows(trial, "asks", application="app-1")
    assert [(row["key"], row["count"], row["resource"]) for row in found] == [
        ("a4", 1, {"memory": 12}),
        ("a2", 2, {"memory": 15}),
    ]
    assert [(row["state"], row["reason"]) for row in found] == [("pending", "cluster-full")] * 2
    assert all(row["message"] for row in found)
    [required] = rows(trial, "asks", text="B1")
    assert (required["application"], required["requiredNode"], required["resource"]) == ("App-2", "n2", {"gpu": 3})
    assert names(trial, "asks", queue="root.p", subtree="true", sort="-count")[0] == "a2"
    assert names(trial, "asks", user="eve") == ["b1"]
    assert names(trial, "asks", text="app-1") == [], "the text is searched in the keys"


def test_placeholders_and_asks_that_wait_for_them_are_marked() -> None:
    one = Trial("root.a").does(nodes("n1 memory=2"), apps("app-1 root.a gang=memory:20"))
    one.does(asks("app-1 p1 memory=1 placeholder group=g", "app-1 p2 memory=9 placeholder group=g"))
    one.does(asks("app-1 r1 memory=3 group=g"))
    found = {str(row["key"]): row for row in rows(one, "asks")}
    assert (found["p2"]["placeholder"], found["p2"]["taskGroup"], found["p2"]["state"]) == (True, "g", "pending")
    assert (found["r1"]["placeholder"], found["r1"]["state"]) == (False, "held")


# Nodes ----------------------------------------------------------------------------------------------------------------


def test_a_node_has_its_amounts(trial: Trial) -> None:
    n1, n2 = rows(trial, "nodes")
    assert (n1["node"], n1["rack"], n1["foreign"], n1["partition"]) == ("n1", "r1", {"memory": 1}, "default")
    assert n2 == {
        "node": "n2",
        "state": "schedulable",
        "host": "host-2",
        "rack": "",
        "instanceType": "",
        "partition": "default",
        "capacity": {"memory": 10, "gpu": 2},
        "used": n2["used"],
        "foreign": {},
        "available": n2["available"],
        "allocations": n2["allocations"],
        "reserved": False,
        "utilization": n2["utilization"],
    }
    used = n2["used"]
    assert isinstance(used, dict)
    assert n2["utilization"] == 10.0 * used["memory"]


def test_nodes_are_filtered_and_sorted(trial: Trial) -> None:
    assert names(trial, "nodes", text="N2") == ["n2"]
    assert names(trial, "nodes", attribute="zone=x") == ["n2"]
    assert names(trial, "nodes", attribute="zone=y") == []
    assert names(trial, "nodes", state="unschedulable") == []
    assert names(trial, "nodes", state="reserved") == []
    assert names(trial, "nodes", sort="-capacity.gpu") == ["n2", "n1"]


def test_the_mark_of_an_operator_is_the_state(trial: Trial) -> None:
    trial.cordons("n2").stops("root.p")
    assert names(trial, "nodes", state="cordoned") == ["n2"]
    assert names(trial, "queues", state="stopped") == ["root.p"]


# Queues ---------------------------------------------------------------------------------------------------------------


def test_each_queue_comes_before_those_below_it(trial: Trial) -> None:
    whole = ["root", "root.p", "root.p.a", "root.p.b", "root.p-c"]
    assert names(trial, "queues") == whole
    assert names(trial, "queues", sort="queue") == whole
    assert names(trial, "queues", queue="root.p") == ["root.p"]
    assert names(trial, "queues", queue="root.p", subtree="true") == ["root.p", "root.p.a", "root.p.b"]
    assert names(trial, "queues", text="P.") == ["root.p.a", "root.p.b"]
    assert names(trial, "queues", state="draining") == []


def test_a_queue_has_its_amounts_and_no_maximum_is_null(trial: Trial) -> None:
    found = {str(row["queue"]): row for row in rows(trial, "queues")}
    a, b = found["root.p.a"], found["root.p.b"]
    assert (a["state"], a["leaf"], a["managed"], a["priority"]) == ("active", True, True, 3)
    assert (a["maximum"], a["maxApplications"], a["runningApplications"]) == ({"memory": 20}, 5, 2)
    assert a["pending"] == {"memory": 42}
    assert (b["maximum"], b["guaranteed"], b["maxApplications"]) == (None, {"memory": 5}, None)
    assert found["root"]["applications"] == 4
    assert found["root"]["maximum"] == {"memory": 20, "gpu": 2}
    headroom = a["headroom"]
    assert isinstance(headroom, dict)
    assert set(headroom) == {"memory", "gpu"}
    assert names(trial, "queues", sort="-maxApplications")[0] == "root.p.a", "null is last"
    assert names(trial, "queues", sort="maxApplications")[0] == "root.p.a", "null is last"


def test_a_queue_has_the_start_of_its_newest_allocation() -> None:
    one = Trial("root.p.a; root.p.b; root.c").does(nodes("n1 memory=10"))
    one.does(apps("app-1 root.p.a", "app-2 root.p.b", "app-3 root.c"), asks("app-1 a1 memory=1"))
    first_ns = int(one.now * 1e9)
    one.waits(60)
    one.does(asks("app-2 b1 memory=1", "app-1 a2 memory=20"))
    found = {str(row["queue"]): cast("int", row["lastAllocation"]) // 10**9 * 10**9 for row in rows(one, "queues")}
    later_ns = int(one.now * 1e9)
    assert found == {"root": later_ns, "root.p": later_ns, "root.p.a": first_ns, "root.p.b": later_ns, "root.c": 0}
    assert names(one, "queues", sort="-lastAllocation")[-1] == "root.c"
    assert names(one, "queues", waiting="true") == ["root", "root.p", "root.p.a"]


def test_one_object_is_found_by_its_name(trial: Trial) -> None:
    assert names(trial, "nodes", node="n2") == ["n2"]
    assert names(trial, "applications", application="app-1") == ["app-1"]
    assert names(trial, "applications", application="app-4", state="rejected") == ["app-4"]
    assert names(trial, "applications", application="app-1", state="all") == ["app-1"]
    assert refusal(trial, "nodes", node="n9") == (404, "Node not found: n9")


def test_viewers_do_not_learn_which_hidden_queues_wait(trial: Trial) -> None:
    assert names(trial, "queues", STRANGER, waiting="true") == []
    assert names(trial, "queues", ADMINISTRATOR, waiting="true") == ["root.p.a"]


# Users and groups -----------------------------------------------------------------------------------------------------


def test_users_have_a_row_for_each_queue_with_usage_or_a_limit(trial: Trial) -> None:
    found = rows(trial, "users", text="EV")
    assert [(row["name"], row["queue"]) for row in found] == [
        ("eve", "root"),
        ("eve", "root.p"),
        ("eve", "root.p.b"),
        ("eve", "root.p-c"),
    ]
    [limited] = rows(trial, "users", limited="true")
    assert limited == {
        "name": "eve",
        "queue": "root.p-c",
        "used": {"memory": 2},
        "maximum": {"memory": 8},
        "utilization": 50.0,
        "runningApplications": 1,
        "maxApplications": 2,
    }
    assert [row["name"] for row in rows(trial, "users", queue="root.p.a")] == ["bob"]
    assert {row["utilization"] for row in rows(trial, "users", text="bob")} == {None}


def test_groups_with_a_limit_have_rows() -> None:
    one = Trial("root limit.group.dev=apps:1").does(nodes("n1 memory=10"))
    [row] = rows(one, "groups")
    assert (row["name"], row["queue"], row["used"], row["maximum"], row["utilization"]) == (
        "dev",
        "root",
        {},
        None,
        0.0,
    )


# Visibility -----------------------------------------------------------------------------------------------------------


def test_viewers_get_rows_of_what_they_may_see(trial: Trial) -> None:
    assert names(trial, "applications", ADMINISTRATOR, state="all") == ["app-1", "app-3"]
    assert names(trial, "applications", OWNER) == ["app-1", "app-3"]
    assert names(trial, "applications", STRANGER, state="all") == []
    assert names(trial, "asks", ADMINISTRATOR) == ["a4", "a2"]
    assert names(trial, "asks", STRANGER) == []
    assert set(names(trial, "users", OWNER)) == {"bob"}
    assert names(trial, "users", STRANGER) == []
    assert names(trial, "nodes", STRANGER) == ["n1", "n2"]
    assert names(trial, "queues", STRANGER) == ["root"]
    assert names(trial, "queues", SUBMITTER) == ["root", "root.p", "root.p.a", "root.p.b"]
    assert answer(trial, "asks", STRANGER, application="app-1").status == 404
    assert answer(trial, "applications", STRANGER, queue="root.p").status == 404
    assert answer(trial, "applications", STRANGER, queue="root").status == 200


def test_a_queue_above_a_visible_one_has_no_amounts_and_they_do_not_decide_the_order(trial: Trial) -> None:
    root, p, a = rows(trial, "queues", ADMINISTRATOR)
    assert (root["queue"], p["queue"], a["queue"]) == ("root", "root.p", "root.p.a")
    for row in (root, p):
        public = {"queue", "state", "leaf", "managed"}
        assert {name for name, value in row.items() if value is not None} == public
    assert a["used"] is not None
    for order in ("-pending", "pending", "-applications", "runningApplications"):
        assert names(trial, "queues", ADMINISTRATOR, sort=order) == ["root.p.a", "root", "root.p"]


# Bounds ---------------------------------------------------------------------------------------------------------------


def test_a_table_with_too_many_objects_is_refused_with_what_narrows_it(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "EXAMINED_MAX", 1)
    status, text = refusal(trial, "asks")
    assert (status, text) == (
        503,
        "the table has more than 1 rows to choose from: narrow it with application or queue",
    )
    assert refusal(trial, "users")[0] == 503
    assert refusal(trial, "applications", state="all")[0] == 503
    assert answer(trial, "asks", application="app-5").status == 200


def test_a_table_is_sorted_by_reason_up_to_a_number_of_rows(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    by_reason = [row["reason"] for row in rows(trial, "applications", sort="-reason")]
    assert by_reason == sorted(map(str, by_reason), reverse=True)
    monkeypatch.setattr(tables, "REASONS_MAX", 1)
    assert refusal(trial, "asks", sort="reason")[0] == refusal(trial, "asks", sort="-message")[0] == 503
    assert answer(trial, "asks").status == 200


def test_an_answer_has_no_more_rows_than_the_limit_of_all(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_MAX", 2)
    found = document(trial, "applications", limit="5", state="all")
    assert (len(cast("list[object]", found["rows"])), found["total"]) == (2, 5)


def test_each_table_has_a_builder_and_a_query() -> None:
    assert set(_BUILDERS) == set(TABLES)
    assert {f"table-{name}" for name in TABLES} <= queries.CACHEABLE
