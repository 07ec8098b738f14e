import json
from typing import Any

from tests.builders import apps, asks, nodes
from tests.trial import Trial
from yunishard.common.messages.query_messages import Actor, Query
from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.explanations import answer_explanation

BOB = Actor(user="bob")
EVE = Actor(user="eve")


def busy() -> Trial:
    """Bob's application waits behind one of Eve, for a queue whose parent is full."""
    trial = Trial(
        "root submitacl=nobody; root.p max=memory:8; root.p.a submitacl=*; root.b adminacl=eve limit.user.*=apps:9"
    )
    trial.does(nodes("n1 memory=20"))
    trial.does(apps("app-1 root.p.a user=eve", "app-2 root.p.a user=eve", "app-3 root.p.a user=bob"))
    trial.does(asks("app-1 a1 memory=7"), asks("app-2 b1 memory=3"), asks("app-3 c1 memory=4"))
    return trial


def asked(trial: Trial, what: str, viewer: Actor | None = None, **args: str) -> tuple[int, Any]:
    query = Query(what=f"explain-{what}", name="default", args=args, viewer=viewer)
    answer = answer_explanation(trial.partition, query, trial.now)
    return answer.status, json.loads(answer.body) if answer.status == 200 else answer.body.decode()


def test_an_explanation_is_a_document_with_the_keys_of_the_api() -> None:
    status, found = asked(busy(), "ask", application="app-3", ask="c1")
    assert status == 200
    assert found["stoppedBy"] == "queue-maximum"
    assert found["summary"].startswith("Waits because root.p may use 8 B at most: 7 B are used, this ask needs 4 B")
    failed = next(one for one in found["checks"] if not one["passed"])
    assert (failed["resource"], failed["used"], failed["maximum"], failed["asked"], failed["shortfall"]) == (
        "memory",
        7,
        8,
        4,
        3,
    )
    assert found["remedies"][0]["text"] == "raise the maximum of root.p by 3 B"
    assert found["ahead"][0]["application"] == "app-2"


def test_a_user_sees_neither_the_amounts_of_other_queues_nor_the_applications_of_others() -> None:
    status, found = asked(busy(), "ask", BOB, application="app-3", ask="c1")
    assert status == 200
    text = json.dumps(found)
    assert "app-1" not in text
    assert "app-2" not in text
    assert "eve" not in text
    failed = next(one for one in found["checks"] if not one["passed"])
    assert (failed["queue"], failed["shortfall"]) == ("root.p", 3)
    assert "used" not in failed
    assert found["summary"].startswith("Waits because root.p: a queue on the path uses as much as its maximum allows.")
    assert [one["text"] for one in found["ahead"]] == ["1 other, which you may not see"]
    everything = asked(busy(), "ask", application="app-3", ask="c1")[1]["remedies"]
    assert [one["code"] for one in everything] == ["raise-queue-maximum", "release-allocation"]
    assert [one["code"] for one in found["remedies"]] == ["raise-queue-maximum"]


def test_the_application_of_another_user_does_not_exist() -> None:
    assert asked(busy(), "ask", BOB, application="app-2", ask="b1") == (404, "Application not found")
    assert asked(busy(), "application", BOB, application="app-2") == (404, "Application not found")
    assert asked(busy(), "application", EVE, application="app-2")[0] == 200


def test_a_queue_without_a_right_is_refused_and_one_that_is_hidden_does_not_exist() -> None:
    assert asked(busy(), "queue", BOB, queue="root.p.a")[0] == 200
    assert asked(busy(), "queue", BOB, queue="root.p")[0] == 403
    assert asked(busy(), "queue", BOB, queue="root.b") == (404, "Queue not found")


def test_the_longest_wait_of_another_user_is_not_shown() -> None:
    _, found = asked(busy(), "queue", BOB, queue="root.p.a")
    text = json.dumps(found)
    assert "b1" not in text
    assert found["reasons"] == {"queue-maximum": 2}


def test_objects_that_do_not_exist_are_named() -> None:
    trial = busy()
    assert asked(trial, "application", application="x") == (404, "Application not found")
    assert asked(trial, "ask", application="app-3", ask="x") == (404, "Ask not found")
    assert asked(trial, "queue", queue="root.x") == (404, "Queue not found")
    assert asked(trial, "node", node="x") == (404, "Node not found")


