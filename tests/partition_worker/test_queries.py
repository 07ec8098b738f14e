"""Which answer a question gets."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import apps, asks, nodes, released
from tests.partition_worker.bench import APP, NOW, Bench, ask
from tests.trial import Trial
from yunishard.common.messages.control_messages import Settings
from yunishard.common.messages.query_messages import NOT_MODIFIED, TOO_LONG, Actor, Answer, Query
from yunishard.common.messages.rm_messages import NodeInfo, NodeRequest
from yunishard.common.messages.wire import decode_body
from yunishard.partition_worker import queries, views
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.queries import select_page


@pytest.fixture(scope="module")
def trial() -> Trial:
    """app-1 runs, app-2 waits, app-3 has completed, app-4 was rejected."""
    one = Trial("root.a; root.p.b").does(nodes("n2 memory=10", "n1 memory=10"))
    one.does(apps("app-1 root.a user=bob", "app-2 root.p.b user=eve", "app-3 root.a", "app-4 root.x"))
    one.does(asks("app-3 c1 memory=1"), released("app-3 c1")).waits(30)
    return one.does(asks("app-1 a1 memory=4"), asks("app-2 b1 memory=40"))


def answer(trial: Trial, what: str, **args: str) -> Answer:
    return queries.answer_partition_query(trial.partition, "rm-1", Query(what=what, name="default", args=args))


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
    trial.partition.auditor.check_slice(trial.partition)
    shown = told(trial, "health")
    assert isinstance(shown, dict)
    assert shown["nodes"] == len(trial.partition.nodes)


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
    step, deadline = trial.partition.step_number, trial.partition.deadline
    assert answer(trial, what) == answer(trial, what)
    assert (trial.partition.step_number, trial.partition.deadline) == (step, deadline)


ANN = Actor(user="ann")
NODES_ASKED = Query(what="nodes", name="default")


@pytest.fixture
def bench() -> Bench:
    one = Bench()
    one.furnish()
    one.tell(ask("a1"))
    one.schedule()
    return one


def answer_of(bench: Bench, query: Query) -> Answer:
    [sent] = bench.hear(query, ref="r1")
    return decode_body(Answer, sent.body)


def asked(what: str, known: str = "", viewer: Actor | None = None, **args: str) -> Query:
    return Query(what=what, name="default", known=known, viewer=viewer, args=args)


def test_an_answer_holds_until_something_changes(bench: Bench) -> None:
    first = answer_of(bench, asked("nodes"))
    assert json.loads(first.body)[0]["nodeID"] == "n1"
    assert answer_of(bench, asked("nodes", first.version)) == Answer(
        status=NOT_MODIFIED, body=b"", version=first.version
    )
    bench.tell(ask("a2"))
    second = answer_of(bench, asked("nodes", first.version))
    assert (second.status, second.version != first.version) == (200, True)
    bench.schedule()
    assert answer_of(bench, asked("nodes", second.version)).status == 200


def test_time_that_changes_nothing_leaves_the_version(bench: Bench) -> None:
    first = answer_of(bench, asked("queues"))
    bench.worker.tick(NOW)
    assert answer_of(bench, asked("queues", first.version)).status == NOT_MODIFIED


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
    versions = [answer_of(bench, query).version for query in everything]
    assert all(versions)
    assert len(set(versions)) == len(everything)


def test_a_successor_has_other_versions(bench: Bench) -> None:
    other = PartitionHost(partition=bench.worker.name, epoch=bench.worker.host.epoch + 1)
    other.partition, other.changes = bench.worker.partition, bench.worker.host.changes
    first = queries.answer_query(bench.worker.host, NODES_ASKED, NOW, encode_metrics=lambda _: b"")
    assert queries.answer_query(other, NODES_ASKED, NOW, encode_metrics=lambda _: b"").version != first.version


def test_another_process_under_the_same_lease_has_other_versions_however_often_it_changed(bench: Bench) -> None:
    other = Bench()
    other.furnish()
    other.tell(ask("a2"))
    other.schedule()
    other.worker.host.advance(NOW + 60, 0)
    bench.worker.host.advance(NOW + 30, 0)
    mine, theirs = bench.worker.host, other.worker.host
    assert (mine.epoch, mine.changes) == (theirs.epoch, theirs.changes)
    assert answer_of(bench, NODES_ASKED).version != answer_of(other, NODES_ASKED).version


def test_what_is_not_there_and_what_depends_on_the_time_has_no_version(bench: Bench) -> None:
    assert answer_of(bench, asked("node", node="n9")).version == ""
    for what in ("health", "metrics", "events"):
        assert answer_of(bench, asked(what)).version == "", what


def test_a_list_that_is_too_long_has_the_version_it_would_have(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.tell(NodeRequest(nodes=[NodeInfo(node_id="n2", action=1, schedulable_resource={})]))
    monkeypatch.setattr(queries, "WEIGHT_MAX", 1)
    first = answer_of(bench, asked("nodes"))
    assert (first.status, bool(first.version)) == (TOO_LONG, True)
    assert answer_of(bench, asked("nodes", first.version)).status == NOT_MODIFIED
    page = answer_of(bench, asked("nodes", limit="5"))
    assert (page.status, page.next) == (200, "n1")


@pytest.mark.parametrize("what", ["metrics", "events"])
def test_what_is_not_made_for_viewers_is_for_those_who_see_everything(bench: Bench, what: str) -> None:
    refused = answer_of(bench, asked(what, viewer=ANN))
    assert (refused.status, refused.body) == (403, f"who may not see everything may not ask for {what}".encode())
    assert answer_of(bench, asked(what, viewer=Actor(user="op", scheduler_admin=True))).status == 200


@pytest.mark.parametrize(("what", "argument"), [("events", "count"), ("event-lines", "start"), ("account", "since")])
def test_an_argument_that_is_no_number_is_refused(bench: Bench, what: str, argument: str) -> None:
    bench.hear(Settings(values={"event.trackingEnabled": "true"}))
    found = answer_of(bench, asked(what, **{argument: "x"}))
    assert (found.status, found.body) == (400, b'strconv.ParseUint: parsing "x": invalid syntax')


def test_an_answer_that_is_larger_than_a_message_is_refused_with_advice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ANSWER_BYTES_MAX", 10)
    found = answer_of(bench, asked("nodes"))
    assert found.status == 503
    assert found.body.endswith(b"at most 10 can be sent: ask for a part of it, a list with limit")


def test_the_shell_says_how_long_it_took(bench: Bench) -> None:
    assert answer_of(bench, asked("nodes")).took_micro_seconds == 0, "without a stopwatch"
    times = iter((7.0, 7.25))
    bench.worker.cpu_timer = lambda: next(times)
    assert answer_of(bench, asked("nodes")).took_micro_seconds == 250_000


def test_a_partition_that_has_not_begun_says_so() -> None:
    replica = PartitionHost(partition="rm-1_default", epoch=1)
    assert queries.answer_query(replica, NODES_ASKED, NOW, encode_metrics=lambda _: b"").status == 503


KEYS = ["b", "d", "a", "c"]
ENTRIES = {key: key.upper() for key in KEYS}


def test_without_a_limit_everything_comes_in_the_order_of_keys() -> None:
    assert select_page(ENTRIES, {}) == (["A", "B", "C", "D"], "")


def test_a_page_is_in_order_and_says_after_what_to_go_on() -> None:
    assert select_page(ENTRIES, {"limit": "2"}) == (["A", "B"], "b")
    assert select_page(ENTRIES, {"limit": "2", "after": "b"}) == (["C", "D"], "")


def test_it_begins_behind_a_key_that_has_gone() -> None:
    assert select_page(ENTRIES, {"limit": "1", "after": "bb"}) == (["C"], "c")


def test_what_is_not_shown_takes_no_place_and_is_not_named() -> None:
    assert select_page(ENTRIES, {"limit": "2", "after": ""}, shows=lambda one: one in "AD") == (["A", "D"], "")
    assert select_page(ENTRIES, {"limit": "1", "after": ""}, shows=lambda one: one in "AD") == (["A"], "a")


def test_a_page_ends_where_it_would_take_long_but_has_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "WEIGHT_MAX", 5)

    def weigh(one: str) -> int:
        return 9 if one == "C" else 2

    assert select_page(ENTRIES, {"limit": "4", "after": ""}, weigh=weigh) == (["A", "B"], "b")
    assert select_page(ENTRIES, {"limit": "4", "after": "b"}, weigh=weigh) == (["C"], "c")
    assert select_page(ENTRIES, {"limit": "4", "after": "c"}, weigh=weigh) == (["D"], "")


def test_a_whole_list_that_would_take_long_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "WEIGHT_MAX", 5)
    assert select_page(ENTRIES, {}) == (["A", "B", "C", "D"], "")
    assert select_page({"a": 9}, {}, weigh=lambda one: one) == ([9], ""), "one entry has no pages"
    with pytest.raises(NotDone, match="ask for pages of it with limit"):
        select_page(ENTRIES, {}, weigh=lambda _: 2)


@given(st.sets(st.text(min_size=1, max_size=3)), st.integers(1, 4))
def test_all_pages_together_are_the_list(keys: set[str], limit: int) -> None:
    entries = {key: key for key in sorted(keys, reverse=True)}
    found: list[str] = []
    after, more = "", True
    while more:
        some, after = select_page(entries, {"limit": str(limit), "after": after})
        found, more = found + some, bool(after)
    assert found == sorted(keys)


# Large answers --------------------------------------------------------------------------------------------------------


def large_bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Two applications; one has seven allocations and eight pending asks in no order."""
    monkeypatch.setattr(queries, "LARGE_MIN", 4)
    monkeypatch.setattr(views, "PIECE_MAX", 3)
    bench = Bench()
    bench.tell(NodeRequest(nodes=[NodeInfo(node_id="n1", action=1, schedulable_resource={"vcore": 7})]))
    bench.tell(APP)
    bench.tell(apps("b root.batch"))
    bench.tell(ask(*(f"k{number * 4 % 15:02}" for number in range(15))))
    bench.schedule()
    return bench


