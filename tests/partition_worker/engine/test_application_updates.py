"""What an RM's word about applications does."""

import pytest

from common.messages import AddApplicationRequest, ApplicationRequest, RemoveApplicationRequest, UserGroupInformation
from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, gone, nodes, released
from tests.trial import Trial


def rejected(one: Trial) -> str:
    (line,) = one.told()
    return line.partition(" rejected: ")[2]


def test_an_application_gets_its_queue() -> None:
    one = Trial("root.a").does(apps("app-1 root.A user=bob groups=dev,qa tag.x=y"))
    assert one.told() == ["app-1 accepted"]
    app = one.app("app-1")
    assert (app.queue.path, app.user.name, app.user.groups, app.tags) == ("root.a", "bob", ("dev", "qa"), {"x": "y"})
    assert one.queue("root.a").applications == {"app-1": app}


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
    assert (one.queue("root").pending, one.queue("root").allocated) == ({"memory": 0}, {"memory": 0})
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
