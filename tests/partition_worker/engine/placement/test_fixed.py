import pytest

from partition_worker.engine.placement.fixed import Fixed
from partition_worker.engine.placement.rule import RuleError
from partition_worker.engine.placement.user import UserName
from tests.partition_worker.engine.placement.builders import NOWHERE, FakePlaces, leaf, rule, submission


@pytest.mark.parametrize(
    ("value", "path"),
    [("a", "root.a"), ("Par.Leaf", "root.par.leaf"), ("ROOT.A", "root.a"), ("root", "root"), ("rooted", "rooted")],
)
def test_the_value_is_lower_cased_and_its_dots_separate_queues(value: str, path: str) -> None:
    assert Fixed(rule("fixed", value=value, create=True), None).path(submission("root.x"), NOWHERE) == path


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
        return Fixed(rule("fixed", value="jobs.batch", create=create), above).path(submission(), NOWHERE)

    assert path(create=True, parent_creates=True) == "root.bob.jobs.batch"
    assert path(create=False, parent_creates=True) is None
    assert path(create=True, parent_creates=False) is None


@pytest.mark.parametrize(("value", "path"), [("root", "root.root.bob"), ("rooted", "root.rooted.bob")])
def test_a_parent_path_that_does_not_start_below_root_is_put_there(value: str, path: str) -> None:
    above = Fixed(rule("fixed", value=value, create=True), None)
    assert UserName(rule("user", create=True), above).path(submission(), NOWHERE) == path


def test_without_create_it_matches_when_its_queue_exists() -> None:
    existing = Fixed(rule("fixed", value="a"), None)
    assert existing.path(submission(), NOWHERE) is None
    assert existing.path(submission(), FakePlaces(leaf("root.a"))) == "root.a"


def test_who_is_filtered_out_gets_no_answer() -> None:
    assert Fixed(rule("fixed", value="a", create=True, only="ann"), None).path(submission(), NOWHERE) is None
