"""The causes that failed attempts note, and their words in the allocation log."""

import pytest

from tests.builders import apps, asks, nodes, released
from tests.trial import Trial
from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.attempt_log import WaitCause, find_latest, log_attempt
from yunishard.partition_worker.engine.explain import checks, explanations
from yunishard.partition_worker.engine.explain.causes import describe_cause
from yunishard.partition_worker.engine.wait_causes import find_queue_cause


def log(trial: Trial, application_id: str = "app-1") -> dict[str, str]:
    """The causes of the first group of asks, by code."""
    group = trial.app(application_id).asks.first_group
    causes = [entry.cause for entry in group.log.values() if entry.cause is not None]
    return {str(cause.code): describe_cause(group, cause).text for cause in causes}


def explained(trial: Trial, application_id: str = "app-1") -> dict[str, str]:
    """The failed checks of the explanation of the first ask, by code."""
    application = trial.app(application_id)
    found = explanations.explain_ask(trial.partition, application, application.asks.first_group.head, trial.now)
    return {check.code: check.text for check in found.checks if not check.passed}


@pytest.mark.parametrize(
    ("queues", "code", "text"),
    [
        (
            "root.a max=vcore:4",
            "queue-maximum",
            (
                "root.a may use 0.004 vcore at most: 0.003 vcore are used, this ask needs 0.003 vcore, "
                "so it is short by 0.002 vcore"
            ),
        ),
        (
            "root.a limit.user.bob=vcore:4",
            "user-limit",
            (
                "user bob may use 0.004 vcore at most in root.a: 0.003 vcore are used, this ask needs 0.003 vcore, "
                "so it is short by 0.002 vcore"
            ),
        ),
        (
            "root.a limit.group.dev=vcore:4",
            "group-limit",
            (
                "group dev may use 0.004 vcore at most in root.a: 0.003 vcore are used, this ask needs 0.003 vcore, "
                "so it is short by 0.002 vcore"
            ),
        ),
        (
            "root.a",
            "cluster-full",
            (
                "the nodes together have 0.005 vcore: 0.003 vcore are used, this ask needs 0.003 vcore, "
                "so it is short by 0.001 vcore"
            ),
        ),
    ],
)
def test_a_lack_of_room_is_noted_in_the_words_of_the_explanation(queues: str, code: str, text: str) -> None:
    one = Trial(queues).does(nodes("n1 vcore=5" if code == "cluster-full" else "n1 vcore=50"))
    one.does(apps("app-1 root.a user=bob groups=dev"), asks("app-1 a1 vcore=3", "app-1 a2 vcore=3"))
    assert log(one) == {code: text}
    assert explained(one)[code] == text


@pytest.mark.parametrize(
    ("queues", "code"),
    [
        ("root.a maxapps=1", "queue-application-limit"),
        ("root.a limit.user.bob=apps:1", "user-application-limit"),
        ("root.a limit.group.dev=apps:1", "group-application-limit"),
    ],
)
def test_an_application_that_may_not_start_notes_the_limit(queues: str, code: str) -> None:
    one = Trial(queues).does(nodes("n1 vcore=50"))
    one.does(apps("app-0 root.a user=bob groups=dev", "app-1 root.a user=bob groups=dev"))
    one.does(asks("app-0 a1 vcore=1"), asks("app-1 b1 vcore=1"))
    assert log(one) == {code: explained(one)[code]}
    assert log(one)[code].endswith("1 is running, so this one has to wait")


def test_an_application_that_its_queue_counts_already_notes_the_limit_of_its_user() -> None:
    """It counts since it had a reservation, which ended when another application of the user started."""
    one = Trial("root limit.user.bob=apps:1; root.a maxapps=1; root.b").does(nodes("n1 vcore=9", "n2 vcore=9"))
    one.does(apps("app-0 root.b user=eve", "app-1 root.a user=bob", "app-2 root.b user=bob"))
    one.does(asks("app-0 e1 vcore=6", "app-0 e2 vcore=6"), asks("app-1 a1 vcore=5")).waits(2)
    assert "a1" in one.app("app-1").reservations
    one.does(asks("app-2 b1 vcore=1"))
    code = "user-application-limit"
    assert log(one)[code] == explained(one)[code]
    assert "queue-application-limit" not in log(one)


