"""Sessions that register again or resume, and workers that come back."""

import pytest

from common.control_messages import CommitConfig, PrepareConfig, Repeat, WorkersWanted
from common.rm_messages import NodeRequest, NodeResponse, PartitionRestarted, Refused, Registered, Resume
from common.wire import NEVER, Outgoing
from tests.broker.house import GPU, PROXY, House, is_prepare, joined, registered, wanted
from tests.machines import ONE_QUEUE, PARTITION, RM, SESSION, config_of, said, sent, two_partitions

NONE = {"rm": "", "session": ""}
NEXT = "session-2"
MEANWHILE = "it restarted meanwhile"


# A new session ------------------------------------------------------------------------------------------------------


def test_a_new_session_takes_the_place_of_the_old_one_which_is_told_at_its_own_proxy() -> None:
    house = registered()
    assert house.register(session=NEXT, proxy="rmproxy-2") == [
        sent(PROXY, Refused(code="superseded", reason="RM 'rm-1' registered again elsewhere")),
        sent(PARTITION, CommitConfig(rollout=2), partition=PARTITION, session=NEXT),
        sent("rmproxy-2", joined([PARTITION]), session=NEXT, ref="call"),
    ]
    [refusal] = said(house.hear(PROXY, NodeRequest(), partition=PARTITION))
    assert isinstance(refusal, Refused)
    assert refusal.code == "unknown-session"
    assert house.hear(PROXY, NodeRequest(), partition=PARTITION, session=NEXT)[0].to == PARTITION


def test_its_workers_are_asked_at_once_and_the_old_session_goes_on_until_they_have_voted() -> None:
    house = registered()
    [asked] = house.call(session=NEXT)
    assert asked == sent(PARTITION, PrepareConfig(rollout=2, config=config_of()), partition=PARTITION, session=NEXT)
    assert house.hear(PROXY, NodeRequest(), partition=PARTITION)[0].to == PARTITION
    news = house.hear(PARTITION, NodeResponse(), partition=PARTITION, seq=1, epoch=house.epoch(PARTITION))
    assert news[0].to == PROXY


def test_a_refused_new_session_leaves_the_old_one_as_it_was() -> None:
    house = registered()
    asked = [one for one in house.call(two_partitions(), session=NEXT) if is_prepare(one)]
    sends = house.vote(asked[0], "no")
    assert [one.header.session for one in sends if one.to == PROXY] == [NEXT]
    assert wanted(sends) == [{PARTITION: 1}]
    assert house.hear(PROXY, NodeRequest(), partition=PARTITION)[0].to == PARTITION


def test_partitions_that_the_new_session_does_not_have_end_and_their_names_are_free() -> None:
    house = House()
    house.register(two_partitions())
    sends = house.register(ONE_QUEUE, session=NEXT)
    assert wanted(sends) == [{PARTITION: house.epoch(PARTITION)}]
    assert house.hear(GPU, NodeResponse(), partition=GPU, seq=1, epoch=2) == []
    later = house.register(two_partitions(), session="session-3")
    assert later[-1].header.kind == "Registered"
    assert house.epoch(GPU) not in (1, 2)


def test_another_rm_is_not_touched() -> None:
    house = registered()
    house.register(rm="rm-2", session="another")
    sends = house.register("partitions: []", session=NEXT)
    assert wanted([*sends, *house.call("partitions: []", session="session-3")]) in ([], [{"rm-2_default": 2}])
    assert house.hear(PROXY, NodeRequest(), partition="rm-2_default", rm="rm-2", session="another")[0].to == (
        "rm-2_default"
    )


# The same session again ---------------------------------------------------------------------------------------------


def test_a_resumption_is_answered_and_every_worker_sends_again_what_was_not_received() -> None:
    house = House()
    house.register(two_partitions())
    assert house.hear("rmproxy-2", Resume(received={PARTITION: 7}), ref="again") == [
        sent("rmproxy-2", joined([PARTITION, GPU], two_partitions()), ref="again"),
        sent(PARTITION, Repeat(), partition=PARTITION, ack=7),
        sent(GPU, Repeat(), partition=GPU, ack=0),
    ]
    news = house.hear(GPU, NodeResponse(), partition=GPU, seq=1, epoch=house.epoch(GPU))
    assert news[0].to == "rmproxy-2"


def test_an_unknown_session_cannot_be_resumed() -> None:
    house = registered()
    for rm, session in ((RM, "earlier"), ("rm-2", SESSION)):
        answer = Refused(code="unknown-session", reason=f"RM {rm!r} has no such session, register again")
        assert house.hear("rmproxy-2", Resume(), rm=rm, session=session, ref="again") == [
            sent("rmproxy-2", answer, rm=rm, session=session, ref="again")
        ]
    news = house.hear(PARTITION, NodeResponse(), partition=PARTITION, seq=1, epoch=house.epoch(PARTITION))
    assert news[0].to == PROXY


