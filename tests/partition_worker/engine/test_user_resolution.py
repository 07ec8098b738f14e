""""""

import pytest

from tests.builders import apps
from yunishard.common.messages.rm_messages import AddApplicationRequest
from yunishard.partition_worker.engine import user_resolution
from yunishard.partition_worker.engine.user_resolution import (
    FAILURE_REMEMBERED_S,
    GROUPS_MAX,
    REMEMBERED_MAX,
    REMEMBERED_S,
    GroupsUnknown,
    PendingSubmissions,
    User,
    UserError,
    Users,
    is_forced,
    tag_value,
)

NOW = 1000.0


def test_the_groups_of_a_submission_are_used_as_they_are_in_their_order() -> None:
    user = Users().resolve("bob", ["qa", "no group!", "dev", "qa"], forced=False, now=NOW)
    assert user == User("bob", ("qa", "no group!", "dev", "qa"))


def test_more_groups_than_a_user_can_have_are_refused() -> None:
    users = Users()
    assert len(users.resolve("bob", ["dev"] * GROUPS_MAX, forced=False, now=NOW).groups) == GROUPS_MAX
    for forced in (False, True):
        with pytest.raises(UserError, match=r"^user bob cannot be in 65537 groups, at most 65536 may be named$"):
            users.resolve("bob", ["dev"] * (GROUPS_MAX + 1), forced=forced, now=NOW)


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
    users = Users("test")
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


def test_a_resolver_is_asked_once_per_user_and_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def find_groups(_: str, name: str) -> tuple[str, ...]:
        asked.append(name)
        return ("dev",)

    monkeypatch.setattr(user_resolution, "find_groups", find_groups)
    users = Users()
    for now in (NOW, NOW + 1, NOW + REMEMBERED_S):
        assert users.resolve("bob", [], forced=False, now=now).groups == ("dev",)
    assert asked == ["bob", "bob"]


def resolved(users: Users, name: str = "bob", now: float = NOW, *, forced: bool = False) -> tuple[str, ...]:
    return users.resolve(name, [], forced=forced, now=now).groups


def test_a_failure_is_remembered_for_a_shorter_while() -> None:
    users = Users("test")
    with pytest.raises(UserError, match=r"^lookup failed for user: bob$"):
        resolved(users)
    again = r"^user resolution failed, cached data returned: 1970-01-01 00:16:40 \+0000 UTC$"
    with pytest.raises(UserError, match=again):
        resolved(users, now=NOW + FAILURE_REMEMBERED_S - 1)
    with pytest.raises(UserError, match=r"^lookup failed"):
        resolved(users, now=NOW + FAILURE_REMEMBERED_S)


def test_groups_that_a_submission_names_end_a_failure() -> None:
    users = Users("test")
    with pytest.raises(UserError):
        resolved(users)
    users.resolve("bob", ["ops"], forced=False, now=NOW)
    assert resolved(users) == ("ops",)


def test_who_is_looked_up_outside_is_unknown_until_found() -> None:
    users = Users("os")
    for forced in (False, True):
        with pytest.raises(GroupsUnknown):
            resolved(users, forced=forced)
    users.learn("bob", User("bob", ("dev", "qa")), NOW)
    assert resolved(users) == ("dev", "qa")
    with pytest.raises(GroupsUnknown):
        resolved(users, now=NOW + REMEMBERED_S)


def test_who_was_not_found_outside_has_failed_for_a_while() -> None:
    users = Users("os")
    users.learn("bob", None, NOW)
    with pytest.raises(UserError, match=r"^user resolution failed, cached data returned: "):
        resolved(users)
    with pytest.raises(GroupsUnknown):
        resolved(users, now=NOW + FAILURE_REMEMBERED_S)
    assert resolved(users, forced=True) == ("nogroup",)


def test_a_submission_that_names_groups_or_nobody_needs_no_look_up() -> None:
    users = Users("os")
    assert users.resolve("bob", ["dev"], forced=False, now=NOW).groups == ("dev",)
    assert users.resolve("", [], forced=True, now=NOW) == User("nobody", ("nogroup",))


@pytest.mark.parametrize("kind", ["", "kerberos", "TEST", "OS", "LDAP"])
def test_an_unknown_type_of_resolver_is_the_default(kind: str) -> None:
    assert resolved(Users(kind), "testuser1") == ("testuser1",)


def test_groups_by_ldap_are_refused_rather_than_made_up() -> None:
    users = Users("ldap")
    with pytest.raises(UserError, match=r"^groups are not looked up by LDAP: .* name the groups of user bob$"):
        resolved(users)
    assert users.resolve("bob", ["dev"], forced=False, now=NOW).groups == ("dev",)


def test_the_test_resolver_knows_four_users() -> None:
    assert resolved(Users("test"), "testuser1") == ("group1000", "group1001")


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_a_submission_is_forced_by_a_tag_in_any_case_with_a_value_that_means_true(value: str) -> None:
    assert is_forced({"Application.Create.FORCE": value})


@pytest.mark.parametrize("value", ["", "yes", "tRUE", "0", "false", " true"])
def test_any_other_value_does_not_force(value: str) -> None:
    assert not is_forced({"application.create.force": value})


def test_a_tag_that_is_missing_is_empty() -> None:
    assert tag_value({"Namespace": "a"}, "NAMESPACE") == "a"
    assert tag_value({}, "namespace") == ""


def new(text: str) -> AddApplicationRequest:
    (one,) = apps(text).new
    return one


def ids(submissions: list[AddApplicationRequest]) -> list[str]:
    return [one.application_id for one in submissions]


def waiting(*texts: str) -> PendingSubmissions:
    made = PendingSubmissions()
    for text in texts:
        made.insert(new(text))
    return made


def test_all_of_a_user_are_taken_in_their_order_and_nobody_elses() -> None:
    one = waiting("app-2 user=bob", "app-1 user=eve", "app-3 user=bob")
    assert ids(one.take_submissions("bob")) == ["app-2", "app-3"]
    assert ids(one.take_submissions("bob")) == []
    assert ("app-1" in one, "app-2" in one, len(one)) == (True, False, 1)
    assert ("eve" in one.by_user, "bob" in one.by_user) == (True, False)


def test_one_that_is_dropped_is_not_taken() -> None:
    one = waiting("app-1 user=bob", "app-2 user=bob")
    one.remove("app-1")
    one.remove("app-1")
    assert ids(one.take_submissions("bob")) == ["app-2"]


def test_with_its_last_submission_a_user_goes() -> None:
    one = waiting("app-1 user=bob")
    one.remove("app-1")
    assert "bob" not in one.by_user
    assert len(one) == 0
