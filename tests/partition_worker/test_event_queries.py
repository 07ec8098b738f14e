"""What `/ws/v1/events/batch` answers; errors and keys are those that the reference was recorded with."""

import json

import msgspec
import pytest

from tests.builders import apps, asks, gone, nodes, released
from tests.machines import said
from tests.partition_worker.bench import Bench, ask
from tests.trial import Trial
from yunishard.common.config.extra_config import ExtraConfig
from yunishard.common.messages import event_codes
from yunishard.common.messages.query_messages import (
    COUNT_MAX,
    EVENTS_MAX,
    Account,
    Actor,
    Answer,
    Began,
    Ended,
    EventLines,
    Failing,
    Happened,
    Query,
    Usage,
)
from yunishard.common.messages.rm_messages import NODE_DECOMMISSION
from yunishard.common.text_formats import UnsignedError
from yunishard.partition_worker import event_ring_buffer
from yunishard.partition_worker.engine.effects import Event
from yunishard.partition_worker.event_ring_buffer import EventRingBuffer

NOW = 1000.0
ALLOCATED = Event(event_codes.NODE, "n1", "a1", event_codes.ADD, event_codes.NODE_ALLOC, "", {"memory": 10, "gpu": 0})
DRAINED = Event(event_codes.NODE, "n1", "", event_codes.SET, event_codes.NODE_SCHEDULABLE, "schedulable: false", {})


def ring(*events: Event) -> EventRingBuffer:
    one = EventRingBuffer("rm-1_default 1")
    one.append_events(events, NOW)
    return one


def ask_batch(
    one: EventRingBuffer, *, bytes_max: int = 1 << 20, settings: ExtraConfig | None = None, **args: str
) -> Answer:
    return event_ring_buffer.answer_events(one, settings or ExtraConfig(), args, bytes_max=bytes_max)


def read(answer: Answer) -> dict[str, object]:
    assert answer.status == 200, answer.body
    found = json.loads(answer.body)
    assert isinstance(found, dict)
    return found


def records(answer: Answer) -> int:
    found = read(answer)["EventRecords"]
    assert isinstance(found, list)
    return len(found)


def test_a_record_has_the_keys_of_the_interface_without_what_is_empty() -> None:
    one = ring(ALLOCATED, DRAINED)
    assert ask_batch(one).body.decode() == (
        f'{{"InstanceUUID":"{one.instance}","LowestID":0,"HighestID":1,"EventRecords":['
        '{"type":3,"objectID":"n1","timestampNano":1000000000000,"eventChangeType":2,"eventChangeDetail":303,'
        '"referenceID":"a1","resource":{"resources":{"gpu":{},"memory":{"value":10}}}},'
        '{"type":3,"objectID":"n1","message":"schedulable: false","timestampNano":1000000000001,"eventChangeType":1,'
        '"eventChangeDetail":302,"resource":{}}]}\n'
    )


def test_without_events_there_is_no_list() -> None:
    found = read(ask_batch(ring()))
    assert (found["LowestID"], found["HighestID"], found["EventRecords"]) == (0, 0, None)


def test_a_start_that_is_not_there_has_no_list_and_says_what_is() -> None:
    found = read(ask_batch(ring(ALLOCATED, DRAINED), start="2"))
    assert (found["LowestID"], found["HighestID"], found["EventRecords"]) == (0, 1, None)


@pytest.mark.parametrize(
    ("args", "expected"),
    [({}, 3), ({"start": "", "count": ""}, 3), ({"count": "2"}, 2), ({"start": "1"}, 2), ({"count": "99"}, 3)],
)
def test_start_and_count_choose(args: dict[str, str], expected: int) -> None:
    assert records(ask_batch(ring(ALLOCATED, DRAINED, ALLOCATED), **args)) == expected


def test_no_answer_has_more_records_than_is_configured() -> None:
    few = ExtraConfig(event_rest_response_size=2)
    assert records(ask_batch(ring(*[ALLOCATED] * 5), settings=few, count="4")) == 2


def test_an_answer_that_would_be_too_large_has_fewer_records() -> None:
    answer = ask_batch(ring(*[ALLOCATED] * 100), bytes_max=2000)
    assert len(answer.body) <= 2000
    assert 1 <= records(answer) < 100


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({"count": "0"}, '0 is not a valid value for "count"'),
        ({"count": "abc"}, 'strconv.ParseUint: parsing "abc": invalid syntax'),
        ({"count": "-1"}, 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ({"start": "xyz"}, 'strconv.ParseUint: parsing "xyz": invalid syntax'),
        ({"count": "abc", "start": "xyz"}, 'strconv.ParseUint: parsing "abc": invalid syntax'),
        ({"start": "18446744073709551616"}, 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
        ({"start": "9" * 5000}, f'strconv.ParseUint: parsing "{"9" * 5000}": value out of range'),
    ],
)
def test_what_is_no_number_is_refused_with_the_text_of_the_reference(args: dict[str, str], reason: str) -> None:
    with pytest.raises(UnsignedError) as refused:
        ask_batch(ring(ALLOCATED), **args)
    assert str(refused.value) == reason


def test_the_largest_number_is_one() -> None:
    assert read(ask_batch(ring(ALLOCATED), start="18446744073709551615"))["EventRecords"] is None


