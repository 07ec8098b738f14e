"""What happens, and which events the history gets of it: in the words, the order and with the numbers of the reference
where that was recorded, as lines `what object reference change detail (amounts): message`.
"""

import pytest

from tests.builders import PROVIDED_CREATE, apps, asks, foreign, gone, nodes, released
from tests.trial import Trial
from yunishard.common.messages import event_codes
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE, NODE_UPDATE
from yunishard.partition_worker.engine.attempt_log import WaitCause
from yunishard.partition_worker.engine.effects import Event
from yunishard.partition_worker.engine.events import UNSCHEDULABLE_TOLD_EVERY_S, record_failure

KINDS = ("", "REQUEST", "APP", "NODE", "QUEUE", "USERGROUP")
CHANGES = ("NONE", "SET", "ADD", "REMOVE")
DETAILS = {number: name for name, number in vars(event_codes).items() if isinstance(number, int) and number >= 100}
ALICE = "user=alice groups=dev"
LIMITED = "root.a limit.user.alice=memory:50,apps:2 limit.group.dev=memory:60"


def line(one: Event) -> str:
    words = [KINDS[one.kind], one.object_id, one.reference_id, CHANGES[one.change], DETAILS.get(one.detail, "")]
    amounts = " ".join(f"{kind}={value}" for kind, value in one.resource.items())
    told = " ".join(filter(None, words)) + (f" ({amounts})" if amounts else "")
    return f"{told}: {one.message}" if one.message else told


def events(trial: Trial) -> list[str]:
    """What happened since this was last asked."""
    return [line(one) for one in trial.partition.drain_events()]


def told_of(trial: Trial, kind: str) -> list[str]:
    return [one for one in events(trial) if one.startswith(kind)]


def furnished(queues: str = "root.a", application: str = "app-1 root.a") -> Trial:
    """Two nodes and an application, of which nothing is told."""
    trial = Trial(queues, rules=(PROVIDED_CREATE,)).does(nodes("n1 memory=50", "n2 memory=50"), apps(application))
    trial.partition.drain_events()
    return trial


# Queues and limits ----------------------------------------------------------------------------------------------------


def test_a_partition_begins_with_its_queues_and_limits() -> None:
    assert events(Trial("root.a limit.user.alice=apps:1 limit.user.*=apps:9 limit.group.*=apps:1")) == [
        "QUEUE root ADD",
        "QUEUE root.a ADD",
        "USERGROUP alice root.a SET UG_USER_LIMIT",
        "USERGROUP * root.a SET UG_GROUP_LIMIT",
    ]


def test_limits_are_told_of_one_by_one() -> None:
    trial = Trial("root.a limit.user.alice=apps:1 limit.group.qa=apps:1 limit.user.bob=apps:9")
    assert told_of(trial, "USERGROUP") == [
        "USERGROUP alice root.a SET UG_USER_LIMIT",
        "USERGROUP qa root.a SET UG_GROUP_LIMIT",
        "USERGROUP bob root.a SET UG_USER_LIMIT",
    ]


def test_a_configuration_tells_of_each_queue_what_is_new() -> None:
    trial = furnished("root.a max=memory:9; root.b; root.c guaranteed=memory:1")
    trial.reconfigures("root.a max=memory:8 guaranteed=memory:2; root.b.inner; root.c; root.d max=memory:3")
    assert events(trial) == [
        "QUEUE root.a SET QUEUE_MAX (memory=8)",
        "QUEUE root.a SET QUEUE_GUARANTEED (memory=2)",
        "QUEUE root.b SET QUEUE_TYPE: leaf queue: false",
        "QUEUE root.b.inner ADD",
        "QUEUE root.c SET QUEUE_GUARANTEED",
        "QUEUE root.d ADD",
    ]


def test_a_configuration_tells_of_limits_that_are_set_and_cleared() -> None:
    trial = furnished(LIMITED)
    trial.reconfigures("root.a limit.user.alice=apps:1; root.b limit.group.qa=apps:1")
    assert told_of(trial, "USERGROUP") == [
        "USERGROUP alice root.a SET UG_USER_LIMIT",
        "USERGROUP qa root.b SET UG_GROUP_LIMIT",
        "USERGROUP dev root.a REMOVE UG_GROUP_LIMIT",
    ]


