"""Reconfiguration: the plan of queue changes, applying it, and draining queues."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tests.builders import PARTITION, PROVIDED_CREATE, apps, asks, config, gone, nodes, released
from tests.trial import START_S, Trial, read_all_settings
from yunishard.common.config.acl import Acl
from yunishard.common.config.model import (
    LimitConfig,
    PartitionConfig,
    PlacementRuleConfig,
    PreemptionConfig,
    ResolverConfig,
)
from yunishard.common.config.validation import find_build_problems, load
from yunishard.common.messages import event_codes
from yunishard.common.messages.rm_messages import EventRecord
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.queues.queue import NOTHING_PENDING
from yunishard.partition_worker.engine.queues.tree import QueueChangePlan, Tree, compare_configs
from yunishard.partition_worker.engine.reconfiguration import DRAINING_TOLD_EVERY_S
from yunishard.partition_worker.engine.state import Changes
from yunishard.partition_worker.engine.user_resolution import User

USER_RULE = PlacementRuleConfig(name="user", create=True)
BROKEN_RULE = PlacementRuleConfig(name="nosuch")


# Settings of queues -------------------------------------------------------------------------------------------------


def test_settings_of_a_queue_follow_the_configuration_and_its_path_is_found_in_any_case() -> None:
    trial = Trial("root.Team max=memory:10 guaranteed=memory:2 maxapps=3 submitacl=ann adminacl=eve priority.offset=1")
    queue = trial.queue("root.team")
    trial.reconfigures("root.TEAM max=memory:20 maxapps=4 submitacl=bob adminacl=kim application.sort.policy=fair")
    assert trial.queue("root.team") is queue
    assert (queue.maximum, queue.guaranteed, queue.max_applications) == ({"memory": 20}, None, 4)
    assert (queue.submit_acl, queue.admin_acl) == (Acl(users=frozenset({"bob"})), Acl(users=frozenset({"kim"})))
    assert queue.properties == {"application.sort.policy": "fair"}
    assert (queue.policies.application_sort, queue.policies.priority_offset) == ("fair", 0)


def test_access_follows_at_once() -> None:
    trial = Trial("root submitacl=ann; root.a").reconfigures("root submitacl=bob; root.a")
    trial.takes(apps("app-1 root.a user=ann groups=x", "app-2 root.a user=bob groups=x"))
    assert list(trial.partition.applications) == ["app-2"]


def test_what_is_no_longer_written_is_as_if_it_never_had_been() -> None:
    trial = Trial("root.a max=memory:1 guaranteed=memory:1 maxapps=1 priority.offset=3 colour.of=red")
    trial.reconfigures("root.a")
    queue = trial.queue("root.a")
    assert (queue.maximum, queue.guaranteed, queue.max_applications, queue.properties) == (None, None, 0, {})


def test_properties_are_inherited_anew_through_all_levels() -> None:
    trial = Trial("root.p preemption.delay=10s; root.p.q; root.p.q.a")
    trial.reconfigures("root.p preemption.delay=20s priority.policy=fence colour.of=blue; root.p.q; root.p.q.a")
    leaf = trial.queue("root.p.q.a")
    assert leaf.properties == {"preemption.delay": "20s", "priority.policy": "default", "colour.of": "blue"}
    assert leaf.policies.preemption_delay_s == 20


def test_the_root_takes_the_number_of_applications_and_properties_but_no_resources() -> None:
    trial = Trial("root maxapps=1; root.a").does(nodes("n1 memory=10"))
    trial.does(apps("app-1 root.a", "app-2 root.a"), asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    assert trial.running == ["a1 on n1"]
    trial.reconfigures("root maxapps=2 application.sort.priority=disabled; root.a")
    assert trial.running == ["a1 on n1", "b1 on n1"]
    assert trial.queue("root").max_applications == 2
    assert not trial.queue("root.a").policies.priority_sort
    assert trial.queue("root").maximum == {"memory": 10}


def test_resources_are_skipped_for_the_real_root_only() -> None:
    trial = Trial("root.root.a; root.root max=memory:5 maxapps=2")
    trial.reconfigures("root.root.a; root.root max=memory:7 maxapps=3")
    assert (trial.queue("root.root").maximum, trial.queue("root.root").max_applications) == ({"memory": 7}, 3)


def test_new_queues_come_last_among_equals() -> None:
    trial = Trial("root.b").reconfigures("root.a; root.b; root.c.d")
    ranks = [trial.queue(path).rank for path in ("root", "root.b", "root.a", "root.c", "root.c.d")]
    assert ranks == sorted(ranks)
    trial.does(nodes("n1 memory=1"), apps("app-1 root.a", "app-2 root.b"))
    trial.takes(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"))
    assert trial.decides() == ["b1 on n1"]


def test_the_same_configuration_again_changes_nothing_and_tells_nothing() -> None:
    trial = Trial("root.a max=memory:4; root.b").does(nodes("n1 memory=10"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=3", "app-1 a2 memory=3"))
    trial.told()
    assert trial.reconfigures("root.a max=memory:4; root.b").told() == []


# Room ---------------------------------------------------------------------------------------------------------------


def test_a_higher_maximum_lets_in_what_waits_at_once() -> None:
    trial = Trial("root.p max=memory:4; root.p.a").does(nodes("n1 memory=50"), apps("app-1 root.p.a"))
    trial.does(asks("app-1 a1 memory=4", "app-1 a2 memory=4"))
    assert trial.placed() == ["a1 on n1"]
    assert trial.reconfigures("root.p max=memory:8; root.p.a").placed() == ["a2 on n1"]


def test_a_lower_maximum_takes_nothing_and_lets_nothing_more_in() -> None:
    trial = Trial("root.a max=memory:8").does(nodes("n1 memory=50"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=4", "app-1 a2 memory=4"))
    trial.reconfigures("root.a max=memory:6").does(asks("app-1 a3 memory=2"))
    assert trial.running == ["a1 on n1", "a2 on n1"]
    assert trial.does(released("app-1 a1")).running == ["a2 on n1", "a3 on n1"]


def test_a_lower_number_of_applications_stops_none_and_starts_none() -> None:
    trial = Trial("root.a maxapps=2").does(nodes("n1 memory=50"), apps("app-1 root.a", "app-2 root.a", "app-3 root.a"))
    trial.does(asks("app-1 a1 memory=1"), asks("app-2 b1 memory=1"), asks("app-3 c1 memory=1"))
    trial.reconfigures("root.a maxapps=1").does(gone("app-1"))
    assert trial.running == ["b1 on n1"]
    assert trial.does(gone("app-2")).running == ["c1 on n1"]


def limited(memory: str) -> PartitionConfig:
    limit = LimitConfig(users=("bob",), max_resources={"memory": memory})
    return replace(config(), queues=(replace(config().root, limits=(limit,)),))


def test_limits_of_users_follow_at_once_and_take_nothing_away() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=50"), apps("app-1 root.a user=bob groups=x"))
    trial.partition.reconfigure(limited("4"), trial.now)
    assert trial.does(asks("app-1 a1 memory=4", "app-1 a2 memory=4")).running == ["a1 on n1"]
    trial.partition.reconfigure(limited("8"), trial.now)
    trial.settles()
    assert trial.running == ["a1 on n1", "a2 on n1"]
    trial.partition.reconfigure(limited("2"), trial.now)
    assert trial.does(asks("app-1 a3 memory=1")).running == ["a1 on n1", "a2 on n1"]
    assert trial.reconfigures("root.a").running == ["a1 on n1", "a2 on n1", "a3 on n1"]


def test_other_limits_are_recorded_for_the_applications_whose_group_is_chosen_again() -> None:
    trial = Trial("root limit.group.dev=memory:9; root.a", made=Partition).does(nodes("n1 memory=50"))
    trial.does(
        apps("app-1 root.a groups=dev", "app-2 root.a groups=qa"), asks("app-1 a1 memory=1", "app-2 b1 memory=1")
    )
    trial.partition.changes = Changes()
    for limits in ("root limit.group.dev=memory:9; root.a; root.b", "root limit.group.dev=memory:8; root.a; root.b"):
        trial.reconfigures(limits)
        assert [one.application_id for one in trial.partition.changes.applications.values()] == []
    trial.reconfigures("root limit.group.other=memory:9; root.a; root.b")
    assert [one.application_id for one in trial.partition.changes.applications.values()] == ["app-1"]
    trial.reconfigures("root limit.group.qa=memory:9; root.a; root.b")
    assert [one.application_id for one in trial.partition.changes.applications.values()] == ["app-1", "app-2"]


# Orders -------------------------------------------------------------------------------------------------------------


def test_another_guarantee_changes_whose_turn_it_is() -> None:
    trial = Trial("root.a guaranteed=memory:10; root.b guaranteed=memory:10")
    trial.does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    trial.does(asks("app-1 a1 memory=2"), asks("app-2 b1 memory=1"))
    trial.takes(asks("app-1 a2 memory=1"), asks("app-2 b2 memory=1"))
    trial.reconfigures("root.a guaranteed=memory:100; root.b guaranteed=memory:10")
    assert [line for line in trial.placed() if "2 on" in line] == ["a2 on n1", "b2 on n1"]


def test_a_priority_offset_counts_for_what_waits_already() -> None:
    trial = Trial("root.a; root.p.b").does(nodes("n1 memory=1"), apps("app-1 root.a", "app-2 root.p.b"))
    trial.takes(asks("app-1 a1 memory=1 priority=3"), asks("app-2 b1 memory=1"))
    trial.reconfigures("root.a; root.p.b priority.offset=5")
    assert trial.running == ["b1 on n1"]


def test_the_priority_that_a_queue_shows_follows_its_policies() -> None:
    trial = Trial("root.a; root.p.b").takes(apps("app-1 root.a", "app-2 root.p.b"))
    trial.takes(asks("app-1 a1 memory=1 priority=3"), asks("app-2 b1 memory=1"))
    assert trial.reconfigures("root.a; root.p.b priority.offset=5").queue("root").priority == 5
    fenced = "root.a; root.p.b priority.policy=fence priority.offset=4"
    assert trial.reconfigures(fenced).queue("root.p").priority == 4
    assert trial.reconfigures("root.a; root.p.b priority.offset=-2").queue("root").priority == 3


def test_applications_are_ordered_by_the_new_policy_whatever_was_set_aside() -> None:
    trial = Trial("root.a max=memory:6").does(nodes("n1 memory=20"), apps("app-1 root.a", "app-2 root.a"))
    trial.does(asks("app-1 a1 memory=4"), asks("app-1 a2 memory=4", "app-1 a3 memory=4"), asks("app-2 b1 memory=4"))
    assert trial.running == ["a1 on n1"]
    trial.reconfigures("root.a max=memory:8 application.sort.policy=fair")
    assert trial.running == ["a1 on n1", "b1 on n1"]
    trial.reconfigures("root.a max=memory:12")
    assert trial.running == ["a1 on n1", "a2 on n1", "b1 on n1"]


# Leaves and parents -------------------------------------------------------------------------------------------------


def test_a_leaf_that_becomes_a_parent_keeps_its_applications_and_gives_them_nothing() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=20"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    trial.reconfigures("root.a.x").does(asks("app-1 a2 memory=4 priority=9"), apps("app-2 root.a.x"))
    trial.does(asks("app-2 x1 memory=4"))
    assert trial.running == ["a1 on n1", "x1 on n1"]
    queue = trial.queue("root.a")
    assert (queue.allocated, queue.pending, queue.running, queue.priority) == (
        {"memory": 8},
        {"memory": 4},
        2,
        NOTHING_PENDING,
    )
    assert trial.reconfigures("root.a").running == ["a1 on n1", "a2 on n1", "x1 on n1"]


def test_a_parent_that_becomes_a_leaf_takes_applications_while_its_children_drain() -> None:
    trial = Trial("root.a.x").does(nodes("n1 memory=20"), apps("app-1 root.a.x"), asks("app-1 x1 memory=4"))
    trial.reconfigures("root.a").does(apps("app-2 root.a"), asks("app-2 a1 memory=4"), asks("app-1 x2 memory=4"))
    assert trial.running == ["a1 on n1", "x1 on n1", "x2 on n1"]
    assert trial.queue("root.a.x").draining
    trial.does(gone("app-1")).waits(10)
    assert trial.queue("root.a").children == {}


# Templates ----------------------------------------------------------------------------------------------------------


def test_a_template_reaches_every_parent_without_its_own_in_the_same_change() -> None:
    trial = Trial("root.p.q parent; root.p.own.x", rules=(PROVIDED_CREATE,)).takes(apps("app-1 root.p.q.new.leaf"))
    trial.reconfigures("root.p template.maxapps=4; root.p.q parent; root.p.own template.maxapps=1; root.p.own.x")
    found = {path: trial.queue(path).template for path in ("root.p", "root.p.q", "root.p.q.new", "root.p.own")}
    assert {path: one.max_applications for path, one in found.items() if one} == {
        "root.p": 4,
        "root.p.q": 4,
        "root.p.q.new": 4,
        "root.p.own": 1,
    }


def test_an_inherited_template_is_not_lost_by_the_next_change() -> None:
    text = "root.p template.maxapps=4; root.p.q parent"
    trial = Trial(text, rules=(PROVIDED_CREATE,)).reconfigures(f"{text}; root.b").takes(apps("app-1 root.p.q.leaf"))
    assert trial.queue("root.p.q.leaf").max_applications == 4


def test_a_template_that_goes_is_gone_everywhere() -> None:
    trial = Trial("root.p template.maxapps=4; root.p.q parent", rules=(PROVIDED_CREATE,))
    trial.takes(apps("app-1 root.p.q.new.leaf")).reconfigures("root.p; root.p.q parent")
    assert [trial.queue(path).template for path in ("root.p", "root.p.q", "root.p.q.new")] == [None, None, None]


def test_dynamic_leaves_that_exist_are_not_touched_by_another_template() -> None:
    trial = Trial("root.p parent template.max=memory:4", rules=(PROVIDED_CREATE,)).takes(apps("app-1 root.p.old"))
    trial.reconfigures("root.p parent template.max=memory:8").takes(apps("app-2 root.p.new"))
    assert (trial.queue("root.p.old").maximum, trial.queue("root.p.new").maximum) == ({"memory": 4}, {"memory": 8})


# Queues that come and go --------------------------------------------------------------------------------------------


def test_a_dynamic_queue_that_is_configured_takes_everything_from_there() -> None:
    trial = Trial("root.p parent template.maxapps=4 template.max=memory:9", rules=(PROVIDED_CREATE,))
    trial.takes(apps("app-1 root.p.new")).reconfigures("root.p.new priority.offset=1")
    queue = trial.queue("root.p.new")
    assert queue.managed
    assert (queue.maximum, queue.max_applications, queue.properties) == (None, 0, {"priority.offset": "1"})
    trial.takes(gone("app-1")).waits(60)
    assert trial.queue("root.p.new") is queue


def test_a_managed_queue_that_is_not_in_the_text_drains_with_its_managed_descendants() -> None:
    trial = Trial("root.p.q.a; root.p.q2 parent; root.b", rules=(PROVIDED_CREATE,)).takes(apps("app-1 root.p.q2.new"))
    trial.reconfigures("root.b")
    draining = [queue.path for queue in trial.partition.tree if queue.draining]
    assert draining == ["root.p", "root.p.q", "root.p.q.a", "root.p.q2"]
    assert trial.queue("root.p.q2.new").state == "Active"


def test_a_dynamic_queue_is_left_alone() -> None:
    trial = Trial("root.b", rules=(PROVIDED_CREATE,)).takes(apps("app-1 root.new")).reconfigures("root.b; root.c")
    assert (trial.queue("root.new").state, trial.queue("root.new").managed) == ("Active", False)


def test_a_queue_that_reappears_while_it_drains_is_active_again() -> None:
    trial = Trial("root.a; root.b").takes(apps("app-1 root.b")).reconfigures("root.a")
    queue = trial.queue("root.b")
    assert queue.draining
    trial.reconfigures("root.a; root.b").takes(apps("app-2 root.b"))
    assert (trial.queue("root.b"), queue.state, queue.draining_since_ns) == (queue, "Active", 0)
    assert list(queue.applications) == ["app-1", "app-2"]
    assert "root.b" in [one.path for one in trial.waits(60).partition.tree]


# The rest of a partition --------------------------------------------------------------------------------------------


def test_new_rules_place_what_comes_next() -> None:
    trial = Trial("root.a").reconfigures("root.a", rules=(USER_RULE,)).takes(apps("app-1 root.a user=kim groups=x"))
    assert trial.app("app-1").queue.path == "root.kim"


def test_rules_that_cannot_be_built_are_an_objection_and_the_old_ones_stay() -> None:
    trial = Trial("root.a", rules=(USER_RULE,))
    problem = "unknown rule name specified nosuch, failing placement rule config"
    assert trial.partition.objections(config("root.b", rules=(BROKEN_RULE,))) == [problem]
    assert trial.takes(apps("app-1 root.a user=kim groups=x")).app("app-1").queue.path == "root.kim"
    assert trial.partition.tree.find("root.b") is None


def test_a_partition_that_began_without_rules_gets_some() -> None:
    trial = Trial("root.a", rules=(BROKEN_RULE,)).takes(apps("app-1 root.a"))
    assert not trial.partition.applications
    trial.reconfigures("root.a", rules=()).takes(apps("app-1 root.a"))
    assert list(trial.partition.applications) == ["app-1"]
    assert trial.partition.placement.problem == ""


def test_what_keeps_a_partition_from_being_built_is_an_objection() -> None:
    wanted = load("partitions:\n- queues:\n  - name: root\n    submitacl: 'a  b'\n").partitions[0]
    (objection,) = Trial("root.a").partition.objections(wanted)
    assert "multiple spaces found in ACL: 'a  b'" in objection


def test_nodes_are_tried_in_the_order_of_the_new_policy_and_weights() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=10 gpu=10", "n2 memory=10 gpu=10"), apps("app-1 root.a"))
    trial.does(asks("app-1 a1 memory=2"), asks("app-1 a2 memory=1 gpu=4"))
    assert trial.placed() == ["a1 on n1", "a2 on n2"]
    trial.reconfigures("root.a", nodes="binpacking").does(asks("app-1 a3 memory=1"))
    assert trial.placed() == ["a3 on n1"]
    trial.reconfigures("root.a", weights={"gpu": 1.0}).does(asks("app-1 a4 memory=1"))
    assert trial.placed() == ["a4 on n2"]


def test_preemption_flags_are_those_of_the_new_configuration() -> None:
    partition = Trial("root.a").partition
    partition.reconfigure(replace(config(), preemption=PreemptionConfig(enabled=False)), START_S)
    assert not partition.config.preemption.is_enabled


def test_the_resolver_of_groups_stays() -> None:
    trial = Trial("root submitacl=,kim; root.a")
    trial.partition.reconfigure(replace(config(), user_group_resolver=ResolverConfig(type="test")), START_S)
    assert trial.takes(apps("app-1 root.a user=kim")).app("app-1").user.groups == ("kim",)


# Registration -------------------------------------------------------------------------------------------------------


class Vector(msgspec.Struct):
    id: str
    config: str
    loads: bool = False
    rules_active: bool = True


VECTORS = Path(__file__).parents[2] / "data" / "config-vectors.yaml"
OURS = {"j03-unknown-name": True, "j10-test-rule": False}
"""What differs on purpose: a rule that only we have, and the reference's rule `test`."""


