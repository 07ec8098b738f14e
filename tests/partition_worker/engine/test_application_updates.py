"""What an RM's word about applications does."""

from collections.abc import Iterator

import pytest

from tests.builders import PARTITION, PROVIDED_CREATE, apps, ask, asks, gone, nodes, released
from tests.trial import Trial
from yunishard.common.messages.rm_messages import (
    AddApplicationRequest,
    AllocationRequest,
    ApplicationRequest,
    RejectedApplication,
    RemoveApplicationRequest,
    UserGroupInformation,
)
from yunishard.partition_worker.engine import allocation_updates, application_updates, user_resolution
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.user_resolution import HELD_MAX, WAITING_MAX, HeldUpdate


def rejected(one: Trial) -> str:
    (line,) = one.told()
    return line.partition(" rejected: ")[2]


def test_an_application_gets_its_queue() -> None:
    one = Trial("root.a").does(apps("app-1 root.A user=bob groups=dev,qa tag.x=y"))
    assert one.told() == ["app-1 accepted"]
    app = one.app("app-1")
    assert (app.queue.path, app.user.name, app.user.groups, app.tags) == ("root.a", "bob", ("dev", "qa"), {"x": "y"})
    assert list(one.queue("root.a").applications) == ["app-1"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("app-1 root.x", "failed to place application app-1: application rejected: no placement rule matched"),
        ("app-1 root", "failed to place application app-1: application rejected: no placement rule matched"),
        ("app-1 root.p", "failed to place application app-1: application rejected: no placement rule matched"),
        ("app-1 root.a user=", "empty user cannot resolve"),
    ],
)
def test_an_application_without_a_queue_or_a_user_is_rejected_and_told_why(words: str, reason: str) -> None:
    one = Trial("root.a; root.p parent").does(apps(words))
    assert rejected(one) == reason
    assert one.partition.applications == {}


def test_an_application_needs_an_id() -> None:
    new = AddApplicationRequest(queue_name="root.a", ugi=UserGroupInformation(user="bob"))
    assert rejected(Trial().does(ApplicationRequest(new=[new]))) == "invalid application: it has no id"


def test_an_id_is_used_once_at_a_time() -> None:
    one = Trial().does(apps("app-1 root.a"))
    one.told()
    assert rejected(one.does(apps("app-1 root.a"))) == (
        f"adding application app-1 to partition {PARTITION}, but application already existed"
    )
    assert one.does(gone("app-1"), apps("app-1 root.a")).told() == ["app-1 accepted"]


def test_a_rejection_is_remembered_with_its_reason_the_latest_of_each_application() -> None:
    one = Trial().does(apps("app-1 root.x"), apps("app-2 root.y user=eve groups=qa"), apps("app-1 root.z"))
    assert list(one.partition.rejections) == ["app-2", "app-1"]
    rejection = one.partition.rejections["app-2"]
    assert (rejection.queue_name, rejection.user, rejection.groups) == ("", "eve", ("qa",))
    assert rejection.reason.endswith("no placement rule matched")
    assert one.partition.counters.refused == 3


def test_what_is_no_name_of_a_user_is_not_remembered_as_one() -> None:
    one = Trial("root.a").does(apps("app-1 root.a user=2&2 groups=dev"))
    rejection = one.partition.rejections["app-1"]
    assert (rejection.user, rejection.groups) == ("", ())


def test_a_rejection_is_forgotten_after_three_days() -> None:
    """Spec 2: Rejected starts the 3 day expire timer."""
    one = Trial().does(apps("app-1 root.x")).waits(4 * 24 * 3600)
    assert one.partition.rejections == {}


def test_new_ones_are_handled_before_removals() -> None:
    request = ApplicationRequest(
        new=apps("app-1 root.a", "app-2 root.x").new, remove=[RemoveApplicationRequest(application_id="app-1")]
    )
    one = Trial().does(request)
    assert [line.split(":")[0] for line in one.told()] == ["app-1 accepted", "app-2 rejected"]
    assert one.partition.applications == {}


# Queues that placement creates ----------------------------------------------------------------------------------------


def creating(queues: str = "root.p parent") -> Trial:
    return Trial(queues, rules=(PROVIDED_CREATE,))


def test_the_queue_is_created_if_a_rule_says_so() -> None:
    one = creating().does(apps("app-1 root.p.New"))
    assert one.app("app-1").queue is one.queue("root.p.new")


