import pytest
from msgspec.structs import replace

from tests.partition_worker.engine.placement_builders import (
    NOWHERE,
    FakeQueue,
    FakeTree,
    leaf,
    parent,
    rule,
    submission,
)
from yunishard.common.config import placement_rules
from yunishard.common.config.model import FilterConfig, PlacementRuleConfig
from yunishard.partition_worker.engine.placement import PlacementChain, PlacementRejected, build_chain
from yunishard.partition_worker.engine.user_resolution import User

A, B = rule("fixed", value="root.a"), rule("fixed", value="root.b")
NO_MATCH = "^failed to place application app-1: application rejected: no placement rule matched$"


def test_the_first_rule_whose_queue_takes_the_application_wins() -> None:
    assert PlacementChain([A, B]).place(submission(), FakeTree(leaf("root.a"), leaf("root.b"))) == "root.a"


@pytest.mark.parametrize(
    "unfit", [parent("root.a"), leaf("root.a", is_open=False), leaf("root.a", draining=True)], ids=repr
)
def test_a_queue_that_does_not_take_the_application_moves_on_to_the_next_rule(unfit: FakeQueue) -> None:
    assert PlacementChain([A, B]).place(submission(), FakeTree(unfit, leaf("root.b"))) == "root.b"


def test_an_error_in_a_rule_ends_it_all_for_forced_applications_too() -> None:
    places = FakeTree(leaf("root.a"), leaf("root.default"))
    with pytest.raises(PlacementRejected, match=r"^failed to place application app-1: invalid queue name, max 64"):
        PlacementChain([rule("provided"), A]).place(submission("a b", forced=True), places)


def test_without_rules_the_queue_that_is_asked_for_is_used_but_not_created() -> None:
    assert PlacementChain([]).place(submission("a"), FakeTree(leaf("root.a"))) == "root.a"
    with pytest.raises(PlacementRejected, match=NO_MATCH):
        PlacementChain([]).place(submission("a"), NOWHERE)


def test_a_queue_to_be_created_needs_only_access_to_the_nearest_one_above() -> None:
    create = PlacementChain([rule("provided", create=True)])
    for above in (parent("root.x"), leaf("root.x"), leaf("root.x", draining=True)):
        assert create.place(submission("root.x.y.z"), FakeTree(above, root_open=False)) == "root.x.y.z"
    with pytest.raises(PlacementRejected, match=NO_MATCH):
        create.place(submission("root.x.y.z"), FakeTree(parent("root.x", is_open=False)))


@pytest.mark.parametrize("value", ["rooted", "root", "rooted.x"])
def test_a_path_that_is_not_below_root_matches_nothing(value: str) -> None:
    with pytest.raises(PlacementRejected, match=NO_MATCH):
        PlacementChain([rule("fixed", value=value, create=True)]).place(submission(), NOWHERE)


def test_a_path_of_very_many_parts_is_answered_at_once() -> None:
    path = "root" + ".a" * 200_000
    assert PlacementChain([rule("provided", create=True)]).place(submission(path), NOWHERE) == path


def test_a_forced_application_that_no_rule_placed_goes_to_the_recovery_queue_unchecked() -> None:
    places = FakeTree(leaf("root.default"), leaf("root.@recovery@", is_open=False))
    assert PlacementChain([]).place(submission("nope", forced=True), places) == "root.@recovery@"
    assert PlacementChain([]).place(submission("root.@recovery@", forced=True), NOWHERE) == "root.@recovery@"


def test_any_other_application_is_not_let_into_an_existing_recovery_queue() -> None:
    places = FakeTree(leaf("root.@recovery@", is_open=False))
    with pytest.raises(PlacementRejected, match=NO_MATCH):
        PlacementChain([rule("provided", create=True)]).place(submission("root.@recovery@"), places)


def test_the_default_queue_is_checked_like_any_other() -> None:
    assert PlacementChain([]).place(submission(), FakeTree(leaf("root.default"))) == "root.default"
    with pytest.raises(PlacementRejected, match=NO_MATCH):
        PlacementChain([]).place(submission(), FakeTree(leaf("root.default", is_open=False)))


