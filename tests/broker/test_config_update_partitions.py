"""Partitions that come and go with another configuration, and come back."""

import msgspec
import pytest

from tests.broker.bench import (
    GPU,
    PROXY,
    WEB,
    BrokerBench,
    answers,
    is_prepare,
    joined,
    kinds,
    news,
    registered,
    wanted,
)
from tests.machines import ONE_QUEUE, PARTITION, RM, config_of, sent, two_partitions
from yunishard.broker.config_rollout import ROLLOUT_MAX_S
from yunishard.broker.config_updates import RETIRE_MAX_S
from yunishard.broker.state import ECHO_MAX_S
from yunishard.common.config.model import compute_checksum
from yunishard.common.messages.control_messages import (
    CommitConfig,
    Echo,
    Hello,
    PrepareConfig,
    Repeat,
    Retired,
    RetirePartition,
    Settings,
)
from yunishard.common.messages.query_messages import Query
from yunishard.common.messages.rm_messages import (
    Ack,
    ApplicationResponse,
    ConfigurationUpdated,
    NodeRequest,
    Resume,
    ResumeWanted,
)
from yunishard.common.messages.wire import NEVER, decode_body
from yunishard.common.names import lease_name

TWO = two_partitions()
BUSY = "partition rm-1_gpu of an earlier configuration is being taken down, try again when it is gone"
RETIRE = sent(GPU, RetirePartition(), partition=GPU)
NONE = {"rm": "", "session": ""}


def shrunk() -> BrokerBench:
    """A bench in which one of two partitions is being taken down."""
    bench = registered(TWO)
    bench.agree(bench.update(ONE_QUEUE))
    return bench


def question(bench: BrokerBench, partition: str) -> list[tuple[str, str]]:
    return kinds(bench.hear(WEB, Query(what="nodes"), partition=partition, ref="web 3", **NONE))


# Coming -------------------------------------------------------------------------------------------------------------


def test_a_partition_that_comes_gets_a_worker_before_anybody_commits() -> None:
    bench = registered()
    asked, supervisor = bench.update(TWO)
    assert (asked.to, decode_body(PrepareConfig, asked.body).live) == (PARTITION, True)
    assert wanted([supervisor]) == [[PARTITION, GPU]]
    assert bench.vote(asked) == []
    [came] = bench.hello(GPU)
    config = config_of(two_partitions("gpu", "default"))
    assert came == sent(GPU, PrepareConfig(rollout=2, config=config), partition=GPU, life=1)
    assert question(bench, GPU) == [(WEB, "Answer")]
    *commits, answer = bench.vote(came)
    assert commits == [
        sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION),
        sent(GPU, CommitConfig(rollout=2), partition=GPU, life=1),
    ]
    told = ConfigurationUpdated(
        checksum=compute_checksum(TWO), partitions=[PARTITION, GPU], lives={GPU: 1}, configuration_number=2
    )
    assert answer == sent(PROXY, told, ref="update")
    assert question(bench, GPU) == [(GPU, "Query")]


def test_it_has_the_settings_of_its_rm_from_the_beginning() -> None:
    bench = registered()
    bench.update(ONE_QUEUE, a="1")
    asked = bench.update(TWO, a="1")
    sends = bench.agree([*asked, *bench.hello(GPU)])
    assert sent(GPU, Settings(values={"a": "1"}), partition=GPU, life=1) in sends
    assert (PARTITION, "Settings") not in kinds(sends)


def test_a_partition_that_was_not_to_be_is_given_up_with_its_worker() -> None:
    bench = registered()
    asked, _ = bench.change(TWO)
    bench.hello(GPU)
    sends = bench.vote(asked, "no")
    assert wanted(sends) == [[PARTITION]]
    assert answers(sends) == [(409, "partition rm-1_default: no")]
    assert bench.hear(PROXY, NodeRequest(), partition=GPU, seq=1)[0].to == PROXY


