"""Partitions that come and go with another configuration, and come back."""

import msgspec
import pytest

from broker.config_rollout import ROLLOUT_MAX_S
from broker.config_updates import RETIRE_MAX_S
from broker.state import ECHO_MAX_S
from common.config.model import compute_checksum
from common.control_messages import CommitConfig, Echo, PrepareConfig, Repeat, Retired, RetirePartition, Settings
from common.query_messages import Query
from common.rm_messages import Ack, ApplicationResponse, ConfigurationUpdated, NodeRequest, Resume, ResumeWanted
from common.wire import NEVER, decode_body
from tests.broker.house import GPU, PROXY, WEB, House, answers, is_prepare, joined, kinds, news, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, config_of, sent, two_partitions

TWO = two_partitions()
BUSY = "partition rm-1_gpu of an earlier configuration is being taken down, try again when it is gone"
RETIRE = sent(GPU, RetirePartition(), partition=GPU)
NONE = {"rm": "", "session": ""}


def shrunk() -> House:
    """A house in which one of two partitions is being taken down."""
    house = registered(TWO)
    house.agree(house.update(ONE_QUEUE))
    return house


def question(house: House, partition: str) -> list[tuple[str, str]]:
    return kinds(house.hear(WEB, Query(what="nodes"), partition=partition, ref="web 3", **NONE))


# Coming -------------------------------------------------------------------------------------------------------------


def test_a_partition_that_comes_gets_a_worker_before_anybody_commits() -> None:
    house = registered()
    asked, supervisor = house.update(TWO)
    assert (asked.to, decode_body(PrepareConfig, asked.body).live) == (PARTITION, True)
    assert wanted([supervisor]) == [{PARTITION: 1, GPU: 2}]
    assert house.vote(asked) == []
    [came] = house.hello(GPU)
    config = config_of(two_partitions("gpu", "default"))
    assert came == sent(GPU, PrepareConfig(rollout=2, config=config), partition=GPU, life=1)
    assert question(house, GPU) == [(WEB, "Answer")]
    *commits, answer = house.vote(came)
    assert commits == [
        sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION),
        sent(GPU, CommitConfig(rollout=2), partition=GPU, life=1),
    ]
    told = ConfigurationUpdated(checksum=compute_checksum(TWO), partitions=[PARTITION, GPU], lives={GPU: 1})
    assert answer == sent(PROXY, told, ref="update")
    assert question(house, GPU) == [(GPU, "Query")]


def test_it_has_the_settings_of_its_rm_from_the_beginning() -> None:
    house = registered()
    house.update(ONE_QUEUE, a="1")
    asked = house.update(TWO, a="1")
    sends = house.agree([*asked, *house.hello(GPU)])
    assert sent(GPU, Settings(values={"a": "1"}), partition=GPU, life=1) in sends
    assert (PARTITION, "Settings") not in kinds(sends)


def test_a_partition_that_was_not_to_be_is_given_up_with_its_worker() -> None:
    house = registered()
    asked, _ = house.change(TWO)
    house.hello(GPU)
    sends = house.vote(asked, "no")
    assert wanted(sends) == [{PARTITION: 1}]
    assert answers(sends) == [(409, "partition rm-1_default: no")]
    assert house.hear(PROXY, NodeRequest(), partition=GPU, seq=1)[0].to == PROXY


def test_a_worker_that_never_comes_refuses_it() -> None:
    house = registered()
    house.vote(house.change(TWO)[0])
    sends = house.wait(1.0 + ROLLOUT_MAX_S)
    assert answers(sends)[0][0] == 503
    assert wanted(sends) == [{PARTITION: 1}]


def test_a_new_worker_that_restarts_during_the_vote_is_asked_again_and_its_rm_hears_of_no_restart() -> None:
    house = registered()
    asked, _ = house.change(TWO)
    [came] = house.hello(GPU)
    house.vote(came)
    assert house.hello(GPU) == [came]
    assert house.vote(asked) == []
    assert answers(house.vote(came))[0][0] == 200


def test_a_new_worker_that_dies_before_the_commit_reaches_it_gets_it_again_and_its_rm_hears_of_no_restart() -> None:
    house = registered()
    house.agree([*house.change(TWO), *house.hello(GPU)])
    assert kinds(house.hello(GPU)) == [(GPU, "PrepareConfig"), (GPU, "CommitConfig"), (PROXY, "ResumeWanted")]
    assert house.switch.registry.sessions[RM].generations == {GPU: 1}


