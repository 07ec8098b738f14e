""""""

import pytest

from tests.partition_worker.engine.placement_builders import NOWHERE, FakeTree, leaf, parent, rule, submission
from yunishard.common.config import placement_rules
from yunishard.common.config.model import FilterConfig
from yunishard.common.config.placement_rules import ExpressionError
from yunishard.common.config.validation import load
from yunishard.common.names import ILLEGAL_QUEUE
from yunishard.common.rest.views import FilterView
from yunishard.partition_worker.engine.placement import (
    APPLICATION_WORK_MAX,
    GROUP_WORK,
    ApplicationType,
    Filter,
    Fixed,
    PlacementChain,
    PlacementRejected,
    PlacementWork,
    PrimaryGroup,
    Provided,
    Recovery,
    Rule,
    RuleError,
    SecondaryGroup,
    Submission,
    Tag,
    TooMuchWorkError,
    UserName,
)
from yunishard.partition_worker.engine.queues.tree import Tree
from yunishard.partition_worker.engine.user_resolution import User

BOB = User("bob", ("dev", "qa"))


def admits(kind: str = "", *, users: tuple[str, ...] = (), groups: tuple[str, ...] = (), user: User = BOB) -> bool:
    return Filter(FilterConfig(type=kind, users=users, groups=groups)).selects(user, PlacementWork())


def test_without_lists_it_admits_everybody_or_when_it_denies_nobody() -> None:
    assert admits()
    assert admits("allow")
    assert not admits("deny")


@pytest.mark.parametrize(
    ("users", "groups"),
    [
        (("bob",), ()),
        (("ann", "bob"), ()),
        (("b.*",), ()),
        (("ann",), ("qa",)),
        ((), ("ops", "qa")),
        ((), ("^q",)),
        (("(?i)^BOB$",), ()),
    ],
)
def test_one_list_that_has_the_user_or_any_group_is_enough(users: tuple[str, ...], groups: tuple[str, ...]) -> None:
    assert admits("allow", users=users, groups=groups)
    assert not admits("deny", users=users, groups=groups)


@pytest.mark.parametrize(
    ("users", "groups"),
    [
        (("ann",), ()),
        (("BOB",), ()),
        (("b.b",), ()),
        (("ann", "b.*"), ()),
        (("dev",), ()),
        ((), ("bob",)),
        ((), ("^ev",)),
        (("9", "8"), ()),
        (("9lives",), ()),
        (("ann", ""), ()),
    ],
)
def test_who_is_on_no_list_is_not_admitted_unless_it_denies(users: tuple[str, ...], groups: tuple[str, ...]) -> None:
    assert not admits("allow", users=users, groups=groups)
    assert admits("deny", users=users, groups=groups)


@pytest.mark.parametrize("kind", ["DENY", "Deny", "ALLOW", "anything"])
def test_any_other_spelling_of_deny_allows(kind: str) -> None:
    assert admits(kind, users=("bob",))


def test_a_name_that_ends_in_a_dollar_is_an_expression() -> None:
    assert admits(users=("svc$",), user=User("my_svc"))
    assert not admits(users=("svc$",), user=User("svc$"))
    assert admits(users=("svc$", "ann"), user=User("svc$"))


def test_a_user_without_groups_is_in_no_list_of_groups() -> None:
    assert not admits(groups=(".*",), user=User("bob"))


def test_an_only_entry_that_is_no_expression_refuses_the_filter() -> None:
    with pytest.raises(ExpressionError):
        Filter(FilterConfig(groups=("(dev",)))