def partitions() -> list[tuple[str, PartitionConfig, bool]]:
    vectors = msgspec.yaml.decode(VECTORS.read_bytes(), type=list[Vector])
    return [
        (vector.id, partition, OURS.get(vector.id, vector.rules_active))
        for vector in vectors
        if vector.loads
        for partition in load(vector.config).partitions
    ]


@pytest.mark.parametrize(("vector", "wanted", "active"), partitions())
def test_rules_are_active_or_not_as_in_the_reference_at_first_and_object_later(
    vector: str, wanted: PartitionConfig, active: bool
) -> None:
    assert find_build_problems(wanted) == []
    assert (Partition(wanted, name=PARTITION, now=START_S).placement.problem == "") is active, vector
    assert (Trial("root.a").partition.objections(wanted) == []) is active, vector


# What is found out before the commit ----------------------------------------------------------------------------------


def test_a_vote_finds_out_what_differs_and_the_commit_takes_it() -> None:
    trial, wanted = Trial("root.a max=memory:1"), config("root.a max=memory:2")
    assert trial.partition.objections(wanted) == []
    assert trial.partition.plan is not None
    assert list(trial.partition.plan.wanted) == ["root.a"]
    trial.partition.reconfigure(wanted, START_S)
    assert (trial.queue("root.a").maximum, trial.partition.plan) == ({"memory": 2}, None)