def test_a_queue_that_cannot_be_created_rejects_the_application() -> None:
    one = creating("root.a").does(apps("app-1 root.a.new"))
    assert rejected(one).endswith("creation of queue root.a.new failed parent is already a leaf: root.a")
    assert one.partition.tree.find("root.a.new") is None


def test_a_parent_takes_no_application() -> None:
    """It is no leaf, so the rule does not match it."""
    assert "rejected" in creating().does(apps("app-1 root.p")).told()[0]


def test_a_queue_that_placement_created_goes_ten_seconds_after_its_last_application() -> None:
    one = creating().does(apps("app-1 root.p.new")).waits(35)
    one.does(gone("app-1")).waits(10)
    assert one.partition.tree.find("root.p.new") is None
    assert one.queue("root.p").children == {}


def test_an_application_by_force_goes_to_the_recovery_queue() -> None:
    one = Trial("root.a").does(apps("app-1 root.x tag.application.create.force=true"))
    assert one.told() == ["app-1 accepted"]
    assert one.app("app-1").queue.path == "root.@recovery@"


# Removal --------------------------------------------------------------------------------------------------------------


def test_everything_of_a_removed_application_goes_with_it() -> None:
    one = Trial().does(
        nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"), asks("app-1 a2 memory=9")
    )
    one.told()
    assert one.does(gone("app-1")).told() == [
        "app-1 Completing",
        "a1 released (STOPPED_BY_RM: Application app-1 Removed)",
    ]
    assert one.partition.allocations == {}
    assert (one.queue("root").pending, one.queue("root").allocated) == ({}, {})
    assert one.partition.ended == {}


def test_an_application_that_had_nothing_goes_silently() -> None:
    one = Trial().does(apps("app-1 root.a"))
    one.told()
    assert one.does(gone("app-1")).told() == []


def test_a_completing_application_that_is_removed_has_completed() -> None:
    """Spec 2, rule 8."""
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"), released("app-1 a1"))
    one.told()
    assert one.does(gone("app-1")).waits(60).told() == ["app-1 Completed"]
    assert one.partition.ended == {}


def test_removing_an_unknown_application_is_only_noted() -> None:
    assert Trial().does(gone("app-9")).told() == ["note: application app-9: unknown, removing it has no effect"]


def test_room_of_a_removed_application_is_used_by_others() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a"), asks("app-1 a1 memory=9"))
    one.does(asks("app-2 b1 memory=9"), gone("app-1"))
    assert one.placed() == ["a1 on n1", "b1 on n1"]


def test_a_gang_is_rejected_where_it_can_never_run() -> None:
    one = Trial("root.a max=memory:9").does(apps("app-1 root.a gang=memory:10"), apps("app-2 root.a gang=memory:9"))
    first, second = one.told()
    assert first.endswith("task group request map[memory:10] larger than max queue allocation map[memory:9]")
    assert second == "app-2 accepted"
    assert one.app("app-2").placeholder_ask == {"memory": 9}


# Tags of a namespace ------------------------------------------------------------------------------------------------


def in_namespace(name: str, queue: str, **tags: str) -> ApplicationRequest:
    """An application with tags `namespace.resource*`; amounts are of memory."""
    (new,) = apps(f"{name} {queue}").new
    new.tags.update(
        {
            f"namespace.resource{tag}": value
            if tag == "maxapps"
            else f'{{"resources": {{"memory": {{"value": {value}}}}}}}'
            for tag, value in tags.items()
        }
    )
    return ApplicationRequest(new=[new])


def test_the_tags_of_a_submission_set_what_its_dynamic_queue_may_use() -> None:
    one = Trial("root.a", rules=(PROVIDED_CREATE,)).does(in_namespace("app-1", "root.ns", quota="5", guaranteed="2"))
    ns = one.queue("root.ns")
    assert (ns.maximum, ns.guaranteed, ns.max_applications) == ({"memory": 5}, {"memory": 2}, 0)
    one.does(in_namespace("app-2", "root.ns", maxapps="3"))
    assert (ns.maximum, ns.guaranteed, ns.max_applications) == ({"memory": 5}, {"memory": 2}, 3)