def test_the_same_configuration_again_tells_of_nothing() -> None:
    trial = furnished(LIMITED)
    trial.reconfigures(LIMITED)
    assert events(trial) == []


def test_queues_that_placement_creates_and_that_go_again() -> None:
    trial = furnished("root.p parent template.max=memory:5")
    trial.does(apps("app-2 root.p.x.y"))
    assert events(trial) == [
        "APP app-2 ADD APP_NEW",
        "QUEUE root.p.x ADD QUEUE_DYNAMIC",
        "QUEUE root.p.x.y ADD QUEUE_DYNAMIC",
        "QUEUE root.p.x.y app-2 ADD QUEUE_APP",
    ]
    trial.does(gone("app-2")).waits(20)
    assert told_of(trial, "QUEUE") == [
        "QUEUE root.p.x.y app-2 REMOVE QUEUE_APP",
        "QUEUE root.p.x.y REMOVE QUEUE_DYNAMIC",
        "QUEUE root.p.x REMOVE QUEUE_DYNAMIC",
    ]


def test_a_queue_that_left_the_configuration_goes() -> None:
    trial = furnished("root.a; root.b")
    trial.reconfigures("root.a").waits(20)
    assert events(trial) == ["QUEUE root.b REMOVE"]


def test_the_quota_of_a_namespace() -> None:
    trial = furnished("root.p parent template.max=memory:5 template.guaranteed=memory:1")
    quota = 'tag.namespace.resourcequota={"resources":{"memory":{"value":%d}}}'
    trial.does(apps(f"app-2 root.p.x {quota % 7}", f"app-3 root.p.x {quota % 7}", f"app-4 root.p.x {quota % 8}"))
    assert [one for one in told_of(trial, "QUEUE") if "SET" in one] == [
        "QUEUE root.p.x SET QUEUE_MAX (memory=7)",
        "QUEUE root.p.x SET QUEUE_GUARANTEED",
        "QUEUE root.p.x SET QUEUE_MAX (memory=8)",
    ]


# Nodes ----------------------------------------------------------------------------------------------------------------


def test_nodes_come_and_the_root_has_the_size_that_it_had_before() -> None:
    trial = Trial()
    trial.partition.drain_events()
    trial.does(nodes("n1 memory=50"), nodes("n2 memory=5", action=6), nodes("n3"))
    assert events(trial) == [
        "NODE n1 SET NODE_SCHEDULABLE: schedulable: true",
        "QUEUE root SET QUEUE_MAX",
        "NODE n1 ADD (memory=50): Node added to the scheduler",
        "NODE n2 SET NODE_SCHEDULABLE: schedulable: false",
        "QUEUE root SET QUEUE_MAX (memory=50)",
        "NODE n2 ADD (memory=5): Node added to the scheduler",
        "NODE n3 SET NODE_SCHEDULABLE: schedulable: true",
        "NODE n3 ADD: Node added to the scheduler",
    ]


def test_a_node_that_is_refused_is_told_of_all_the_same() -> None:
    trial = furnished()
    trial.does(nodes("n1 memory=7"))
    assert events(trial) == [
        "NODE n1 SET NODE_SCHEDULABLE: schedulable: true",
        "NODE n1 ADD (memory=7): Node added to the scheduler",
    ]


def test_a_node_changes_and_only_changes_are_told() -> None:
    trial = furnished()
    for action in (NODE_UPDATE, NODE_DRAIN, NODE_DRAIN_TO_SCHEDULABLE):
        trial.does(nodes("n1 memory=40", action=action), nodes("n1 memory=40", action=action))
    assert events(trial) == [
        "NODE n1 SET NODE_CAPACITY (memory=40)",
        "QUEUE root SET QUEUE_MAX (memory=100)",
        "NODE n1 SET NODE_SCHEDULABLE: schedulable: false",
        "NODE n1 SET NODE_SCHEDULABLE: schedulable: true",
    ]