def test_what_was_found_out_for_another_configuration_does_not_count() -> None:
    trial, other = Trial("root.a max=memory:1"), config("root.a max=memory:3")
    assert trial.partition.objections(config("root.a max=memory:2; root.b")) == []
    trial.partition.reconfigure(other, START_S)
    assert trial.queue("root.a").maximum == {"memory": 3}
    assert trial.partition.tree.find("root.b") is None


def test_what_was_found_out_before_yet_another_configuration_does_not_count() -> None:
    trial, wanted = Trial("root.a max=memory:1"), config("root.a max=memory:1; root.c")
    assert trial.partition.objections(wanted) == []
    plan = trial.partition.plan
    trial.partition.reconfigure(config("root.a max=memory:2; root.b"), START_S)
    trial.partition.plan = plan
    trial.partition.reconfigure(wanted, START_S)
    assert (trial.queue("root.a").maximum, trial.queue("root.b").state) == ({"memory": 1}, "Draining")


def test_queues_that_placement_makes_after_the_vote_become_configured_ones() -> None:
    trial = Trial("root.p parent", rules=(PROVIDED_CREATE,))
    wanted = replace(config("root.p parent; root.p.new max=memory:5"), placement_rules=(PROVIDED_CREATE,))
    assert trial.partition.objections(wanted) == []
    trial.takes(apps("app-1 root.p.new"))
    trial.partition.reconfigure(wanted, START_S)
    queue = trial.queue("root.p.new")
    assert (queue.managed, queue.maximum) == (True, {"memory": 5})