def described(kind: str = "", *, users: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> FilterView | None:
    return Filter(FilterConfig(type=kind, users=users, groups=groups)).describe()


def test_a_filter_that_filters_nothing_has_no_description() -> None:
    assert described() is None
    assert described("allow") is None
    assert described("DENY") is None


def test_a_filter_describes_its_lists_as_names_in_order_or_as_an_expression() -> None:
    names = described("deny", users=("zoe", "ann", "zoe", "b d"), groups=("dev.*",))
    assert names == FilterView(type="deny", user_list=["zoe", "ann"], group_exp="dev.*")
    assert described("allow", users=("bob",)) == FilterView(type="allow", user_list=["bob"])
    assert described("deny") == FilterView(type="deny")


@pytest.mark.parametrize(
    ("value", "path"),
    [("a", "root.a"), ("Par.Leaf", "root.par.leaf"), ("ROOT.A", "root.a"), ("root", "root"), ("rooted", "rooted")],
)
def test_the_value_is_lower_cased_and_its_dots_separate_queues(value: str, path: str) -> None:
    assert Fixed(rule("fixed", value=value, create=True), None).find_path(submission("root.x"), NOWHERE) == path


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "^a fixed queue rule must have a queue name set$"),
        ("a..b", "^invalid queue name"),
        ("root.", "^invalid queue name"),
        ("a b", "^invalid queue name"),
    ],
)
def test_a_value_that_is_no_path_cannot_be_built(value: str, reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        Fixed(rule("fixed", value=value), None)


@pytest.mark.parametrize("value", ["root.a", "rooted"])
def test_a_whole_path_and_a_parent_rule_exclude_each_other(value: str) -> None:
    with pytest.raises(RuleError, match="cannot have a parent rule"):
        Fixed(rule("fixed", value=value), UserName(rule("user"), None))


def test_both_rules_must_allow_to_create_what_is_missing() -> None:
    def path(*, create: bool, parent_creates: bool) -> str | None:
        above = UserName(rule("user", create=parent_creates), None)
        return Fixed(rule("fixed", value="jobs.batch", create=create), above).find_path(submission(), NOWHERE)

    assert path(create=True, parent_creates=True) == "root.bob.jobs.batch"
    assert path(create=False, parent_creates=True) is None
    assert path(create=True, parent_creates=False) is None


@pytest.mark.parametrize(("value", "path"), [("root", "root.root.bob"), ("rooted", "root.rooted.bob")])
def test_a_parent_path_that_does_not_start_below_root_is_put_there(value: str, path: str) -> None:
    above = Fixed(rule("fixed", value=value, create=True), None)
    assert UserName(rule("user", create=True), above).find_path(submission(), NOWHERE) == path


def test_without_create_it_matches_when_its_queue_exists() -> None:
    existing = Fixed(rule("fixed", value="a"), None)
    assert existing.find_path(submission(), NOWHERE) is None
    assert existing.find_path(submission(), FakeTree(leaf("root.a"))) == "root.a"


def test_the_fixed_rule_does_not_match_a_filtered_user() -> None:
    assert Fixed(rule("fixed", value="a", create=True, only="ann"), None).find_path(submission(), NOWHERE) is None


USER_NAME = UserName(rule("user", create=True), None)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("bob", "root.bob"),
        ("BOB", "root.BOB"),
        ("jane.doe", "root.jane_dot_doe"),
        ("root.bob", "root.root_dot_bob"),
        ("oidc:corp/bob#1", "root.oidc:corp/bob#1"),
    ],
)
def test_each_user_has_one_queue_below_root(name: str, path: str) -> None:
    assert USER_NAME.find_path(submission(user=User(name)), NOWHERE) == path


def test_the_queue_that_is_asked_for_does_not_matter() -> None:
    assert USER_NAME.find_path(submission("root.a"), NOWHERE) == "root.bob"


def test_a_user_name_that_no_queue_can_have_is_an_error() -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        USER_NAME.find_path(submission(user=User("svc$")), NOWHERE)


def test_without_create_only_users_who_have_a_queue_are_placed() -> None:
    existing = UserName(rule("user"), None)
    assert existing.find_path(submission(), NOWHERE) is None
    assert existing.find_path(submission(), FakeTree(leaf("root.bob"))) == "root.bob"


def test_the_queue_lies_below_that_of_the_parent_rule() -> None:
    below = UserName(rule("user", create=True), Fixed(rule("fixed", value="people", create=True), None))
    assert below.find_path(submission(), NOWHERE) == "root.people.bob"


def test_the_user_rule_does_not_match_a_filtered_user_and_raises_no_error() -> None:
    for_ann = UserName(rule("user", create=True, only="ann"), None)
    assert for_ann.find_path(submission(user=User("svc$")), NOWHERE) is None


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
    assert PRIMARY.find_path(submission("root.a", user=of(group, "qa")), NOWHERE) == path


def test_a_primary_group_that_no_queue_can_be_called_after_is_an_error() -> None:
    for group in ("no group!", "", "x" * 65, "dev" + "." * 13):
        with pytest.raises(PlacementRejected, match="invalid queue name"):
            PRIMARY.find_path(submission(user=of(group, "qa")), NOWHERE)


