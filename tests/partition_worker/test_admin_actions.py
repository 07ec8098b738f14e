"""What administrators are answered, through the worker: after the RM has heard what became of the application."""

import json

import pytest
from msgspec.structs import replace

from tests.builders import apps, asks, nodes
from tests.machines import PARTITION, said
from tests.partition_worker.bench import APP, EPOCH, NODES, NOW, Bench, ask, placed
from tests.trial import Trial
from yunishard.common.messages.control_messages import Repeat
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.query_messages import (
    STEPS_MAX,
    Actor,
    Answer,
    ChangeNode,
    ChangeQueue,
    KillApplication,
    MoveApplication,
    Schedule,
)
from yunishard.common.messages.rm_messages import (
    PREEMPTED_BY_SCHEDULER,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    AllocationResponse,
    ApplicationRequest,
    ApplicationResponse,
    EventResponse,
    UserGroupInformation,
)
from yunishard.common.messages.session import WINDOW_MESSAGES
from yunishard.common.messages.wire import Outgoing
from yunishard.common.rest.records import DecisionView
from yunishard.partition_worker import rm_channel
from yunishard.partition_worker.admin_actions import _describe
from yunishard.partition_worker.engine.effects import Effect
from yunishard.partition_worker.engine.state import Preempt
from yunishard.partition_worker.worker import BUDGET_DECISIONS

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
    answer = json.loads(told.body)
    assert answer.pop("outcome") == "a in partition default is failed"
    assert (told.status, answer) == (200, {"applicationID": "a", "partition": "default", "state": "Failed"})
    assert (sends[-1].header.kind, sends[-1].header.ref, sends[-1].header.epoch) == ("Answer", "ws 1", EPOCH)
    assert sends[-1].header.partition == PARTITION
    assert "Application a killed by op" in bench.worker.host.announcements
    bench.check()


def test_a_move_is_answered_with_the_queue_after_the_rm_has_heard_of_it(bench: Bench) -> None:
    events, told = said(bench.hear(MoveApplication(application_id="a", queue="ROOT.Other", actor=OP)))
    assert isinstance(events, EventResponse)
    assert isinstance(told, Answer)
    assert [(one.object_id, one.reference_id) for one in events.events] == [("a", "root.other")]
    answer = json.loads(told.body)
    assert answer.pop("outcome") == "a in partition default is in root.other"
    assert (told.status, answer) == (200, {"applicationID": "a", "partition": "default", "queue": "root.other"})
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
    monkeypatch.setattr(rm_channel, "BACKLOG_MAX_MESSAGES", 6)
    while len(bench.hear(Repeat())) < 1 + 6:
        bench.hear(there)
        bench.hear(back)
    for message in (there, back, KillApplication(application_id="a", actor=OP)):
        status, reason = answer(bench, message)
        assert (status, "messages to acknowledge" in reason) == (503, True)
    bench.check()


@pytest.fixture
def manual() -> Bench:
    """A worker that decides only when asked to; application `a` asks for a1, a2 and a3, for which there is room."""
    one = Bench(manual=True)
    one.furnish()
    one.tell(ask("a1", "a2", "a3"))
    return one


def steps(manual: Bench, count: int) -> tuple[dict[str, object], list[Outgoing]]:
    """What is answered, and what is sent before."""
    *sends, last = manual.hear(Schedule(steps=count), ref="ws 1")
    (told,) = said([last])
    assert isinstance(told, Answer)
    assert (told.status, last.header.ref, last.header.epoch) == (200, "ws 1", EPOCH)
    document = json.loads(told.body)
    assert isinstance(document, dict)
    return document, sends


def refusal(manual: Bench) -> tuple[int, str]:
    (sent,) = manual.hear(Schedule(steps=1))
    (told,) = said([sent])
    assert isinstance(told, Answer)
    return told.status, told.body.decode()


def test_what_is_decided_is_timed(manual: Bench) -> None:
    seconds = iter((10.0, 12.5))
    manual.worker.timer = lambda: next(seconds)
    steps(manual, 2)
    assert (sum(manual.worker.cycles.counts), manual.worker.cycles.sum_s) == (1, 2.5)


def test_nothing_is_decided_unless_somebody_asks(manual: Bench) -> None:
    assert manual.worker.tick(NOW) == []
    assert manual.worker.deadline > NOW


def test_so_many_decisions_are_made_as_were_asked_for_and_told_one_by_one(manual: Bench) -> None:
    document, sends = steps(manual, 2)
    assert placed(sends) == ["a1", "a2"]
    assert document == {
        "partition": "default",
        "made": 2,
        "idle": False,
        "decisions": [
            {"kind": "allocate", "applicationID": "a", "allocationKey": key, "nodeID": "n1"} for key in ("a1", "a2")
        ],
    }
    manual.check()


def test_the_rm_hears_of_each_step_by_itself(manual: Bench) -> None:
    _, sends = steps(manual, 2)
    causes = [one.cause for one in said(sends) if isinstance(one, AllocationResponse)]
    assert len(set(causes)) == len(causes) == 2