# Changes --------------------------------------------------------------------------------------------------------------


BOB = User("bob")


def plan(before: str, after: str, queues: Tree | None = None) -> QueueChangePlan:
    return compare_configs(queues or Tree(config(before)), config(before).root, config(after).root)


def test_the_same_configuration_is_no_change() -> None:
    text = "root.p template.maxapps=2 priority.offset=1; root.p.q parent; root.a max=memory:3"
    queues = Tree(config(text))
    queues.create(queues.plan_creation("root.p.q.new.leaf", BOB))
    found = plan(text, text, queues)
    assert (found.wanted, found.unwanted) == ({}, set())


def test_only_what_differs_is_planned() -> None:
    before, after = "root.a; root.b max=memory:3; root.c", "root.a; root.b max=memory:4; root.d.e"
    found, settings = plan(before, after), read_all_settings(config(after))
    assert list(found.wanted.items()) == [(path, settings[path]) for path in ("root.b", "root.d", "root.d.e")]
    assert found.unwanted == {"root.c"}


def test_what_is_inherited_differs_too() -> None:
    assert list(plan("root.p; root.p.a", "root.p colour.of=red; root.p.a").wanted) == ["root.p", "root.p.a"]


def test_a_dynamic_queue_in_the_configuration_is_set_even_if_its_settings_are_the_same() -> None:
    queues = Tree(config("root.p parent"))
    queues.create(queues.plan_creation("root.p.new", BOB))
    settings = read_all_settings(config("root.p.new"))["root.p.new"]
    assert plan("root.p parent", "root.p.new", queues).wanted["root.p.new"] == settings


