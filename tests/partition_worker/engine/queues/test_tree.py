"""The queue tree: settings of queues, namespace quotas, and dynamic queues."""

import pytest

from tests.builders import PROVIDED_CREATE, apps, asks, config, gone, nodes, released
from tests.trial import Trial, read_all_settings
from yunishard.common.messages.kinds import Resources
from yunishard.common.resources import Limit
from yunishard.partition_worker.engine import amounts
from yunishard.partition_worker.engine.durable_records import Template
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.queues.tree import (
    GUARANTEED_TAG,
    MAX_APPLICATIONS_TAG,
    QUOTA_TAG,
    QueueError,
    Tree,
    apply_namespace_quota,
    create_from_template,
    settings_of,
)
from yunishard.partition_worker.engine.user_resolution import User

BOB = User("bob")


def tree(text: str) -> Tree:
    return Tree(config(text))


def test_queues_are_found_in_any_case() -> None:
    found = tree("root.Batch.a").find("ROOT.batch.A")
    assert found is not None
    assert found.path == "root.batch.a"
    assert tree("root.a").find("root.b") is None
    assert tree("root.a").find("") is None


def test_parents_come_before_their_children() -> None:
    paths = [queue.path for queue in tree("root.p.a; root.p.b; root.x")]
    assert paths == ["root", "root.p", "root.p.a", "root.p.b", "root.x"]


def test_a_path_is_created_with_every_level_that_is_missing() -> None:
    queues = tree("root.p parent")
    leaf = queues.create(queues.plan_creation("root.P.New.Leaf", BOB))
    assert [(one.path, one.leaf, one.managed) for one in leaf.ancestry()][:3] == [
        ("root.p.new.leaf", True, False),
        ("root.p.new", False, False),
        ("root.p", False, True),
    ]
    assert queues.create(queues.plan_creation("root.p.new.leaf", BOB)) is leaf


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("root.a.new", "creation of queue root.a.new failed parent is already a leaf: root.a"),
        ("root.closed.new", "submit access to queue root.closed denied during create of: root.closed.new"),
        ("root.open.draining.new", "cannot add a child queue when queue is marked for deletion: root.open.draining"),
        ("root.open.no good", "invalid queue name, max 64 characters consisting of"),
        ("root.open.@recovery@", "dynamic queue cannot be root.@recovery@"),
        ("elsewhere.a", "queue elsewhere is not below root"),
    ],
)
def test_a_queue_that_cannot_be_created_says_why_and_leaves_nothing_behind(path: str, reason: str) -> None:
    queues = tree(
        "root submitacl=eve; root.a submitacl=*; root.closed parent; root.open submitacl=*; root.open.draining parent"
    )
    draining = queues.find("root.open.draining")
    assert draining is not None
    draining.state = "Draining"
    before = [queue.path for queue in queues]
    with pytest.raises(QueueError) as refused:
        queues.create(queues.plan_creation(path, BOB))
    assert str(refused.value).startswith(reason)
    assert [queue.path for queue in queues] == before


def test_the_recovery_queue_needs_no_access() -> None:
    queues = tree("root submitacl=eve")
    leaf = queues.create(queues.plan_creation("root.@recovery@", BOB))
    assert queues.create(queues.plan_creation("root.@recovery@", BOB)) is leaf


def test_empty_dynamic_and_draining_queues_are_removed_children_first() -> None:
    queues = tree("root.a; root.p parent; root.d")
    queues.create(queues.plan_creation("root.p.x.y", BOB))
    draining = queues.find("root.d")
    assert draining is not None
    draining.state = "Draining"
    assert queues.has_temporary()
    assert [queue.path for queue in queues.remove_empty()] == ["root.p.x.y", "root.p.x", "root.d"]
    assert [queue.path for queue in queues] == ["root", "root.a", "root.p"]
    assert not queues.has_temporary()
    assert list(queues.remove_empty()) == []


