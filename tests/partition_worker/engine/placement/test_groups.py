import pytest

from partition_worker.engine.placement.fixed import Fixed
from partition_worker.engine.placement.groups import PrimaryGroup, SecondaryGroup
from partition_worker.engine.placement.rule import PlacementRejected
from partition_worker.engine.users import User
from tests.partition_worker.engine.placement.builders import NOWHERE, FakePlaces, leaf, parent, rule, submission

PRIMARY = PrimaryGroup(rule("primarygroup", create=True), None)
SECONDARY = SecondaryGroup(rule("secondarygroup", create=True), None)
EXISTING = SecondaryGroup(rule("secondarygroup"), None)


def of(*groups: str) -> User:
    return User("bob", groups)


# Primary group ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "path"), [("dev", "root.dev"), ("corp.dev", "root.corp_dot_dev"), ("root.dev", "root.root_dot_dev")]
)
def test_the_first_group_of_a_user_names_one_queue_whatever_it_looks_like(group: str, path: str) -> None:
    assert PRIMARY.path(submission("root.a", user=of(group, "qa")), NOWHERE) == path


def test_a_primary_group_that_no_queue_can_be_called_after_is_an_error() -> None:
    for group in ("no group!", "", "x" * 65, "dev" + "." * 13):
        with pytest.raises(PlacementRejected, match="invalid queue name"):
            PRIMARY.path(submission(user=of(group, "qa")), NOWHERE)


def test_a_user_without_groups_has_no_primary_one() -> None:
    assert PRIMARY.path(submission(user=of()), NOWHERE) is None


def test_without_create_only_primary_groups_that_have_a_queue_are_placed() -> None:
    existing = PrimaryGroup(rule("primarygroup"), None)
    assert existing.path(submission(user=of("dev")), NOWHERE) is None
    assert existing.path(submission(user=of("dev", "qa")), FakePlaces(leaf("root.qa"))) is None
    assert existing.path(submission(user=of("dev")), FakePlaces(leaf("root.dev"))) == "root.dev"


def test_the_queue_of_a_primary_group_lies_below_that_of_the_parent_rule() -> None:
    below = PrimaryGroup(
        rule("primarygroup", create=True), Fixed(rule("fixed", value="teams", create=True, only="bob"), None)
    )
    assert below.path(submission(user=of("dev")), NOWHERE) == "root.teams.dev"
    assert below.path(submission(user=User("eve", ("dev",))), NOWHERE) is None


def test_who_is_filtered_out_gets_no_answer_not_even_an_error() -> None:
    for_ann = PrimaryGroup(rule("primarygroup", create=True, only="ann"), None)
    assert for_ann.path(submission(user=of("no group!")), NOWHERE) is None
    assert (
        SecondaryGroup(rule("secondarygroup", create=True, only="ann"), None).path(
            submission(user=of("dev", "qa")), NOWHERE
        )
        is None
    )


# Secondary groups ---------------------------------------------------------------------------------------------------


def test_the_first_group_is_no_secondary_one() -> None:
    places = FakePlaces(leaf("root.dev"), leaf("root.qa"))
    assert EXISTING.path(submission(user=of("dev", "qa")), places) == "root.qa"
    assert EXISTING.path(submission(user=of("dev")), places) is None
    assert SECONDARY.path(submission(user=of("dev")), places) is None
    assert SECONDARY.path(submission(user=of()), places) is None


def test_of_secondary_groups_the_first_listed_that_has_a_queue_counts() -> None:
    places = FakePlaces(leaf("root.qa"), leaf("root.ops"))
    assert EXISTING.path(submission(user=of("dev", "web", "ops", "qa")), places) == "root.ops"
    assert EXISTING.path(submission(user=of("dev", "web")), places) is None


def test_with_create_the_first_listed_counts_though_a_later_one_has_a_queue() -> None:
    assert SECONDARY.path(submission(user=of("dev", "web", "ops")), FakePlaces(leaf("root.ops"))) == "root.web"


def test_where_the_user_may_create_nothing_only_groups_that_have_a_queue_count() -> None:
    places = FakePlaces(leaf("root.ops"), root_open=False)
    assert SECONDARY.path(submission(user=of("dev", "web", "ops")), places) == "root.ops"
    assert SECONDARY.path(submission(user=of("dev", "web")), places) is None


def test_a_secondary_group_that_no_queue_can_be_called_after_is_passed_over() -> None:
    assert SECONDARY.path(submission(user=of("dev", "no group!", "", "corp.qa")), NOWHERE) == "root.corp_dot_qa"
    assert SECONDARY.path(submission(user=of("dev", "no group!")), NOWHERE) is None


def test_a_secondary_group_may_name_the_parent_of_another_rule_but_no_leaf() -> None:
    below = PrimaryGroup(rule("primarygroup", create=True), EXISTING)
    user = of("dev", "web", "ops")
    assert below.path(submission(user=user), FakePlaces(parent("root.ops"))) == "root.ops.dev"
    with pytest.raises(PlacementRejected, match=r"parent rule returned a leaf queue: root\.ops"):
        below.path(submission(user=user), FakePlaces(leaf("root.ops")))


def test_the_queue_of_a_secondary_group_lies_below_that_of_the_parent_rule() -> None:
    below = SecondaryGroup(rule("secondarygroup"), Fixed(rule("fixed", value="teams"), None))
    user = of("dev", "web", "ops")
    assert below.path(submission(user=user), FakePlaces(leaf("root.web"))) is None
    places = FakePlaces(leaf("root.web"), parent("root.teams"), leaf("root.teams.ops"))
    assert below.path(submission(user=user), places) == "root.teams.ops"