def test_a_node_goes_with_what_runs_there() -> None:
    trial = furnished()
    trial.does(asks("app-1 a1 memory=5 on=n1"), foreign("f1 n1 memory=2"))
    trial.partition.drain_events()
    trial.does(nodes("n1", action=NODE_DECOMMISSION))
    assert events(trial) == [
        "NODE n1 SET NODE_SCHEDULABLE: schedulable: false",
        "USERGROUP bob root.a REMOVE UG_USER_RESOURCE (memory=5)",
        "APP app-1 SET APP_COMPLETING",
        "APP app-1 a1 REMOVE ALLOC_NODEREMOVED (memory=5)",
        "QUEUE root SET QUEUE_MAX (memory=100)",
        "NODE n1 REMOVE NODE_DECOMISSION: Node removed from the scheduler",
    ]


def test_a_node_that_goes_takes_nothing_more_even_if_it_took_nothing_before() -> None:
    trial = furnished().does(nodes("n1", action=NODE_DRAIN))
    trial.partition.drain_events()
    trial.does(nodes("n1", action=NODE_DECOMMISSION))
    assert events(trial)[0] == "NODE n1 SET NODE_SCHEDULABLE: schedulable: false"


def test_what_runs_on_a_node_without_us() -> None:
    trial = furnished()
    trial.does(foreign("f1 n1 memory=2"), foreign("f1 n1 memory=3"), foreign("f1 n2 memory=3"), released("- f1"))
    assert events(trial) == [
        "NODE n1 f1 ADD NODE_ALLOC (memory=2)",
        "NODE n1 f1 REMOVE NODE_ALLOC (memory=3)",
        "NODE n2 f1 ADD NODE_ALLOC (memory=3)",
        "NODE n2 f1 REMOVE NODE_ALLOC (memory=3)",
    ]


def test_a_node_is_kept_for_an_ask_and_no_longer() -> None:
    trial = furnished()
    trial.does(asks("app-1 a1 memory=30 on=n1", "app-1 d1 memory=40 required=n1"))
    assert "NODE n1 d1 ADD NODE_RESERVATION (memory=40)" in events(trial)
    trial.does(released("app-1 d1"))
    assert events(trial) == [
        "NODE n1 d1 REMOVE NODE_RESERVATION (memory=40)",
        "APP app-1 d1 REMOVE REQUEST_CANCEL (memory=40)",
    ]


def test_an_ask_takes_the_node_that_is_kept_for_it_and_then_it_is_kept_no_more() -> None:
    trial = furnished()
    trial.does(asks("app-1 a1 memory=30 on=n1", "app-1 d1 memory=40 required=n1"), released("app-1 a1"))
    assert [one for one in events(trial) if " d1 " in one and not one.startswith("REQUEST")] == [
        "APP app-1 d1 ADD APP_REQUEST (memory=40)",
        "NODE n1 d1 ADD NODE_RESERVATION (memory=40)",
        "NODE n1 d1 ADD NODE_ALLOC (memory=40)",
        "APP app-1 d1 ADD APP_ALLOC (memory=40)",
        "NODE n1 d1 REMOVE NODE_RESERVATION (memory=40)",
    ]


# Applications and what they have --------------------------------------------------------------------------------------


def test_an_ask_gets_a_node_in_the_order_of_the_reference() -> None:
    trial = furnished(LIMITED, f"app-1 root.a {ALICE}")
    trial.does(asks("app-1 a1 memory=10"))
    assert events(trial) == [
        "APP app-1 SET APP_ACCEPTED",
        "APP app-1 a1 ADD APP_REQUEST (memory=10)",
        "USERGROUP dev app-1 SET UG_APP_LINK",
        "NODE n1 a1 ADD NODE_ALLOC (memory=10)",
        "APP app-1 SET APP_RUNNING",
        "USERGROUP alice root.a ADD UG_USER_RESOURCE (memory=10)",
        "USERGROUP dev root.a ADD UG_GROUP_RESOURCE (memory=10)",
        "APP app-1 a1 ADD APP_ALLOC (memory=10)",
    ]