def test_a_resumption_hears_of_a_restart_that_happened_meanwhile() -> None:
    house = registered()
    house.lost(PARTITION)
    told, restarted, repeat = house.hear(PROXY, Resume(received={PARTITION: 7}), ref="again")
    assert told == sent(PROXY, joined([PARTITION], **{PARTITION: 1}), ref="again")
    assert restarted == sent(PROXY, PartitionRestarted(reason=MEANWHILE), partition=PARTITION, life=1)
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, ack=0, life=1)
    _, repeat = house.hear(PROXY, Resume(received={PARTITION: 2}, lives={PARTITION: 1}), ref="again")
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, ack=2, life=1)


# A worker again -----------------------------------------------------------------------------------------------------


def test_a_worker_that_lost_its_journal_runs_its_configuration_from_empty_and_its_rm_is_told() -> None:
    house = registered()
    for life in (1, 2):
        assert house.lost(PARTITION) == [
            sent(PARTITION, PrepareConfig(rollout=1, config=config_of()), partition=PARTITION, life=life),
            sent(PARTITION, CommitConfig(rollout=1), partition=PARTITION, life=life),
            sent(PROXY, PartitionRestarted(reason="damaged"), partition=PARTITION, life=life),
        ]
    assert house.switch.deadline == NEVER


def test_its_vote_on_what_was_decided_long_ago_changes_nothing() -> None:
    house = registered()
    asked, _, _ = house.lost(PARTITION)
    assert house.vote(asked) == []
    assert house.vote(asked, "no") == []


def test_a_worker_that_restarts_while_it_votes_is_asked_again() -> None:
    house = House()
    house.call(two_partitions())
    [first], [second] = house.hello(PARTITION), house.hello(GPU)
    house.vote(first)
    assert house.hello(PARTITION) == [first]
    assert house.vote(second) == []
    assert house.vote(first)[-1].header.kind == "Registered"


def test_a_worker_that_restarts_while_a_new_session_comes_goes_on_with_the_old_one_until_then() -> None:
    house = registered()
    house.call(two_partitions(), session=NEXT)
    sends = [(one.header.kind, one.header.session) for one in house.lost(PARTITION)]
    assert sends == [
        ("PrepareConfig", SESSION),
        ("CommitConfig", SESSION),
        ("PartitionRestarted", SESSION),
        ("PrepareConfig", NEXT),
    ]


def test_a_new_session_begins_in_the_first_life() -> None:
    house = registered()
    house.lost(PARTITION)
    sends = house.register(session=NEXT)
    [commit] = [one for one in sends if one.header.kind == "CommitConfig"]
    assert commit.header.life == 0


def test_the_supervisor_is_told_only_of_changes() -> None:
    house = registered()
    assert wanted(house.hello(PARTITION)) == []
    assert wanted(house.call(session=NEXT)) == []
    managers = {PARTITION: RM, "rm-2_default": "rm-2"}
    expected = WorkersWanted(partitions={PARTITION: 1, "rm-2_default": 2}, managers=managers)
    assert house.call(rm="rm-2", session="another")[-1] == sent("supervisor", expected, **NONE)


# One partition ------------------------------------------------------------------------------------------------------


def resume_one(
    house: House, partition: str = PARTITION, proxy: str = PROXY, **received: dict[str, int]
) -> list[Outgoing]:
    return house.hear(proxy, Resume(**received), partition=partition, ref="one")


def test_a_request_that_names_a_partition_resumes_only_that_one() -> None:
    house = House()
    house.register(two_partitions())
    assert resume_one(house, received={PARTITION: 7}) == [
        sent(PROXY, Registered(partitions=[PARTITION]), partition=PARTITION, ref="one"),
        sent(PARTITION, Repeat(), partition=PARTITION, ack=7),
    ]


def test_a_partition_that_resumes_in_an_earlier_generation_is_reported_as_restarted() -> None:
    house = registered()
    house.lost(PARTITION)
    told, restarted, repeat = resume_one(house, received={PARTITION: 7})
    assert said([told]) == [Registered(partitions=[PARTITION], lives={PARTITION: 1})]
    assert restarted == sent(PROXY, PartitionRestarted(reason="it restarted meanwhile"), partition=PARTITION, life=1)
    assert repeat == sent(PARTITION, Repeat(), partition=PARTITION, life=1)


@pytest.mark.parametrize("case", ["away", "another proxy", "unknown partition"])
def test_otherwise_all_partitions_have_to_resume(case: str) -> None:
    house = registered()
    if case == "away":
        house.away()
    proxy = "rmproxy-2" if case == "another proxy" else PROXY
    partition = "rm-1_other" if case == "unknown partition" else PARTITION
    refused = Refused(code="busy", reason="resume all partitions")
    assert resume_one(house, partition, proxy) == [sent(proxy, refused, ref="one")]
    assert (RM in house.switch.registry.away) == (case == "away")


def test_an_rm_that_is_away_has_to_resume_all_when_a_worker_restarts() -> None:
    house = registered()
    house.away()
    wanted = [one for one in house.returns(PARTITION) if one.header.kind == "ResumeWanted"]
    assert [one.header.partition for one in wanted] == [""]
