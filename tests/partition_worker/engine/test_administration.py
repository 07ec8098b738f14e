"""Administrative actions: kill, move, and the retirement of a partition."""

import random

import pytest

from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, config, foreign, gone, nodes, released
from tests.invariants import check
from tests.trial import ADMIN, Trial, line
from yunishard.common.config.acl import parse_acl
from yunishard.common.messages import event_codes
from yunishard.common.messages.query_messages import Actor
from yunishard.common.messages.rm_messages import (
    STOPPED_BY_RM,
    AllocationRelease,
    EventRecord,
    NodeRequest,
    RejectedNode,
)
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.application import AppEvent, AppState
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.lifecycle import fire

ANN = Actor(user="ann", groups=["ops"])
QUEUES = "root.a; root.b; root.p.c"


def trial(queues: str = QUEUES, *, memory: int = 100) -> Trial:
    """app-1 in root.a runs a1 and waits for a2."""
    one = Trial(queues).does(nodes(f"n1 memory={memory}"), apps("app-1 root.a user=bob"))
    one.does(asks("app-1 a1 memory=4 priority=2", "app-1 a2 memory=1100 priority=5"))
    one.told()
    return one


def refused(one: Trial, status: int, action: str, *words: str, by: Actor = ADMIN) -> str:
    """The reason; nothing has been told, and nothing has changed."""
    before = snapshot_of(one)
    with pytest.raises(NotDone) as caught:
        (one.kills if action == "kill" else one.moves)(*words, by=by)
    assert caught.value.status == status
    assert one.told() == []
    assert snapshot_of(one) == before
    return str(caught.value)


def snapshot_of(one: Trial) -> object:
    """Everything that depends on where applications are."""
    partition = one.partition
    queues = {
        queue.path: (
            {kind: amount for kind, amount in queue.allocated.items() if amount},
            {kind: amount for kind, amount in queue.pending.items() if amount},
            (queue.running, queue.priority, sorted(queue.applications)),
        )
        for queue in partition.tree
    }
    users = {
        user: {
            path: (level.used, sorted(level.applications)) for path, level in partition.usage.users.levels(user).items()
        }
        for user in (tracker.name for tracker in partition.usage.users.by_name.values())
    }
    return queues, users, {name: app.state for name, app in partition.applications.items()}


# Who may ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", ["root adminacl=ann; root.a", "root.a adminacl=ann", "root.a adminacl=ann,eve"])
def test_who_administers_the_queue_or_one_above_may_kill(queues: str) -> None:
    assert "app-1 Failed" in trial(queues).kills("app-1", by=ANN).told()


@pytest.mark.tampers
def test_an_admin_acl_may_name_a_group() -> None:
    one = trial("root.a; root.b adminacl=ann")
    one.queue("root.a").admin_acl = parse_acl(" qa,ops")
    refused(one, 403, "kill", "app-1", by=Actor(user="ann", groups=["dev"]))
    assert "app-1 Failed" in one.kills("app-1", by=ANN).told()


@pytest.mark.parametrize("queues", ["root.a submitacl=ann", "root.a; root.b adminacl=ann"])
def test_to_submit_or_to_administer_something_else_is_not_enough(queues: str) -> None:
    refused(trial(queues), 403, "kill", "app-1", by=ANN)


def test_who_administers_a_queue_does_not_administer_what_is_above_or_beside_it() -> None:
    one = trial("root.p.c adminacl=ann; root.p.d; root.a").does(apps("app-2 root.p.d"))
    one.told()
    refused(one, 403, "kill", "app-2", by=ANN)


def test_the_owner_of_an_application_may_not_kill_it_as_such() -> None:
    refused(trial(), 403, "kill", "app-1", by=Actor(user="bob"))


def test_nobody_may_do_nothing() -> None:
    assert "(nobody)" in refused(trial(), 403, "kill", "app-1", by=Actor(user=""))


