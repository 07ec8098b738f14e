"""What a worker tells whoever keeps a history."""

import msgspec
import pytest

from common.query_messages import Actor, Answer, Query
from common.records import EVENTS_MAX, Account, Began, Ended, Failing, Happened, Usage
from common.rm_messages import NODE_DECOMMISSION
from partition_worker.answers import samples
from partition_worker.engine.effects import Happening
from partition_worker.event_ring import EventRing
from tests.builders import apps, asks, gone, nodes, released
from tests.machines import said
from tests.partition_worker.bench import Bench, ask
from tests.trial import Trial


class Watched:
    """A trial with the ring that its worker would keep."""

    def __init__(self, trial: Trial | None = None, capacity: int = 10_000) -> None:
        self.trial = trial or Trial("root.a max=memory:50; root.p.b").does(nodes("n1 memory=10", "n2 memory=10"))
        self.ring = EventRing("one", capacity)

    def notes(self) -> None:
        """Let the ring have what happened so far."""
        self.ring.add(self.trial.partition.happenings(), self.trial.now)

    def answer(self, **args: str) -> Answer:
        self.notes()
        return samples.answer(self.trial.partition, self.ring, args)

    def account(self, **args: str) -> Account:
        answered = self.answer(**args)
        assert answered.status == 200, answered.body
        return msgspec.json.decode(answered.body, type=Account)

    def after(self, before: Account, **args: str) -> Account:
        return self.account(instance=before.instance, start=str(before.next), **args)


def told(happened: list[Happened]) -> list[str]:
    """Without times and amounts."""
    lines = []
    for one in happened:
        match one:
            case Began():
                lines.append(f"{one.key} of {one.application_id} ({one.user}, {one.queue}) on {one.node_id}")
            case Ended():
                lines.append(
                    f"{one.key} of {one.application_id} ({one.user}, {one.queue}) left {one.node_id}: {one.how}"
                )
            case Failing():
                lines.append(f"{one.application_id}: {one.message}")
    return lines


# What happened --------------------------------------------------------------------------------------------------------


def test_allocations_are_told_with_whose_they_are_and_where() -> None:
    one = Watched()
    one.trial.does(apps("app-1 root.a user=bob"), asks("app-1 a1 memory=4"))
    first = one.account()
    assert told(first.happened) == ["a1 of app-1 (bob, root.a) on n1"]
    assert isinstance(first.happened[0], Began)
    assert first.happened[0].resources == {"memory": 4}
    one.trial.waits(1).does(released("app-1 a1"))
    assert told(one.after(first).happened) == ["a1 of app-1 (bob, root.a) left : STOPPED_BY_RM"]


def test_what_began_and_ended_in_between_is_told_in_full_though_it_is_gone() -> None:
    one = Watched()
    one.trial.does(apps("app-1 root.a user=bob"), asks("app-1 a1 memory=4"), released("app-1 a1"))
    one.notes()
    one.trial.waits(40)
    assert one.trial.partition.applications == {}
    assert told(one.account().happened) == [
        "a1 of app-1 (bob, root.a) on n1",
        "a1 of app-1 (bob, root.a) left n1: STOPPED_BY_RM",
    ]


def test_a_node_that_goes_ends_what_was_there() -> None:
    one = Watched()
    one.trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=4"), nodes("n1", action=NODE_DECOMMISSION))
    assert told(one.account().happened)[-1].endswith("left n1: NODE_REMOVED")


def test_why_an_application_fails_is_told_before_it_has() -> None:
    one = Watched()
    one.trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=4")).kills("app-1")
    assert told(one.account().happened)[1] == "app-1: Application app-1 killed by op"


def test_asks_nodes_and_queues_are_not_told() -> None:
    one = Watched()
    one.trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=99"))
    assert one.account().happened == []
    assert one.ring.highest > 5


def test_foreign_allocations_are_nobodys() -> None:
    one = Watched()
    one.trial.does(asks("f1 memory=1 on=n1 tag.foreign=static"))
    assert one.account().happened == []


# Where to go on -------------------------------------------------------------------------------------------------------


def test_reading_goes_on_where_it_ended() -> None:
    one = Watched()
    one.trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=1"))
    first = one.account()
    assert (first.first, first.next) == (0, one.ring.highest + 1)
    nothing = one.after(first)
    assert (nothing.first, nothing.next, nothing.happened) == (first.next, first.next, [])


def test_another_history_is_read_from_its_beginning() -> None:
    one = Watched()
    one.account()
    found = one.account(instance="another", start="5")
    assert (found.first, found.instance) == (0, one.ring.instance)


def test_what_is_gone_is_told_by_the_first_number() -> None:
    one = Watched(capacity=4)
    one.trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=1"))
    found = one.account(instance=one.ring.instance, start="1")
    assert (found.first, found.next) == (one.ring.lowest, one.ring.highest + 1)
    assert found.first > 1