def test_a_worker_that_never_comes_refuses_it() -> None:
    bench = registered()
    bench.vote(bench.change(TWO)[0])
    sends = bench.wait(1.0 + ROLLOUT_MAX_S)
    assert answers(sends)[0][0] == 503
    assert wanted(sends) == [[PARTITION]]


def test_a_new_worker_that_restarts_during_the_vote_is_asked_again_and_its_rm_hears_of_no_restart() -> None:
    bench = registered()
    asked, _ = bench.change(TWO)
    [came] = bench.hello(GPU)
    bench.vote(came)
    assert bench.hello(GPU) == [came]
    assert bench.vote(asked) == []
    assert answers(bench.vote(came))[0][0] == 200


def test_a_new_worker_that_dies_before_the_commit_reaches_it_gets_it_again_and_its_rm_hears_of_no_restart() -> None:
    bench = registered()
    bench.agree([*bench.change(TWO), *bench.hello(GPU)])
    assert kinds(bench.hello(GPU)) == [(GPU, "PrepareConfig"), (GPU, "CommitConfig"), (PROXY, "ResumeWanted")]
    assert bench.broker.registry.sessions[RM].generations == {GPU: 1}


def test_a_partition_that_only_its_journal_knows_gets_a_generation_above_the_one_there() -> None:
    """An operator has restored a record without the partition, and the RM has received messages of generation 3."""
    bench = registered()
    asked, _ = bench.change(TWO)
    epoch = bench.epoch(GPU)
    [came] = bench.hear(lease_name(GPU, epoch), Hello(role="worker"), partition=GPU, epoch=epoch, life=3)
    assert came.header.life == 4
    bench.agree([asked, came])
    assert bench.broker.registry.sessions[RM].generations == {GPU: 4}
    assert bench.broker.registry.sessions[RM].last_generation == 4


def test_a_registration_that_only_a_journal_knows_begins_above_the_generation_there() -> None:
    """The record was restored from a time before the RM registered; the next generation is above that one, too."""
    bench = BrokerBench()
    bench.call()
    epoch = bench.epoch(PARTITION)
    hello = Hello(role="worker")
    [came] = bench.hear(lease_name(PARTITION, epoch), hello, rm="", partition=PARTITION, epoch=epoch, life=1)
    assert came.header.life == 2
    bench.agree([came])
    bench.lost(PARTITION)
    assert bench.broker.registry.sessions[RM].generations == {PARTITION: 3}


# Going --------------------------------------------------------------------------------------------------------------


def test_a_partition_that_goes_is_taken_down_once_all_others_have_committed() -> None:
    bench = registered(TWO)
    [asked] = bench.update(ONE_QUEUE)
    assert asked.to == PARTITION
    commit, answer, retire = bench.vote(asked)
    assert commit.header.kind == "CommitConfig"
    assert retire == RETIRE
    assert news([answer]) == [
        (
            PROXY,
            "update",
            ConfigurationUpdated(checksum=compute_checksum(ONE_QUEUE), partitions=[PARTITION], configuration_number=2),
        )
    ]
    assert "partition rm-1_gpu is no longer configured and is taken down" in bench.broker.state.notes
    assert question(bench, GPU) == [(WEB, "Answer")]


def test_all_partitions_may_go() -> None:
    bench = registered()
    sends = bench.update("partitions: []")
    assert [kind for _, kind in kinds(sends)] == ["ConfigurationUpdated", "RetirePartition"]
    assert wanted(bench.retired(PARTITION)) == [[]]


def test_it_is_not_told_before_the_proxy_has_taken_note_so_that_nothing_that_is_on_its_way_comes_after_it() -> None:
    bench = registered(TWO)
    bench.echoes = False
    sends = bench.agree(bench.update(ONE_QUEUE))
    assert (GPU, "RetirePartition") not in kinds(sends)
    assert kinds(sends)[-1] == (PROXY, "Echo")
    assert bench.hear(PROXY, NodeRequest(), partition=GPU, seq=1)[0].to == GPU
    assert bench.hear(PROXY, Echo(), ref="1", **NONE) == [RETIRE]