@pytest.mark.parametrize("queue", ["root.a", "root.@recovery@"])
def test_a_configured_queue_and_that_for_recovery_take_no_notice_of_tags(queue: str) -> None:
    one = Trial("root.a max=memory:9")
    submission = in_namespace("app-1", queue, quota="5", maxapps="3")
    submission.new[0].tags["application.create.force"] = "true"
    one.does(submission)
    assert one.app("app-1").queue.path == queue
    assert (one.queue(queue).maximum, one.queue(queue).max_applications) == (
        {"memory": 9} if queue == "root.a" else None,
        0,
    )


def test_tags_that_cannot_be_read_are_noted_and_change_nothing() -> None:
    one = Trial("root.a", rules=(PROVIDED_CREATE,)).does(in_namespace("app-1", "root.ns", quota="5"))
    one.told()
    one.does(in_namespace("app-2", "root.ns", quota="null", maxapps="few"))
    assert [line.partition(": tag")[0] for line in one.told()] == ["note: application app-2"] * 2 + ["app-2 accepted"]
    assert one.queue("root.ns").maximum == {"memory": 5}


def test_a_larger_quota_wakes_what_waits() -> None:
    one = Trial("root.a", rules=(PROVIDED_CREATE,)).does(nodes("n1 memory=100"))
    one.does(in_namespace("app-1", "root.ns", quota="5"), asks("app-1 a1 memory=5"), asks("app-1 a2 memory=5"))
    assert one.placed() == ["a1 on n1"]
    assert one.does(in_namespace("app-2", "root.ns", quota="10")).placed() == ["a2 on n1"]


def test_a_larger_number_of_applications_wakes_who_was_held_back() -> None:
    one = Trial("root.a", rules=(PROVIDED_CREATE,)).does(nodes("n1 memory=100"))
    one.does(in_namespace("app-1", "root.ns", maxapps="1"), in_namespace("app-2", "root.ns"))
    one.does(asks("app-1 a1 memory=5"), asks("app-2 b1 memory=5"))
    assert one.placed() == ["a1 on n1"]
    assert one.does(in_namespace("app-3", "root.ns", maxapps="2")).placed() == ["b1 on n1"]


def test_a_guarantee_changes_the_order_of_fair_applications_that_wait() -> None:
    fair = "root.t parent template.application.sort.policy=fair"
    one = Trial(fair, rules=(PROVIDED_CREATE,)).does(nodes("n1 memory=6 gpu=4"))
    one.does(in_namespace("app-1", "root.t.ns"), in_namespace("app-2", "root.t.ns"))
    one.does(asks("app-1 a1 memory=6"), asks("app-2 b1 gpu=4"))
    one.does(asks("app-1 a2 memory=1 gpu=1"), asks("app-2 b2 memory=1 gpu=1"))
    one.does(in_namespace("app-3", "root.t.ns", guaranteed="1000"))
    one.told()
    one.takes(nodes("n2 memory=1 gpu=1"))
    assert one.decides() == ["a2 on n2"]


def test_a_quota_that_is_lowered_below_the_use_is_enforced() -> None:
    queues = "root.t parent template.quota.preemption.delay=5s"
    one = Trial(queues, rules=(PROVIDED_CREATE,), quota_preemption=True).does(nodes("n1 memory=100"))
    one.does(
        in_namespace("app-1", "root.t.ns", quota="8"), asks("app-1 a1 memory=4 victim", "app-1 a2 memory=4 victim")
    )
    one.does(in_namespace("app-2", "root.t.ns", quota="9")).waits(10)
    assert [key for key, ask in one.partition.allocations.items() if ask.preempted] == []
    one.does(in_namespace("app-3", "root.t.ns", quota="4")).waits(4)
    assert [key for key, ask in one.partition.allocations.items() if ask.preempted] == []
    one.waits(2)
    assert [key for key, ask in one.partition.allocations.items() if ask.preempted] == ["a2"]


# Users who are looked up --------------------------------------------------------------------------------------------

UNKNOWN = "user: unknown user bob"


def test_a_submission_without_groups_waits_until_they_are_known() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a user=bob"))
    assert one.told() == ["the groups of bob are wanted"]
    assert one.partition.applications == {}
    assert one.finds("bob", "dev", "qa").told() == ["app-1 accepted"]
    assert one.app("app-1").user.groups == ("dev", "qa")


def test_all_of_a_user_go_on_in_their_order_after_one_look_up() -> None:
    one = Trial("root.a", resolver="os").does(
        apps("app-3 root.a user=bob", "app-1 root.a user=bob"), apps("app-2 root.a")
    )
    assert one.told() == ["the groups of bob are wanted"]
    assert one.finds("bob", "dev").told() == ["app-3 accepted", "app-1 accepted", "app-2 accepted"]
    assert [app.rank for app in one.partition.applications.values()] == [1, 2, 3]