def test_a_queue_that_drains_is_set_if_it_is_wanted_and_else_left_draining() -> None:
    trial = Trial("root.a; root.b").does(apps("app-1 root.b")).reconfigures("root.a")
    since = trial.queue("root.b").draining_since_ns
    assert trial.waits(1).reconfigures("root.a").queue("root.b").draining_since_ns == since > 0
    assert trial.reconfigures("root.a; root.b").queue("root.b").state == "Active"


def test_dynamic_parents_pass_on_what_is_above_them() -> None:
    trial = Trial("root.p parent template.maxapps=2", rules=(PROVIDED_CREATE,)).does(apps("app-1 root.p.x.y.leaf"))
    trial.reconfigures("root.p parent template.maxapps=3")
    template = read_all_settings(trial.partition.config)["root.p"].template
    assert template is not None
    assert template.max_applications == 3
    assert [trial.queue(path).template for path in ("root.p", "root.p.x", "root.p.x.y")] == [template] * 3


def test_a_plan_changes_nothing() -> None:
    queues = Tree(config("root.a; root.b"))
    plan("root.a; root.b", "root.c", queues)
    assert [(queue.path, queue.state) for queue in queues] == [
        (path, "Active") for path in ("root", "root.a", "root.b")
    ]


def test_what_is_said_in_other_words_is_no_change() -> None:
    assert plan("root.a submitacl=bob", "root.a submitacl=bob,").wanted == {}


