"""How the engine's objects are shown."""

import doctest
import json

import pytest
from msgspec.structs import replace

from tests.builders import apps, asks, foreign, nodes, released
from tests.partition_worker.engine.preemption.clusters import cluster, question
from tests.trial import START_S, Trial
from yunishard.common.config.validation import load
from yunishard.common.messages.query_messages import Query
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import NODE_DRAIN, NODE_UPDATE
from yunishard.common.rest.views import (
    NEVER_MS,
    PRIORITY_NONE,
    AllocationView,
    AskView,
    GroupView,
    HistoryView,
    LogEntryView,
    PlaceholderView,
    QueueView,
    UsageView,
    UserView,
    encode_view,
)
from yunishard.partition_worker import queries, redaction, views
from yunishard.partition_worker.engine import ledger
from yunishard.partition_worker.engine.application import TaskGroup
from yunishard.partition_worker.engine.attempt_log import WaitCause, log_attempt
from yunishard.partition_worker.engine.nodes.node_index import Reservation
from yunishard.partition_worker.engine.partition import Partition

START_NS = int(START_S) * 10**9


def queue_view(one: Trial, path: str, *, subtree: bool, partition: str) -> QueueView:
    visible = redaction.Visibility(one.partition, None)
    return redaction.redact_queue(one.queue(path), visible, subtree=subtree, partition=partition)


def trial(queues: str = "root.a max=memory:8 guaranteed=memory:2") -> Trial:
    one = Trial(queues).does(nodes("n1 memory=10 tag.si/hostname=h1 tag.si/rackname=r1"))
    one.does(apps("app-1 root.a user=bob groups=dev"))
    return one.does(asks("app-1 a1 memory=4 group=tg"), asks("app-1 a2 memory=5 priority=3 required=n1 created=5"))


# Partition ------------------------------------------------------------------------------------------------------------


def test_a_partition_shows_what_is_used_of_it() -> None:
    view = views.build_partition_view(trial().partition, "rm-1", "default")
    assert (view.capacity.capacity, view.capacity.used_capacity) == ({"memory": 10}, {"memory": 4})
    assert view.capacity.utilization == {"memory": 40}
    assert (view.total_nodes, view.total_containers, view.state) == (1, 1, "Active")
    assert view.last_state_transition_time == START_NS


def test_a_partition_counts_its_applications_by_state_with_those_that_ended() -> None:
    one = trial().does(apps("app-2 root.a", "app-3 root.x"), released("app-1")).waits(30)
    assert views.build_partition_view(one.partition, "rm-1", "default").applications == {
        "Completed": 1,
        "New": 1,
        "Rejected": 1,
        "total": 3,
    }
    assert views.build_partition_view(Trial().partition, "rm-1", "default").applications == {"total": 0}


def test_a_partition_shows_how_it_sorts_nodes() -> None:
    default = views.build_partition_view(Trial().partition, "rm-1", "default").node_sorting_policy
    assert (default.type, default.resource_weights) == ("fair", {"memory": 1, "vcore": 1})
    other = views.build_partition_view(
        Trial(nodes="binpacking", weights={"gpu": 2.5}).partition, "rm-1", "default"
    ).node_sorting_policy
    assert (other.type, other.resource_weights) == ("binpacking", {"gpu": 2.5})


# Queues ---------------------------------------------------------------------------------------------------------------


def test_a_queue_shows_limits_use_and_what_is_left() -> None:
    view = queue_view(trial(), "root.a", subtree=False, partition="")
    assert (view.max_resource, view.guaranteed_resource) == ({"memory": 8}, {"memory": 2})
    assert (view.allocated_resource, view.pending_resource) == ({"memory": 4}, {"memory": 5})
    assert (view.headroom, view.abs_used_capacity) == ({"memory": 4}, {"memory": 50})
    assert (view.running_apps, view.current_priority, view.parent) == (1, 3, "root")


def test_a_draining_queue_shows_since_when_and_how_many_applications_are_left() -> None:
    one = trial("root.p.a; root.p.b; root.a").does(apps("app-2 root.p.b")).reconfigures("root.a")
    view = queue_view(one, "root.p", subtree=False, partition="")
    assert (view.status, view.draining_applications) == ("Draining", 1)
    assert view.draining_since == one.queue("root.p").draining_since_ns >= START_NS
    shown = json.loads(encode_view(queue_view(one, "root.p.a", subtree=False, partition="")))
    assert shown["drainingApplications"] == 0
    assert (
        not {"drainingSince", "drainingApplications"}
        & json.loads(encode_view(queue_view(one, "root.a", subtree=False, partition=""))).keys()
    )


