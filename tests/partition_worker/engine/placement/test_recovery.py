from partition_worker.engine.placement.recovery import Recovery
from tests.partition_worker.engine.placement.builders import NOWHERE, FakePlaces, leaf, submission


def test_what_is_forced_goes_to_the_recovery_queue_even_if_there_is_a_default_queue() -> None:
    assert Recovery().path(submission(forced=True), FakePlaces(leaf("root.default"))) == "root.@recovery@"


def test_the_rest_goes_to_the_default_queue_if_there_is_one() -> None:
    assert Recovery().path(submission(), FakePlaces(leaf("root.default"))) == "root.default"
    assert Recovery().path(submission(), NOWHERE) is None
