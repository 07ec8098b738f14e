"""The explained placement as a viewer sees it."""

import json

import pytest

from tests.builders import apps, asks, nodes
from tests.partition_worker.engine.placement_builders import rule
from tests.trial import Trial
from yunishard.common.config.acl import EVERYBODY, Acl
from yunishard.common.config.model import FilterConfig, PlacementRuleConfig
from yunishard.common.messages.query_messages import Actor, Answer, Query
from yunishard.partition_worker import queries
from yunishard.partition_worker.engine.durable_records import OperatorMark

ADMINISTRATOR = Actor(user="op", scheduler_admin=True)
BOB = Actor(user="bob", groups=["dev", "qa"])
RULES = (
    rule("tag", value="namespace", create=True, parent=rule("fixed", value="root.tenants")),
    PlacementRuleConfig(name="user", filter=FilterConfig(type="deny", users=("eve",))),
    rule("provided"),
)


@pytest.fixture(scope="module")
def trial() -> Trial:
    """All may submit to root.tenants, Bob to root.open, only Ann to root.closed."""
    one = Trial(
        "root.tenants parent template.maxapps=3; root.open maxapps=2 limit.user.bob=apps:1; root.closed; root.gone",
        rules=RULES,
    )
    for path, acl in (
        ("root.tenants", EVERYBODY),
        ("root.open", Acl(groups=frozenset({"dev"}))),
        ("root.closed", Acl(users=frozenset({"ann"}))),
        ("root", Acl()),
    ):
        one.queue(path).submit_acl = acl
    return one


def answer(trial: Trial, viewer: Actor | None = None, **args: str) -> Answer:
    query = Query(what="placement", name="default", args=args, viewer=viewer)
    return queries.answer_partition_query(trial.partition, "rm-1", query)


def shown(trial: Trial, viewer: Actor | None = None, **args: str) -> dict[str, object]:
    answered = answer(trial, viewer, **args)
    assert answered.status == 200, answered.body
    found = json.loads(answered.body)
    assert isinstance(found, dict)
    return found


def rules(found: dict[str, object]) -> list[dict[str, object]]:
    listed = found["rules"]
    assert isinstance(listed, list)
    return listed


def texts(one: dict[str, object]) -> list[str]:
    checks = one.get("checks", [])
    assert isinstance(checks, list)
    return [("+ " if check["passed"] else "- ") + check["text"] for check in checks]


def test_an_application_that_would_be_accepted_is_explained_rule_by_rule(trial: Trial) -> None:
    found = shown(trial, user="bob", groups="dev,qa", queue="root.open")
    assert (found["state"], found["queue"], found["rule"], found["groups"]) == (
        "accepted",
        "root.open",
        3,
        ["dev", "qa"],
    )
    assert found["summary"] == "The application is placed in root.open: rule 3 (provided) decides."
    tag, user, provided, recovery = rules(found)
    assert (tag["outcome"], texts(tag)) == ("no-match", ["- There is no tag namespace"])
    assert (user["outcome"], user["stoppedBy"]) == ("no-match", "queue-missing")
    assert texts(user) == [
        "+ The name of the user is bob",
        "+ The filter selects user bob",
        "- root.bob does not exist, and the rule may not create it",
    ]
    assert (provided["outcome"], provided["queue"]) == ("placed", "root.open")
    assert texts(provided) == [
        "+ The queue of the submission is root.open",
        "+ root.open exists",
        "+ root.open is a leaf queue",
        "+ root.open is not draining",
        "+ The submitacl of root.open lets group dev submit",
    ]
    assert recovery == {"name": "recovery", "parameters": {"queue": "root.@recovery@"}, "outcome": "not-tried"}
    assert found["access"] == {"queue": "root.open", "acl": "submitacl", "entry": "group dev"}
    assert found["limits"] == [
        {"queue": "root.open", "maxApplications": 2},
        {"queue": "root.open", "user": "bob", "maximum": {}, "maxApplications": 1},
    ]


def test_a_queue_that_would_be_created_is_shown_with_its_template(trial: Trial) -> None:
    found = shown(trial, user="bob", groups="dev", tags='{"namespace": "Team"}')
    assert (found["queue"], found["created"]) == ("root.tenants.team", ["root.tenants.team"])
    assert found["template"] == {"maxApplications": 3, "queue": "root.tenants"}
    assert found["access"] == {"queue": "root.tenants", "acl": "submitacl", "entry": "*"}
    parent = rules(found)[0]["parentRule"]
    assert isinstance(parent, dict)
    assert (parent["name"], parent["queue"], texts(parent)) == ("fixed", "root.tenants", ["+ root.tenants exists"])
    assert parent["outcome"] == "matched"
    assert trial.partition.tree.find("root.tenants.team") is None


