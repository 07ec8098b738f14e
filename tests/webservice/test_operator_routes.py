"""Changes of operators to queues and nodes over REST: messages to the worker, and every answer."""

import pytest

from tests.machines import said
from tests.partition_worker.bench import Bench
from tests.partition_worker.test_admin_actions import TWO_QUEUES
from tests.webservice.fakes import ADMIN, ALICE, FakeLink, loopback_users, partition, request
from yunishard.common.messages.query_messages import (
    Answer,
    ChangeNode,
    ChangeQueue,
    EndSession,
    NodeAction,
    QueueAction,
)
from yunishard.webservice.broker_client import Change

QUEUE = "/ws/v1/partition/default/queue"
NODE = "/ws/v1/partition/default/node"


@pytest.mark.parametrize(
    ("action", "query", "reason"), [("stop", "?reason=new%20disks", "new disks"), ("start", "", "")]
)
def test_a_queue_is_changed_by_who_asks(action: QueueAction, query: str, reason: str) -> None:
    asked = FakeLink(partition())
    assert request(asked, f"{QUEUE}/ROOT.a/{action}{query}", "POST").status_code == 200
    wanted = ChangeQueue(queue="root.a", action=action, actor=ALICE, reason=reason, name="default")
    assert asked.changes == [("rm-1_default", wanted)]


@pytest.mark.parametrize("action", ["cordon", "uncordon", "drain"])
def test_a_node_is_changed_by_scheduler_administrators_only(action: NodeAction) -> None:
    asked = FakeLink(partition())
    assert request(asked, f"{NODE}/n%201/{action}?reason=why", "POST").status_code == 403
    assert asked.changes == []
    assert request(asked, f"{NODE}/n%201/{action}?reason=why", "POST", who=loopback_users(0)).status_code == 200
    wanted = ChangeNode(node_id="n 1", action=action, actor=ADMIN, reason="why", name="default")
    assert asked.changes == [("rm-1_default", wanted)]


@pytest.mark.parametrize("path", [f"{QUEUE}/root..a/stop", f"{QUEUE}/root.a%20b/start"])
def test_a_text_that_names_no_queue_is_not_sent(path: str) -> None:
    asked = FakeLink(partition())
    assert request(asked, path, "POST").status_code == 400
    assert asked.changes == []


def worker() -> FakeLink:
    """The link to a worker with the queues of TWO_QUEUES and a node."""
    bench = Bench(running=False)
    bench.configure(TWO_QUEUES)
    bench.furnish()

    def changer(wanted: Change) -> Answer:
        (answered,) = [one for one in said(bench.hear(wanted)) if isinstance(one, Answer)]
        return answered

    return FakeLink(partition(), changer=changer)


def test_the_answer_is_the_state_of_the_queue() -> None:
    link = worker()
    stopped = request(link, f"{QUEUE}/root/stop?reason=why", "POST", who=loopback_users(0)).json()
    assert stopped.pop("stopped").keys() == {"user", "time", "reason"}
    assert stopped == {
        "queue": "root",
        "partition": "default",
        "state": "Stopped",
        "outcome": "root in partition default is stopped",
    }
    started = request(link, f"{QUEUE}/root.batch/start", "POST", who=loopback_users(0)).json()
    assert started.pop("outcome") == "root.batch in partition default is active; it gets nothing before root is started"
    assert started == {"queue": "root.batch", "partition": "default", "state": "Active", "stoppedAbove": "root"}


def test_the_answer_is_the_state_of_the_node() -> None:
    link = worker()
    drained = request(link, f"{NODE}/n1/drain?reason=why", "POST", who=loopback_users(0)).json()
    assert drained.pop("cordoned")["reason"] == "why"
    assert drained.pop("leaving", 0) >= 0
    assert drained.pop("outcome").startswith("n1 in partition default is cordoned: ")
    assert drained == {"nodeID": "n1", "partition": "default", "state": "cordoned"}
    opened = request(link, f"{NODE}/n1/uncordon", "POST", who=loopback_users(0)).json()
    assert opened["state"] == "schedulable"


@pytest.mark.parametrize("path", [f"{QUEUE}/root.nosuch/stop", f"{NODE}/nosuch/cordon"])
def test_a_refusal_of_the_worker_is_passed_on(path: str) -> None:
    response = request(worker(), path, "POST", who=loopback_users(0))
    assert response.status_code == 404
    assert "nosuch does not exist" in response.json()["message"]


@pytest.mark.parametrize(("query", "force"), [("", False), ("?force=true", True), ("?force=false", False)])
def test_the_session_of_a_manager_is_ended_by_scheduler_administrators(query: str, force: bool) -> None:
    asked = FakeLink(partition())
    assert request(asked, f"/ws/v1/rm/rm-1/end{query}", "POST").status_code == 403
    assert asked.changes == []
    response = request(asked, f"/ws/v1/rm/rm-1/end{query}", "POST", who=loopback_users(0))
    assert (response.status_code, response.json()) == (200, {"rm": "rm-1", "partitions": ["rm-1_default"]})
    assert asked.changes == [("rm-1", EndSession(actor=ADMIN, force=force))]


@pytest.mark.parametrize(("path", "status"), [("a%20b/end", 404), ("rm-1/end?force=maybe", 400)])
def test_a_request_that_ends_no_manager_is_not_sent(path: str, status: int) -> None:
    asked = FakeLink(partition())
    assert request(asked, f"/ws/v1/rm/{path}", "POST", who=loopback_users(0)).status_code == status
    assert asked.changes == []
