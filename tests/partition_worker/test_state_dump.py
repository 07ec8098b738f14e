"""What the RM itself knows: when it is asked, and what whoever asked is told."""

import json

import pytest

from tests.machines import PARTITION, SESSION, arrives, config_of, said
from tests.partition_worker.bench import EPOCH, NOW, Bench
from yunishard.common.messages.control_messages import CommitConfig, Pause, PrepareConfig, Settings
from yunishard.common.messages.journal_messages import Kept, NotKept
from yunishard.common.messages.kinds import Message
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.rm_messages import (
    STATE_DUMP,
    STATE_DUMP_BYTES_MAX,
    Refused,
    StateDumpAnswered,
    StateDumpAsked,
)
from yunishard.common.messages.wire import NEVER, Incoming, Outgoing
from yunishard.common.names import BROKER, JOURNAL
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.queries import STATE_DUMP_MAX_S, STATE_DUMPS_MAX
from yunishard.partition_worker.worker import Worker

ASKED = StateDumpAsked(question=1, deadline_milli_seconds=2000)
TEXT = '{"pods": 12, "watching": {"since": [1, 2]}}'


def able(*capabilities: str) -> Bench:
    bench = Bench()
    bench.hear(Settings(values={}, capabilities=list(capabilities or [STATE_DUMP])))
    return bench


def ask(bench: Bench, ref: str = "r") -> list[Outgoing]:
    return bench.hear(Query(what="rm-state", name="default"), ref=ref)


def found(sends: list[Outgoing], ref: str = "r") -> object:
    """The document in the one answer."""
    [one] = sends
    assert (one.to, one.header.kind, one.header.ref, one.header.epoch) == (BROKER, "Answer", ref, EPOCH)
    [answer] = said(sends)
    assert isinstance(answer, Answer)
    assert answer.status == 200
    return json.loads(answer.body)


def test_the_rm_is_asked_and_its_answer_goes_to_who_wants_to_know() -> None:
    bench = able()
    [question] = ask(bench)
    assert said([question]) == [ASKED]
    assert (question.header.seq, question.header.session, question.header.partition) == (0, SESSION, PARTITION)
    assert found(bench.hear(StateDumpAnswered(question=1, text=TEXT))) == json.loads(TEXT)
    assert bench.worker.deadline == NEVER


def test_an_rm_without_the_capability_is_not_asked() -> None:
    assert found(ask(able("predicates"))) == {"empty": "Resource Manager did not register callback"}


def test_an_rm_that_is_away_is_not_asked() -> None:
    bench = able()
    bench.hear(Pause())
    assert found(ask(bench)) == {"Error": "the resource manager is away"}


@pytest.mark.parametrize(
    ("answered", "problem"),
    [
        (StateDumpAnswered(question=1, problem="there is no memory left"), "there is no memory left"),
        (StateDumpAnswered(question=1, text="[]"), "is no JSON object: Expected `object`, got `array`"),
        (StateDumpAnswered(question=1, text="{"), "is no JSON object: Input data was truncated"),
        (StateDumpAnswered(question=1, text=""), "is no JSON object: Input data was truncated"),
        (StateDumpAnswered(question=1, text='{"a":' * 100_000), "is no JSON object"),
        (
            StateDumpAnswered(question=1, text=json.dumps({"a": "x" * STATE_DUMP_BYTES_MAX})),
            f"has {STATE_DUMP_BYTES_MAX + 9} bytes, at most {STATE_DUMP_BYTES_MAX} are taken",
        ),
    ],
)
def test_an_answer_that_is_none_is_an_error(answered: StateDumpAnswered, problem: str) -> None:
    bench = able()
    ask(bench)
    document = found(bench.hear(answered))
    assert isinstance(document, dict)
    assert list(document) == ["Error"]
    assert problem in document["Error"]


def test_the_largest_answer_is_taken() -> None:
    bench = able()
    ask(bench)
    text = json.dumps({"a": "x" * (STATE_DUMP_BYTES_MAX - 9)})
    assert len(text) == STATE_DUMP_BYTES_MAX
    assert found(bench.hear(StateDumpAnswered(question=1, text=text))) == json.loads(text)


def test_who_waits_for_too_long_is_told_so_and_a_late_answer_means_nothing() -> None:
    bench = able()
    ask(bench)
    assert bench.worker.deadline == NOW + STATE_DUMP_MAX_S
    assert bench.worker.tick(NOW + STATE_DUMP_MAX_S - 0.1) == []
    sends = bench.worker.tick(NOW + STATE_DUMP_MAX_S)
    assert found(sends) == {"Error": "the resource manager did not answer within 2 s"}
    assert bench.worker.deadline == NEVER
    assert bench.hear(StateDumpAnswered(question=1, text=TEXT)) == []