def test_no_more_than_so_many_events_are_read_at_once() -> None:
    one = Watched(capacity=EVENTS_MAX * 2)
    one.ring.add([Happening(2, "x", "", 1, 206, "", {})] * (EVENTS_MAX + 5), 1.0)
    first = one.account(keys="true")
    assert (first.next, first.keys) == (EVENTS_MAX, None), "what runs now is no answer while events are left"
    rest = one.after(first, keys="true")
    assert rest.next == one.ring.highest + 1
    assert rest.keys == []


def test_whether_events_are_tracked_is_told() -> None:
    one = Watched()
    assert one.account().tracked
    one.trial.partition.tracking = False
    assert not one.account().tracked


@pytest.mark.parametrize("args", [{"start": "x"}, {"since": "1.5"}])
def test_what_cannot_be_read_is_refused(args: dict[str, str]) -> None:
    assert Watched().answer(**args).status == 400


# Who has ended --------------------------------------------------------------------------------------------------------


def test_those_that_the_rm_removed_are_told_too() -> None:
    one = Watched(Trial("root.a").does(nodes("n1 memory=10 tag.si/instance-type=large")))
    one.trial.does(
        apps("done root.a user=bob", "busy root.a", "idle root.a"), asks("done a1 memory=4", "busy b1 memory=4")
    )
    first = one.account()
    assert first.ended == []
    one.trial.waits(2.5).does(released("done a1"), gone("done"), gone("busy"), gone("idle"))
    account = one.after(first)
    ended = account.ended
    assert [(one.application_id, one.user, one.state) for one in ended] == [
        ("done", "bob", "Completed"),
        ("busy", "bob", "Removed"),
        ("idle", "bob", "Removed"),
    ]
    assert [one.finished_ns for one in ended] == sorted({one.finished_ns for one in ended})
    assert [one.used for one in ended] == [{"large": {"memory": 8}}, {"large": {"memory": 8}}, {}]
    assert told(account.happened)[0] == "a1 of done (bob, root.a) left : STOPPED_BY_RM"
    assert one.account(since=str(ended[-1].finished_ns)).ended == []


def test_those_that_ended_come_in_the_order_of_their_end_with_what_they_used() -> None:
    one = Watched(Trial("root.a").does(nodes("n1 memory=10 tag.si/instance-type=large")))
    one.trial.does(apps("app-1 root.a user=bob groups=x,y"), asks("app-1 a1 memory=4")).waits(5.5)
    one.trial.does(released("app-1 a1")).waits(40).does(apps("app-2 root.none user=eve"))
    completed, rejected = one.account().ended
    assert (completed.application_id, completed.state, completed.user) == ("app-1", "Completed", "bob")
    assert completed.used == {"large": {"memory": 20}}
    assert completed.submitted_ns <= completed.started_ns < completed.finished_ns < rejected.finished_ns
    assert (rejected.application_id, rejected.state, rejected.user) == ("app-2", "Rejected", "eve")
    assert "no placement rule matched" in rejected.message
    assert one.account(since=str(completed.finished_ns)).ended == [rejected]
    assert one.account(since=str(rejected.finished_ns)).ended == []


# How it is now --------------------------------------------------------------------------------------------------------


def test_a_sample_says_who_has_or_wants_something_and_nobody_else() -> None:
    one = Watched(Trial("root.a limit.user.bob=memory:50 limit.group.dev=memory:50; root.p.b; root.c"))
    one.trial.does(nodes("n1 memory=10"), apps("app-1 root.a user=bob groups=dev", "app-2 root.p.b user=eve"))
    one.trial.does(asks("app-1 a1 memory=4"), asks("app-2 b1 memory=40"))
    sample = one.account(sample="true").sample
    assert sample is not None
    assert (sample.running, sample.allocated, sample.released) == (1, 1, 0)
    assert (sample.capacity, sample.used) == ({"memory": 10}, {"memory": 4})
    assert sample.queues == [
        Usage("root", 1, {"memory": 4}, {"memory": 40}),
        Usage("root.a", 1, {"memory": 4}, {}),
        Usage("root.p", 0, {}, {"memory": 40}),
        Usage("root.p.b", 0, {}, {"memory": 40}),
    ]
    assert sample.users == [Usage("bob", 1, {"memory": 4})]
    assert sample.groups == [Usage("dev", 1, {"memory": 4})]


def test_a_sample_is_taken_when_it_is_asked_for() -> None:
    assert Watched().account().sample is None


def test_what_runs_is_told_by_its_keys() -> None:
    one = Watched()
    one.trial.does(apps("app-1 root.a"), asks("app-1 a1 memory=4", "app-1 a2 memory=99"))
    assert one.account(keys="true").keys == ["a1"]
    assert one.account().keys is None


# Through the worker ---------------------------------------------------------------------------------------------------


def test_a_worker_answers_and_only_who_sees_everything() -> None:
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k1"))
    bench.schedule()
    [found] = said(bench.hear(Query(what="account", args={"sample": "true"})))
    assert isinstance(found, Answer)
    account = msgspec.json.decode(found.body, type=Account)
    assert told(account.happened) == ["k1 of a (u, root.batch) on n1"]
    [refused] = said(bench.hear(Query(what="account", viewer=Actor(user="eve"))))
    assert isinstance(refused, Answer)
    assert refused.status == 403
