"""Another configuration of a partition that runs, settings, and a partition that is no longer configured."""

from tests.machines import ONE_QUEUE, PARTITION, config_of, said, sent
from tests.partition_worker.bench import EPOCH, NEXT, NODES, Bench, ask, placed
from yunishard.common.messages.control_messages import (
    AbortConfig,
    CommitConfig,
    ConfigVote,
    PrepareConfig,
    Repeat,
    Retired,
    RetirePartition,
    Settings,
)
from yunishard.common.messages.rm_messages import Ack, ApplicationResponse
from yunishard.common.names import BROKER

MORE = ONE_QUEUE.replace("{name: batch}", "{name: batch}, {name: more}")
BAD_RULES = MORE.replace("queues: [{name: root", "placementrules: [{name: magic}]\n    queues: [{name: root")
RETIRED = sent(BROKER, Retired(), rm="", session="", partition=PARTITION, epoch=EPOCH)


def busy() -> Bench:
    """A bench with a node, an application and an allocation, all acknowledged."""
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k"))
    assert placed(bench.schedule()) == ["k"]
    bench.hear(Ack(), ack=5)
    return bench


def vote(bench: Bench, config: str, *, rollout: int = 9, live: bool = True) -> str:
    """Why the worker cannot take a configuration; empty if it can."""
    [one] = said(bench.hear(PrepareConfig(rollout=rollout, config=config_of(config), live=live)))
    assert isinstance(one, ConfigVote)
    assert one.rollout == rollout
    return one.reason


def queues(bench: Bench) -> list[str]:
    assert bench.worker.partition is not None
    return [queue.path for queue in bench.worker.partition.tree]


# Another configuration ----------------------------------------------------------------------------------------------


def test_a_partition_that_runs_takes_another_configuration_and_goes_on_with_all_it_has() -> None:
    bench = busy()
    before = bench.worker.partition
    assert vote(bench, MORE) == ""
    assert "root.more" not in queues(bench)
    assert bench.hear(CommitConfig(rollout=9)) == []
    assert "root.more" in queues(bench)
    assert bench.worker.partition is before
    bench.tell(ask("k2"))
    assert placed(bench.schedule()) == ["k2"]
    bench.check()


def test_numbers_session_and_settings_go_on_too() -> None:
    bench = busy()
    bench.hear(Settings(values={"a": "1"}))
    vote(bench, MORE)
    bench.hear(CommitConfig(rollout=9))
    [again] = bench.hear(NODES, seq=1)
    assert (again.header.ack, again.header.session) == (3, "session-1")
    assert bench.tell(NODES)[0].header.seq == 6
    assert bench.worker.host.session.settings == {"a": "1"}


def test_what_a_live_partition_objects_to_is_its_vote_and_a_commit_changes_nothing() -> None:
    bench = busy()
    assert "unknown rule name" in vote(bench, BAD_RULES)
    before = queues(bench)
    assert bench.hear(CommitConfig(rollout=9)) == []
    assert queues(bench) == before
    assert bench.worker.host.warnings[-1] == "commit of roll-out 9 ignored, as this worker has not prepared it"


def test_an_abort_or_a_commit_of_another_roll_out_leaves_the_old() -> None:
    bench = busy()
    vote(bench, MORE)
    bench.hear(CommitConfig(rollout=8))
    bench.hear(AbortConfig(rollout=9))
    bench.hear(CommitConfig(rollout=9))
    assert "root.more" not in queues(bench)


def test_a_commit_counts_once() -> None:
    bench = busy()
    vote(bench, MORE)
    for _ in range(2):
        bench.hear(CommitConfig(rollout=9))
    assert bench.worker.host.warnings[-1] == "commit of roll-out 9 ignored, as this worker has not prepared it"
    bench.check()


def test_the_last_configuration_that_was_prepared_counts() -> None:
    bench = busy()
    vote(bench, MORE)
    vote(bench, ONE_QUEUE.replace("batch", "other"), rollout=10)
    bench.hear(CommitConfig(rollout=9))
    assert "root.more" not in queues(bench)
    bench.hear(CommitConfig(rollout=10))
    assert "root.other" in queues(bench)


def test_a_worker_that_was_started_again_begins_with_the_old_and_takes_the_new() -> None:
    bench = Bench(running=False)
    bench.configure(life=1)
    assert vote(bench, MORE) == ""
    bench.hear(CommitConfig(rollout=9))
    assert "root.more" in queues(bench)
    assert bench.tell(NODES, life=1)[0].header.life == 1