def test_a_queue_shows_what_its_properties_mean() -> None:
    properties = "application.sort.policy=fair priority.offset=2 preemption.policy=fence preemption.delay=1m"
    view = queue_view(trial(f"root.a {properties}"), "root.a", subtree=False, partition="")
    assert (view.sorting_policy, view.priority_sorting, view.priority_offset) == ("fair", True, 2)
    assert (view.preemption_enabled, view.is_preemption_fence, view.preemption_delay) == (True, True, "1m0s")
    assert (view.is_leaf, view.is_managed, view.status) == (True, True, "Active")
    assert view.properties["preemption.delay"] == "1m"


def test_a_parent_sorts_fairly_and_shows_its_template() -> None:
    one = Trial("root.p parent application.sort.policy=fifo template.max=memory:3 template.maxapps=2")
    view = queue_view(one, "root.p", subtree=False, partition="")
    assert view.sorting_policy == "fair"
    assert view.template is not None
    assert (view.template.max_resource, view.template.max_applications) == ({"memory": 3}, 2)


def test_children_are_shown_by_path_and_the_partition_at_the_top_only() -> None:
    view = queue_view(Trial("root.b; root.a.c"), "root", subtree=True, partition="default")
    assert view.child_names == ["root.a", "root.b"]
    assert [(child.queuename, child.partition) for child in view.children] == [("root.a", ""), ("root.b", "")]
    assert [child.queuename for child in view.children[0].children] == ["root.a.c"]


def test_a_queue_shows_what_is_asked_back_of_it_and_who_counts_although_it_does_not_run_yet() -> None:
    one = trial()
    ledger.mark_preempted(one.partition, one.app("app-1"), one.partition.allocations["a1"])
    one.queue("root").allocating.update({"app-9": None, "app-2": None})
    view = queue_view(one, "root", subtree=False, partition="")
    assert (view.preempting_resource, view.allocating_accepted_apps) == ({"memory": 4}, ["app-2", "app-9"])


def test_a_queue_in_which_nothing_waits_shows_no_priority() -> None:
    assert queue_view(Trial(), "root.a", subtree=False, partition="").current_priority == PRIORITY_NONE


# Applications ---------------------------------------------------------------------------------------------------------


def test_an_application_shows_what_it_has_and_what_it_waits_for() -> None:
    view = views.build_application_view(trial().app("app-1"), "default")
    assert (view.application_id, view.partition, view.queue_name) == ("app-1", "default", "root.a")
    assert (view.user, view.groups, view.application_state) == ("bob", ["dev"], "Running")
    assert (view.used_resource, view.pending_resource, view.max_request_priority) == ({"memory": 4}, {"memory": 5}, 3)
    assert [state.application_state for state in view.state_log] == ["Accepted", "Running"]
    assert view.start_time == int(START_S) * 1000
    assert view.submission_time == 5 * 10**9  # the creation of its oldest ask


def test_an_ask_and_an_allocation_are_shown() -> None:
    view = views.build_application_view(trial().app("app-1"), "default")
    assert [replace(ask, allocation_log=[]) for ask in view.requests] == [
        AskView(
            allocation_key="a2",
            allocation_tags={"creationTime": "5", "yunikorn.apache.org/requiredNode": "n1"},
            request_time=5 * 10**9,
            resource={"memory": 5},
            priority="3",
            required_node_id="n1",
            application_id="app-1",
            scheduling_attempted=True,
        )
    ]
    (allocation,) = view.allocations
    assert allocation == AllocationView(
        allocation_key="a1",
        request_time=allocation.request_time,
        allocation_time=allocation.request_time,
        resource={"memory": 4},
        priority="0",
        node_id="n1",
        application_id="app-1",
        task_group_name="tg",
    )


def test_asks_and_allocations_are_shown_by_key() -> None:
    one = Trial().does(nodes("n1 memory=2"), apps("app-1 root.a"))
    one.does(asks(*(f"app-1 {key} memory=1" for key in "dcba")))
    view = views.build_application_view(one.app("app-1"), "default")
    assert [shown.allocation_key for shown in view.allocations] == ["c", "d"]
    assert [shown.allocation_key for shown in view.requests] == ["a", "b"]