@pytest.mark.parametrize(("required", "code"), [("n9", "required-node-missing"), ("n1", "required-node-too-small")])
def test_a_required_node_that_cannot_take_the_ask_is_noted(required: str, code: str) -> None:
    one = Trial("root.a").does(nodes("n1 vcore=5", "n2 vcore=50"), apps("app-1 root.a"))
    one.does(asks(f"app-1 a1 vcore=9 tag.yunikorn.apache.org/requiredNode={required}"))
    assert log(one) == {code: explained(one)[code]}


def test_an_ask_that_no_node_takes_notes_their_number() -> None:
    one = Trial("root.a").does(nodes("n1 vcore=5", "n2 vcore=5"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 vcore=9"))
    assert log(one) == {"no-node-fits": "no node takes it: none of 2 has 0.009 vcore available and accepts it"}


def test_of_each_code_the_latest_figures_are_kept_and_counted() -> None:
    one = Trial("root.a max=vcore:4").does(nodes("n1 vcore=50"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 vcore=1", "app-1 a2 vcore=1", "app-1 a3 vcore=4"))
    group = one.app("app-1").asks.first_group
    one.waits(1).does(released("app-1 a1"))
    cause, entry = group.log[Reason.QUEUE_MAXIMUM].cause, group.log[Reason.QUEUE_MAXIMUM]
    assert cause is not None
    assert (cause.used, entry.times, entry.last) == (1, 2, one.now)
    assert find_latest(group.log) is cause
    log_attempt(group.log, WaitCause(Reason.NO_NODE_FITS, nodes={"taint": 1}), one.now + 1)
    assert find_latest(group.log) == "taint"


@pytest.mark.tampers
def test_a_queue_that_keeps_its_room_is_named_before_a_full_cluster() -> None:
    one = Trial("root.a max=memory:20").does(nodes("n1 memory=16"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=15", "app-1 a2 memory=2")).queue("root.a").add_kept({"memory": 5})
    application = one.app("app-1")
    assert checks.find_reason(one.partition, application, application.asks.first_group, one.now) == "queue-room-kept"
    assert list(explained(one))[:2] == ["queue-room-kept", "cluster-full"]
    kept = find_queue_cause(
        one.queue("root.a"), application.asks.first_group.shape.amounts, Reason.PREEMPTION_NO_VICTIM
    )
    assert kept == WaitCause(Reason.QUEUE_ROOM_KEPT, "root.a", search=Reason.PREEMPTION_NO_VICTIM)


@pytest.mark.tampers
def test_room_that_a_queue_keeps_of_another_type_does_not_matter() -> None:
    one = Trial("root.a max=memory:16").does(nodes("n1 memory=16 gpu=9"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=15", "app-1 a2 memory=2")).queue("root.a").add_kept({"gpu": 5})
    assert list(explained(one))[:2] == ["queue-maximum", "cluster-full"]


def test_every_cause_has_a_text_of_its_own() -> None:
    one = Trial("root.a").does(nodes("n1 vcore=5", "n2 vcore=5"), apps("app-1 root.a"), asks("app-1 a1 vcore=9"))
    group = one.app("app-1").asks.first_group
    cause = group.log[Reason.NO_NODE_FITS].cause
    assert cause is not None
    for code in (Reason.QUEUE_ROOM_KEPT, Reason.REQUIRED_NODE_KEPT):
        assert describe_cause(group, cause._replace(code=code)).text != checks.MEANINGS[code].rstrip(".")