def test_others_do_not_wait_for_a_user() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a user=bob", "app-2 root.a user=eve groups=qa"))
    assert one.told() == ["the groups of bob are wanted", "app-2 accepted"]
    one.does(apps("app-3 root.a user=ann"))
    assert one.finds("ann", "dev").told() == ["the groups of ann are wanted", "app-3 accepted"]
    assert one.finds("bob", "dev").told() == ["app-1 accepted"]


def test_what_was_found_is_remembered() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a")).finds("bob", "dev")
    one.told()
    assert one.does(apps("app-2 root.a")).told() == ["app-2 accepted"]
    assert one.waits(300).does(apps("app-3 root.a")).told() == ["the groups of bob are wanted"]


def test_a_failing_look_up_rejects_what_waited_and_for_a_while_what_comes() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a", "app-2 root.a user=eve"))
    one.told()
    assert one.finds("bob", problem=UNKNOWN).told() == [f"app-1 rejected: {UNKNOWN}"]
    assert one.partition.rejections["app-1"].user == "bob"
    assert rejected(one.does(apps("app-3 root.a"))).startswith("user resolution failed, cached data returned: ")
    assert one.finds("eve", "dev").told() == ["app-2 accepted"]
    assert one.waits(30).does(apps("app-3 root.a")).told() == ["the groups of bob are wanted"]
    assert (one.partition.counters.submitted, one.partition.counters.refused) == (4, 2)


def test_what_is_forced_goes_on_without_groups() -> None:
    one = Trial("root.a", resolver="os")
    one.does(apps("app-1 root.a tag.application.create.force=true", "app-2 root.a"))
    one.told()
    assert one.finds("bob", problem=UNKNOWN).told() == ["app-1 accepted", f"app-2 rejected: {UNKNOWN}"]
    assert one.app("app-1").user.groups == ("nogroup",)


def test_a_removal_of_what_waits_drops_it_and_is_answered_like_that_of_any_unknown_one() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a", "app-2 root.a"), gone("app-1"))
    assert one.told() == ["the groups of bob are wanted", "note: application app-1: unknown, removing it has no effect"]
    assert one.finds("bob", "dev").told() == ["app-2 accepted"]


def test_what_is_said_about_an_application_that_waits_follows_it_in_order() -> None:
    one = Trial("root.a", resolver="os").does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.a"))
    one.told()
    one.does(asks("app-1 a1 memory=1", "app-2 b1 memory=1"), released("app-1 a1"), asks("app-1 a2 memory=1"))
    assert one.told() == []
    one.finds("bob", "dev")
    assert [line for line in one.told() if "accepted" in line] == ["app-1 accepted", "app-2 accepted"]
    assert one.running == ["a2 on n1", "b1 on n1"]


def test_what_is_said_about_an_application_that_is_refused_after_all_is_refused() -> None:
    one = Trial("root.a", resolver="os").does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1"), released("app-1 a1"))
    one.told()
    assert one.finds("bob", problem="no such user").told() == [
        "app-1 rejected: no such user",
        "a1 rejected: failed to find application app-1",
        "note: release of a1: application app-1 is unknown",
    ]


def test_what_is_said_about_an_application_that_is_removed_while_it_waits_goes_with_it() -> None:
    one = Trial("root.a", resolver="os").does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1"), gone("app-1"), apps("app-1 root.a"), asks("app-1 a2 memory=1"))
    assert one.finds("bob", "dev").running == ["a2 on n1"]


def test_when_too_much_waits_asks_are_refused_and_releases_take_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 1000
    for module in (user_resolution, allocation_updates):
        monkeypatch.setattr(module, "HELD_MAX", most)
    one = Trial("root.a", resolver="os").does(nodes("n1 memory=10"), apps("app-1 root.a"))
    many = [ask("app-1 a memory=1")] * (most - 1)
    one.takes(AllocationRequest(allocations=[ask("app-1 kept memory=1"), *many]))
    one.told()
    reason = f"{most} asks and releases wait until users have been looked up: try again later"
    assert one.does(asks("app-1 late memory=1")).told() == [f"late rejected: {reason}"]
    assert one.does(released("app-1 a")).told() == []
    assert one.finds("bob", "dev").running == ["kept on n1"]