@pytest.mark.parametrize("queues", ["root.a adminacl=ann; root.b", "root.a; root.b adminacl=ann"])
def test_a_move_needs_the_right_on_both_queues(queues: str) -> None:
    refused(trial(queues), 403, "move", "app-1", "root.b", by=ANN)


# Kill ---------------------------------------------------------------------------------------------------------------


def test_a_killed_application_is_remembered_as_failed_and_leaves_nothing() -> None:
    one = trial().kills("app-1")
    assert one.partition.applications == {}
    (ended,) = one.partition.ended.values()
    assert (ended.application_id, ended.state, ended.finished_ns > 0) == ("app-1", AppState.FAILED, True)
    assert [state for _, state in ended.state_log][-2:] == [AppState.FAILING, AppState.FAILED]
    assert (one.partition.allocations, one.partition.running_allocations) == ({}, 0)
    assert one.partition.usage.users.by_name == {}
    assert one.node("n1").available == {"memory": 100}


def test_the_rm_hears_who_killed_it_and_what_was_released_but_not_of_asks() -> None:
    one = trial().kills("app-1", by=Actor(user="op", scheduler_admin=True))
    told = [effect.part for effect in one.effects if isinstance(effect.part, AllocationRelease)]
    assert [(part.allocation_key, part.termination_type, part.message) for part in told] == [
        ("a1", STOPPED_BY_RM, "Application app-1 killed by op")
    ]


def test_one_that_has_nothing_yet_can_be_killed() -> None:
    one = Trial("root.a").does(apps("app-1 root.a"))
    one.told()
    assert one.kills("app-1").told()[1:] == ["app-1 Failing", "app-1 Failed"]


def test_one_that_resumes_fails_by_way_of_accepted() -> None:
    one = Trial("root.a").does(apps("app-1 root.a"))
    fire(one.partition, one.app("app-1"), AppEvent.RESUME)
    one.partition.drain_effects()
    one.told()
    assert one.kills("app-1").told()[1:] == ["app-1 Accepted", "app-1 Failing", "app-1 Failed"]


def test_an_unknown_ended_or_rejected_application_cannot_be_killed() -> None:
    one = trial().does(apps("app-2 root.nowhere")).kills("app-1")
    one.told()
    for name in ("app-1", "app-2", "app-3", ""):
        refused(one, 404, "kill", name)


def test_a_killed_application_makes_room_at_the_running_limit() -> None:
    one = trial("root.a maxapps=1").does(apps("app-2 root.a"), asks("app-2 b1 memory=1"))
    assert one.app("app-2").state is AppState.ACCEPTED
    assert "b1 on n1" in one.kills("app-1").told()


def test_the_dynamic_queue_of_a_killed_application_goes() -> None:
    one = Trial("root.a", rules=(PROVIDED_CREATE,)).does(apps("app-1 root.new"))
    one.waits(15).kills("app-1").waits(10)
    assert one.partition.tree.find("root.new") is None


# Move: where to -----------------------------------------------------------------------------------------------------


def test_the_queue_to_move_to_is_an_existing_active_leaf() -> None:
    one = trial("root.a; root.d; root.p parent").reconfigures("root.a; root.p parent")
    one.told()
    refused(one, 404, "move", "app-1", "root.x")
    refused(one, 404, "move", "app-1", "")
    refused(one, 400, "move", "app-1", "root.p")
    refused(one, 400, "move", "app-1", "root")
    assert "Draining" in refused(one, 400, "move", "app-1", "root.d")


def test_nothing_is_moved_to_the_recovery_queue_but_out_of_it() -> None:
    one = Trial(QUEUES).does(apps("app-1 root.a", "app-2 root.gone tag.application.create.force=true"))
    one.told()
    assert one.app("app-2").queue.path == "root.@recovery@"
    refused(one, 400, "move", "app-1", "root.@recovery@")
    one.moves("app-2", "root.b").waits(10)
    assert one.partition.tree.find("root.@recovery@") is None