def test_without_tracking_there_is_nothing_to_ask_whatever_the_question() -> None:
    answer = ask_batch(ring(ALLOCATED), settings=ExtraConfig(event_tracking_enabled=False), count="abc")
    assert (answer.status, answer.body) == (500, b"Event tracking is disabled")


@pytest.mark.parametrize(
    ("message", "shown"),
    [("x" * 1024, "x" * 1024), ("x" * 1025, "x" * 1021 + "..."), ("é" * 513, "é" * 510 + "...")],
)
def test_a_long_message_is_cut(message: str, shown: str) -> None:
    found = json.loads(ask_batch(ring(msgspec.structs.replace(ALLOCATED, message=message))).body)
    assert found["EventRecords"][0]["message"] == shown


def test_amounts_beyond_64_bits_are_shown_as_the_most_there_is() -> None:
    found = json.loads(ask_batch(ring(msgspec.structs.replace(ALLOCATED, resource={"memory": 1 << 70}))).body)
    assert found["EventRecords"][0]["resource"] == {"resources": {"memory": {"value": (1 << 63) - 1}}}


@pytest.mark.parametrize("count", ["", "18446744073709551615"])
def test_an_answer_has_so_many_records_whatever_is_configured(count: str) -> None:
    one = ring(*[DRAINED] * (event_ring_buffer.ANSWERED_MAX + 1))
    settings = ExtraConfig(event_rest_response_size=2**64 - 1)
    assert records(ask_batch(one, bytes_max=1 << 30, settings=settings, count=count)) == event_ring_buffer.ANSWERED_MAX


Lines = EventLines[dict[str, object]]


def line_ring(event_ring_buffer: int, capacity: int = 10_000) -> EventRingBuffer:
    one = EventRingBuffer("rm-1_default 1", capacity)
    one.append_events(
        [Event(event_codes.NODE, f"n{number}", "", event_codes.ADD, 0, "", {}) for number in range(event_ring_buffer)],
        1000.0,
    )
    return one


def ask_lines(
    one: EventRingBuffer, settings: ExtraConfig | None = None, *, bytes_max: int = 1 << 20, **args: str
) -> Answer:
    return event_ring_buffer.answer_event_lines(one, settings or ExtraConfig(), args, bytes_max=bytes_max)


def read_lines(answer: Answer) -> Lines:
    assert answer.status == 200, answer.body
    return msgspec.json.decode(answer.body, type=Lines)


def test_without_a_start_it_says_where_the_history_is_and_gives_none_of_it() -> None:
    one = line_ring(7, capacity=5)
    found = read_lines(ask_lines(one))
    assert (found.instance, found.lowest, found.end, found.first) == (one.instance, 2, 7, 7)
    assert (found.tracking, found.streams_max, found.streams_per_host_max, found.records) == (True, 100, 15, [])


def test_it_says_what_the_resource_manager_allows() -> None:
    settings = ExtraConfig(event_tracking_enabled=False, event_max_streams=3, event_max_streams_per_host=0)
    found = read_lines(ask_lines(line_ring(0), settings))
    assert (found.tracking, found.streams_max, found.streams_per_host_max) == (False, 3, 0)


def test_events_are_given_from_the_start_on_as_they_are_shown() -> None:
    found = read_lines(ask_lines(line_ring(3), start="1", count="1"))
    shown = {"type": 3, "objectID": "n1", "timestampNano": 1_000_000_000_001, "eventChangeType": 2, "resource": {}}
    assert (found.first, found.end, found.records) == (1, 3, [shown])


def test_what_is_gone_is_passed_over() -> None:
    found = read_lines(ask_lines(line_ring(7, capacity=5), start="0", count="10"))
    assert (found.first, len(found.records)) == (2, 5)


@pytest.mark.parametrize("start", ["7", "8", "18446744073709551615"])
def test_there_is_nothing_yet_at_the_end_and_beyond(start: str) -> None:
    found = read_lines(ask_lines(line_ring(7), start=start, count="10"))
    assert (found.first, found.records) == (int(start), [])


@pytest.mark.parametrize("count", ["5000", "18446744073709551615"])
def test_an_answer_has_so_many_events_whatever_is_asked_for(count: str) -> None:
    assert len(read_lines(ask_lines(line_ring(5000), start="0", count=count)).records) == COUNT_MAX


def test_an_answer_that_would_be_too_long_has_fewer_events() -> None:
    answer = ask_lines(line_ring(1000), start="0", count="1000", bytes_max=10_000)
    assert len(answer.body) <= 10_000
    assert 0 < len(read_lines(answer).records) < 1000


def test_a_question_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UnsignedError):
        ask_lines(line_ring(0), start="x")


class Watched:
    """A trial with the ring that its worker would keep."""

    def __init__(self, trial: Trial | None = None, capacity: int = 10_000) -> None:
        self.trial = trial or Trial("root.a max=memory:50; root.p.b").does(nodes("n1 memory=10", "n2 memory=10"))
        self.ring = EventRingBuffer("one", capacity)

    def notes(self) -> None:
        """Let the ring have what happened so far."""
        self.ring.append_events(self.trial.partition.drain_events(), self.trial.now)

    def answer(self, **args: str) -> Answer:
        self.notes()
        return event_ring_buffer.answer_account(self.trial.partition, self.ring, args)

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
    one.ring.append_events([Event(2, "x", "", 1, 206, "", {})] * (EVENTS_MAX + 5), 1.0)
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
    with pytest.raises(UnsignedError):
        Watched().answer(**args)


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