def test_a_new_application_has_never_started() -> None:
    view = views.build_application_view(Trial().does(apps("app-1 root.a")).app("app-1"), "default")
    assert (view.start_time, view.finished_time, view.max_request_priority) == (NEVER_MS, 0, PRIORITY_NONE)
    assert (view.application_state, view.state_log) == ("New", [])


def test_an_application_that_ended_shows_when_and_where_it_was() -> None:
    one = trial().does(released("app-1")).waits(30)
    view = views.build_application_view(next(iter(one.partition.ended.values())), "default")
    assert (view.application_state, view.queue_name) == ("Completed", "root.a")
    assert view.finished_time // 10**9 == int(START_S) + 30
    assert view.max_used_resource == {"memory": 4}


def test_a_rejected_application_shows_why() -> None:
    one = Trial().does(apps("app-9 root.x user=eve groups=qa"))
    view = views.build_rejection_view(one.partition.rejections["app-9"], "default")
    assert (view.application_id, view.application_state, view.queue_name) == ("app-9", "Rejected", "")
    assert view.rejected_message.endswith("no placement rule matched")
    assert (view.user, view.groups) == ("eve", ["qa"])
    assert view.submission_time == view.finished_time == view.state_log[0].time


def test_an_ask_shows_what_came_of_the_attempts_to_place_it() -> None:
    one = trial()
    ask = one.partition.allocations["a2"]
    assert ask.group is not None
    ask.preemption_triggered = ask.scale_up_told = ask.group.attempted = True
    ask.group.log.clear()
    for cause, at in (
        (WaitCause(Reason.QUEUE_MAXIMUM, "root.a", resource="memory", used=3, maximum=4, asked=2), 5.0),
        (WaitCause(Reason.NO_NODE_FITS, nodes={"taint": 2}), 6.0),
        (WaitCause(Reason.RESERVED_NODE_FULL, search=Reason.PREEMPTION_DELAY), 6.0),
        (WaitCause(Reason.CLUSTER_FULL, "root", resource="memory", used=9, maximum=10, asked=2), 7.5),
    ):
        log_attempt(ask.group.log, cause, at)
    (view,) = views.build_application_view(one.app("app-1"), "default").requests
    assert (view.triggered_preemption, view.triggered_scale_up, view.scheduling_attempted) == (True, True, True)
    assert view.allocation_log == [
        LogEntryView(message="Not enough queue quota", last_occurrence=7_500_000_000, count=2),
        LogEntryView(message="taint", last_occurrence=6_000_000_000, count=1),
        LogEntryView(message="Preemption preconditions failed", last_occurrence=6_000_000_000, count=1),
        LogEntryView(message="Preemption does not help", last_occurrence=6_000_000_000, count=1),
        LogEntryView(
            message="root.a may use 4 B at most: 3 B are used, this ask needs 2 B, so it is short by 1 B",
            last_occurrence=5_000_000_000,
            count=1,
            code="queue-maximum",
        ),
        LogEntryView(
            message="the nodes together have 10 B: 9 B are used, this ask needs 2 B, so it is short by 1 B",
            last_occurrence=7_500_000_000,
            count=1,
            code="cluster-full",
        ),
    ]