def test_a_gang_is_moved_only_to_where_it_could_have_been_submitted() -> None:
    one = Trial("root.a; root.fair application.sort.policy=fair; root.small max=memory:9; root.big max=memory:10")
    one.does(apps("app-1 root.a gang=memory:10"))
    one.told()
    assert "unsupported sort type" in refused(one, 400, "move", "app-1", "root.fair")
    assert "larger than max queue allocation" in refused(one, 400, "move", "app-1", "root.small")
    one.moves("app-1", "root.big")
    assert one.app("app-1").queue.path == "root.big"


def test_the_path_ignores_case() -> None:
    assert trial().moves("app-1", "ROOT.P.C").app("app-1").queue.path == "root.p.c"


def test_where_it_is_it_need_not_be_moved_to() -> None:
    refused(trial(), 409, "move", "app-1", "root.A")


def test_an_application_that_is_ending_stays_where_it_is() -> None:
    one = trial()
    fire(one.partition, one.app("app-1"), AppEvent.FAIL)
    one.partition.drain_effects()
    assert "Failing" in refused(one, 409, "move", "app-1", "root.b")


# Move: room ---------------------------------------------------------------------------------------------------------


def test_only_queues_that_the_application_newly_comes_into_need_room() -> None:
    one = trial("root.p maxapps=1 max=memory:4; root.p.a; root.p.b; root.a")
    one.does(gone("app-1"), apps("app-2 root.p.a"), asks("app-2 b1 memory=4")).moves("app-2", "root.p.b")
    assert one.app("app-2").queue.path == "root.p.b"


def test_a_move_does_not_exceed_a_maximum_on_any_level() -> None:
    one = trial("root.a; root.p max=memory:7; root.p.c max=memory:100")
    one.does(apps("app-2 root.p.c"), asks("app-2 b1 memory=4"))
    one.told()
    assert "exceeds what is left in queue root.p:" in refused(one, 409, "move", "app-1", "root.p.c")
    one.does(released("app-2 b1")).moves("app-1", "root.p.c")


@pytest.mark.parametrize(
    ("limited", "reason"),
    [
        ("root.b limit.user.bob=memory:3", "user bob would exceed the limit at queue root.b"),
        ("root.b limit.user.*=memory:3", "user bob would exceed the limit at queue root.b"),
        ("root.b limit.user.bob=memory:4", ""),
        ("root.b limit.user.ann=memory:3", ""),
        ("root.b limit.group.ops=memory:3", "group ops would exceed the limit at queue root.b"),
        ("root limit.user.bob=memory:4; root.b", ""),
        ("root limit.group.dev=memory:3; root.b limit.group.ops=memory:9", ""),
    ],
)
def test_a_move_does_not_exceed_what_a_user_or_group_may_have(limited: str, reason: str) -> None:
    one = Trial(f"root.a; {limited}").does(nodes("n1 memory=100"), apps("app-1 root.a user=bob groups=ops"))
    one.does(asks("app-1 a1 memory=4"))
    one.told()
    if reason:
        assert reason in refused(one, 409, "move", "app-1", "root.b")
    else:
        one.moves("app-1", "root.b")
        assert one.app("app-1").queue.path == "root.b"


def test_a_move_does_not_exceed_how_many_applications_a_user_may_run() -> None:
    one = Trial("root.a; root.b limit.user.bob=apps:1").does(nodes("n1 memory=100"))
    one.does(apps("app-1 root.a user=bob", "app-2 root.b user=bob", "app-3 root.a user=bob"))
    one.does(asks("app-1 a1 memory=4", "app-2 a2 memory=4"))
    one.told()
    assert "user bob would exceed the limit" in refused(one, 409, "move", "app-1", "root.b")
    one.moves("app-3", "root.b")  # it does not run, and is held there


def test_a_move_into_a_queue_over_its_maximum_in_another_type_is_possible() -> None:
    one = trial("root.a; root.b").does(nodes("n2 gpu=5"), apps("app-2 root.b"), asks("app-2 g1 gpu=5"))
    one.reconfigures("root.a; root.b max=gpu:1").moves("app-1", "root.b")
    assert one.app("app-1").queue.path == "root.b"


