from common.rm_messages import AddApplicationRequest
from partition_worker.engine.waiting import WAITING_MAX, Waiting
from tests.builders import apps


def new(text: str) -> AddApplicationRequest:
    (one,) = apps(text).new
    return one


def ids(submissions: list[AddApplicationRequest]) -> list[str]:
    return [one.application_id for one in submissions]


def waiting(*texts: str) -> Waiting:
    made = Waiting()
    for text in texts:
        made.put(new(text))
    return made


def test_all_of_a_user_are_taken_in_their_order_and_nobody_elses() -> None:
    one = waiting("app-2 user=bob", "app-1 user=eve", "app-3 user=bob")
    assert ids(one.take("bob")) == ["app-2", "app-3"]
    assert ids(one.take("bob")) == []
    assert ("app-1" in one, "app-2" in one, len(one)) == (True, False, 1)
    assert (one.has_user("eve"), one.has_user("bob")) == (True, False)


def test_one_that_is_dropped_is_not_taken() -> None:
    one = waiting("app-1 user=bob", "app-2 user=bob")
    assert one.drop("app-1")
    assert not one.drop("app-1")
    assert ids(one.take("bob")) == ["app-2"]


def test_with_its_last_submission_a_user_goes() -> None:
    one = waiting("app-1 user=bob")
    one.drop("app-1")
    assert not one.has_user("bob")
    assert len(one) == 0


def test_everything_can_be_taken_at_once() -> None:
    one = waiting("app-2 user=bob", "app-1 user=eve", "app-3 user=bob")
    assert ids(one.take_all()) == ["app-2", "app-3", "app-1"]
    assert len(one) == 0


def test_it_is_full_at_its_bound() -> None:
    one = waiting(*(f"app-{number}" for number in range(WAITING_MAX - 1)))
    assert not one.full
    one.put(new("app-last"))
    assert one.full
    one.drop("app-7")
    assert not one.full