def test_what_the_rm_says_runs_was_never_asked_for() -> None:
    trial = furnished()
    trial.does(asks("app-1 a1 memory=10 on=n2"))
    assert events(trial) == [
        "NODE n2 a1 ADD NODE_ALLOC (memory=10)",
        "APP app-1 SET APP_ACCEPTED",
        "APP app-1 SET APP_RUNNING",
        "USERGROUP bob root.a ADD UG_USER_RESOURCE (memory=10)",
        "APP app-1 a1 ADD APP_ALLOC (memory=10)",
    ]


def test_the_last_release_unlinks_the_group() -> None:
    trial = furnished(LIMITED, f"app-1 root.a {ALICE}").does(asks("app-1 a1 memory=10"))
    trial.partition.drain_events()
    trial.does(released("app-1 a1"))
    assert events(trial) == [
        "USERGROUP alice root.a REMOVE UG_USER_RESOURCE (memory=10)",
        "USERGROUP dev app-1 REMOVE UG_APP_LINK",
        "USERGROUP dev root.a REMOVE UG_GROUP_RESOURCE (memory=10)",
        "APP app-1 SET APP_COMPLETING",
        "APP app-1 a1 REMOVE ALLOC_CANCEL (memory=10)",
        "NODE n1 a1 REMOVE NODE_ALLOC (memory=10)",
        "APP app-1 a1 REMOVE REQUEST_CANCEL (memory=10)",
    ]


@pytest.mark.parametrize(
    ("termination_type", "detail", "request_ends"),
    [
        ("UNKNOWN_TERMINATION", "ALLOC_NODEREMOVED", True),
        ("STOPPED_BY_RM", "ALLOC_CANCEL", True),
        ("TIMEOUT", "ALLOC_TIMEOUT", False),
        ("PREEMPTED_BY_SCHEDULER", "ALLOC_PREEMPT", True),
        ("SCHEDULING_FAILED_ON_RM", "ALLOC_CANCEL", False),
    ],
)
def test_a_release_says_why(termination_type: str, detail: str, *, request_ends: bool) -> None:
    trial = furnished().does(asks("app-1 a1 memory=10"))
    trial.partition.drain_events()
    trial.takes(released(f"app-1 a1 type={termination_type}"))
    found = told_of(trial, "APP app-1 a1")
    assert found[0] == f"APP app-1 a1 REMOVE {detail} (memory=10)"
    assert found[1:] == ["APP app-1 a1 REMOVE REQUEST_CANCEL (memory=10)"] * request_ends


def test_a_release_of_everything_says_only_that_it_is_gone() -> None:
    trial = furnished().does(asks("app-1 a1 memory=10"))
    trial.partition.drain_events()
    trial.takes(released("app-1 type=PREEMPTED_BY_SCHEDULER"))
    assert told_of(trial, "APP app-1 a1")[0] == "APP app-1 a1 REMOVE ALLOC_CANCEL (memory=10)"


def test_other_amounts_are_told_of_their_user_only() -> None:
    trial = furnished().does(asks("app-1 a1 memory=10", "app-1 late memory=900"))
    trial.partition.drain_events()
    trial.does(asks("app-1 a1 memory=12"), asks("app-1 a1 memory=8"), asks("app-1 late memory=901"))
    assert events(trial) == [
        "USERGROUP bob root.a ADD UG_USER_RESOURCE (memory=2)",
        "USERGROUP bob root.a ADD UG_USER_RESOURCE (memory=-4)",
    ]


def test_an_application_that_is_removed_while_it_only_asks_is_done_before_it_leaves() -> None:
    trial = furnished().does(asks("app-1 a1 memory=500"))
    trial.partition.drain_events()
    trial.does(gone("app-1"))
    assert events(trial) == [
        "APP app-1 a1 REMOVE REQUEST_CANCEL (memory=500)",
        "APP app-1 SET APP_COMPLETING",
        "QUEUE root.a app-1 REMOVE QUEUE_APP",
        "APP app-1 REMOVE",
    ]


