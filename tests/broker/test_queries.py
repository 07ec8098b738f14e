"""Queries: forwarding to workers, and configurations."""

import json

import msgspec
import pytest

from tests.broker.bench import GPU, KEEPER, PROXY, WEB, BrokerBench, answers, kinds, registered
from tests.machines import ONE_QUEUE, PARTITION, RM, arrives, sent, two_partitions
from yunishard.broker import queries
from yunishard.broker.queries import PendingQueries
from yunishard.common.config.model import compute_checksum
from yunishard.common.config.validation import DEFAULT_TEXT
from yunishard.common.messages.query_messages import Answer, Query, ReadConfig
from yunishard.common.messages.rm_messages import Leave
from yunishard.common.names import RECORD


def forward(asked: PendingQueries, bench: BrokerBench, ref: str, *, partition: str = PARTITION) -> None:
    query = arrives(WEB, Query(what="queues"), rm="", session="", partition=partition, ref=ref)
    assert len(asked.forward(bench.broker.registry, query)) == 1


def test_whoever_still_waits_is_told_that_the_worker_began_anew() -> None:
    bench = registered(two_partitions())
    asked = PendingQueries()
    for ref in ("1", "2", "3"):
        forward(asked, bench, ref)
    forward(asked, bench, "4", partition=GPU)
    asked.remove_query(PARTITION, "webservice", "2")
    lost = asked.fail_partition(PARTITION)
    assert [(one.to, one.header.kind, one.header.ref) for one in lost] == [
        ("webservice", "Answer", "1"),
        ("webservice", "Answer", "3"),
    ]
    assert b"ask again" in lost[0].body
    assert asked.fail_partition(PARTITION) == []


def test_an_answer_to_a_question_that_nobody_asked_is_no_matter() -> None:
    asked = PendingQueries()
    asked.remove_query(PARTITION, "webservice", "1")
    assert asked.fail_partition(PARTITION) == []


def test_only_so_many_are_remembered() -> None:
    bench, asked = registered(), PendingQueries()
    for number in range(queries.PENDING_MAX + 2):
        forward(asked, bench, str(number))
    lost = asked.fail_partition(PARTITION)
    assert len(lost) == queries.PENDING_MAX
    assert lost[0].header.ref == "2"


def test_who_asked_a_partition_that_ends_is_answered() -> None:
    bench = registered()
    bench.hear(WEB, Query(what="queues"), rm="", session="", partition=PARTITION, ref="1")
    assert sorted(kinds(bench.hear(PROXY, Leave()))) == sorted(
        [(PROXY, "Left"), (WEB, "Answer"), (PARTITION, "PartitionRemoved"), (KEEPER, "WorkersWanted")]
    )


TWO = two_partitions()
NOT_REGISTERED = [(404, "RM rm-9 is not registered")]


def asked(bench: BrokerBench, what: str, *, rm: str = RM, version: int = 0) -> list[tuple[int, str]]:
    sends = bench.hear(WEB, ReadConfig(what=what, version=version), rm=rm, session="", ref="web 1")
    assert [(one.to, one.header.ref) for one in sends] == [(WEB, "web 1")]
    return answers(sends)


def test_what_is_in_force_is_told_as_it_was_written_with_the_settings() -> None:
    bench = registered()
    bench.update(ONE_QUEUE, a="1")
    [(status, body)] = asked(bench, "current")
    assert status == 200
    told = {"checksum": compute_checksum(ONE_QUEUE), "config": ONE_QUEUE, "extra": {"a": "1"}}
    assert msgspec.json.decode(body) == told


def test_the_history_begins_with_the_latest_which_is_the_one_in_force() -> None:
    bench = registered()
    bench.agree([*bench.change(TWO), *bench.hello("rm-1_gpu")])
    [(status, body)] = asked(bench, "history")
    assert status == 200
    assert [(one["version"], one["author"], one["origin"], one["current"]) for one in msgspec.json.decode(body)] == [
        (2, "alice", "api", True),
        (1, "RM rm-1", "registration", False),
    ]
    assert msgspec.json.decode(body)[0]["checksum"] == compute_checksum(TWO)


def test_what_is_under_way_is_not_history_yet() -> None:
    bench = registered()
    bench.change(TWO)
    [(_, body)] = asked(bench, "history")
    assert [one["version"] for one in msgspec.json.decode(body)] == [1]


def test_an_rm_that_is_away_has_a_history_and_nothing_in_force() -> None:
    bench = BrokerBench(versions=registered().broker.state.versions)
    [(status, body)] = asked(bench, "history")
    assert (status, msgspec.json.decode(body)[0]["current"]) == (200, False)
    assert asked(bench, "current") == [(404, "RM rm-1 is not registered")]


@pytest.mark.parametrize("what", ["current", "history"])
def test_an_rm_that_is_unknown_has_neither(what: str) -> None:
    assert asked(registered(), what, rm="rm-9") == NOT_REGISTERED


def test_an_earlier_text_is_asked_of_the_record_and_its_answer_finds_back() -> None:
    bench = registered()
    question = ReadConfig(what="version", version=1)
    [passed] = bench.broker.handle(arrives(WEB, question, session="", ref="web 1"), bench.now)
    assert passed == sent(RECORD, question, session="", ref="webservice web 1")
    answer = Answer(status=200, body=b"{}")
    assert bench.hear(RECORD, answer, rm="", session="", ref=passed.header.ref) == [
        sent(WEB, answer, rm="", session="", ref="web 1")
    ]


@pytest.mark.parametrize(("config", "watched"), [(ONE_QUEUE, "/etc/queues.yaml"), ("", "")])
def test_what_an_rm_gets_that_sends_nothing_can_be_read_before_there_is_one(config: str, watched: str) -> None:
    bench = BrokerBench(default_config=config, watched=watched)
    [(status, text)] = asked(bench, "default")
    expected = config or DEFAULT_TEXT
    document = {"checksum": compute_checksum(expected), "config": expected, "extra": {}}
    assert (status, json.loads(text)) == (200, document)


def test_another_question_is_refused() -> None:
    text = "unknown question 'weather', expected current, default, history or version"
    assert asked(registered(), "weather") == [(400, text)]