def test_a_node_is_explained_to_everyone() -> None:
    status, found = asked(busy(), "node", BOB, node="n1")
    assert (status, found["name"]) == (200, "n1")


def test_rejected_and_ended_applications_are_explained() -> None:
    trial = Trial().does(nodes("n1 memory=20"), apps("app-1 root.x"))
    _, found = asked(trial, "application", application="app-1")
    assert (found["state"], found["stoppedBy"]) == ("rejected", "placement-rejected")
    trial.does(apps("app-2 root.a"), asks("app-2 a1 memory=1"))
    trial.kills("app-2")
    _, found = asked(trial, "application", application="app-2")
    assert found["stoppedBy"] == "application-ended"


def test_a_rejection_names_the_check_of_each_placement_rule_that_failed() -> None:
    trial = busy()
    trial.does(apps("app-9 root.nowhere user=bob"))
    _, found = asked(trial, "application", BOB, application="app-9")
    failed = [one["text"] for one in found["checks"]]
    assert failed[1].startswith("rule 1 (provided): ")
    assert failed[1] in found["summary"]
    assert found["summary"].startswith("The application was rejected: no placement rule found a queue for it. It would")
    assert found["summary"].endswith("Submit it again to a queue that exists and takes it.")
    _, found = asked(trial, "application", application="app-9")
    assert "root.nowhere does not exist, and the rule may not create it" in found["summary"]


def test_a_rejection_that_would_not_happen_now_advises_to_submit_again() -> None:
    trial = Trial("root submitacl=*; root.a").does(apps("app-1 root.b"))
    trial.reconfigures("root submitacl=*; root.a; root.b")
    _, found = asked(trial, "application", application="app-1")
    assert found["summary"].endswith("Now it would be placed in root.b: submit it again.")


def test_an_application_that_waits_for_the_groups_of_its_user_is_explained() -> None:
    trial = Trial(resolver="os").takes(apps("app-1 root.a"))
    _, found = asked(trial, "application", application="app-1")
    assert found["summary"] == (
        "Waits because the groups of user bob are being looked up, on which its placement depends."
    )


def test_reasons_of_the_worker_come_first() -> None:
    trial = busy()
    query = Query(what="explain-ask", name="default", args={"application": "app-3", "ask": "c1"})
    found = json.loads(answer_explanation(trial.partition, query, trial.now, [Reason.RM_AWAY]).body)
    assert (found["stoppedBy"], found.get("remedies")) == ("rm-away", None)


def test_a_user_sees_until_when_a_node_is_reserved_but_not_for_whom() -> None:
    trial = Trial("root submitacl=nobody; root.a submitacl=*").does(nodes("n1 memory=10", "n2 memory=10"))
    trial.does(apps("app-1 root.a user=eve", "app-2 root.a user=bob"))
    trial.does(asks("app-1 a1 memory=6 on=n1", "app-1 a2 memory=6 on=n2", "app-1 whole memory=8")).waits(3)
    trial.does(asks("app-1 a3 memory=4"), asks("app-2 b1 memory=3"))
    _, mine = asked(trial, "ask", EVE, application="app-1", ask="whole")
    assert mine["reservations"][0]["ask"] == "whole"
    for found in (asked(trial, "ask", BOB, application="app-2", ask="b1")[1], asked(trial, "node", BOB, node="n1")[1]):
        assert "whole" not in json.dumps(found)
        assert "app-1" not in json.dumps(found)
        hidden = "reserved for an ask that you may not see, for another 1 h 59 min at most"
        assert hidden in found["summary"]
        assert [one.keys() for one in found["reservations"]] == [{"node", "until", "text"}]
        assert found["reservations"][0]["text"] == hidden
    trial.does(asks("app-2 b2 memory=9"))
    near = asked(trial, "ask", BOB, application="app-2", ask="b2")[1]["nearest"]
    assert "it is reserved for an ask that you may not see, for another 1 h 59 min at most, short by 5 B" in [
        one["text"] for one in near
    ]
    everything = asked(trial, "ask", application="app-2", ask="b1")[1]
    assert "n1 would take it, and is reserved for ask whole of app-1" in everything["summary"]