def test_only_what_two_configurations_say_differently_is_planned() -> None:
    before, after = "root.p.a; root.p.b; root.q.a", "root.p.a; root.p.b max=memory:1; root.q.a; root.r"
    assert list(plan(before, after).wanted) == ["root.p.b", "root.r"]


def test_a_queue_that_goes_takes_those_below_it_along() -> None:
    found = plan("root.a; root.p.b; root.p.c", "root.a")
    assert (found.wanted, found.unwanted) == ({}, {"root.p", "root.p.b", "root.p.c"})


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("root.a", "root.a limit.user.bob=apps:1", {"root.a"}),
        ("root.a limit.user.bob=apps:1", "root.a", {"root.a"}),
        ("root.a; root.b limit.user.bob=apps:1", "root.a", {"root.b"}),
        ("root.a", "root.a; root.b limit.user.bob=apps:1", {"root.b"}),
        ("root.a limit.user.bob=apps:1; root.b", "root.a limit.user.bob=apps:1; root.c max=memory:1", set()),
    ],
)
def test_a_plan_has_the_queues_with_other_limits(before: str, after: str, differ: set[str]) -> None:
    assert plan(before, after).limits == differ


# Draining -------------------------------------------------------------------------------------------------------------


TREE = "root adminacl=boss; root.a; root.p adminacl=ann,kim; root.p.b; root.p.c"