def test_a_proxy_that_never_takes_note_keeps_no_partition_alive() -> None:
    bench = registered(TWO)
    bench.echoes = False
    bench.agree(bench.update(ONE_QUEUE))
    assert bench.broker.deadline == bench.now + ECHO_MAX_S
    assert bench.wait(bench.now + ECHO_MAX_S) == [RETIRE]


def test_one_that_has_begun_anew_by_then_goes_on() -> None:
    bench = registered(TWO)
    bench.echoes = False
    bench.agree(bench.update(ONE_QUEUE))
    bench.register(TWO, session="another")
    assert bench.hear(PROXY, Echo(), ref="1", **NONE) == []


def test_until_it_is_gone_it_still_talks_with_its_rm() -> None:
    bench = shrunk()
    told = ApplicationResponse()
    lease = {"partition": GPU, "seq": 1, "epoch": bench.epoch(GPU)}
    assert bench.hear(GPU, told, **lease) == [sent(PROXY, told, **lease)]
    assert bench.hear(PROXY, Ack(), partition=GPU, ack=1)[0].to == GPU


def test_it_is_gone_when_its_rm_has_acknowledged_everything() -> None:
    bench = shrunk()
    assert wanted(bench.retired(GPU)) == [[PARTITION]]
    assert "partition rm-1_gpu has been removed" in bench.broker.state.notes
    assert bench.broker.deadline == NEVER
    assert bench.hear(PROXY, Ack(), partition=GPU, ack=1) == []
    assert bench.hear(PROXY, NodeRequest(), partition=GPU, seq=2)[0].to == PROXY


def test_or_when_its_time_is_up() -> None:
    bench = shrunk()
    assert bench.broker.deadline == 1.0 + RETIRE_MAX_S
    assert bench.wait(RETIRE_MAX_S) == []
    assert wanted(bench.wait(1.0 + RETIRE_MAX_S)) == [[PARTITION]]
    assert bench.broker.state.warnings == ["partition rm-1_gpu ends with results that its RM has not acknowledged"]
    assert bench.broker.deadline == NEVER


def test_a_worker_that_restarts_meanwhile_is_told_again_and_its_rm_resumes_to_hear_its_last_words() -> None:
    resume = sent(PROXY, ResumeWanted(reason=f"the worker of partition {GPU} was started again"), partition=GPU)
    assert shrunk().hello(GPU) == [RETIRE, resume]


def test_a_worker_without_the_lease_or_of_a_partition_that_stays_ends_nothing() -> None:
    bench = shrunk()
    assert bench.retired(PARTITION) == []
    for stranger in (f"{GPU}#99", GPU + "#", PARTITION):
        assert bench.hear(stranger, Retired(), partition=GPU, epoch=bench.epoch(GPU), **NONE) == []
    assert list(bench.broker.registry.slots) == [PARTITION, GPU]


def test_an_rm_that_resumes_hears_from_it_again() -> None:
    bench = shrunk()
    assert bench.hear(PROXY, Resume(received={GPU: 2}), ref="again") == [
        sent(PROXY, joined([PARTITION], number=2), ref="again"),
        sent(PARTITION, Repeat(), partition=PARTITION, ref="1"),
        sent(GPU, Repeat(), partition=GPU, ack=2, ref="2"),
    ]


def test_what_the_proxy_has_acknowledged_for_it_is_not_compared_with_what_it_has() -> None:
    """Commands for a partition that is being taken down are refused and acknowledged by the proxy. Its worker, which
    never gets them, must not take its journal for one that has lost them.
    """
    bench = shrunk()
    resumed = bench.hear(PROXY, Resume(received={GPU: 2}, acknowledged={PARTITION: 3, GPU: 4}), ref="again")
    assert resumed[1:] == [
        sent(PARTITION, Repeat(acknowledged=3), partition=PARTITION, ref="1"),
        sent(GPU, Repeat(), partition=GPU, ack=2, ref="2"),
    ]


