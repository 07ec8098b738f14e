"""What administrators are answered, through the worker: after the RM has heard what became of the application."""

import json

import pytest
from msgspec.structs import replace

from common.control_messages import Repeat
from common.messages import Message
from common.query_messages import Actor, Answer, KillApplication, MoveApplication
from common.rm_messages import (
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    EventResponse,
    UserGroupInformation,
)
from partition_worker import lane
from tests.machines import PARTITION, said
from tests.partition_worker.bench import APP, EPOCH, NODES, Bench, ask

OP = Actor(user="op", scheduler_admin=True)
TWO_QUEUES = """
partitions:
  - name: default
    queues:
      - name: root
        submitacl: "*"
        queues: [{name: batch}, {name: other, adminacl: ann}, {name: p, parent: true}]
"""


@pytest.fixture
def bench() -> Bench:
    """Application `a` in root.batch, which runs `k`."""
    one = Bench(running=False)
    one.configure(TWO_QUEUES)
    one.tell(NODES)
    one.tell(APP)
    one.tell(ask("k"))
    one.schedule()
    return one


def answer(bench: Bench, message: Message) -> tuple[int, str]:
    """Status and body; nothing else is sent."""
    (sent,) = bench.hear(message, ref="ws 1")
    (told,) = said([sent])
    assert isinstance(told, Answer)
    return told.status, told.body.decode()


def test_a_kill_is_answered_with_the_state_after_the_rm_has_heard_of_it(bench: Bench) -> None:
    sends = bench.hear(KillApplication(application_id="a", actor=OP), ref="ws 1")
    states, released, told = said(sends)
    assert isinstance(states, ApplicationResponse)
    assert isinstance(released, AllocationResponse)
    assert isinstance(told, Answer)
    assert [one.state for one in states.updated] == ["Failing", "Failed"]
    assert [(one.allocation_key, one.message) for one in released.released] == [("k", "Application a killed by op")]
    assert (told.status, json.loads(told.body)) == (
        200, {"applicationID": "a", "partition": "default", "state": "Failed"},
    )  # fmt: skip
    assert (sends[-1].header.kind, sends[-1].header.ref, sends[-1].header.epoch) == ("Answer", "ws 1", EPOCH)
    assert sends[-1].header.partition == PARTITION
    assert "Application a killed by op" in bench.worker.replica.announcements
    bench.check()


def test_a_move_is_answered_with_the_queue_after_the_rm_has_heard_of_it(bench: Bench) -> None:
    events, told = said(bench.hear(MoveApplication(application_id="a", queue="ROOT.Other", actor=OP)))
    assert isinstance(events, EventResponse)
    assert isinstance(told, Answer)
    assert [(one.object_id, one.reference_id) for one in events.events] == [("a", "root.other")]
    assert (told.status, json.loads(told.body)) == (
        200, {"applicationID": "a", "partition": "default", "queue": "root.other"},
    )  # fmt: skip
    bench.check()


@pytest.mark.parametrize(
    ("message", "status", "words"),
    [
        (KillApplication(application_id="x", actor=OP), 404, "application x does not exist"),
        (KillApplication(application_id="a", actor=Actor(user="ann")), 403, "does not administer queue root.batch"),
        (MoveApplication(application_id="a", queue="", actor=OP), 400, "no queue"),
        (MoveApplication(application_id="a", queue="root.x", actor=OP), 404, "queue root.x does not exist"),
        (MoveApplication(application_id="a", queue="root.p", actor=OP), 400, "not a leaf"),
        (MoveApplication(application_id="a", queue="root.batch", actor=OP), 409, "already in queue"),
        (MoveApplication(application_id="a", queue="root.other", actor=Actor(user="ann")), 403, "root.batch"),
    ],
)
def test_what_was_not_done_is_answered_with_the_reason_and_the_rm_hears_nothing(
    bench: Bench, message: Message, status: int, words: str
) -> None:
    given, reason = answer(bench, message)
    assert given == status
    assert words in reason
    bench.check()


@pytest.mark.parametrize("seen_only", [False, True])
def test_an_unknown_application_is_refused_under_the_name_that_the_partition_is_shown_by(
    bench: Bench, seen_only: bool
) -> None:
    for message in (
        KillApplication(application_id="x", actor=OP, seen_only=seen_only, name="shown"),
        MoveApplication(application_id="x", queue="root.other", actor=OP, seen_only=seen_only, name="shown"),
    ):
        assert answer(bench, message) == (404, "application x does not exist in partition shown, or has ended")


def kill(application_id: str) -> KillApplication:
    """By somebody who administers another queue, and sees what is theirs only."""
    return KillApplication(application_id=application_id, actor=Actor(user="ann"), seen_only=True)


def move(application_id: str, queue: str) -> MoveApplication:
    return MoveApplication(application_id=application_id, queue=queue, actor=Actor(user="ann"), seen_only=True)


@pytest.mark.parametrize(
    ("hidden", "missing"),
    [(kill("a"), kill("x")), (move("a", "root.nosuch"), move("x", "root.nosuch"))],
    ids=["kill", "move"],
)
def test_an_application_that_may_not_be_seen_is_not_there(bench: Bench, hidden: Message, missing: Message) -> None:
    status, reason = answer(bench, hidden)
    assert (status, reason.replace("application a", "application x")) == answer(bench, missing)
    assert status == 404
    bench.check()


def test_a_queue_that_may_not_be_seen_is_not_there_to_move_to() -> None:
    one = Bench(running=False)
    one.configure(TWO_QUEUES.replace('submitacl: "*"', "submitacl: bob"))
    one.tell(NODES)
    (app,) = APP.new
    one.tell(ApplicationRequest(new=[replace(app, queue_name="root.other", ugi=UserGroupInformation(user="bob"))]))
    assert answer(one, move("a", "root.batch")) == (404, "queue root.batch does not exist")
    assert answer(one, move("a", "root.x")) == (404, "queue root.x does not exist")
    seen = MoveApplication(application_id="a", queue="root.batch", actor=Actor(user="ann"))
    assert answer(one, seen)[0] == 403


def test_a_partition_that_is_starting_says_so() -> None:
    for message in (
        KillApplication(application_id="a", actor=OP),
        MoveApplication(application_id="a", queue="q", actor=OP),
    ):
        assert answer(Bench(running=False), message) == (503, "the partition is starting")


def test_after_a_kill_there_is_something_to_decide(bench: Bench) -> None:
    bench.hear(KillApplication(application_id="a", actor=OP))
    assert bench.worker.deadline == 0.0


def test_an_rm_that_acknowledges_nothing_is_not_told_more_and_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, back = (MoveApplication(application_id="a", queue=f"root.{name}", actor=OP) for name in ("other", "batch"))
    monkeypatch.setattr(lane, "BACKLOG_MAX_MESSAGES", 6)
    while len(bench.hear(Repeat())) < 1 + 6:
        bench.hear(there)
        bench.hear(back)
    for message in (there, back, KillApplication(application_id="a", actor=OP)):
        status, reason = answer(bench, message)
        assert (status, "messages to acknowledge" in reason) == (503, True)
    bench.check()
