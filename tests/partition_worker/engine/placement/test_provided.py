import pytest

from common.names import ILLEGAL_QUEUE
from partition_worker.engine.placement.fixed import Fixed
from partition_worker.engine.placement.provided import Provided
from partition_worker.engine.placement.rule import PlacementRejected
from tests.partition_worker.engine.placement.builders import NOWHERE, FakePlaces, leaf, parent, rule, submission

PROVIDED = Provided(rule("provided", create=True), None)


def test_a_name_is_a_queue_below_root_and_its_dots_are_replaced() -> None:
    assert PROVIDED.path(submission("x.y"), NOWHERE) == "root.x_dot_y"


def test_a_name_that_starts_with_root_is_the_whole_path_and_keeps_its_case() -> None:
    assert PROVIDED.path(submission("root.x.Y"), NOWHERE) == "root.x.Y"


@pytest.mark.parametrize(("name", "path"), [("root", "root.root"), ("ROOT.x", "root.ROOT_dot_x")])
def test_root_alone_or_in_capitals_is_a_name_like_any_other(name: str, path: str) -> None:
    assert PROVIDED.path(submission(name), NOWHERE) == path


def test_without_a_name_it_does_not_match() -> None:
    assert PROVIDED.path(submission(""), NOWHERE) is None


def test_a_queue_that_is_missing_is_no_match_unless_it_may_be_created() -> None:
    existing = Provided(rule("provided"), None)
    assert existing.path(submission("a"), NOWHERE) is None
    assert existing.path(submission("A"), FakePlaces(leaf("root.a"))) == "root.A"


@pytest.mark.parametrize("name", ["a b", "root.", "root.a..b", "root.a%b", "q" * 65, "x." * 13 + "x", "root.a\n", "ä"])
def test_a_name_that_no_queue_can_have_is_an_error(name: str) -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name") as rejected:
        PROVIDED.path(submission(name), NOWHERE)
    assert str(rejected.value) == ILLEGAL_QUEUE


def test_names_are_checked_before_the_parent_rule_runs() -> None:
    below_leaf = Provided(rule("provided", create=True), Fixed(rule("fixed", value="root.a"), None))
    places = FakePlaces(leaf("root.a"))
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        below_leaf.path(submission("a b"), places)
    with pytest.raises(PlacementRejected, match=r"parent rule returned a leaf queue: root\.a"):
        below_leaf.path(submission("job"), places)


def test_a_whole_path_skips_the_parent_rule() -> None:
    below_par = Provided(rule("provided", create=True), Fixed(rule("fixed", value="root.par"), None))
    places = FakePlaces(parent("root.par"))
    assert below_par.path(submission("job"), places) == "root.par.job"
    assert below_par.path(submission("root.job"), places) == "root.job"


def test_who_is_filtered_out_gets_no_answer_not_even_an_error() -> None:
    for_ann = Provided(rule("provided", create=True, only="ann"), None)
    assert for_ann.path(submission("a"), NOWHERE) is None
    assert for_ann.path(submission("a b"), NOWHERE) is None