@pytest.mark.tampers
def test_a_queue_with_an_application_stays_with_all_above_it() -> None:
    trial = Trial("root.p parent", rules=(PROVIDED_CREATE,)).does(apps("app-1 root.p.x.y"))
    assert list(trial.partition.tree.remove_empty()) == []
    trial.does(gone("app-1"))
    assert len(list(trial.partition.tree.remove_empty())) == 2


def test_the_size_of_the_cluster_is_the_maximum_of_the_root() -> None:
    trial = Trial("root.a").does(nodes("n1 memory=10", "n2 memory=5 gpu=1"))
    assert trial.queue("root").maximum == {"memory": 15, "gpu": 1}


def test_without_a_cluster_the_root_has_no_maximum() -> None:
    assert Trial("root.a").does(nodes("n1")).queue("root").maximum is None


# What is worth an attempt: seen from outside, an ask that could be placed is placed -----------------------------------


def test_a_draining_queue_is_still_scheduled() -> None:
    trial = Trial("root.a").takes(nodes("n1 memory=10"), apps("app-1 root.a")).reconfigures("root.b")
    assert trial.queue("root.a").draining
    assert trial.does(asks("app-1 a1 memory=1")).placed() == ["a1 on n1"]


def test_what_could_not_be_placed_does_not_hold_up_its_neighbours() -> None:
    trial = Trial("root.a max=memory:1; root.b").does(nodes("n1 memory=10"), apps("app-1 root.a", "app-2 root.b"))
    trial.does(asks("app-1 a1 memory=5 priority=9"), asks("app-2 b1 memory=5"))
    assert trial.placed() == ["b1 on n1"]


def test_room_that_one_queue_frees_is_used_by_another() -> None:
    trial = Trial("root.p max=memory:5; root.p.a; root.p.b; root.x").does(nodes("n1 memory=50"))
    trial.does(apps("app-1 root.p.a", "app-2 root.p.b"), asks("app-1 a1 memory=5"), asks("app-2 b1 memory=5"))
    assert trial.placed() == ["a1 on n1"]
    assert trial.does(released("app-1 a1")).placed() == ["b1 on n1"]


# Blueprint ------------------------------------------------------------------------------------------------------------


def built(text: str) -> dict[str, Queue]:
    return {queue.path: queue for queue in Tree(config(text))}


def test_paths_are_lower_case_and_ranks_follow_the_file() -> None:
    queues = built("root.Batch; root.Dev.Eve; root.ad-hoc")
    assert list(queues) == ["root", "root.batch", "root.dev", "root.dev.eve", "root.ad-hoc"]
    assert sorted(queues, key=lambda path: queues[path].rank) == list(queues)
    assert list(queues["root"].children) == ["batch", "dev", "ad-hoc"]


def test_a_queue_is_a_leaf_without_children_and_without_the_flag() -> None:
    queues = built("root.a; root.b parent; root.c.d")
    assert {path: queue.leaf for path, queue in queues.items()} == {
        "root": False,
        "root.a": True,
        "root.b": False,
        "root.c": False,
        "root.c.d": True,
    }
    assert all(queue.managed for queue in queues.values())


def test_a_root_without_children_is_no_leaf() -> None:
    assert not built("")["root"].leaf


def test_settings_are_taken_over() -> None:
    queue = built("root.a max=memory:10,vcore:2000 guaranteed=memory:5 maxapps=3 priority.offset=2")["root.a"]
    assert (queue.maximum, queue.guaranteed) == ({"memory": 10, "vcore": 2000}, {"memory": 5})
    assert (queue.max_applications, queue.policies.priority_offset) == (3, 2)


@pytest.mark.parametrize("amount", ["memory:0", "memory:0,vcore:0"])
def test_amounts_without_anything_positive_are_as_if_not_written(amount: str) -> None:
    queue = built(f"root.a max={amount} guaranteed={amount}")["root.a"]
    assert (queue.maximum, queue.guaranteed) == (None, None)


def test_a_zero_beside_something_positive_stays() -> None:
    assert built("root.a max=memory:10,gpu:0")["root.a"].maximum == {"memory": 10, "gpu": 0}


