"""When partitions are queried, which rows follow from the answers, and what is a gap."""

from itertools import pairwise

from tests.webservice.history.accounts import (
    DEFAULT,
    GPU,
    MINUTE,
    NOW,
    S,
    account,
    application,
    began,
    gone,
    sample,
    usage,
)
from yunishard.common.messages.query_messages import Account, PartitionEntry, Usage
from yunishard.webservice.history.collector import (
    FORGOTTEN_AFTER_NS,
    GONE_AFTER_NS,
    IDLE_ROUNDS,
    Collector,
    Gap,
    ReadPosition,
    RowBatch,
)


def collector(place: ReadPosition | None = None, *usages: Usage) -> Collector:
    """Made a minute before NOW, so that a sample is due then."""
    places = {DEFAULT.full_name: place} if place is not None else {}
    queues = {("queues", one.name): one for one in usages}
    return Collector(places, {DEFAULT.full_name: queues}, NOW - MINUTE)


def args(one: Collector, now_ns: int, *partitions: PartitionEntry) -> list[dict[str, str]]:
    return [query.args for _, query in one.plan_queries(partitions or [DEFAULT], now_ns)]


def heard(one: Collector, said: Account, now_ns: int = NOW + S) -> RowBatch:
    found = one.process_answer(DEFAULT, said, now_ns)
    assert found is not None
    return found


# What is asked --------------------------------------------------------------------------------------------------------


def test_every_partition_is_asked_what_happened_since_the_place_it_was_read_to() -> None:
    one = collector(ReadPosition("one", 7, NOW - S, NOW - 2 * S, NOW - S))
    assert args(one, NOW - 1, DEFAULT, GPU) == [
        {"instance": "one", "start": "7", "since": str(NOW - 2 * S)},
        {"instance": "", "start": "0", "since": "0"},
    ]


def test_each_minute_they_are_asked_how_they_are_the_first_time_a_minute_after_the_start() -> None:
    one = collector()
    seconds = [index for index in range(-60, 130) if "sample" in args(one, NOW + index * S)[0]]
    assert seconds == [0, 60, 120]


def test_those_in_which_nothing_happens_are_asked_less_often_and_not_all_at_once() -> None:
    one = collector()
    assert len(args(one, NOW - MINUTE, DEFAULT, GPU)) == 2, "nobody knows yet whether something happens there"
    for partition in (DEFAULT, GPU):
        one.process_answer(partition, account(), NOW - MINUTE)
    asked = [
        [partition for partition, _ in one.plan_queries([DEFAULT, GPU], NOW - MINUTE + index * S)]
        for index in range(1, 1 + 2 * IDLE_ROUNDS)
    ]
    for partition in (DEFAULT, GPU):
        rounds = [index for index, found in enumerate(asked) if partition in found]
        assert [last - first for first, last in pairwise(rounds)] == [IDLE_ROUNDS], rounds
    assert [DEFAULT, GPU] not in asked


def test_one_that_was_idle_is_asked_in_each_round_again_once_something_has_happened_there() -> None:
    one = collector()
    one.process_answer(DEFAULT, account(), NOW - MINUTE)
    assert sum(len(args(one, NOW - MINUTE + index)) for index in range(IDLE_ROUNDS)) == 1
    heard(one, account(began("a")))
    assert sum(len(args(one, NOW - MINUTE + index)) for index in range(IDLE_ROUNDS)) == IDLE_ROUNDS
    one.process_answer(DEFAULT, account(first=1), NOW - MINUTE)
    heard(one, account(first=1, ended=[application()]))
    assert sum(len(args(one, NOW - MINUTE + index)) for index in range(IDLE_ROUNDS)) == IDLE_ROUNDS


def test_those_that_are_idle_are_asked_too_how_they_are() -> None:
    one = collector()
    for index in range(IDLE_ROUNDS):
        one.process_answer(DEFAULT, account(), NOW - MINUTE)
        assert "sample" in args(one, NOW + index * MINUTE)[0]


