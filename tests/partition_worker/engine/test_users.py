import pytest

from partition_worker.engine.users import (
    REMEMBERED_MAX,
    REMEMBERED_S,
    User,
    UserError,
    Users,
    is_forced,
    resolver_of,
    tag_value,
)

NOW = 1000.0


def test_the_groups_of_a_submission_are_used_as_they_are_in_their_order() -> None:
    user = Users().resolve("bob", ["qa", "no group!", "dev", "qa"], forced=False, now=NOW)
    assert user == User("bob", ("qa", "no group!", "dev", "qa"))


def test_without_groups_the_default_is_one_group_of_the_same_name() -> None:
    assert Users().resolve("bob", [], forced=False, now=NOW) == User("bob", ("bob",))


@pytest.mark.parametrize("groups", [[], ["dev"]])
def test_an_empty_user_is_rejected(groups: list[str]) -> None:
    with pytest.raises(UserError, match=r"^empty user cannot resolve$"):
        Users().resolve("", groups, forced=False, now=NOW)


@pytest.mark.parametrize("groups", [[], ["dev"]])
def test_an_empty_user_by_force_is_nobody(groups: list[str]) -> None:
    assert Users().resolve("", groups, forced=True, now=NOW) == User("nobody", ("nogroup",))


@pytest.mark.parametrize("name", ["bad user", "9bob", "bob$$", "bob\n", "böb"])
def test_a_name_that_no_user_can_have_is_rejected_even_by_force(name: str) -> None:
    for forced in (False, True):
        with pytest.raises(UserError, match=r"^invalid username, it contains invalid characters$"):
            Users().resolve(name, ["dev"], forced=forced, now=NOW)


@pytest.mark.parametrize("name", ["_bob", "svc$", "jane.doe@corp", "oidc:corp/bob#1-2"])
def test_names_of_many_kinds_are_accepted(name: str) -> None:
    assert Users().resolve(name, ["dev"], forced=False, now=NOW).name == name


def test_the_name_of_a_user_who_is_looked_up_is_not_checked() -> None:
    assert Users().resolve("bad user", [], forced=False, now=NOW) == User("bad user", ("bad user",))


def test_a_user_who_cannot_be_looked_up_is_rejected_but_by_force_has_no_group() -> None:
    users = Users(resolver_of("test"))
    with pytest.raises(UserError, match=r"^lookup failed for user: stranger$"):
        users.resolve("stranger", [], forced=False, now=NOW)
    assert users.resolve("stranger", [], forced=True, now=NOW) == User("stranger", ("nogroup",))
    with pytest.raises(UserError, match=r"^invalid username"):
        users.resolve("bad stranger", [], forced=True, now=NOW)


def test_groups_of_an_earlier_submission_are_remembered_for_a_while() -> None:
    users = Users()
    users.resolve("bob", ["ops"], forced=False, now=NOW)
    assert users.resolve("bob", [], forced=False, now=NOW + REMEMBERED_S - 1).groups == ("ops",)
    assert users.resolve("bob", [], forced=False, now=NOW + REMEMBERED_S).groups == ("bob",)


def test_the_latest_groups_count() -> None:
    users = Users()
    for group in ("ops", "dev"):
        users.resolve("bob", [group], forced=False, now=NOW)
    assert users.resolve("bob", [], forced=False, now=NOW).groups == ("dev",)


def test_of_too_many_users_the_one_learned_first_is_forgotten() -> None:
    users = Users()
    for number in range(REMEMBERED_MAX + 1):
        users.resolve(f"user{number}", ["ops"], forced=False, now=NOW)
    assert users.resolve("user1", [], forced=False, now=NOW).groups == ("ops",)
    assert users.resolve("user0", [], forced=False, now=NOW).groups == ("user0",)


def test_a_resolver_is_asked_once_per_user_and_while() -> None:
    asked: list[str] = []

    def resolver(name: str) -> tuple[str, ...]:
        asked.append(name)
        return ("dev",)

    users = Users(resolver)
    for now in (NOW, NOW + 1, NOW + REMEMBERED_S):
        assert users.resolve("bob", [], forced=False, now=now).groups == ("dev",)
    assert asked == ["bob", "bob"]


@pytest.mark.parametrize("kind", ["", "kerberos", "TEST"])
def test_an_unknown_type_of_resolver_is_the_default(kind: str) -> None:
    assert resolver_of(kind)("testuser1") == ("testuser1",)


def test_the_test_resolver_knows_four_users() -> None:
    assert resolver_of("test")("testuser1") == ("group1000", "group1001")


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_a_submission_is_forced_by_a_tag_in_any_case_with_a_value_that_means_true(value: str) -> None:
    assert is_forced({"Application.Create.FORCE": value})


@pytest.mark.parametrize("value", ["", "yes", "tRUE", "0", "false", " true"])
def test_any_other_value_does_not_force(value: str) -> None:
    assert not is_forced({"application.create.force": value})


def test_a_tag_that_is_missing_is_empty() -> None:
    assert tag_value({"Namespace": "a"}, "NAMESPACE") == "a"
    assert tag_value({}, "namespace") == ""