def test_everything_of_an_application_is_released_at_once() -> None:
    trial = furnished()
    trial.does(asks("app-1 a1 memory=5 on=n1"))
    trial.partition.drain_events()
    trial.does(released("app-1"))
    assert events(trial) == [
        "APP app-1 a1 REMOVE ALLOC_CANCEL (memory=5)",
        "USERGROUP bob root.a REMOVE UG_USER_RESOURCE (memory=5)",
        "APP app-1 SET APP_COMPLETING",
        "NODE n1 a1 REMOVE NODE_ALLOC (memory=5)",
        "APP app-1 a1 REMOVE REQUEST_CANCEL (memory=5)",
    ]


def test_an_application_that_is_removed_goes_before_what_it_had() -> None:
    trial = furnished(LIMITED, f"app-1 root.a {ALICE}").does(asks("app-1 a1 memory=10", "app-1 a2 memory=500"))
    trial.partition.drain_events()
    trial.does(gone("app-1"))
    assert events(trial) == [
        "APP app-1 a2 REMOVE REQUEST_CANCEL (memory=500)",
        "APP app-1 a1 REMOVE REQUEST_CANCEL (memory=10)",
        "QUEUE root.a app-1 REMOVE QUEUE_APP",
        "APP app-1 REMOVE",
        "APP app-1 a1 REMOVE ALLOC_CANCEL (memory=10)",
        "USERGROUP alice root.a REMOVE UG_USER_RESOURCE (memory=10)",
        "USERGROUP dev app-1 REMOVE UG_APP_LINK",
        "USERGROUP dev root.a REMOVE UG_GROUP_RESOURCE (memory=10)",
        "APP app-1 SET APP_COMPLETING",
        "NODE n1 a1 REMOVE NODE_ALLOC (memory=10)",
    ]


def test_an_application_that_fails_leaves_after_what_it_had() -> None:
    trial = furnished("root.a", "app-1 root.a gang=memory:9 style=Hard timeout=1000")
    trial.does(asks("app-1 p1 memory=3 placeholder group=g")).waits(2)
    trial.partition.drain_events()
    trial.does(released("app-1 p1 type=TIMEOUT"))
    assert events(trial) == [
        "USERGROUP bob root.a REMOVE UG_USER_RESOURCE (memory=3)",
        "APP app-1 SET APP_FAILED",
        "APP app-1 p1 REMOVE ALLOC_TIMEOUT (memory=3)",
        "NODE n1 p1 REMOVE NODE_ALLOC (memory=3)",
        "QUEUE root.a app-1 REMOVE QUEUE_APP",
        "APP app-1 REMOVE",
    ]


def test_an_application_ends() -> None:
    trial = furnished().does(asks("app-1 a1 memory=10"), released("app-1 a1"))
    trial.partition.drain_events()
    trial.waits(40)
    assert events(trial) == [
        "APP app-1 SET APP_COMPLETED",
        "QUEUE root.a app-1 REMOVE QUEUE_APP",
        "APP app-1 REMOVE",
    ]


def test_an_application_that_is_refused_is_told_of_with_the_reason() -> None:
    trial = furnished()
    trial.does(apps("app-1 root.a"))
    assert events(trial) == [
        "APP app-1 ADD APP_NEW",
        "APP app-1 SET APP_REJECT: adding application app-1 to partition rm-1_default, but application already existed",
    ]


def test_an_application_moves() -> None:
    trial = furnished("root.a; root.b").does(asks("app-1 a1 memory=10"))
    trial.partition.drain_events()
    trial.moves("app-1", "root.b")
    assert events(trial) == [
        "USERGROUP bob root.a REMOVE UG_USER_RESOURCE (memory=10)",
        "QUEUE root.a app-1 REMOVE QUEUE_APP",
        "QUEUE root.b app-1 ADD QUEUE_APP",
        "USERGROUP bob root.b ADD UG_USER_RESOURCE (memory=10)",
    ]


