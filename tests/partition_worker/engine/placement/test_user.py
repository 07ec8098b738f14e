import pytest

from partition_worker.engine.placement.fixed import Fixed
from partition_worker.engine.placement.rule import PlacementRejected
from partition_worker.engine.placement.user import UserName
from partition_worker.engine.users import User
from tests.partition_worker.engine.placement.builders import NOWHERE, FakePlaces, leaf, rule, submission

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
    assert USER_NAME.path(submission(user=User(name)), NOWHERE) == path


def test_the_queue_that_is_asked_for_does_not_matter() -> None:
    assert USER_NAME.path(submission("root.a"), NOWHERE) == "root.bob"


def test_a_user_name_that_no_queue_can_have_is_an_error() -> None:
    with pytest.raises(PlacementRejected, match="invalid queue name"):
        USER_NAME.path(submission(user=User("svc$")), NOWHERE)


def test_without_create_only_users_who_have_a_queue_are_placed() -> None:
    existing = UserName(rule("user"), None)
    assert existing.path(submission(), NOWHERE) is None
    assert existing.path(submission(), FakePlaces(leaf("root.bob"))) == "root.bob"


def test_the_queue_lies_below_that_of_the_parent_rule() -> None:
    below = UserName(rule("user", create=True), Fixed(rule("fixed", value="people", create=True), None))
    assert below.path(submission(), NOWHERE) == "root.people.bob"


def test_who_is_filtered_out_gets_no_answer_not_even_an_error() -> None:
    for_ann = UserName(rule("user", create=True, only="ann"), None)
    assert for_ann.path(submission(user=User("svc$")), NOWHERE) is None