def events(trial: Trial) -> list[EventRecord]:
    return [effect.part for effect in trial.effects if isinstance(effect.part, EventRecord)]


def test_administrators_and_the_rm_of_each_application_are_told_when_draining_starts() -> None:
    trial = Trial(TREE).takes(apps("app-1 root.p.b", "app-2 root.p.b", "app-3 root.a"))
    trial.reconfigures("root adminacl=chief; root.a; root.p adminacl=ann,kim; root.p.c")
    told = (
        "queue root.p.b left the configuration and drains: 2 applications in it, "
        "administrators: 'ann,kim' of root.p, 'chief' of root"
    )
    found = events(trial)
    assert [(one.type, one.object_id, one.reference_id) for one in found] == [
        (event_codes.QUEUE, "root.p.b", ""),
        (event_codes.APP, "app-1", "root.p.b"),
        (event_codes.APP, "app-2", "root.p.b"),
    ]
    assert found[0].message == told
    assert all(told in one.message for one in found)
    assert {(one.event_change_type, one.event_change_detail) for one in found} == {
        (event_codes.SET, event_codes.DETAILS_NONE)
    }
    assert all(one.timestamp_nano == trial.queue("root.p.b").draining_since_ns >= START_S * 1e9 for one in found)
    assert f"note: {told}" in trial.told()


