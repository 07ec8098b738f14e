"""The followers of partitions, and the limits of streams."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.webservice.event_worker import EAGER, FakeClock, FakeWorker
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.webservice import event_streams
from yunishard.webservice.event_streams import BEHIND_MAX, CLOSED_LINE, SILENT_MAX_S, EventStream, EventStreams, Pace
from yunishard.webservice.views import RequestError

FIRST = b'{"InstanceUUID":"history-1"}\n'


def run(
    test: Callable[[FakeWorker, FakeClock, EventStreams], Awaitable[None]], worker: FakeWorker, pace: Pace = EAGER
) -> None:
    async def running() -> None:
        clock = FakeClock()
        await test(worker, clock, EventStreams(worker.ask, pace=pace, clock=clock))

    asyncio.run(running())


async def begun(
    all_: EventStreams, *, partition: str = "rm_p", rm: str = "rm", host: str = "h", count: str = "", start: str = ""
) -> EventStream:
    return await all_.open_stream(partition, rm, host=host, count=count, start=start)


async def read(stream: EventStream, lines: int) -> list[bytes]:
    """So many lines, or fewer if the stream ends."""
    found: list[bytes] = []
    while len(found) < lines and (piece := await anext(stream, None)) is not None:
        found += piece.splitlines(keepends=True)
    return found


async def nobody_reads() -> None:
    """Until the history is not followed any more."""
    await next(task for task in asyncio.all_tasks() if task.get_name() == "events of rm_p")


def numbers(first: int, end: int) -> list[bytes]:
    return [b'{"n":%d}\n' % number for number in range(first, end)]


def test_a_stream_begins_with_its_instance_and_continues_with_new_events() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        assert await read(stream, 1) == [FIRST]
        worker.end += 3
        assert await read(stream, 3) == numbers(7, 10)

    run(test, FakeWorker(7))


@pytest.mark.parametrize("count", ["3", "700", "18446744073709551615"])
def test_past_events_come_first_as_many_as_there_are(count: str) -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        worker.lowest = 100
        stream = await begun(all_, count=count)
        worker.end += 2
        first = max(100, 900 - int(count))
        assert await read(stream, 903 - first) == [FIRST, *numbers(first, 902)]

    run(test, FakeWorker(900))


@pytest.mark.parametrize(("start", "first"), [("850", 850), ("7", 100), ("900", 900), ("5000", 900)])
def test_a_stream_continues_at_a_number_and_states_where_it_begins(start: str, first: int) -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        worker.lowest = 100
        stream = await begun(all_, start=start, count="3")
        worker.end += 2
        begin = b'{"InstanceUUID":"history-1","FirstID":%d}\n' % first
        assert await read(stream, 903 - first) == [begin, *numbers(first, 902)]

    run(test, FakeWorker(900))


def test_a_start_that_is_no_number_is_refused() -> None:
    async def test(_: FakeWorker, __: FakeClock, all_: EventStreams) -> None:
        with pytest.raises(RequestError, match="invalid syntax"):
            await begun(all_, start="-1")

    run(test, FakeWorker(900))


def test_a_burst_reaches_who_reads_without_gaps_and_without_repetition() -> None:
    async def test(worker: FakeWorker, clock: FakeClock, all_: EventStreams) -> None:
        readers = [await begun(all_) for _ in range(3)]
        worker.end += 20_000
        clock.now += 100  # nothing that it takes to write counts against who takes it
        for stream in readers:
            assert await read(stream, 20_001) == [FIRST, *numbers(0, 20_000)]

    run(test, FakeWorker())


def test_a_reader_behind_the_buffer_gets_the_events_of_the_worker() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        slow, quick = await begun(all_), await begun(all_)
        worker.end += 5000
        assert len(await read(quick, 5001)) == 5001
        assert await read(slow, 5001) == [FIRST, *numbers(0, 5000)]

    run(test, FakeWorker(), Pace(interval_min_s=0, interval_max_s=0, past_pause_s=0, buffer_max=10))


def test_a_reader_who_is_behind_what_the_partition_has_is_cut_off() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        slow = await begun(all_)
        worker.end += 1
        assert await read(slow, 2) == [FIRST, *numbers(0, 1)]
        quick = await begun(all_)
        worker.end += 5000
        assert len(await read(quick, 5001)) == 5001
        worker.lowest = 3000
        assert await read(slow, 9) == [CLOSED_LINE]
        assert all_.open == [quick]

    run(test, FakeWorker(), Pace(interval_min_s=0, interval_max_s=0, past_pause_s=0, buffer_max=10))


def test_a_stalled_connection_is_cut_off_and_the_others_continue() -> None:
    async def test(worker: FakeWorker, clock: FakeClock, all_: EventStreams) -> None:
        stuck, other = await begun(all_), await begun(all_)
        await anext(stuck)  # and never asks for more: the piece is not written yet
        assert await read(other, 1) == [FIRST]
        worker.end += 1
        assert await read(other, 1) == numbers(0, 1)
        clock.now += EAGER.stalled_max_s
        await worker.asked_again()
        assert all_.open == [stuck, other]
        reading = asyncio.create_task(read(other, 1))
        clock.now += 0.1
        await worker.asked_again()
        assert all_.open == [other]
        assert await read(stuck, 2) == [CLOSED_LINE]
        worker.end += 1
        assert await reading == numbers(1, 2)

    run(test, FakeWorker())


def test_one_that_is_far_behind_as_well_is_cut_off_sooner() -> None:
    async def test(worker: FakeWorker, clock: FakeClock, all_: EventStreams) -> None:
        stuck = await begun(all_)
        await anext(stuck)
        worker.end += BEHIND_MAX + 1
        clock.now += EAGER.behind_stalled_max_s
        await worker.asked_again()
        await worker.asked_again()
        assert all_.open == [stuck]
        clock.now += 0.1
        await nobody_reads()
        assert all_.open == []
        assert await read(stuck, 2) == [CLOSED_LINE]

    run(test, FakeWorker())


def test_who_only_waits_is_not_cut_off() -> None:
    async def test(worker: FakeWorker, clock: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        reading = asyncio.create_task(read(stream, 2))
        await worker.asked_again()
        clock.now += 1000
        await worker.asked_again()
        worker.end += 1
        assert await reading == [FIRST, *numbers(0, 1)]

    run(test, FakeWorker())


def other_instance(worker: FakeWorker) -> None:
    worker.instance, worker.end = "history-2", 0


def lost_its_end(worker: FakeWorker) -> None:
    worker.end -= 1


def went_before_they_were_asked_for(worker: FakeWorker) -> None:
    worker.lowest, worker.end = 20, 30


@pytest.mark.parametrize("change", [other_instance, lost_its_end, went_before_they_were_asked_for])
def test_all_streams_end_where_what_follows_is_not_what_comes_next(change: Callable[[FakeWorker], None]) -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        assert await read(stream, 1) == [FIRST]
        change(worker)
        assert await read(stream, 5) == [CLOSED_LINE]
        again = await begun(all_)
        assert (await read(again, 1))[0].startswith(b'{"InstanceUUID":"%s"}' % worker.instance.encode())
        worker.end += 1
        assert await read(again, 1) == numbers(worker.end - 1, worker.end)

    run(test, FakeWorker(10))


def test_a_changed_last_event_ends_all_streams() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        worker.end += 1
        assert await read(stream, 2) == [FIRST, *numbers(10, 11)]
        worker.silent = True
        await worker.asked_again()
        worker.silent, worker.end, worker.anew = False, 15, {10}
        assert await read(stream, 9) == [CLOSED_LINE]

    run(test, FakeWorker(10))


def test_a_ring_without_room_for_more_is_followed_all_the_same() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        assert await read(stream, 1) == [FIRST]
        for number in range(10, 20):
            worker.lowest, worker.end = number, number + 1
            assert await read(stream, 1) == numbers(number, number + 1)

    run(test, FakeWorker(10))


def test_a_new_stream_of_another_instance_ends_the_previous_streams() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        old = await begun(all_)
        other_instance(worker)
        new = await begun(all_)
        assert all_.open == [new]
        assert await read(old, 5) == [FIRST, CLOSED_LINE]

    run(test, FakeWorker(10), Pace(interval_min_s=1000))


def test_a_stream_continues_after_a_silent_period() -> None:
    async def test(worker: FakeWorker, clock: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        worker.silent = True
        await worker.asked_again()
        clock.now += SILENT_MAX_S
        await worker.asked_again()
        worker.silent = False
        worker.end += 2
        assert await read(stream, 3) == [FIRST, *numbers(0, 2)]

    run(test, FakeWorker())


def test_one_that_stays_silent_ends_its_streams() -> None:
    async def test(worker: FakeWorker, clock: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        worker.silent = True
        await worker.asked_again()
        clock.now += SILENT_MAX_S + 1
        assert await read(stream, 3) == [FIRST, CLOSED_LINE]

    run(test, FakeWorker())


def test_streams_stay_open_while_tracking_is_off() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        worker.tracking = False
        await worker.asked_again()
        with pytest.raises(RequestError, match="Event tracking is disabled") as refused:
            await begun(all_, count="abc")
        assert refused.value.status == 500
        worker.tracking = True
        worker.end += 1
        assert await read(stream, 2) == [FIRST, *numbers(0, 1)]

    run(test, FakeWorker())


def test_there_may_be_so_many_in_all_and_for_one_host() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        first = await begun(all_, host="a")
        await begun(all_, host="a")
        with pytest.raises(RequestError, match="Too many streaming connections") as refused:
            await begun(all_, host="a", count="abc")
        assert refused.value.status == 503
        await begun(all_, host="b")
        with pytest.raises(RequestError, match="Too many streaming connections"):
            await begun(all_, host="c")
        await begun(all_, partition="rm-2_p", rm="rm-2", host="a")  # another resource manager has limits of its own
        await first.aclose()
        await begun(all_, host="a")
        worker.limits = {"streams_max": 0, "streams_per_host_max": 0}
        assert len(all_.open) == 4

    run(test, FakeWorker(streams_max=3, streams_per_host_max=2))


def test_a_limit_of_zero_allows_no_stream() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        with pytest.raises(RequestError, match="Too many streaming connections"):
            await begun(all_)
        assert worker.asked == [{}]

    run(test, FakeWorker(streams_max=0))


def test_all_resource_managers_together_may_have_so_many() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        for number in range(event_streams.STREAMS_MAX):
            await begun(all_, rm=f"rm-{number}", partition=f"rm-{number % 10}_p")
        with pytest.raises(RequestError, match="Too many"):
            await begun(all_, rm="one-more")

    run(test, FakeWorker(), Pace(interval_min_s=1000))


@pytest.mark.parametrize(
    ("count", "text"),
    [
        ("abc", 'strconv.ParseUint: parsing "abc": invalid syntax'),
        ("-1", 'strconv.ParseUint: parsing "-1": invalid syntax'),
        ("18446744073709551616", 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
    ],
)
def test_a_count_that_is_none_is_refused(count: str, text: str) -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        with pytest.raises(RequestError) as refused:
            await begun(all_, count=count)
        assert (refused.value.status, refused.value.text, all_.open) == (400, text, [])

    run(test, FakeWorker())


def test_the_worker_is_not_queried_without_streams() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        await stream.aclose()
        await nobody_reads()
        asked = len(worker.asked)
        again = await begun(all_, count="1")
        assert await read(again, 2) == [FIRST, *numbers(6, 7)]
        assert len(worker.asked) > asked

    run(test, FakeWorker(7))


def test_however_many_read_it_is_asked_once() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        readers = [await begun(all_) for _ in range(10)]
        before = len(worker.asked)
        worker.end += 100
        for stream in readers:
            assert len(await read(stream, 101)) == 101
        assert sum(int(args["count"]) > 0 for args in worker.asked[before:]) <= 2

    run(test, FakeWorker(), Pace(interval_min_s=0.001, interval_max_s=1000))


def test_closing_ends_all_streams_and_opens_no_more() -> None:
    async def test(worker: FakeWorker, _: FakeClock, all_: EventStreams) -> None:
        stream = await begun(all_)
        assert await read(stream, 1) == [FIRST]
        reading = asyncio.create_task(read(stream, 1))
        await worker.asked_again()
        all_.close()
        assert await reading == [CLOSED_LINE]
        with pytest.raises(RequestError, match="Too many"):
            await begun(all_)

    run(test, FakeWorker())


def test_a_malformed_answer_is_an_error() -> None:
    async def ask(partition: str, query: Query) -> Answer:
        return Answer(status=200, body=b"{}")

    with pytest.raises(RequestError, match="cannot be read"):
        asyncio.run(event_streams.read_events(ask, "rm-1_default"))