def test_one_more_may_not_run_than_the_queues_run_at_most() -> None:
    one = trial("root.a; root.p maxapps=1; root.p.c").does(apps("app-2 root.p.c"), asks("app-2 b1 memory=1"))
    one.told()
    refused(one, 409, "move", "app-1", "root.p.c")
    one.does(released("app-2 b1")).moves("app-1", "root.p.c")
    assert one.queue("root.p").running == 1


def test_one_that_does_not_run_yet_may_go_there_and_is_held_back() -> None:
    one = trial("root.a; root.b maxapps=1").moves("app-1", "root.b")
    one.does(apps("app-2 root.a"), asks("app-2 b1 memory=1000")).moves("app-2", "root.b")
    one.told()
    assert one.does(nodes("n2 memory=2000")).told() == ["node n2 accepted", "a2 on n2"]
    assert one.does(released("app-1 a1", "app-1 a2")).placed() == ["b1 on n2"]


# Move: what follows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["root.b", "root.p.c"])
def test_afterwards_the_books_are_as_if_it_had_always_been_there(to: str) -> None:
    def played(queue: str) -> Trial:
        one = Trial(QUEUES).does(nodes("n1 memory=100"), apps(f"app-1 {queue} user=bob", "app-2 root.a user=bob"))
        return one.does(asks("app-1 a1 memory=4 priority=2", "app-1 a2 memory=900 priority=5", "app-2 b1 memory=1"))

    assert snapshot_of(played("root.a").moves("app-1", to)) == snapshot_of(played(to))
    assert snapshot_of(played("root.a").moves("app-1", to).moves("app-1", "root.a")) == snapshot_of(played("root.a"))


def groups(one: Trial) -> dict[str, dict[str, int]]:
    """What is charged to each group, by path and without zeros."""
    found: dict[str, dict[str, int]] = {}
    for tracker in one.partition.usage.groups.by_name.values():
        for path, level in tracker.levels.items():
            if amount := level.used.get("memory", 0):
                found.setdefault(tracker.name, {})[path] = amount
    return found


def test_the_limits_of_the_new_queue_decide_anew_which_group_is_charged() -> None:
    queues = "root.a limit.group.dev=memory:90; root.b limit.group.qa=memory:90; root.c"
    one = Trial(queues).does(nodes("n1 memory=100"), apps("app-1 root.a groups=dev,qa"), asks("app-1 a1 memory=4"))
    assert groups(one) == {"dev": {"root": 4, "root.a": 4}}
    assert groups(one.moves("app-1", "root.b")) == {"qa": {"root": 4, "root.b": 4}}
    assert groups(one.moves("app-1", "root.c")) == {}
    assert groups(one.moves("app-1", "root.a")) == {"dev": {"root": 4, "root.a": 4}}
    assert groups(one.kills("app-1")) == {}


def test_one_that_has_nothing_yet_may_be_moved_to_where_its_user_has_all_they_may_and_gets_nothing_there() -> None:
    queues = "root.a; root.b limit.user.bob=memory:0,vcore:1"
    one = Trial(queues).does(apps("app-1 root.a user=bob"), asks("app-1 a1 memory=1"))
    one.moves("app-1", "root.b").does(nodes("n1 memory=100"))
    assert one.running == []
    one.moves("app-1", "root.a")
    assert one.running == ["a1 on n1"]


def test_who_waits_for_a_limit_of_the_old_queue_gets_what_a_move_frees() -> None:
    queues = "root.a limit.user.bob=memory:5; root.b"
    one = Trial(queues).does(nodes("n1 memory=100"), apps("app-1 root.a user=bob", "app-2 root.a user=bob"))
    one.does(asks("app-1 a1 memory=5"), asks("app-2 b1 memory=5"))
    assert one.running == ["a1 on n1"]
    assert one.moves("app-1", "root.b").running == ["a1 on n1", "b1 on n1"]