class Uncounted(dict[int, HeldUpdate]):
    """Held updates that must not be visited one by one."""

    def __iter__(self) -> Iterator[int]:
        raise AssertionError("all held updates were visited")

    keys = values = items = __iter__  # type: ignore[assignment]  # of other types, and never returned


def test_a_cycle_takes_the_same_time_however_many_updates_wait() -> None:
    one = Trial("root.a", resolver="os", made=Partition).does(nodes("n1 memory=10"))
    one.does(apps("app-1 root.a", "app-2 root.a user=eve groups=qa"))
    one.takes(AllocationRequest(allocations=[ask(f"app-1 a{number} memory=1") for number in range(HELD_MAX)]))
    pending = one.partition.pending_submissions
    pending.updates = Uncounted(pending.updates)
    assert one.does(asks("app-2 b1 memory=1")).placed() == ["b1 on n1"]
    one.does(*(released(f"app-1 a{number}") for number in range(10)))  # they find those for their allocation
    assert len(pending.updates) == HELD_MAX


def test_an_application_that_waits_for_its_groups_counts_toward_the_most_of_a_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application_updates, "APPLICATIONS_MAX", 2)
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a user=eve groups=qa", "app-2 root.a user=bob"))
    one.told()
    one.does(apps("app-3 root.a user=eve groups=qa"))
    assert one.told() == ["app-3 rejected: the partition has 2 applications, it takes no more"]


def test_nothing_is_scheduled_while_a_running_allocation_waits() -> None:
    one = Trial("root.a", resolver="os").does(nodes("n1 memory=10"))
    one.does(apps("app-1 root.a", "app-2 root.a user=eve groups=qa"), asks("app-1 r1 memory=9 on=n1"))
    assert one.does(asks("app-2 b1 memory=1", "app-2 b2 memory=1")).placed() == []
    assert one.finds("bob", "dev").placed() == ["r1 on n1", "b1 on n1"]
    one.does(apps("app-3 root.a user=kim"), asks("app-3 r2 memory=1 on=n1"), released("app-2 b1"))
    assert one.placed() == []
    assert one.does(gone("app-3")).placed() == ["b2 on n1"]


def test_an_id_that_waits_is_in_use() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a"))
    one.told()
    for again in ("app-1 root.a", "app-1 root.a user=eve", "app-1 root.a user=eve groups=dev"):
        assert "application already existed" in rejected(one.does(apps(again)))
    assert one.finds("bob", "dev").told() == ["app-1 accepted"]


def test_what_would_be_rejected_anyway_waits_for_nobody() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a user="))
    assert one.told() == ["app-1 rejected: empty user cannot resolve"]
    assert rejected(one.does(ApplicationRequest(new=[AddApplicationRequest(queue_name="root.a")]))).startswith(
        "invalid"
    )


def test_when_too_many_wait_the_next_is_rejected_and_told_why() -> None:
    one = Trial("root.a", resolver="os")
    one.takes(apps(*(f"app-{number} root.a user=user{number % 7}" for number in range(WAITING_MAX))))
    assert len(one.told()) == 7
    assert rejected(one.takes(apps("late root.a user=user3"))) == (
        f"{WAITING_MAX} applications wait until their user has been looked up: try again later"
    )
    assert one.takes(apps("forced root.a tag.application.create.force=true")).told() == ["forced accepted"]
    assert one.takes(apps("named root.a groups=dev")).told() == ["named accepted"]
    one.takes(gone("app-5"))
    one.told()
    assert one.takes(apps("next root.a user=user3")).told() == []


def test_nobody_waits_in_a_partition_that_goes() -> None:
    one = Trial("root.a", resolver="os").does(apps("app-1 root.a"))
    one.told()
    effects = one.partition.retire(one.now)
    (told,) = (effect.part for effect in effects if isinstance(effect.part, RejectedApplication))
    assert (told.application_id, "was removed" in told.reason) == ("app-1", True)
    assert one.finds("bob", "dev").told() == []


def test_groups_that_nobody_asked_for_change_nothing() -> None:
    one = Trial("root.a").finds("bob", "dev").does(apps("app-1 root.a"))
    assert one.told() == ["note: groups of user bob: no lookup was requested", "app-1 accepted"]
    assert one.app("app-1").user.groups == ("bob",)