def test_names_of_rules_ignore_case() -> None:
    assert PlacementChain([rule("UsEr", create=True)]).place(submission(), NOWHERE) == "root.bob"


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (rule("nosuch"), "unknown rule name specified nosuch, failing placement rule config"),
        (rule("test"), "unknown rule name specified test, failing placement rule config"),
        (rule("Recovery"), "recovery rule cannot be part of the config, failing placement rule config"),
        (rule("user", parent=rule("Group")), "unknown rule name specified Group, failing placement rule config"),
        (rule("user", parent=rule("tag")), "a tag queue rule must have a tag name set"),
    ],
)
def test_one_rule_that_cannot_be_built_refuses_them_all(broken: PlacementRuleConfig, reason: str) -> None:
    assert PlacementChain([A, broken]).problem == reason


def test_a_filter_that_cannot_be_used_refuses_the_rules() -> None:
    problem = PlacementChain([rule("user", only="(?=b)")]).problem
    assert problem.startswith("the filter of rule user cannot be used: ")


def test_a_user_whose_name_is_too_long_for_an_expression_is_rejected_rather_than_let_through() -> None:
    with pytest.raises(PlacementRejected, match=r"^failed to place application app-1: a name of 2000 characters"):
        PlacementChain([rule("provided", create=True, only="^b.*")]).place(
            submission("a", user=User("b" * 2000)), NOWHERE
        )


def test_a_partition_without_any_rules_rejects_everything() -> None:
    for forced in (False, True):
        with pytest.raises(PlacementRejected, match=NO_MATCH):
            PlacementChain([rule("nosuch")]).place(submission("root.a", forced=forced), FakeTree(leaf("root.a")))


def test_the_rules_describe_themselves_in_their_order_with_that_for_recovery_last() -> None:
    tenants = rule("fixed", value="Tenants", create=True)
    placement = PlacementChain([rule("tag", value="NameSpace", parent=tenants), rule("PrimaryGroup", create=True)])
    tag, group, recovery = placement.describe()
    assert (tag.name, tag.parameters, tag.filter) == ("tag", {"create": "false", "tagName": "namespace"}, None)
    assert tag.parent_rule is not None
    assert (tag.parent_rule.name, tag.parent_rule.parent_rule) == ("fixed", None)
    assert tag.parent_rule.parameters == {"create": "true", "qualified": "false", "queue": "tenants"}
    assert (group.name, group.parameters, group.parent_rule) == ("primarygroup", {"create": "true"}, None)
    assert (recovery.name, recovery.parameters) == ("recovery", {"queue": "root.@recovery@"})


def test_without_rules_the_implied_one_is_described_and_without_any_that_can_be_built_none() -> None:
    assert [one.name for one in PlacementChain([]).describe()] == ["provided", "recovery"]
    assert PlacementChain([rule("nosuch")]).describe() == []


@pytest.mark.parametrize("name", ["PrimaryGroup", "SECONDARYGROUP", "applicationType"])
def test_rules_for_groups_and_types_are_known_in_any_case(name: str) -> None:
    assert PlacementChain([rule(name)]).describe()[0].name == name.lower()


def test_the_queue_that_a_rule_for_groups_finds_is_subject_to_access_control() -> None:
    placement = PlacementChain([rule("secondarygroup", create=True), B])
    user = User("bob", ("dev", "qa", "ops"))
    closed = FakeTree(leaf("root.qa", is_open=False), leaf("root.ops"), leaf("root.b"))
    assert placement.place(submission(user=user), closed) == "root.b"


def test_the_expressions_of_a_configuration_are_compiled_once_for_its_vote_and_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []

    class CountedExpression(placement_rules.Expression):
        def __init__(self, text: str) -> None:
            compiled.append(text)
            super().__init__(text)

    monkeypatch.setattr(placement_rules, "Expression", CountedExpression)
    filters = [FilterConfig(users=(f"^once{number}$",)) for number in range(2)]
    before, after = (replace(A, filter=one) for one in filters)
    assert build_chain((before,)) is build_chain((before,))
    assert build_chain((after,)) is build_chain((after,))
    assert compiled == ["^once0$", "^once1$"]
