import pytest

from partition_worker.engine.placement.rule import PlacementRejected, RuleError
from partition_worker.engine.placement.tag import Tag
from tests.partition_worker.engine.placement.builders import NOWHERE, FakePlaces, leaf, parent, rule, submission

NAMESPACE = Tag(rule("tag", value="NameSpace", create=True), None)


def test_a_rule_without_the_name_of_a_tag_cannot_be_built() -> None:
    with pytest.raises(RuleError, match=r"^a tag queue rule must have a tag name set$"):
        Tag(rule("tag"), None)


def test_names_of_tags_ignore_case_on_both_sides() -> None:
    assert NAMESPACE.path(submission(tags={"NAMESPACE": "ns1"}), NOWHERE) == "root.ns1"


@pytest.mark.parametrize("tags", [{}, {"namespace": ""}, {"space": "ns1"}])
def test_without_a_value_it_does_not_match(tags: dict[str, str]) -> None:
    assert NAMESPACE.path(submission("root.a", tags=tags), NOWHERE) is None


@pytest.mark.parametrize(("value", "path"), [("x.y", "root.x_dot_y"), ("root.x.y", "root.x.y")])
def test_the_value_means_what_the_queue_of_a_submission_means(value: str, path: str) -> None:
    assert NAMESPACE.path(submission(tags={"namespace": value}), NOWHERE) == path


def test_a_value_that_no_queue_can_have_is_an_error() -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        NAMESPACE.path(submission(tags={"namespace": "x y"}), NOWHERE)


def test_a_tag_may_name_the_parent_of_another() -> None:
    team = Tag(rule("tag", value="team"), None)
    below = Tag(rule("tag", value="namespace", create=True), team)
    places = FakePlaces(parent("root.par"), leaf("root.a"))
    assert below.path(submission(tags={"namespace": "fin", "team": "par"}), places) == "root.par.fin"
    assert below.path(submission(tags={"namespace": "fin"}), places) is None
    with pytest.raises(PlacementRejected, match=r"parent rule returned a leaf queue: root\.a"):
        below.path(submission(tags={"namespace": "fin", "team": "a"}), places)


def test_who_is_filtered_out_gets_no_answer() -> None:
    for_ann = Tag(rule("tag", value="namespace", create=True, only="ann"), None)
    assert for_ann.path(submission(tags={"namespace": "x"}), NOWHERE) is None