def test_who_waits_for_the_number_of_a_users_applications_gets_what_a_move_or_a_kill_frees() -> None:
    queues = "root.a limit.user.bob=apps:1; root.b"
    one = Trial(queues).does(nodes("n1 memory=100"), apps("app-1 root.a", "app-2 root.a", "app-3 root.a"))
    one.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1"))
    assert one.running == ["a1 on n1"]
    assert one.moves("app-1", "root.b").running == ["a1 on n1", "b1 on n1"]
    assert one.kills("app-2").running == ["a1 on n1", "c1 on n1"]


def test_an_application_that_ran_and_only_asks_now_still_counts_for_its_user() -> None:
    one = trial().does(released("app-1 a1"), asks("app-1 a1 memory=4")).moves("app-1", "root.b")
    levels = one.partition.usage.users.levels("bob")
    assert {path: list(level.applications) for path, level in levels.items()} == {
        "root": ["app-1"],
        "root.b": ["app-1"],
    }


def test_one_that_completes_may_be_moved_and_goes_on_completing() -> None:
    one = trial().does(released("app-1")).moves("app-1", "root.b")
    assert one.app("app-1").state is AppState.COMPLETING
    one.waits(30)
    assert [ended.queue.path for ended in one.partition.ended.values()] == ["root.b"]
    assert one.queue("root.b").applications == {}


def test_what_waits_for_room_in_the_old_queue_gets_it_and_so_does_the_application_in_the_new_one() -> None:
    one = trial("root.a max=memory:4; root.b", memory=10).does(apps("app-2 root.a"), asks("app-2 b1 memory=4"))
    one.does(asks("app-1 a3 memory=2"))
    one.told()
    assert sorted(one.moves("app-1", "root.b").placed()) == ["a3 on n1", "b1 on n1"]


def test_an_application_set_aside_in_a_full_queue_is_tried_in_its_new_one() -> None:
    one = trial("root.a max=memory:4; root.b").does(apps("app-2 root.a"), asks("app-2 b1 memory=1"))
    assert one.placed() == []
    assert one.moves("app-2", "root.b").placed() == ["b1 on n1"]


def test_the_dynamic_queue_that_it_leaves_goes_when_it_is_empty() -> None:
    one = Trial("root.a", rules=(PROVIDED_CREATE,)).does(apps("app-1 root.new.deep"))
    one.waits(15).moves("app-1", "root.a").waits(10)
    assert one.partition.tree.find("root.new") is None


def test_a_draining_queue_can_be_emptied_by_moving() -> None:
    one = trial("root.a; root.b").reconfigures("root.b").moves("app-1", "root.b").waits(10)
    assert one.partition.tree.find("root.a") is None


def test_an_event_says_where_it_is_now() -> None:
    one = trial().moves("app-1", "root.p.c", by=Actor(user="op", scheduler_admin=True))
    (event,) = (effect.part for effect in one.effects if isinstance(effect.part, EventRecord))
    assert (event.type, event.object_id, event.reference_id) == (event_codes.APP, "app-1", "root.p.c")
    assert event.message == "Application app-1 moved from root.a to root.p.c by op"
    assert event.timestamp_nano > 0


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_moved_and_killed_the_books_agree_and_no_maximum_is_exceeded(seed: int) -> None:
    chance = random.Random(seed)
    leaves = ["root.a", "root.b", "root.p.c", "root.p.d"]
    one = Trial("root.a max=memory:20 maxapps=2; root.b; root.p maxapps=3 max=memory:40; root.p.c; root.p.d")
    one.does(nodes("n1 memory=40", "n2 memory=40"))
    refusals = {409}
    for step in range(60):
        name = f"app-{chance.randrange(8)}"
        match chance.randrange(5):
            case 0 if name not in one.partition.applications:
                one.does(apps(f"{name} {chance.choice(leaves)} user={chance.choice('xyz')}"))
            case 1 | 2 if name in one.partition.applications:
                one.does(asks(f"{name} k{step} memory={chance.randrange(1, 12)} priority={chance.randrange(3)}"))
            case 3 if name in one.partition.applications:
                try:
                    one.moves(name, chance.choice(leaves))
                except NotDone as refusal:
                    refusals.add(refusal.status)
            case 4 if name in one.partition.applications and not chance.randrange(3):
                one.kills(name)
        for queue in one.partition.tree:
            limit = queue.maximum or {}
            assert queue.allocated.get("memory", 0) <= limit.get("memory", 80)
    for name in tuple(one.partition.applications):
        one.kills(name)
    assert refusals == {409}
    assert one.partition.running_allocations == 0
    assert one.partition.usage.users.by_name == {}