@pytest.mark.parametrize(
    ("what", "args"),
    [
        ("application", {"application": "a"}),
        ("application", {"application": "b"}),
        ("applications", {"state": "active"}),
        ("queue-applications", {"queue": "root.batch"}),
    ],
)
def test_a_large_answer_is_encoded_in_turns_and_is_the_same(
    what: str, args: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = large_bench(monkeypatch)
    query = Query(what=what, name="default", args=args)
    assert bench.worker.partition is not None
    whole = queries.answer_partition_query(bench.worker.partition, "rm-1", query)
    sends, turns = bench.hear(query, ref="q"), 0
    while not sends:
        assert bench.worker.deadline == 0.0
        sends, turns = bench.worker.tick(NOW), turns + 1
    [found] = [decode_body(Answer, one.body) for one in sends]
    assert (found.status, found.body) == (200, whole.body)
    assert found.version
    assert turns == (0 if args.get("application") == "b" else 5)
    assert bench.worker.deadline > NOW


def test_a_large_answer_has_the_asks_of_the_moment_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = large_bench(monkeypatch)
    query = Query(what="application", name="default", args={"application": "a"})
    assert bench.worker.partition is not None
    before = queries.answer_partition_query(bench.worker.partition, "rm-1", query)
    assert bench.hear(query, ref="q") == bench.worker.tick(NOW) == []
    bench.tell(released("a k00", "a k14"))
    bench.tell(ask("later"))
    sends = bench.schedule()
    [found] = [decode_body(Answer, one.body) for one in sends if one.header.ref == "q"]
    keys = [sorted(one["allocationKey"] for one in json.loads(body)["requests"]) for body in (found.body, before.body)]
    assert keys[0] == keys[1]
    assert len(keys[0]) == 8


def test_an_answer_that_becomes_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = large_bench(monkeypatch)
    monkeypatch.setattr(queries, "ANSWER_BYTES_MAX", 1000)
    bench.hear(Query(what="application", name="default", args={"application": "a"}), ref="q")
    [sent] = bench.schedule()
    found = decode_body(Answer, sent.body)
    assert (found.status, found.version) == (503, "")
    assert b"at most 1000 can be sent" in found.body