def test_a_rejection_has_the_words_that_the_rm_receives(trial: Trial) -> None:
    found = shown(trial, user="eve", groups="dev", queue="root.closed")
    assert (found["state"], found["stoppedBy"]) == ("rejected", "rules-unmatched")
    assert found["message"] == (
        "failed to place application explained: application rejected: no placement rule matched"
    )
    assert "queue" not in found
    assert texts(rules(found)[1]) == ["+ The name of the user is eve", "- The filter excludes user eve"]
    assert texts(rules(found)[2])[-1] == "- No access control list of root.closed or above lets user eve submit"


def test_a_rule_that_rejects_ends_it(trial: Trial) -> None:
    found = shown(trial, user="bob", groups="dev", tags='{"namespace": "a b"}')
    assert found["stoppedBy"] == "queue-name-illegal"
    assert [one["outcome"] for one in rules(found)] == ["rejected", "not-tried", "not-tried", "not-tried"]


def test_groups_that_have_to_be_looked_up_are_named() -> None:
    found = shown(Trial("root.a", resolver="os"), user="bob", queue="root.a")
    assert (found["state"], found["stoppedBy"]) == ("unknown", "user-groups-unknown")


def test_an_invalid_user_is_rejected_before_any_rule(trial: Trial) -> None:
    found = shown(trial, user="", queue="root.open")
    assert (found["stoppedBy"], found["message"]) == ("user-invalid", "empty user cannot resolve")
    assert "rules" not in found


def test_a_rule_that_cannot_be_used_is_the_reason() -> None:
    found = shown(Trial("root.a", rules=(rule("nosuch"),)), user="bob", groups="dev", queue="root.a")
    assert found["stoppedBy"] == "rules-invalid"
    assert "unknown rule name specified nosuch" in str(found["summary"])


def test_whether_the_application_may_start_now_is_checked() -> None:
    one = Trial("root.a maxapps=2 limit.user.bob=apps:1").does(nodes("n1 memory=9"), apps("app-1 root.a user=bob"))
    found = shown(one, user="bob", groups="dev", queue="root.a")
    assert texts(found) == [
        "+ root.a may run 2 applications at a time: none is running",
        "+ user bob may run 1 application at a time in root.a: none is running",
    ]
    one.does(asks("app-1 a1 memory=1"))
    found = shown(one, user="bob", groups="dev", queue="root.a")
    assert [check["code"] for check in found["checks"] if not check["passed"]] == ["user-application-limit"]  # type: ignore[attr-defined]
    assert str(found["summary"]).endswith(
        "It waits there, because user bob may run 1 application at a time in root.a: 1 is running."
    )


def test_a_stopped_queue_is_named() -> None:
    one = Trial("root.a; root.p parent")
    one.partition.tree.set_stops({"root.a": OperatorMark(user="op", at_ns=1)})
    found = shown(one, user="bob", groups="dev", queue="root.a")
    assert texts(rules(found)[0])[-1] == "- root.a is stopped by an operator, and takes no new applications"
    assert str(found["message"]).endswith("no placement rule matched: queue root.a is stopped by an operator")


# Who may see it -------------------------------------------------------------------------------------------------------


def test_users_explain_placements_for_themselves_and_administrators_for_all(trial: Trial) -> None:
    assert answer(trial, ADMINISTRATOR, user="eve", groups="ops").status == 200
    assert answer(trial, BOB, user="bob", groups="qa").status == 200
    for args in ({"user": "eve", "groups": "dev"}, {"user": "bob", "groups": "ops"}, {"groups": "dev"}):
        refused = answer(trial, BOB, **args)
        assert (refused.status, refused.body.split(b":")[0]) == (
            403,
            b"only administrators may explain placements for others",
        )


@pytest.mark.parametrize("queue", ["root.closed", "root.nosuch", "root.gone", "root.closed.x"])
def test_whether_a_hidden_queue_exists_is_not_revealed(trial: Trial, queue: str) -> None:
    found = shown(trial, BOB, user="bob", groups="dev", queue=queue)
    provided = rules(found)[2]
    assert provided["checks"] == [
        {"code": "rule-no-value", "passed": True, "text": f"The queue of the submission is {queue}"},
        {
            "code": "queue-hidden",
            "passed": False,
            "text": "The queue does not exist, or does not take applications of user bob",
        },
    ]
    assert (provided["outcome"], "queue" in provided) == ("no-match", False)


def test_a_user_sees_the_checks_of_the_queue_that_is_chosen(trial: Trial) -> None:
    found = shown(trial, BOB, user="bob", groups="dev", queue="root.open")
    assert texts(rules(found)[2])[-1] == "+ The submitacl of root.open lets group dev submit"


def test_tags_that_are_no_object_with_texts_are_refused(trial: Trial) -> None:
    for tags in ("[]", '{"a": 1}', "{"):
        assert answer(trial, user="bob", tags=tags).status == 400