def test_a_new_session_of_its_rm_waits_for_nothing() -> None:
    bench = shrunk()
    assert wanted(bench.register(session="session-2")) == [[PARTITION]]
    assert bench.broker.deadline == NEVER


# Coming back --------------------------------------------------------------------------------------------------------


def test_a_partition_that_is_being_taken_down_cannot_come_back_yet() -> None:
    bench = shrunk()
    [refusal] = bench.update(TWO)
    assert b"busy" in refusal.body
    assert answers(bench.change(TWO)) == [(409, BUSY)]


def test_later_it_comes_back_in_another_life_with_another_worker() -> None:
    bench = shrunk()
    bench.retired(GPU)
    for life in (1, 2):
        asked = bench.update(TWO)
        [came] = bench.hello(GPU)
        assert came.header.life == life
        [(_, _, told)] = news(bench.agree([*(one for one in asked if is_prepare(one)), came]))
        assert told.lives == {GPU: life}
        bench.agree(bench.update(ONE_QUEUE))
        bench.retired(GPU)


def test_a_new_session_may_have_it_at_once() -> None:
    bench = shrunk()
    asked = [one for one in bench.call(TWO, session="session-2") if is_prepare(one)]
    assert [one.to for one in asked] == [PARTITION, GPU]
    assert bench.retired(GPU) == []
    bench.wait(1.0 + RETIRE_MAX_S - 15)
    assert kinds(bench.agree(asked))[-1] == (PROXY, "Registered")
    assert bench.broker.deadline == NEVER
    assert question(bench, GPU) == [(GPU, "Query")]


def test_a_time_that_is_up_takes_nothing_from_a_new_session_that_is_just_coming() -> None:
    bench = shrunk()
    bench.now = RETIRE_MAX_S
    asked = [one for one in bench.call(TWO, session="session-2") if is_prepare(one)]
    bench.now = 2.0 + RETIRE_MAX_S
    assert bench.broker.deadline == RETIRE_MAX_S + ROLLOUT_MAX_S
    assert bench.wait(bench.now) == []
    assert kinds(bench.agree(asked))[-1] == (PROXY, "Registered")


def test_it_goes_on_going_when_the_new_session_is_refused() -> None:
    bench = shrunk()
    asked = [one for one in bench.call(TWO, session="session-2") if is_prepare(one)]
    bench.retired(GPU)
    sends = bench.vote(asked[0], "no")
    assert RETIRE in sends
    assert wanted(sends) == []
    assert wanted(bench.retired(GPU)) == [[PARTITION]]


def test_another_rm_cannot_have_the_name_of_a_partition_that_is_leaving() -> None:
    bench = BrokerBench()
    bench.register(two_partitions("v", "b_c"), rm="a")
    bench.agree(bench.update(two_partitions("v", "w"), rm="a")[:1] + bench.hello("a_w"))
    assert list(bench.broker.registry.leaving) == ["a_b_c"]
    assert kinds(bench.register(two_partitions("c", "y"), rm="a_b"))[-1] == (PROXY, "Registered")
    assert list(bench.broker.registry.sessions["a_b"].configs) == ["a_b_c~3", "a_b_y"]
    bench.retired("a_b_c")
    assert list(bench.broker.registry.leaving) == []


@pytest.mark.parametrize("partitions", [[PARTITION], [PARTITION, GPU]])
def test_a_front_end_hears_which_partitions_there_are_now(partitions: list[str]) -> None:
    bench = registered()
    asked = bench.change(ONE_QUEUE if len(partitions) == 1 else TWO)
    if len(partitions) > 1:
        asked += bench.hello(GPU)
    [(status, body)] = answers(bench.agree(asked))
    assert status == 200
    assert msgspec.json.decode(body)["partitions"] == partitions
