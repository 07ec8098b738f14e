from tests.builders import apps, asks, gone, nodes, released
from tests.trial import Trial
from tests.twins import Twins, remember, twin

LIMITS = """root limit.user.bob=memory:6 limit.user.*=apps:1 limit.group.dev=memory:9;
    root.a limit.group.*=memory:12; root.b"""


def limited() -> Trial:
    return Trial(LIMITS, made=Twins).does(
        nodes("n1 memory=40"),
        apps("app-1 root.a user=bob", "app-2 root.a user=eve groups=dev", "app-3 root.b user=eve groups=dev"),
        asks("app-1 a1 memory=4", "app-1 a2 memory=4", "app-2 b1 memory=5", "app-3 c1 memory=3"),
    )


def test_limits_bind_as_before() -> None:
    one = remember(limited()).does(asks("app-1 a3 memory=2", "app-2 b2 memory=5"))
    assert one.running == ["a1 on n1", "a3 on n1", "c1 on n1"]


def test_what_waits_for_a_limit_goes_on_when_it_is_freed() -> None:
    one = remember(limited()).does(released("app-1 a1"))
    assert "a2 on n1" in one.running
    one.does(gone("app-2"))
    assert "c1 on n1" in one.running


def test_the_group_of_an_application_stays_the_one_that_was_chosen() -> None:
    one = limited()
    one.reconfigures(f"{LIMITS} limit.group.dev=memory:40")
    account = twin(remember(one)).usage.known(twin(one).applications["app-3"])
    assert account is not None
    assert account.group_name == "dev"


def test_users_with_nothing_are_still_shown() -> None:
    one = Trial("root limit.user.*=memory:9; root.a", made=Twins)
    one.does(nodes("n1 memory=9"), apps("app-1 root.a user=ann"), asks("app-1 a1 memory=4"))
    one.does(gone("app-1"))
    assert [tracker.name for tracker in twin(remember(one)).usage.users] == ["ann"]