# Going --------------------------------------------------------------------------------------------------------------


def test_a_partition_that_goes_is_taken_down_once_all_others_have_committed() -> None:
    house = registered(TWO)
    [asked] = house.update(ONE_QUEUE)
    assert asked.to == PARTITION
    commit, answer, retire = house.vote(asked)
    assert commit.header.kind == "CommitConfig"
    assert retire == RETIRE
    assert news([answer]) == [
        (PROXY, "update", ConfigurationUpdated(checksum=compute_checksum(ONE_QUEUE), partitions=[PARTITION]))
    ]
    assert "partition rm-1_gpu is no longer configured and is taken down" in house.switch.state.notes
    assert question(house, GPU) == [(WEB, "Answer")]


def test_all_partitions_may_go() -> None:
    house = registered()
    sends = house.update("partitions: []")
    assert [kind for _, kind in kinds(sends)] == ["ConfigurationUpdated", "RetirePartition"]
    assert wanted(house.retired(PARTITION)) == [{}]


def test_it_is_not_told_before_the_proxy_has_taken_note_so_that_nothing_that_is_on_its_way_comes_after_it() -> None:
    house = registered(TWO)
    house.echoes = False
    sends = house.agree(house.update(ONE_QUEUE))
    assert (GPU, "RetirePartition") not in kinds(sends)
    assert kinds(sends)[-1] == (PROXY, "Echo")
    assert house.hear(PROXY, NodeRequest(), partition=GPU, seq=1)[0].to == GPU
    assert house.hear(PROXY, Echo(), ref="1", **NONE) == [RETIRE]


def test_a_proxy_that_never_takes_note_keeps_no_partition_alive() -> None:
    house = registered(TWO)
    house.echoes = False
    house.agree(house.update(ONE_QUEUE))
    assert house.switch.deadline == house.now + ECHO_MAX_S
    assert house.wait(house.now + ECHO_MAX_S) == [RETIRE]


def test_one_that_has_begun_anew_by_then_goes_on() -> None:
    house = registered(TWO)
    house.echoes = False
    house.agree(house.update(ONE_QUEUE))
    house.register(TWO, session="another")
    assert house.hear(PROXY, Echo(), ref="1", **NONE) == []


def test_until_it_is_gone_it_still_talks_with_its_rm() -> None:
    house = shrunk()
    told = ApplicationResponse()
    lease = {"partition": GPU, "seq": 1, "epoch": house.epoch(GPU)}
    assert house.hear(GPU, told, **lease) == [sent(PROXY, told, **lease)]
    assert house.hear(PROXY, Ack(), partition=GPU, ack=1)[0].to == GPU


def test_it_is_gone_when_its_rm_has_acknowledged_everything() -> None:
    house = shrunk()
    assert wanted(house.retired(GPU)) == [{PARTITION: 1}]
    assert "partition rm-1_gpu has been removed" in house.switch.state.notes
    assert house.switch.deadline == NEVER
    assert house.hear(PROXY, Ack(), partition=GPU, ack=1) == []
    assert house.hear(PROXY, NodeRequest(), partition=GPU, seq=2)[0].to == PROXY


def test_or_when_its_time_is_up() -> None:
    house = shrunk()
    assert house.switch.deadline == 1.0 + RETIRE_MAX_S
    assert house.wait(RETIRE_MAX_S) == []
    assert wanted(house.wait(1.0 + RETIRE_MAX_S)) == [{PARTITION: 1}]
    assert house.switch.state.warnings == ["partition rm-1_gpu ends with results that its RM has not acknowledged"]
    assert house.switch.deadline == NEVER


def test_a_worker_that_restarts_meanwhile_is_told_again_and_its_rm_resumes_to_hear_its_last_words() -> None:
    resume = sent(PROXY, ResumeWanted(reason=f"the worker of partition {GPU} was started again"), partition=GPU)
    assert shrunk().hello(GPU) == [RETIRE, resume]


def test_a_worker_without_the_lease_or_of_a_partition_that_stays_ends_nothing() -> None:
    house = shrunk()
    assert house.retired(PARTITION) == []
    for stranger in (f"{GPU}#99", GPU + "#", PARTITION):
        assert house.hear(stranger, Retired(), partition=GPU, epoch=house.epoch(GPU), **NONE) == []
    assert list(house.switch.registry.slots) == [PARTITION, GPU]