def test_the_resources_of_the_root_are_those_of_the_cluster() -> None:
    root = built("root max=memory:10 guaranteed=memory:5 maxapps=4")["root"]
    assert (root.maximum, root.guaranteed, root.max_applications) == (None, None, 4)


def test_children_inherit_properties_as_far_as_they_are_passed_on() -> None:
    queues = built("root.p application.sort.policy=fair priority.offset=7; root.p.a preemption.delay=1m; root.p.b")
    assert queues["root.p.a"].policies.application_sort == "fair"
    assert queues["root.p.a"].policies.preemption_delay_s == 60.0
    assert queues["root.p.b"].policies.priority_offset == 0


def test_access_lists_are_parsed() -> None:
    queue = built("root submitacl=eve; root.a submitacl=bob")["root.a"]
    assert queue.admits_submission(User("bob"))
    assert queue.admits_submission(User("eve"))
    assert not queue.admits_submission(User("mallory"))


def test_a_parent_without_a_template_takes_the_one_above_it() -> None:
    queues = built("root.p template.maxapps=2; root.p.q parent; root.p.q.r template.maxapps=5 parent; root.x parent")
    assert [queues[path].template for path in ("root.p.q", "root.x")] == [Template(2, {}, None, None), None]
    assert queues["root.p.q.r"].template == Template(5, {}, None, None)


def test_a_leaf_has_no_template() -> None:
    assert built("root.p template.maxapps=2; root.p.a")["root.p.a"].template is None


def test_a_dynamic_leaf_starts_with_what_the_template_says() -> None:
    parent = built("root.p parent template.max=memory:4 template.guaranteed=memory:1 template.maxapps=3")["root.p"]
    leaf = create_from_template(parent, "new", rank=9, leaf=True)
    assert (leaf.path, leaf.rank, leaf.leaf, leaf.managed) == ("root.p.new", 9, True, False)
    assert (leaf.maximum, leaf.guaranteed, leaf.max_applications) == ({"memory": 4}, {"memory": 1}, 3)
    assert leaf.parent is parent


def test_a_dynamic_leaf_takes_properties_from_the_template_only() -> None:
    text = "root.p parent application.sort.policy=fair template.priority.offset=3"
    leaf = create_from_template(built(text)["root.p"], "new", rank=9, leaf=True)
    assert leaf.properties == {"priority.offset": "3"}
    assert leaf.policies.application_sort == "fifo"


def test_a_dynamic_parent_hands_the_template_on_and_is_not_limited_by_it() -> None:
    parent = built("root.p parent template.max=memory:4")["root.p"]
    middle = create_from_template(parent, "new", rank=9, leaf=False)
    assert (middle.maximum, middle.template) == (None, parent.template)


def test_the_recovery_queue_is_fifo_whatever_the_template_says() -> None:
    root = built("root template.application.sort.policy=fair")["root"]
    assert create_from_template(root, "@recovery@", rank=9, leaf=True).policies.application_sort == "fifo"


def test_a_queue_shows_the_settings_it_was_given() -> None:
    text = "root maxapps=9; root.p template.max=memory:3 guaranteed=memory:1 adminacl=ann; root.p.q parent; root.p.a"
    settings = read_all_settings(config(text))
    assert {path: settings_of(queue) for path, queue in built(text).items()} == settings
    assert settings["root.p"].admin_text == "ann"


def test_the_settings_of_the_root_have_no_resources() -> None:
    root = read_all_settings(config("root max=memory:4 guaranteed=memory:4"))["root"]
    assert (root.maximum, root.guaranteed) == (None, None)


# Namespace ------------------------------------------------------------------------------------------------------------


FIVE = '{"resources": {"memory": {"value": 5}}}'


def queue(**settings: object) -> Queue:
    made = Queue(path="root.ns", parent=None, rank=1, leaf=True, managed=False)
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def read(tags: dict[str, str]) -> tuple[int, Limit | None, Resources | None, list[str]]:
    """What the tags set in a queue without settings, and their problems."""
    ns = queue()
    problems = apply_namespace_quota(ns, tags)
    return ns.max_applications, ns.maximum, ns.guaranteed, problems


