import pytest

from partition_worker.engine.placement.application_type import ApplicationType
from partition_worker.engine.placement.fixed import Fixed
from partition_worker.engine.placement.rule import PlacementRejected
from tests.partition_worker.engine.placement.builders import NOWHERE, FakePlaces, leaf, rule, submission

TYPE = ApplicationType(rule("applicationtype", create=True), None)


@pytest.mark.parametrize(
    ("value", "path"),
    [("spark", "root.spark"), ("spark.batch", "root.spark_dot_batch"), ("root.spark", "root.root_dot_spark")],
)
def test_each_type_has_one_queue_whatever_it_looks_like(value: str, path: str) -> None:
    assert TYPE.path(submission("root.a", tags={"application.type": value}), NOWHERE) == path


def test_the_name_of_the_tag_ignores_case() -> None:
    assert TYPE.path(submission(tags={"Application.TYPE": "spark"}), NOWHERE) == "root.spark"


@pytest.mark.parametrize("tags", [{}, {"application.type": ""}, {"type": "spark"}])
def test_without_a_type_it_does_not_match(tags: dict[str, str]) -> None:
    assert TYPE.path(submission("root.a", tags=tags), NOWHERE) is None


def test_a_type_that_no_queue_can_be_called_after_is_an_error() -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        TYPE.path(submission(tags={"application.type": "x y"}), NOWHERE)


def test_without_create_only_types_that_have_a_queue_are_placed() -> None:
    existing = ApplicationType(rule("applicationtype"), None)
    spark = submission(tags={"application.type": "spark"})
    assert existing.path(spark, NOWHERE) is None
    assert existing.path(spark, FakePlaces(leaf("root.spark"))) == "root.spark"


def test_the_queue_lies_below_that_of_the_parent_rule() -> None:
    below = ApplicationType(
        rule("applicationtype", create=True), Fixed(rule("fixed", value="kinds", create=True), None)
    )
    assert below.path(submission(tags={"application.type": "spark"}), NOWHERE) == "root.kinds.spark"


def test_who_is_filtered_out_gets_no_answer_not_even_an_error() -> None:
    for_ann = ApplicationType(rule("applicationtype", create=True, only="ann"), None)
    assert for_ann.path(submission(tags={"application.type": "x y"}), NOWHERE) is None