def test_an_rm_that_resumes_hears_from_it_again() -> None:
    house = shrunk()
    assert house.hear(PROXY, Resume(received={GPU: 2}), ref="again") == [
        sent(PROXY, joined([PARTITION]), ref="again"),
        sent(PARTITION, Repeat(), partition=PARTITION),
        sent(GPU, Repeat(), partition=GPU, ack=2),
    ]


def test_what_the_proxy_has_acknowledged_for_it_is_not_compared_with_what_it_has() -> None:
    """Commands for a partition that is being taken down are refused and acknowledged by the proxy. Its worker, which
    never gets them, must not take its journal for one that has lost them.
    """
    house = shrunk()
    resumed = house.hear(PROXY, Resume(received={GPU: 2}, acknowledged={PARTITION: 3, GPU: 4}), ref="again")
    assert resumed[1:] == [
        sent(PARTITION, Repeat(acknowledged=3), partition=PARTITION),
        sent(GPU, Repeat(), partition=GPU, ack=2),
    ]


def test_a_new_session_of_its_rm_waits_for_nothing() -> None:
    house = shrunk()
    assert wanted(house.register(session="session-2")) == [{PARTITION: 1}]
    assert house.switch.deadline == NEVER


# Coming back --------------------------------------------------------------------------------------------------------


def test_a_partition_that_is_being_taken_down_cannot_come_back_yet() -> None:
    house = shrunk()
    [refusal] = house.update(TWO)
    assert b"busy" in refusal.body
    assert answers(house.change(TWO)) == [(409, BUSY)]


def test_later_it_comes_back_in_another_life_with_another_worker() -> None:
    house = shrunk()
    house.retired(GPU)
    for life in (1, 2):
        asked = house.update(TWO)
        [came] = house.hello(GPU)
        assert came.header.life == life
        [(_, _, told)] = news(house.agree([*(one for one in asked if is_prepare(one)), came]))
        assert told.lives == {GPU: life}
        house.agree(house.update(ONE_QUEUE))
        house.retired(GPU)


def test_a_new_session_may_have_it_at_once() -> None:
    house = shrunk()
    asked = [one for one in house.call(TWO, session="session-2") if is_prepare(one)]
    assert [one.to for one in asked] == [PARTITION, GPU]
    assert house.retired(GPU) == []
    house.wait(1.0 + RETIRE_MAX_S - 15)
    assert kinds(house.agree(asked))[-1] == (PROXY, "Registered")
    assert house.switch.deadline == NEVER
    assert question(house, GPU) == [(GPU, "Query")]


def test_a_time_that_is_up_takes_nothing_from_a_new_session_that_is_just_coming() -> None:
    house = shrunk()
    house.now = RETIRE_MAX_S
    asked = [one for one in house.call(TWO, session="session-2") if is_prepare(one)]
    house.now = 2.0 + RETIRE_MAX_S
    assert house.switch.deadline == RETIRE_MAX_S + ROLLOUT_MAX_S
    assert house.wait(house.now) == []
    assert kinds(house.agree(asked))[-1] == (PROXY, "Registered")


def test_it_goes_on_going_when_the_new_session_is_refused() -> None:
    house = shrunk()
    asked = [one for one in house.call(TWO, session="session-2") if is_prepare(one)]
    house.retired(GPU)
    sends = house.vote(asked[0], "no")
    assert RETIRE in sends
    assert wanted(sends) == []
    assert wanted(house.retired(GPU)) == [{PARTITION: 1}]


def test_another_rm_cannot_have_the_name_of_a_partition_that_is_leaving() -> None:
    house = House()
    house.register(two_partitions("v", "b_c"), rm="a")
    house.agree(house.update(two_partitions("v", "w"), rm="a")[:1] + house.hello("a_w"))
    assert list(house.switch.registry.leaving) == ["a_b_c"]
    assert kinds(house.register(two_partitions("c", "y"), rm="a_b"))[-1] == (PROXY, "Registered")
    assert list(house.switch.registry.sessions["a_b"].configs) == ["a_b_c~3", "a_b_y"]
    house.retired("a_b_c")
    assert list(house.switch.registry.leaving) == []


@pytest.mark.parametrize("partitions", [[PARTITION], [PARTITION, GPU]])
def test_a_front_end_hears_which_partitions_there_are_now(partitions: list[str]) -> None:
    house = registered()
    asked = house.change(ONE_QUEUE if len(partitions) == 1 else TWO)
    if len(partitions) > 1:
        asked += house.hello(GPU)
    [(status, body)] = answers(house.agree(asked))
    assert status == 200
    assert msgspec.json.decode(body)["partitions"] == partitions