def test_a_parent_counts_the_applications_below_it_and_each_application_is_told_of_once() -> None:
    trial = Trial(TREE).takes(apps("app-1 root.p.b", "app-2 root.p.c")).reconfigures("root.a")
    found = events(trial)
    assert [one.object_id for one in found] == ["root.p", "root.p.b", "app-1", "root.p.c", "app-2"]
    assert "2 applications in it" in found[0].message
    assert "1 application in it" in found[1].message


def test_without_administrators_it_says_so() -> None:
    (event,) = events(Trial("root.a; root.b").reconfigures("root.a"))
    assert event.message.endswith("0 applications in it, administrators: none")


def test_a_queue_that_drains_already_is_not_told_of_again() -> None:
    trial = Trial("root.a; root.b").takes(apps("app-1 root.b")).reconfigures("root.a")
    since = trial.queue("root.b").draining_since_ns
    before = len(trial.effects)
    trial.waits(5).reconfigures("root.a; root.c")
    assert trial.effects[before:] == []
    assert trial.queue("root.b").draining_since_ns == since


def test_the_log_is_told_again_while_it_lasts() -> None:
    trial = Trial("root.a; root.b").takes(apps("app-1 root.b")).reconfigures("root.a")
    trial.told()
    assert trial.waits(DRAINING_TOLD_EVERY_S - 60).told() == []
    reminder = "note: queue root.b has been draining for {} hours: 1 application in it, administrators: none"
    assert trial.waits(120).told() == [reminder.format("1.0")]
    assert trial.waits(DRAINING_TOLD_EVERY_S).told() == [reminder.format("2.0")]
    assert len(events(trial)) == 2


def test_draining_queues_that_are_empty_go_within_ten_seconds_children_first() -> None:
    trial = Trial("root.a; root.p.b; root.p.q.c").reconfigures("root.a")
    assert trial.partition.tree.find("root.p.q.c") is not None
    trial.waits(10)
    assert [queue.path for queue in trial.partition.tree] == ["root", "root.a"]
    assert trial.queue("root").children.keys() == {"a"}


def test_a_draining_queue_stays_until_its_last_application_left() -> None:
    trial = Trial("root.a; root.b").does(nodes("n1 memory=9"), apps("app-1 root.b"), asks("app-1 b1 memory=1"))
    trial.reconfigures("root.a").waits(600)
    assert trial.running == ["b1 on n1"]
    trial.does(gone("app-1")).waits(10)
    assert trial.partition.tree.find("root.b") is None


def test_a_dynamic_queue_below_a_draining_one_keeps_it_until_both_are_empty() -> None:
    trial = Trial("root.p parent", rules=(PROVIDED_CREATE,)).takes(apps("app-1 root.p.new")).reconfigures("root.a")
    assert [queue.path for queue in trial.waits(60).partition.tree] == ["root", "root.p", "root.p.new", "root.a"]
    trial.takes(gone("app-1")).waits(10)
    assert [queue.path for queue in trial.partition.tree] == ["root", "root.a"]


def test_nothing_is_cleaned_while_nothing_may_go() -> None:
    assert Trial("root.a").reconfigures("root.a; root.b").partition.next_timer > START_S * 1e9