def test_steps_that_are_asked_for_together_go_as_those_of_a_worker_that_decides_by_itself() -> None:
    one = Trial("root.a application.sort.policy=fair allocation.batch=2").takes(nodes("n1 memory=9"))
    one.takes(apps("app-1 root.a", "app-2 root.a"))
    one.takes(
        asks(*(f"{app} {key}{number} memory=1" for number in "123" for app, key in (("app-1", "a"), ("app-2", "b"))))
    )
    made = one.partition.schedule_each(one.now, 5)
    assert [decision.ask.key for decision, _ in made] == ["a1", "a2", "b1", "b2", "a3"]


def test_fewer_are_made_when_nothing_is_left_and_that_is_said(manual: Bench) -> None:
    document, sends = steps(manual, STEPS_MAX)
    assert (document["made"], document["idle"], placed(sends)) == (3, True, ["a1", "a2", "a3"])
    document, sends = steps(manual, 1)
    assert (document["made"], document["idle"], document["decisions"], sends) == (0, True, [], [])


def test_timers_go_off_by_the_clock_all_the_same(manual: Bench) -> None:
    steps(manual, 3)
    releases = [AllocationRelease(application_id="a", allocation_key=key) for key in ("a1", "a2", "a3")]
    manual.tell(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=releases)))
    assert NOW < manual.worker.deadline <= NOW + 30
    (told,) = said(manual.worker.tick(NOW + 30))
    assert isinstance(told, ApplicationResponse)
    assert [one.state for one in told.updated] == ["Completed"]


def test_a_partition_that_decides_by_itself_says_so() -> None:
    one = Bench()
    one.furnish()
    one.tell(ask("a1"))
    status, reason = refusal(one)
    assert (status, "partition default schedules automatically" in reason) == (409, True)
    assert placed(one.schedule()) == ["a1"]


def test_a_partition_that_is_starting_refuses_steps() -> None:
    assert refusal(Bench(running=False, manual=True)) == (503, "the partition is starting")


def test_an_rm_that_acknowledges_nothing_is_told_of_no_further_steps(manual: Bench) -> None:
    for number in range(WINDOW_MESSAGES):
        manual.tell(ask(f"b{number}"))
    while refusal_or_made(manual) == 200:
        pass
    status, reason = refusal(manual)
    assert (status, "messages to acknowledge" in reason) == (503, True)
    manual.check()


def refusal_or_made(manual: Bench) -> int:
    told = said(manual.hear(Schedule(steps=BUDGET_DECISIONS)))[-1]
    assert isinstance(told, Answer)
    return told.status


# What a step is called ------------------------------------------------------------------------------------------------


def test_a_node_that_is_kept_for_an_ask_is_a_step_of_which_the_rm_hears_nothing() -> None:
    one = Trial().takes(nodes("n1 memory=4", "n2 memory=2"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=3", "app-1 a2 memory=3"))
    one.partition.step(one.now + 3, 0)
    ((decision, effects),) = one.partition.schedule_each(one.now + 3, 1)
    assert _describe(decision, effects) == DecisionView(
        kind="reserve", application_id="app-1", allocation_key="a2", node_id="n1"
    )


def test_what_the_rm_is_asked_to_let_go_for_it_is_told_with_a_step() -> None:
    one = Trial().does(nodes("n1 memory=4"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    application, node = one.app("app-1"), one.node("n1")
    victim = application.allocations["a1"]
    decision = Preempt(application, victim, node, (victim,))
    effects = [Effect(1, victim.release("rm-1_default", "for another one", PREEMPTED_BY_SCHEDULER))]
    assert _describe(decision, effects) == DecisionView(
        kind="preempt", application_id="app-1", allocation_key="a1", node_id="n1", releases=["a1"]
    )


# Marks of operators ---------------------------------------------------------------------------------------------------


def test_the_marks_of_operators_outlast_the_session_of_the_rm(bench: Bench) -> None:
    assert answer_of(bench, ChangeQueue(queue="root.other", action="stop", actor=OP)) == 200
    assert answer_of(bench, ChangeNode(node_id="n1", action="cordon", actor=OP)) == 200
    bench.configure(TWO_QUEUES, rollout=2, session="another")
    partition = bench.worker.partition
    assert partition is not None
    assert len(partition.nodes) == 0, "the new session starts empty"
    queue = partition.tree.find("root.other")
    assert queue is not None
    assert (queue.status, list(partition.nodes.cordons)) == ("Stopped", ["n1"])


def test_a_queue_that_its_administrator_may_not_see_does_not_exist(bench: Bench) -> None:
    ann = Actor(user="ann")
    hidden = ChangeQueue(queue="root.nosuch", action="stop", actor=ann, seen_only=True)
    assert answer_of(bench, hidden) == 404
    assert answer_of(bench, ChangeQueue(queue="root.batch", action="stop", actor=ann, seen_only=True)) == 403
    assert answer_of(bench, ChangeQueue(queue="root.other", action="stop", actor=ann, seen_only=True)) == 200


def answer_of(bench: Bench, message: Message) -> int:
    """The status of the answer."""
    [told] = [one for one in said(bench.hear(message, ref="ws 1")) if isinstance(one, Answer)]
    return told.status