def test_minutes_that_were_slept_through_are_not_made_up_for() -> None:
    one = collector()
    times = [NOW, NOW + 10 * MINUTE, NOW + 10 * MINUTE + S, NOW + 11 * MINUTE]
    assert ["sample" in args(one, at)[0] for at in times] == [True, True, False, True]


def test_a_clock_that_is_put_back_does_not_end_the_samples() -> None:
    one = collector()
    args(one, NOW + 1000 * MINUTE)
    assert ["sample" in args(one, NOW + at * S)[0] for at in (0, 59, 60)] == [False, False, True]


def test_what_runs_is_asked_for_with_a_sample_after_something_was_missed() -> None:
    one = collector(ReadPosition("one", 7, unsure=True))
    assert "keys" not in args(one, NOW - S)[0]
    assert "keys" in args(one, NOW)[0]
    assert not heard(one, account(following=7, first=7, keys=["a"])).position.unsure
    assert "keys" not in args(one, NOW + MINUTE)[0]


def test_a_read_position_in_the_future_is_ignored() -> None:
    one = collector(ReadPosition("one", 7, last_event_ns=NOW * 2, ended_ns=NOW * 2))
    assert args(one, NOW)[0]["since"] == "0"
    assert heard(one, account(began("a"), first=7)).account.happened == [began("a")]


def test_a_worker_whose_clock_is_ahead_is_not_read_from_its_beginning() -> None:
    one = collector(ReadPosition("one", 7, last_event_ns=NOW + MINUTE, ended_ns=NOW + MINUTE))
    assert args(one, NOW)[0]["since"] == str(NOW + MINUTE)


# What is kept ---------------------------------------------------------------------------------------------------------


def test_rows_come_with_the_next_read_position() -> None:
    one = collector()
    events, ended = [began("a"), gone("a")], [application(at_ns=NOW)]
    found = heard(one, account(*events, ended=ended))
    assert (found.account.happened, found.account.ended, found.gaps) == (events, ended, [])
    assert found.position == ReadPosition("one", 2, NOW + S, NOW)
    assert args(one, NOW + S) == [{"instance": "one", "start": "2", "since": str(NOW), "sample": "true"}]


def test_an_answer_without_news_adds_nothing() -> None:
    one = collector(ReadPosition("one", 7))
    assert one.process_answer(DEFAULT, account(first=7), NOW) is None


def test_an_answer_without_events_does_not_take_the_place_back() -> None:
    one = collector(ReadPosition("one", 7, last_event_ns=NOW, ended_ns=NOW))
    place = heard(one, account(first=7, sample=sample())).position
    assert (place.next_event, place.last_event_ns, place.ended_ns) == (7, NOW, NOW)


def test_only_usage_that_is_another_than_before_is_kept() -> None:
    one = collector(ReadPosition("one", 7, sampled_ns=NOW), usage("root", 5), usage("root.a", 3), usage("root.b", 2))
    told = sample(usage("root", 5), usage("root.a", 4), usage("root.c", 1))
    found = heard(one, account(first=7, sample=told))
    assert found.usage == [
        ("queues", usage("root.a", 4)),
        ("queues", usage("root.c", 1)),
        ("queues", Usage("root.b", 0, {})),
    ]
    assert heard(one, account(first=7, sample=told), NOW + 2 * S).usage == []


def test_all_usage_is_recorded_once_an_hour() -> None:
    one = collector(ReadPosition("one", 7, sampled_ns=NOW - S), usage("root", 5))
    found = heard(one, account(first=7, sample=sample(usage("root", 5), users=[usage("bob")], groups=[usage("dev")])))
    assert found.usage == [("queues", usage("root", 5)), ("users", usage("bob")), ("groups", usage("dev"))]


# Gaps -----------------------------------------------------------------------------------------------------------------


def test_events_that_the_worker_discarded_are_a_gap_with_their_number() -> None:
    one = collector(ReadPosition("one", 7, last_event_ns=NOW - S))
    found = heard(one, account(began("a"), first=10))
    assert found.gaps == [Gap("events", NOW - S, NOW, 3, "the worker overwrote events before they were read")]
    assert found.position.unsure