def test_each_who_asks_gets_the_answer_to_their_own_question() -> None:
    bench = able()
    assert [said(ask(bench, ref)) for ref in ("a", "b")] == [
        [StateDumpAsked(question=number, deadline_milli_seconds=2000)] for number in (1, 2)
    ]
    assert found(bench.hear(StateDumpAnswered(question=2, text='{"n":2}')), "b") == {"n": 2}
    assert found(bench.hear(StateDumpAnswered(question=1, text='{"n":1}')), "a") == {"n": 1}


def test_so_many_wait_and_no_more() -> None:
    bench = able()
    for number in range(STATE_DUMPS_MAX):
        assert isinstance(said(ask(bench, str(number)))[0], StateDumpAsked)
    assert found(ask(bench)) == {"Error": "8 others wait for the resource manager's answer already"}
    bench.hear(StateDumpAnswered(question=1, text="{}"))
    assert isinstance(said(ask(bench))[0], StateDumpAsked)


def test_an_answer_of_another_session_or_life_means_nothing() -> None:
    bench = able()
    ask(bench)
    answered = StateDumpAnswered(question=1, text=TEXT)
    assert bench.hear(answered, session="session-0") == []
    assert bench.hear(answered, life=1) == []
    assert found(bench.hear(answered)) == json.loads(TEXT)


def test_an_answer_acknowledges_what_its_header_says() -> None:
    bench = able()
    bench.furnish()
    ask(bench)
    bench.hear(StateDumpAnswered(question=1, text="{}"), ack=len(bench.worker.host.channel.outbox))
    assert len(bench.worker.host.channel.outbox) == 0


def test_a_malformed_answer_is_refused_and_the_question_waits_on() -> None:
    bench = able()
    ask(bench)
    incoming = arrives(BROKER, StateDumpAnswered(question=1), partition=PARTITION)
    [refused] = said(bench.worker.handle(Incoming(BROKER, incoming.header, b"\x93"), NOW))
    assert isinstance(refused, Refused)
    assert refused.code == "malformed"
    assert found(bench.hear(StateDumpAnswered(question=1, text="{}"))) == {}


def test_a_worker_that_runs_nothing_says_that_its_partition_is_starting() -> None:
    bench = Bench(running=False)
    assert said(ask(bench)) == [Answer(status=503, body=b"the partition is starting")]
    assert bench.hear(StateDumpAnswered(question=1, text="{}")) == []


# With a journal -----------------------------------------------------------------------------------------------------


def journalled() -> Bench:
    """All that has happened is durable."""
    bench = Bench(running=False)
    bench.worker = Worker(PartitionHost(partition=PARTITION, epoch=EPOCH), journalled=True)
    for message in (PrepareConfig(rollout=1, config=config_of()), CommitConfig(rollout=1)):
        bench.hear(message, session=SESSION)
    bench.hear(Settings(values={}, capabilities=[STATE_DUMP]))
    assert bench.worker.barrier is not None
    bench.worker.barrier.flush()
    written(bench, Kept(number=last(bench)))
    return bench


def last(bench: Bench) -> int:
    assert bench.worker.barrier is not None
    return bench.worker.barrier.last


def written(bench: Bench, message: Message) -> list[Outgoing]:
    return bench.worker.handle(arrives(JOURNAL, message), NOW)


def test_it_is_no_step_of_the_journal() -> None:
    bench = journalled()
    before = last(bench)
    assert said(ask(bench)) == [ASKED]
    assert found(bench.hear(StateDumpAnswered(question=1, text="{}"))) == {}
    ask(bench)
    bench.worker.tick(NOW + STATE_DUMP_MAX_S)
    assert last(bench) == before


def test_a_question_that_acknowledges_what_is_not_durable_waits_for_it() -> None:
    bench = journalled()
    bench.furnish()
    assert all(one.to == JOURNAL for one in ask(bench))
    assert ASKED in said(written(bench, Kept(number=last(bench))))


def test_while_nothing_becomes_durable_the_rm_is_not_asked_and_who_asked_before_is_told() -> None:
    bench = journalled()
    bench.furnish()
    ask(bench, "before")
    written(bench, NotKept(problem="the disk is full"))
    told = "the resource manager is not asked while nothing becomes durable: the disk is full"
    assert found(ask(bench)) == {"Error": told}
    answers = [one for one in bench.worker.tick(NOW + STATE_DUMP_MAX_S) if one.to == BROKER]
    assert found(answers, "before") == {"Error": "the resource manager did not answer within 2 s"}