def test_one_that_has_nothing_yet_begins_with_what_it_is_asked_to_change_to() -> None:
    bench = Bench(running=False)
    assert vote(bench, MORE) == ""
    bench.hear(CommitConfig(rollout=9))
    assert "root.more" in queues(bench)


def test_another_configuration_that_begins_empty_has_nothing_of_before() -> None:
    bench = busy()
    assert vote(bench, BAD_RULES, live=False) == ""
    bench.hear(CommitConfig(rollout=9))
    assert bench.worker.partition is not None
    assert bench.worker.partition.applications == {}


# Settings -----------------------------------------------------------------------------------------------------------


def test_settings_replace_the_earlier_ones_and_a_new_session_begins_without() -> None:
    bench = Bench()
    assert bench.worker.host.session.settings == {}
    for values in ({"a": "1"}, {"b": "2"}, {}, {"c": "3"}):
        assert bench.hear(Settings(values=values)) == []
        assert bench.worker.host.session.settings == values
    bench.configure(session=NEXT)
    assert bench.worker.host.session.settings == {}


def test_the_auditor_goes_round_as_often_as_the_settings_say() -> None:
    bench = Bench()
    assert bench.worker.partition is not None
    for value, every_s in (("5s", 5.0), ("0", 0.0), ("", 30.0)):
        bench.hear(Settings(values={"health.checkInterval": value}))
        assert bench.worker.partition.auditor.every_s == every_s


# No longer configured -----------------------------------------------------------------------------------------------


def test_a_partition_that_is_no_longer_configured_tells_its_rm_and_is_gone_when_that_is_acknowledged() -> None:
    bench = busy()
    told = bench.hear(RetirePartition())
    assert told
    assert all(one.to == BROKER and one.header.seq for one in told)
    states = [one.state for m in said(told) if isinstance(m, ApplicationResponse) for one in m.updated]
    assert "Failing" in states
    last = told[-1].header.seq
    assert bench.hear(Ack(), ack=last - 1) == []
    assert bench.hear(Ack(), ack=last) == [RETIRED]


def test_a_partition_with_nothing_in_it_is_gone_at_once() -> None:
    assert Bench().hear(RetirePartition()) == [RETIRED]
    assert Bench(running=False).hear(RetirePartition()) == [RETIRED]


def test_what_its_rm_has_not_acknowledged_from_before_is_waited_for_as_well() -> None:
    bench = Bench()
    bench.tell(NODES)
    assert bench.hear(RetirePartition()) == []
    assert bench.hear(Ack(), ack=1) == [RETIRED]


def test_an_acknowledgement_of_an_earlier_session_is_none() -> None:
    bench = Bench()
    bench.tell(NODES)
    bench.hear(RetirePartition())
    assert bench.hear(Ack(), ack=1, session="earlier") == []
    assert bench.hear(Ack(), ack=1, life=1) == []


def test_an_rm_that_resumes_and_has_heard_everything_needs_to_say_no_more() -> None:
    bench = busy()
    told = bench.hear(RetirePartition())
    last = told[-1].header.seq
    received, *again = bench.hear(Repeat(), ack=last - 1)
    assert received.header.kind == "Received"
    assert [one.header.seq for one in again] == [last]
    assert bench.hear(Repeat(), ack=last) == [received, RETIRED]


def test_being_told_twice_changes_nothing_and_is_answered_again() -> None:
    bench = busy()
    told = bench.hear(RetirePartition())
    assert bench.hear(RetirePartition()) == []
    bench.hear(Ack(), ack=told[-1].header.seq)
    assert bench.hear(RetirePartition()) == [RETIRED]


def test_a_partition_that_goes_takes_no_other_configuration_of_the_same_session() -> None:
    bench = Bench()
    bench.hear(RetirePartition())
    assert vote(bench, MORE) == f"partition {PARTITION} was removed"


def test_a_new_session_may_have_it_again() -> None:
    bench = busy()
    bench.hear(RetirePartition())
    bench.configure(session=NEXT)
    [answer] = bench.tell(NODES, session=NEXT)
    assert answer.header.kind == "NodeResponse"
    assert bench.hear(Ack(), ack=1, session=NEXT) == []


def test_commands_are_refused_while_it_goes() -> None:
    bench = busy()
    bench.hear(RetirePartition())
    bench.tell(ask("late"))
    assert placed(bench.schedule()) == []