def test_a_user_without_groups_has_no_primary_one() -> None:
    assert PRIMARY.find_path(submission(user=of()), NOWHERE) is None


def test_without_create_only_primary_groups_that_have_a_queue_are_placed() -> None:
    existing = PrimaryGroup(rule("primarygroup"), None)
    assert existing.find_path(submission(user=of("dev")), NOWHERE) is None
    assert existing.find_path(submission(user=of("dev", "qa")), FakeTree(leaf("root.qa"))) is None
    assert existing.find_path(submission(user=of("dev")), FakeTree(leaf("root.dev"))) == "root.dev"


def test_the_queue_of_a_primary_group_lies_below_that_of_the_parent_rule() -> None:
    below = PrimaryGroup(
        rule("primarygroup", create=True), Fixed(rule("fixed", value="teams", create=True, only="bob"), None)
    )
    assert below.find_path(submission(user=of("dev")), NOWHERE) == "root.teams.dev"
    assert below.find_path(submission(user=User("eve", ("dev",))), NOWHERE) is None


def test_the_group_rule_does_not_match_a_filtered_user_and_raises_no_error() -> None:
    for_ann = PrimaryGroup(rule("primarygroup", create=True, only="ann"), None)
    assert for_ann.find_path(submission(user=of("no group!")), NOWHERE) is None
    assert (
        SecondaryGroup(rule("secondarygroup", create=True, only="ann"), None).find_path(
            submission(user=of("dev", "qa")), NOWHERE
        )
        is None
    )


# Secondary groups ---------------------------------------------------------------------------------------------------