# Retirement -----------------------------------------------------------------------------------------------------------


def retired(trial: Trial) -> list[str]:
    effects: list[Effect] = trial.partition.retire(trial.now)
    check(trial.partition)
    return [line(effect.part) for effect in effects]


def busy() -> Trial:
    trial = Trial("root.p.a max=memory:4; root.b").does(nodes("n1 memory=10", "n2 memory=10"))
    trial.does(apps("app-1 root.p.a", "app-2 root.b", "app-3 root.b"), foreign("f1 n1 memory=1"))
    return trial.does(asks("app-1 a1 memory=3", "app-1 a2 memory=3"), asks("app-2 b1 memory=1", "app-2 b2 memory=1"))


def test_every_application_fails_and_what_it_had_is_released() -> None:
    trial = busy()
    effects = trial.partition.retire(trial.now)
    assert [line(effect.part) for effect in effects] == [
        "app-1 Failing",
        "app-2 Failing",
        "app-3 Failing",
        *(f"{key} released (STOPPED_BY_RM: Partition {PARTITION} Removed)" for key in ("a1", "b1", "b2")),
    ]
    assert [effect.part.message for effect in effects[:3]] == ["PartitionRemoved"] * 3
    assert {effect.part.partition_name for effect in effects[3:]} == {PARTITION}


def test_nothing_is_left() -> None:
    trial = busy()
    retired(trial)
    partition = trial.partition
    assert not partition.applications
    assert not partition.allocations
    assert not partition.foreign
    assert not partition.running_allocations
    assert (len(partition.nodes), partition.nodes.total) == (0, {})
    assert all(queue.draining for queue in partition.tree)
    trial.waits(60)
    assert [queue.path for queue in partition.tree] == ["root"]


def test_an_application_that_completes_has_completed() -> None:
    trial = busy().does(released("app-1"))
    assert trial.app("app-1").state == "Completing"
    assert "app-1 Completed" in retired(trial)
    assert not trial.partition.applications


def test_nothing_comes_in_any_more_and_who_tries_is_told_why() -> None:
    trial = busy()
    retired(trial)
    trial.told()
    trial.does(apps("app-9 root.b"), nodes("n9 memory=10"), asks("app-1 a9 memory=1"))
    assert trial.told() == [
        f"app-9 rejected: partition {PARTITION} was removed: it cannot add a new application app-9",
        f"node n9 rejected: partition {PARTITION} was removed: it cannot add a new node n9",
        "a9 rejected: failed to find application app-1",
    ]
    assert trial.partition.objections(config()) == [f"partition {PARTITION} was removed"]


def test_a_partition_with_nothing_in_it_goes_without_a_word() -> None:
    assert retired(Trial("root.a")) == []


def test_submissions_whose_user_is_being_looked_up_are_refused() -> None:
    trial = Trial("root.a")
    trial.partition.pending_submissions.insert(apps("app-1 root.a user=kim").new[0])
    reason = f"partition {PARTITION} was removed: it cannot add a new application app-1"
    assert retired(trial) == [f"app-1 rejected: {reason}"]
    assert not len(trial.partition.pending_submissions)


def test_a_refused_node_is_a_rejection() -> None:
    trial = Trial("root.a")
    retired(trial)
    (effect,) = trial.partition.apply(NodeRequest(nodes=nodes("n1 memory=1").nodes), trial.now)
    assert isinstance(effect.part, RejectedNode)