def test_a_gang_that_comes_too_late_takes_back_all_it_asked_for() -> None:
    trial = furnished(application="app-1 root.a gang=memory:900 timeout=5000")
    trial.does(asks("app-1 p1 memory=10 placeholder group=g", "app-1 p2 memory=890 placeholder group=g"))
    trial.partition.drain_events()
    trial.waits(6)
    assert told_of(trial, "APP") == [
        "APP app-1 SET APP_RESUMING: ResourceReservationTimeout",
        "APP app-1 p2 REMOVE REQUEST_TIMEOUT (memory=890)",
        "APP app-1 p1 REMOVE REQUEST_TIMEOUT (memory=10)",
    ]


# Requests -------------------------------------------------------------------------------------------------------------


def test_an_application_that_may_not_start_is_told_of_once_and_when_it_may() -> None:
    trial = furnished("root.a maxapps=1").does(asks("app-1 a1 memory=1"), apps("app-2 root.a"))
    trial.partition.drain_events()
    trial.does(asks("app-2 b1 memory=1"), asks("app-2 b2 memory=1"))
    assert [one for one in events(trial) if "APP_REQUEST" not in one] == [
        "APP app-2 SET APP_ACCEPTED",
        "APP app-2 NONE APP_CANNOTRUN_QUEUE",
    ]
    trial.does(released("app-1 a1"))
    assert "APP app-2 NONE APP_RUNNABLE_QUEUE" in events(trial)


def test_an_application_whose_user_runs_enough_of_them() -> None:
    trial = furnished("root.a limit.user.bob=apps:1").does(asks("app-1 a1 memory=1"), apps("app-2 root.a"))
    trial.does(asks("app-2 b1 memory=1"))
    assert events(trial)[-1] == "APP app-2 NONE APP_CANNOTRUN_QUOTA"
    trial.does(released("app-1 a1"))
    assert "APP app-2 NONE APP_RUNNABLE_QUOTA" in events(trial)


def test_a_request_that_its_queue_has_no_room_for_is_told_of_when_that_changes() -> None:
    trial = furnished("root.a max=memory:20").does(asks("app-1 a1 memory=15"))
    trial.does(asks("app-1 a2 memory=6"), asks("app-1 a3 memory=7"))
    assert told_of(trial, "REQUEST a2") == [
        (
            "REQUEST a2 app-1 NONE (memory=6): Request 'a2' does not fit in queue 'root.a' "
            "(requested map[memory:6], available map[memory:5])"
        )
    ]
    trial.does(released("app-1 a1"))
    assert told_of(trial, "REQUEST") == [
        "REQUEST a2 app-1 NONE (memory=6): Request 'a2' has become schedulable in queue 'root.a'",
        "REQUEST a3 app-1 NONE (memory=7): Request 'a3' has become schedulable in queue 'root.a'",
    ]


def test_room_that_is_used_up_and_more_is_told_of_as_it_is() -> None:
    trial = furnished("root.a max=memory:20").does(asks("app-1 a1 memory=25 on=n1"), asks("app-1 a2 memory=6"))
    assert told_of(trial, "REQUEST")[0].endswith("(requested map[memory:6], available map[memory:-5])")


def test_a_request_that_its_user_has_no_room_for_is_told_of_when_that_changes() -> None:
    trial = furnished(LIMITED, f"app-1 root.a {ALICE}").does(asks("app-1 a1 memory=45"), asks("app-1 a2 memory=6"))
    assert told_of(trial, "REQUEST") == [
        (
            "REQUEST a2 app-1 NONE (memory=6): Request 'a2' exceeds the available user quota "
            "(requested map[memory:6], available map[memory:5])"
        )
    ]
    trial.does(asks("app-1 a2 memory=5"))
    assert told_of(trial, "REQUEST") == [
        "REQUEST a2 app-1 NONE (memory=5): Request 'a2' fits in the available user quota"
    ]


def test_of_requests_of_one_shape_the_first_is_told_of() -> None:
    trial = furnished("root.a max=memory:20").does(asks("app-1 a1 memory=30", "app-1 a2 memory=30"))
    assert len(told_of(trial, "REQUEST")) == 1
    trial.does(released("app-1 a1"))
    assert [one.split()[1] for one in told_of(trial, "REQUEST")] == ["a2"]