def test_each_group_of_a_user_is_work() -> None:
    wanted = submission(user=of("dev", *(f"g{number}" for number in range(APPLICATION_WORK_MAX // GROUP_WORK + 1))))
    with pytest.raises(TooMuchWorkError):
        EXISTING.find_path(wanted, NOWHERE)


def test_the_first_group_is_no_secondary_one() -> None:
    places = FakeTree(leaf("root.dev"), leaf("root.qa"))
    assert EXISTING.find_path(submission(user=of("dev", "qa")), places) == "root.qa"
    assert EXISTING.find_path(submission(user=of("dev")), places) is None
    assert SECONDARY.find_path(submission(user=of("dev")), places) is None
    assert SECONDARY.find_path(submission(user=of()), places) is None


def test_of_secondary_groups_the_first_listed_that_has_a_queue_counts() -> None:
    places = FakeTree(leaf("root.qa"), leaf("root.ops"))
    assert EXISTING.find_path(submission(user=of("dev", "web", "ops", "qa")), places) == "root.ops"
    assert EXISTING.find_path(submission(user=of("dev", "web")), places) is None


def test_with_create_the_first_listed_counts_though_a_later_one_has_a_queue() -> None:
    assert SECONDARY.find_path(submission(user=of("dev", "web", "ops")), FakeTree(leaf("root.ops"))) == "root.web"


def test_where_the_user_may_create_nothing_only_groups_that_have_a_queue_count() -> None:
    places = FakeTree(leaf("root.ops"), root_open=False)
    assert SECONDARY.find_path(submission(user=of("dev", "web", "ops")), places) == "root.ops"
    assert SECONDARY.find_path(submission(user=of("dev", "web")), places) is None


def test_a_secondary_group_that_no_queue_can_be_called_after_is_passed_over() -> None:
    assert SECONDARY.find_path(submission(user=of("dev", "no group!", "", "corp.qa")), NOWHERE) == "root.corp_dot_qa"
    assert SECONDARY.find_path(submission(user=of("dev", "no group!")), NOWHERE) is None


def test_a_secondary_group_may_name_the_parent_of_another_rule_but_no_leaf() -> None:
    below = PrimaryGroup(rule("primarygroup", create=True), EXISTING)
    user = of("dev", "web", "ops")
    assert below.find_path(submission(user=user), FakeTree(parent("root.ops"))) == "root.ops.dev"
    with pytest.raises(PlacementRejected, match=r"parent rule returned a leaf queue: root\.ops"):
        below.find_path(submission(user=user), FakeTree(leaf("root.ops")))


def test_the_queue_of_a_secondary_group_lies_below_that_of_the_parent_rule() -> None:
    below = SecondaryGroup(rule("secondarygroup"), Fixed(rule("fixed", value="teams"), None))
    user = of("dev", "web", "ops")
    assert below.find_path(submission(user=user), FakeTree(leaf("root.web"))) is None
    places = FakeTree(leaf("root.web"), parent("root.teams"), leaf("root.teams.ops"))
    assert below.find_path(submission(user=user), places) == "root.teams.ops"


NAMESPACE = Tag(rule("tag", value="NameSpace", create=True), None)


def test_a_rule_without_the_name_of_a_tag_cannot_be_built() -> None:
    with pytest.raises(RuleError, match=r"^a tag queue rule must have a tag name set$"):
        Tag(rule("tag"), None)


def test_names_of_tags_ignore_case_on_both_sides() -> None:
    assert NAMESPACE.find_path(submission(tags={"NAMESPACE": "ns1"}), NOWHERE) == "root.ns1"


@pytest.mark.parametrize("tags", [{}, {"namespace": ""}, {"space": "ns1"}])
def test_without_a_value_it_does_not_match(tags: dict[str, str]) -> None:
    assert NAMESPACE.find_path(submission("root.a", tags=tags), NOWHERE) is None


@pytest.mark.parametrize(("value", "path"), [("x.y", "root.x_dot_y"), ("root.x.y", "root.x.y")])
def test_the_value_means_what_the_queue_of_a_submission_means(value: str, path: str) -> None:
    assert NAMESPACE.find_path(submission(tags={"namespace": value}), NOWHERE) == path


def test_a_value_that_no_queue_can_have_is_an_error() -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        NAMESPACE.find_path(submission(tags={"namespace": "x y"}), NOWHERE)


def test_a_tag_may_name_the_parent_of_another() -> None:
    team = Tag(rule("tag", value="team"), None)
    below = Tag(rule("tag", value="namespace", create=True), team)
    places = FakeTree(parent("root.par"), leaf("root.a"))
    assert below.find_path(submission(tags={"namespace": "fin", "team": "par"}), places) == "root.par.fin"
    assert below.find_path(submission(tags={"namespace": "fin"}), places) is None
    with pytest.raises(PlacementRejected, match=r"parent rule returned a leaf queue: root\.a"):
        below.find_path(submission(tags={"namespace": "fin", "team": "a"}), places)


def test_the_tag_rule_does_not_match_a_filtered_user() -> None:
    for_ann = Tag(rule("tag", value="namespace", create=True, only="ann"), None)
    assert for_ann.find_path(submission(tags={"namespace": "x"}), NOWHERE) is None


PROVIDED = Provided(rule("provided", create=True), None)


def test_a_name_is_a_queue_below_root_and_its_dots_are_replaced() -> None:
    assert PROVIDED.find_path(submission("x.y"), NOWHERE) == "root.x_dot_y"


def test_a_name_that_starts_with_root_is_the_whole_path_and_keeps_its_case() -> None:
    assert PROVIDED.find_path(submission("root.x.Y"), NOWHERE) == "root.x.Y"


@pytest.mark.parametrize(("name", "path"), [("root", "root.root"), ("ROOT.x", "root.ROOT_dot_x")])
def test_root_alone_or_in_capitals_is_a_name_like_any_other(name: str, path: str) -> None:
    assert PROVIDED.find_path(submission(name), NOWHERE) == path


def test_without_a_name_it_does_not_match() -> None:
    assert PROVIDED.find_path(submission(""), NOWHERE) is None


def test_a_queue_that_is_missing_is_no_match_unless_it_may_be_created() -> None:
    existing = Provided(rule("provided"), None)
    assert existing.find_path(submission("a"), NOWHERE) is None
    assert existing.find_path(submission("A"), FakeTree(leaf("root.a"))) == "root.A"


@pytest.mark.parametrize("name", ["a b", "root.", "root.a..b", "root.a%b", "q" * 65, "x." * 13 + "x", "root.a\n", "ä"])
def test_a_name_that_no_queue_can_have_is_an_error(name: str) -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name") as rejected:
        PROVIDED.find_path(submission(name), NOWHERE)
    assert str(rejected.value) == ILLEGAL_QUEUE


def test_names_are_checked_before_the_parent_rule_runs() -> None:
    below_leaf = Provided(rule("provided", create=True), Fixed(rule("fixed", value="root.a"), None))
    places = FakeTree(leaf("root.a"))
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        below_leaf.find_path(submission("a b"), places)
    with pytest.raises(PlacementRejected, match=r"parent rule returned a leaf queue: root\.a"):
        below_leaf.find_path(submission("job"), places)


def test_a_whole_path_skips_the_parent_rule() -> None:
    below_par = Provided(rule("provided", create=True), Fixed(rule("fixed", value="root.par"), None))
    places = FakeTree(parent("root.par"))
    assert below_par.find_path(submission("job"), places) == "root.par.job"
    assert below_par.find_path(submission("root.job"), places) == "root.job"


def test_the_provided_rule_does_not_match_a_filtered_user_and_raises_no_error() -> None:
    for_ann = Provided(rule("provided", create=True, only="ann"), None)
    assert for_ann.find_path(submission("a"), NOWHERE) is None
    assert for_ann.find_path(submission("a b"), NOWHERE) is None


TYPE = ApplicationType(rule("applicationtype", create=True), None)


@pytest.mark.parametrize(
    ("value", "path"),
    [("spark", "root.spark"), ("spark.batch", "root.spark_dot_batch"), ("root.spark", "root.root_dot_spark")],
)
def test_each_type_has_one_queue_whatever_it_looks_like(value: str, path: str) -> None:
    assert TYPE.find_path(submission("root.a", tags={"application.type": value}), NOWHERE) == path


def test_the_name_of_the_tag_ignores_case() -> None:
    assert TYPE.find_path(submission(tags={"Application.TYPE": "spark"}), NOWHERE) == "root.spark"


@pytest.mark.parametrize("tags", [{}, {"application.type": ""}, {"type": "spark"}])
def test_without_a_type_it_does_not_match(tags: dict[str, str]) -> None:
    assert TYPE.find_path(submission("root.a", tags=tags), NOWHERE) is None


def test_a_type_that_no_queue_can_be_called_after_is_an_error() -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        TYPE.find_path(submission(tags={"application.type": "x y"}), NOWHERE)


def test_without_create_only_types_that_have_a_queue_are_placed() -> None:
    existing = ApplicationType(rule("applicationtype"), None)
    spark = submission(tags={"application.type": "spark"})
    assert existing.find_path(spark, NOWHERE) is None
    assert existing.find_path(spark, FakeTree(leaf("root.spark"))) == "root.spark"


def test_the_queue_of_a_type_lies_below_that_of_the_parent_rule() -> None:
    below = ApplicationType(
        rule("applicationtype", create=True), Fixed(rule("fixed", value="kinds", create=True), None)
    )
    assert below.find_path(submission(tags={"application.type": "spark"}), NOWHERE) == "root.kinds.spark"


def test_the_applicationtype_rule_does_not_match_a_filtered_user_and_raises_no_error() -> None:
    for_ann = ApplicationType(rule("applicationtype", create=True, only="ann"), None)
    assert for_ann.find_path(submission(tags={"application.type": "x y"}), NOWHERE) is None


def test_what_is_forced_goes_to_the_recovery_queue_even_if_there_is_a_default_queue() -> None:
    assert Recovery().find_path(submission(forced=True), FakeTree(leaf("root.default"))) == "root.@recovery@"


def test_the_rest_goes_to_the_default_queue_if_there_is_one() -> None:
    assert Recovery().find_path(submission(), FakeTree(leaf("root.default"))) == "root.default"
    assert Recovery().find_path(submission(), NOWHERE) is None


def test_a_rule_is_one_class_and_one_name_in_the_table_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rule, "registry", dict(Rule.registry))
    monkeypatch.setattr(placement_rules, "RULES", (*placement_rules.RULES, "initial"))

    class Initial(Rule):
        name = "initial"

        def find_path(self, submission: Submission, tree: Tree) -> str | None:
            return self.path_below_parent(submission.user.name[0], submission, tree)

    text = "partitions: [{name: default, placementrules: [{name: Initial, create: true}], queues: [{name: root}]}]"
    config = load(text).partitions[0]
    assert not placement_rules.find_rule_problems(config)
    assert PlacementChain(config.placement_rules).place(submission(), NOWHERE) == "root.b"


def test_every_rule_that_a_configuration_may_name_has_a_class() -> None:
    assert {*placement_rules.RULES, "recovery"} == set(Rule.registry)
