import pytest

from common.config.expressions import ExpressionError
from common.config.model import FilterConfig
from partition_worker.engine.placement.filter import Filter, FilterDescription
from partition_worker.engine.users import User
from partition_worker.engine.work import Work

BOB = User("bob", ("dev", "qa"))


def admits(kind: str = "", *, users: tuple[str, ...] = (), groups: tuple[str, ...] = (), user: User = BOB) -> bool:
    return Filter(FilterConfig(type=kind, users=users, groups=groups)).admits(user, Work())


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


def described(kind: str = "", *, users: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> FilterDescription | None:
    return Filter(FilterConfig(type=kind, users=users, groups=groups)).described()


def test_a_filter_that_filters_nothing_has_no_description() -> None:
    assert described() is None
    assert described("allow") is None
    assert described("DENY") is None


def test_a_filter_describes_its_lists_as_names_in_order_or_as_an_expression() -> None:
    names = described("deny", users=("zoe", "ann", "zoe", "b d"), groups=("dev.*",))
    assert names == FilterDescription(False, ("zoe", "ann"), (), "", "dev.*")
    assert described("allow", users=("bob",)) == FilterDescription(True, ("bob",), (), "", "")
    assert described("deny") == FilterDescription(False, (), (), "", "")