def test_causes_follow_the_messages_of_the_log_and_equal_asks_share_it() -> None:
    one = Trial("root.a max=memory:8").does(nodes("n1 memory=50"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=6", "app-1 a2 memory=6", "app-1 a3 memory=6"))
    first, second = views.build_application_view(one.app("app-1"), "default").requests
    assert first.allocation_log is second.allocation_log
    *messages, cause = first.allocation_log
    assert "Not enough queue quota" in [one.message for one in messages]
    assert {one.code for one in messages} == {""}
    assert (cause.message, cause.code, cause.count) == (
        "root.a may use 8 B at most: 6 B are used, this ask needs 6 B, so it is short by 4 B",
        "queue-maximum",
        1,
    )
    assert cause.last_occurrence == int(one.now * 1e9)


def test_an_allocation_shows_whose_place_it_took_and_that_it_has_to_go() -> None:
    one = trial()
    allocation = one.partition.allocations["a1"]
    allocation.placeholder_used, allocation.placeholder_created_ns = True, allocation.created_ns - 5
    allocation.preempted = True
    (view,) = views.build_application_view(one.app("app-1"), "default").allocations
    assert (view.placeholder_used, view.preempted, view.allocation_delay) == (True, True, 5)
    assert (view.request_time, view.allocation_time) == (allocation.created_ns - 5, allocation.created_ns)


def test_a_gang_shows_what_became_of_its_placeholders() -> None:
    one = trial()
    one.app("app-1").task_groups |= {
        "b": TaskGroup("b", minimum={"memory": 1}, count=3, replaced=1, timed_out=1),
        "a": TaskGroup("a"),
    }
    assert views.build_application_view(one.app("app-1"), "default").placeholder_data == [
        PlaceholderView(task_group_name="a"),
        PlaceholderView(task_group_name="b", count=3, min_resource={"memory": 1}, replaced=1, timedout=1),
    ]


def test_an_application_and_a_node_show_for_which_asks_the_node_is_kept() -> None:
    one = trial()
    ask, node = one.partition.allocations["a2"], one.node("n1")
    reservation = Reservation(ask, node, one.app("app-1").queue, created=one.now, rank=1)
    one.app("app-1").reservations["a2"] = node.reservations["a2"] = reservation
    view = views.build_application_view(one.app("app-1"), "default")
    assert (view.has_reserved, view.reservations) == (True, ["a2"])
    shown = views.build_node_view(node)
    assert (shown.is_reserved, shown.reservations) == (True, ["a2"])


def test_an_application_shows_what_it_used_and_until_when_it_is_left_alone() -> None:
    one = trial().does(asks("app-1 a3 memory=1")).waits(3.1).takes(released("app-1 a3"))
    one.app("app-1").back_off_until = START_S + 0.5
    view = views.build_application_view(one.app("app-1"), "default")
    assert view.resource_history == HistoryView(resource_usage={"UNKNOWN": {"memory": 3}})
    assert view.backoff_deadline == "2023-11-14T22:13:20.5Z"


# Nodes ----------------------------------------------------------------------------------------------------------------


def test_a_node_shows_what_runs_on_it() -> None:
    one = trial().does(foreign("f1 n1 memory=1 foreign=static", "f0 n1 memory=1"))
    view = views.build_node_view(one.node("n1"))
    assert (view.node_id, view.host_name, view.rack_name, view.schedulable) == ("n1", "h1", "r1", True)
    assert (view.capacity, view.allocated, view.occupied) == ({"memory": 10}, {"memory": 4}, {"memory": 2})
    assert (view.available, view.utilized) == ({"memory": 4}, {"memory": 40})
    assert [shown.allocation_key for shown in view.allocations] == ["a1"]
    assert [(shown.allocation_key, shown.preemptable) for shown in view.foreign_allocations] == [
        ("f0", True),
        ("f1", False),
    ]


def test_a_full_node_shows_nothing_available_and_a_shrunken_one_less() -> None:
    one = Trial().does(nodes("n1 memory=4 gpu=1"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    assert views.build_node_view(one.node("n1")).available == {"gpu": 1}
    one.does(nodes("n1 memory=3", action=NODE_UPDATE), nodes("n1", action=NODE_DRAIN))
    view = views.build_node_view(one.node("n1"))
    assert (view.available, view.schedulable) == ({"memory": -1}, False)


# Users ----------------------------------------------------------------------------------------------------------------


def user(one: Trial, name: str) -> UserView:
    tracker = one.partition.usage.users.by_name.get(name)
    assert tracker is not None
    return redaction.redact_user(tracker, redaction.Visibility(one.partition, None))


def group(one: Trial, name: str) -> GroupView:
    tracker = one.partition.usage.groups.by_name.get(name)
    assert tracker is not None
    return redaction.redact_group(tracker, redaction.Visibility(one.partition, None))


def test_a_users_use_is_a_tree_of_queues() -> None:
    one = Trial("root.p.a; root.p.b").does(nodes("n1 memory=10"), apps("app-1 root.p.b", "app-2 root.p.a"))
    one.does(asks("app-1 a1 memory=4"), asks("app-2 b1 memory=1"))
    view = user(one, "bob")
    assert view.queues is not None
    assert (view.queues.queue_path, view.queues.resource_usage) == ("root", {"memory": 5})
    assert view.queues.running_applications == ["app-1", "app-2"]
    assert view.queues.children[0].children == [
        UsageView(queue_path="root.p.a", resource_usage={"memory": 1}, running_applications=["app-2"]),
        UsageView(queue_path="root.p.b", resource_usage={"memory": 4}, running_applications=["app-1"]),
    ]


LIMITED = """root limit.user.alice=memory:40,apps:10 limit.user.*=memory:90 limit.group.dev=memory:50,apps:20
limit.group.*=apps:50; root.p.batch limit.user.alice=memory:4,apps:1; root.q"""


def limited() -> Trial:
    one = Trial(LIMITED).does(nodes("n1 memory=100 pods=9"), apps("app-1 root.p.batch user=alice groups=x,dev"))
    one.does(apps("app-2 root.q user=dave groups=ops"), asks("app-2 b1 memory=500"))
    return one.does(asks("app-1 a1 memory=3 pods=2"))


def test_a_user_shows_limits_and_the_group_of_each_application() -> None:
    """Golden main-user-alice: an intermediate queue has no limit, and what is not there is not shown."""
    batch = {"queuePath": "root.p.batch", "resourceUsage": {"memory": 3, "pods": 2}, "runningApplications": ["app-1"]}
    batch |= {"maxResources": {"memory": 4}, "maxApplications": 1}
    above = {"queuePath": "root.p", "resourceUsage": {"memory": 3, "pods": 2}, "runningApplications": ["app-1"]}
    root = {**above, "queuePath": "root", "maxResources": {"memory": 40}, "maxApplications": 10}
    assert json.loads(encode_view(user(limited(), "alice"))) == {
        "userName": "alice",
        "groups": {"app-1": "dev"},
        "queues": {**root, "children": [{**above, "children": [batch]}]},
    }


def test_a_user_whose_applications_only_wait_shows_the_queues_that_were_tried() -> None:
    """Golden main-users, bart; the limit of `*` shows as the user's own."""
    assert json.loads(encode_view(user(limited(), "dave"))) == {
        "userName": "dave",
        "groups": {"app-2": "*"},
        "queues": {"queuePath": "root", "maxResources": {"memory": 90}, "children": [{"queuePath": "root.q"}]},
    }


def test_a_group_shows_the_applications_that_count_for_it() -> None:
    shown = json.loads(encode_view(group(limited(), "dev")))
    assert (shown["groupName"], shown["applications"]) == ("dev", ["app-1"])
    assert shown["queues"]["maxApplications"] == 20
    assert [child["queuePath"] for child in shown["queues"]["children"]] == ["root.p"]


def test_a_group_without_anything_shows_its_limit_and_the_queues_that_were_tried() -> None:
    assert json.loads(encode_view(group(limited(), "*"))) == {
        "groupName": "*",
        "queues": {"queuePath": "root", "maxApplications": 50, "children": [{"queuePath": "root.q"}]},
    }


# Everything -----------------------------------------------------------------------------------------------------------


def test_what_was_shown_does_not_change_afterwards() -> None:
    one = trial()
    shown = [
        views.build_partition_view(one.partition, "rm-1", "default"),
        queue_view(one, "root", subtree=True, partition="default"),
        views.build_application_view(one.app("app-1"), "default"),
        views.build_node_view(one.node("n1")),
        user(one, "bob"),
    ]
    before = [encode_view(view) for view in shown]
    one.does(asks("app-1 a1 memory=1"), foreign("f1 n1 memory=1"), released("app-1 a1"))
    assert [encode_view(view) for view in shown] == before


def test_amounts_are_cut_to_what_the_api_can_carry() -> None:
    most = 2**63 - 1
    one = Trial().does(nodes(f"n1 memory={most}", f"n2 memory={most}"), apps("app-1 root.a"))
    one.does(asks(*(f"app-1 a{number} memory={most}" for number in range(4))))
    view = queue_view(one, "root", subtree=True, partition="default")
    assert (view.max_resource, view.pending_resource, view.allocated_resource) == ({"memory": most},) * 3
    assert json.loads(encode_view(views.build_partition_view(one.partition, "rm-1", "default")))["capacity"][
        "capacity"
    ] == {"memory": most}


def shown(trial: Trial, **args: str) -> object:
    answer = queries.answer_partition_query(
        trial.partition, "rm-1", Query(what="preemptions", name="default", args=args)
    )
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
        answer = queries.answer_partition_query(trial.partition, "rm-1", query)
        trial.partition.preemptions.record_quota(trial.now + 60, trial.queue("root.a"), running)  # newer ones may come
        found += json.loads(answer.body)
        after, more = answer.next, bool(answer.next)
    assert found == whole


REFERENCE = (
    '[{"name":"fixed","parameters":{"create":"false","qualified":"true","queue":"root.vip"},'
    '"filter":{"type":"allow","userList":["victor","vera"],"groupExp":"^vip-.*"}},'
    '{"name":"provided","parameters":{"create":"false"},"filter":{"type":"deny","userList":["mallory"]}},'
    '{"name":"tag","parameters":{"create":"true","tagName":"namespace"},'
    '"filter":{"type":"deny","userList":["mallory"]},'
    '"parentRule":{"name":"fixed","parameters":{"create":"true","qualified":"false","queue":"tenants"}}},'
    '{"name":"recovery","parameters":{"queue":"root.@recovery@"}}]\n'
)
"""As the reference shows the rules below."""

RULES = """
placementrules:
  - {name: fixed, value: root.vip, filter: {type: allow, users: [victor, vera], groups: ["^vip-.*"]}}
  - {name: provided, filter: {type: deny, users: [mallory]}}
  - name: tag
    value: Namespace
    create: true
    filter: {type: deny, users: [mallory]}
    parent: {name: fixed, value: Tenants, create: true}
"""


def shown_rules(rules: str) -> bytes:
    indented = rules.strip().replace("\n", "\n    ")
    queues = "queues: [{name: root, submitacl: '*', queues: [{name: vip}]}]"
    text = f"partitions:\n  - name: default\n    {queues}\n    {indented}\n"
    partition = Partition(load(text).partitions[0], name="rm-1_default", now=0.0)
    answer = queries.answer_partition_query(partition, "rm-1", Query(what="rules", name="default"))
    assert answer.status == 200
    return answer.body


def test_rules_are_shown_as_the_reference_shows_them() -> None:
    assert shown_rules(RULES).decode() == REFERENCE


def test_without_configured_rules_the_implied_one_is_shown() -> None:
    assert [rule["name"] for rule in json.loads(shown_rules("placementrules: []"))] == ["provided", "recovery"]


def test_of_rules_that_cannot_be_built_none_is_shown() -> None:
    assert json.loads(shown_rules("placementrules: [{name: magic}]")) == []


def test_rules_for_groups_and_types_are_shown_like_all_others() -> None:
    rules = (
        "placementrules: [{name: secondarygroup, create: true, parent: {name: primarygroup}}, {name: ApplicationType}]"
    )
    assert json.loads(shown_rules(rules))[:2] == [
        {
            "name": "secondarygroup",
            "parameters": {"create": "true"},
            "parentRule": {"name": "primarygroup", "parameters": {"create": "false"}},
        },
        {"name": "applicationtype", "parameters": {"create": "false"}},
    ]


def shown_utilisation(trial: Trial) -> dict[str, dict[str, list[str]]]:
    """By type and bucket, the names of the nodes; empty buckets are left out."""
    body = queries.answer_partition_query(trial.partition, "rm-1", Query(what="utilisation", name="gpu")).body
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
    assert shown_utilisation(trial) == {"gpu": {"0-10%": ["n1"]}, "memory": {"0-10%": ["n1"], "10-20%": ["n2"]}}


def test_a_node_with_more_than_it_can_hold_is_in_the_last_bucket() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=100"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=90 on=n1")).does(asks("app-1 a2 memory=160 on=n1"))
    assert shown_utilisation(trial) == {"memory": {"90-100%": ["n1"]}}


def test_without_nodes_there_is_nothing_to_list() -> None:
    assert shown_utilisation(Trial("root.a")) == {}


@pytest.mark.parametrize(
    ("percent", "expected"), [(-5, 0), (1, 0), (20, 1), (21, 2), (99, 9), (101, 9), (2**31 - 1, 9)]
)
def test_a_bucket_includes_its_upper_bound(percent: int, expected: int) -> None:
    assert views.bucket(percent) == expected


def test_the_examples_are_true() -> None:
    assert doctest.testmod(views).failed == 0