def test_nobody_can_make_room_for_a_daemon() -> None:
    trial = furnished().does(asks("app-1 a1 memory=30 on=n1 priority=9", "app-1 d1 memory=40 required=n1"))
    assert told_of(trial, "REQUEST") == [
        (
            "REQUEST d1 app-1 NONE (memory=40): Unschedulable request 'd1' with required node 'n1', "
            "no preemption victim found"
        )
    ]
    trial.does(nodes("n1 memory=51", action=NODE_UPDATE))
    assert told_of(trial, "REQUEST") == []
    trial.waits(UNSCHEDULABLE_TOLD_EVERY_S).does(nodes("n1 memory=52", action=NODE_UPDATE))
    assert len(told_of(trial, "REQUEST d1")) == 1


def test_a_victim_is_told_for_whom_it_goes() -> None:
    trial = furnished().does(asks("app-1 v1 memory=30 on=n1 victim"), apps("app-2 root.a"))
    trial.does(asks("app-2 d1 memory=40 priority=5 required=n1"))
    assert told_of(trial, "REQUEST") == [
        "REQUEST v1 app-1 NONE (memory=30): Preempted by d1 from application app-2 in root.a"
    ]


def test_why_no_node_would_take_a_request_is_told_from_time_to_time() -> None:
    trial = furnished().does(nodes("n3 memory=50 tag.yunishard/taints=gpu:NoSchedule"))
    trial.does(asks("app-1 a1 memory=5 tag.yunishard/nodeSelector=zone=a"))
    expected = "REQUEST a1 app-1 NONE (memory=5): Unschedulable request 'a1': node does not match zone=a (3x); "
    assert told_of(trial, "REQUEST") == [expected]
    trial.waits(UNSCHEDULABLE_TOLD_EVERY_S - 1).does(asks("app-1 a2 memory=60"))  # with each new ask all are tried
    assert told_of(trial, "REQUEST a1") == []
    trial.waits(1).does(asks("app-1 a3 memory=70"))
    assert told_of(trial, "REQUEST a1") == [expected]


def test_nodes_are_told_by_reason_in_the_order_of_the_reasons() -> None:
    trial = furnished()
    ask = trial.does(asks("app-1 a1 memory=500")).app("app-1").requests["a1"]
    trial.partition.drain_events()
    cause = WaitCause(Reason.NO_NODE_FITS, nodes={"too small": 2, "tainted": 1})
    record_failure(trial.partition, ask, cause)
    expected = "REQUEST a1 app-1 NONE (memory=500): Unschedulable request 'a1': tainted (1x); too small (2x); "
    assert events(trial) == [expected]


def test_a_placeholder_that_is_too_small_is_told_of() -> None:
    trial = furnished().does(asks("app-1 p1 memory=5 placeholder group=g"), asks("app-1 r1 memory=6 group=g"))
    assert told_of(trial, "REQUEST") == [
        (
            "REQUEST p1 app-1 NONE (memory=6): Task group 'g' in application 'app-1': allocation resources "
            "'map[memory:6]' are not matching placeholder 'map[memory:5]' allocation with ID 'p1'"
        )
    ]


# Without a history ----------------------------------------------------------------------------------------------------


def test_without_tracking_nothing_is_kept() -> None:
    trial = furnished()
    trial.partition.tracking = False
    trial.does(asks("app-1 a1 memory=10"), released("app-1 a1"))
    assert events(trial) == []


def test_what_is_told_stays_as_it_was() -> None:
    trial = furnished("root.a; root.b").does(asks("app-1 a1 memory=10"))
    trial.moves("app-1", "root.b")
    trial.does(asks("app-1 a1 memory=11"), asks("app-1 a2 memory=3"))
    found = events(trial)
    assert "USERGROUP bob root.b ADD UG_USER_RESOURCE (memory=10)" in found
    assert "APP app-1 a1 ADD APP_ALLOC (memory=10)" in found