def test_the_tags_say_what_a_namespace_may_use_in_any_case() -> None:
    assert read({QUOTA_TAG.upper(): FIVE, MAX_APPLICATIONS_TAG: "3"}) == (3, {"memory": 5}, None, [])


def test_without_tags_nothing_is_said() -> None:
    assert read({"namespace": "dev"}) == (0, None, None, [])
    assert read({QUOTA_TAG: "", MAX_APPLICATIONS_TAG: ""}) == (0, None, None, [])


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        "null",
        "{}",
        '{"resources": {"memory": null}}',
        '{"resources": {"memory": {"value": 5}, "gpu": null}}',
        '{"resources": {"memory": {"value": "5"}}}',
        '{"resources": {"memory": {"value": 5.5}}}',
        '{"resources": {"memory": {"value": 9223372036854775808}}}',
        '{"resources": {"memory": 5}}',
        '{"resources": ' * 10_000,
        "[" * 100_000,
    ],
)
def test_what_cannot_be_read_sets_nothing_and_is_reported(text: str) -> None:
    _, maximum, _, problems = read({QUOTA_TAG: text})
    assert maximum is None
    assert [problem.partition(":")[0] for problem in problems] == [f"tag {QUOTA_TAG}"]


@pytest.mark.parametrize(
    "text",
    [
        '{"resources": {}}',
        '{"resources": {"memory": {"value": 0}}}',
        '{"resources": {"memory": {}}}',
        '{"resources": {"memory": {"value": 5}, "vcore": {"value": -1}}}',
    ],
)
def test_amounts_that_limit_nothing_are_none(text: str) -> None:
    assert read({QUOTA_TAG: text}) == (0, None, None, [])


@pytest.mark.parametrize("text", ["-1", "+1", "1.0", " 1", "many", "\N{FULLWIDTH DIGIT ONE}", "9" * 5000])
def test_a_number_of_applications_is_a_plain_decimal(text: str) -> None:
    most, _, _, problems = read({MAX_APPLICATIONS_TAG: text})
    assert most == 0
    assert len(problems) == 1
    assert len(problems[0]) < 200


def test_a_quota_that_names_one_resource_type_too_many_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amounts, "TYPES_MAX", len(amounts._NAMES))
    _, maximum, _, problems = read({QUOTA_TAG: '{"resources": {"never-named": {"value": 5}}}'})
    assert maximum is None
    assert "never-named" not in amounts._NUMBERS
    assert "'never-named' would be one too many" in problems[0]


def test_no_applications_at_all_is_no_number() -> None:
    assert read({MAX_APPLICATIONS_TAG: "0"}) == (0, None, None, [])


def test_maximum_and_guarantee_are_set_together() -> None:
    ns = queue(maximum={"memory": 1}, guaranteed={"memory": 1}, max_applications=7)
    assert apply_namespace_quota(ns, {QUOTA_TAG: FIVE}) == []
    assert (ns.maximum, ns.guaranteed, ns.max_applications) == ({"memory": 5}, None, 7)
    assert len(apply_namespace_quota(ns, {GUARANTEED_TAG: FIVE, QUOTA_TAG: "broken"})) == 1
    assert (ns.maximum, ns.guaranteed) == (None, {"memory": 5})


def test_tags_that_say_what_the_queue_has_change_nothing() -> None:
    ns = queue(maximum={"memory": 5}, guaranteed={"memory": 1}, max_applications=7)
    for tags in ({}, {QUOTA_TAG: FIVE, GUARANTEED_TAG: FIVE.replace("5", "1"), MAX_APPLICATIONS_TAG: "7"}):
        assert apply_namespace_quota(ns, tags) == []
    assert (ns.maximum, ns.guaranteed, ns.max_applications) == ({"memory": 5}, {"memory": 1}, 7)