def test_those_before_the_first_look_are_one_too() -> None:
    found = heard(collector(), account(began("a"), first=10))
    assert [(gap.missed, gap.until_ns) for gap in found.gaps] == [(10, NOW)]


def test_a_partition_that_was_not_listed_for_a_while_repeats_nothing() -> None:
    one = collector(ReadPosition("", 0, last_event_ns=NOW + S))
    found = heard(one, account(began("a"), gone("a"), began("b", NOW + 2 * S), instance="one"))
    assert (found.account.happened, found.gaps) == ([began("b", NOW + 2 * S)], [])
    assert found.position == ReadPosition("one", 3, NOW + 2 * S)


def test_a_worker_whose_clock_is_behind_the_one_before_is_read_completely() -> None:
    one = collector(ReadPosition("one", 7, last_event_ns=NOW))
    events = [began("a", NOW - MINUTE), gone("a", NOW - S), began("b")]
    found = heard(one, account(*events, instance="two"))
    assert found.account.happened == events
    assert [gap.reason for gap in found.gaps] == ["the worker or its partition restarted"]
    assert found.position == ReadPosition("two", 3, NOW, unsure=True)


def test_another_instance_that_begins_later_leaves_a_gap_of_unknown_size() -> None:
    one = collector(ReadPosition("one", 7, last_event_ns=NOW - S))
    found = heard(one, account(began("a"), instance="two"))
    assert [(gap.since_ns, gap.until_ns, gap.missed) for gap in found.gaps] == [(NOW - S, NOW, None)]
    assert found.position.unsure


def test_each_sample_reports_that_events_are_not_tracked() -> None:
    one = collector(ReadPosition("one", 7, sampled_ns=NOW))
    assert one.process_answer(DEFAULT, account(first=7, tracked=False), NOW + S) is None
    found = heard(one, account(first=7, tracked=False, sample=sample()), NOW + MINUTE)
    assert [(gap.what, gap.since_ns, gap.until_ns) for gap in found.gaps] == [("events", NOW, NOW + MINUTE)]


def test_minutes_without_an_answer_are_a_gap() -> None:
    one = collector(ReadPosition("one", 7, sampled_ns=NOW))
    assert heard(one, account(first=7, sample=sample()), NOW + 85 * S).gaps == []
    found = heard(one, account(first=7, sample=sample()), NOW + 85 * S + 5 * MINUTE)
    assert [(gap.what, gap.missed) for gap in found.gaps] == [("samples", 4)]


# Partitions that go ---------------------------------------------------------------------------------------------------


def test_a_partition_that_is_gone_for_long_has_nothing_any_more() -> None:
    place = ReadPosition("one", 7, sampled_ns=NOW - GONE_AFTER_NS - S)
    one = collector(place, usage("root"))
    one.plan_queries([GPU], NOW)
    [left] = one.end_removed([GPU], NOW)
    assert (left.usage, left.account.keys) == ([("queues", Usage("root", 0, {}))], [])
    assert left.position == place._replace(instance="", next_event=0)
    assert one.end_removed([GPU], NOW) == [], "once is enough"


def test_the_read_position_of_a_removed_partition_is_dropped_in_the_end() -> None:
    one = collector(ReadPosition("one", 7, sampled_ns=NOW - GONE_AFTER_NS - S), usage("root"))
    for now_ns in (NOW, NOW + FORGOTTEN_AFTER_NS - GONE_AFTER_NS - 2 * S):
        one.plan_queries([GPU], now_ns)
        one.end_removed([GPU], now_ns)
        assert list(one._positions) == [DEFAULT.full_name]
    one.plan_queries([GPU], NOW + FORGOTTEN_AFTER_NS)
    assert one.end_removed([GPU], NOW + FORGOTTEN_AFTER_NS) == []
    assert (one._positions, one._usage, one._idle) == ({}, {}, set())


def test_one_that_is_not_there_for_a_moment_is_not_gone() -> None:
    for place in (ReadPosition("one", 7, sampled_ns=NOW - MINUTE), ReadPosition("one", 7, last_event_ns=NOW - MINUTE)):
        one = collector(place, usage("root"))
        one.plan_queries([], NOW)
        assert one.end_removed([], NOW) == []
