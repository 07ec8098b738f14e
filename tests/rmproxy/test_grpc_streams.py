"""Which response goes out on which stream: no one is lost, and no one goes out twice unless a client does not read."""

import asyncio
from collections.abc import Callable, Coroutine

from rmproxy.grpc_status import StatusKind
from rmproxy.grpc_streams import ResponseQueue, RmStream
from tests.rmproxy.world import play


class Told:
    """What a queue says."""

    def __init__(self) -> None:
        self.drained = self.left = 0
        self.queue = ResponseQueue(on_written=self._drain, on_stream_end=self._leave)

    def _drain(self) -> None:
        self.drained += 1

    def _leave(self) -> None:
        self.left += 1


def bound(queue: ResponseQueue) -> RmStream:
    stream = RmStream()
    queue.bind(stream)
    return stream


def story(told: Callable[[Told], Coroutine[None, None, None]]) -> None:
    async def scenario() -> None:
        await told(Told())

    play(scenario)


def test_a_response_stays_queued_until_it_is_written() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one", b"two"])
        stream = bound(told.queue)
        assert await stream.next_response() == b"one"
        assert (len(told.queue), told.queue.size, told.drained) == (2, 6, 0)
        stream.confirm_written()
        assert (len(told.queue), told.queue.size, told.drained) == (1, 3, 1)
        assert await stream.next_response() == b"two"

    story(scenario)


def test_what_a_cancelled_stream_was_writing_goes_out_on_the_next() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        old = bound(told.queue)
        assert await old.next_response() == b"one"
        old.release()
        assert told.left == 1
        assert await bound(told.queue).next_response() == b"one"

    story(scenario)


def test_a_stream_that_takes_over_waits_until_the_old_one_has_written() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one", b"two"])
        old = bound(told.queue)
        await old.next_response()
        old.end(StatusKind.STOPPING.make())
        new = bound(told.queue)
        first = asyncio.create_task(new.next_response())
        await asyncio.sleep(0)
        assert not first.done()
        old.confirm_written()
        assert await first == b"two"
        assert await old.next_response() is None

    story(scenario)


def test_a_stream_that_takes_over_gets_what_the_old_one_could_not_write() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one", b"two"])
        old = bound(told.queue)
        await old.next_response()
        new = bound(told.queue)
        first = asyncio.create_task(new.next_response())
        await asyncio.sleep(0)
        old.release()
        assert await first == b"one"
        assert told.left == 0, "the queue has a stream still"

    story(scenario)


def test_a_client_that_does_not_read_holds_up_nobody_for_long() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        old = bound(told.queue)
        await old.next_response()
        new = bound(told.queue)
        assert await new.next_response() == b"one"
        old.confirm_written()  # it reads after all
        assert len(told.queue) == 1
        new.confirm_written()
        assert len(told.queue) == 0

    story(scenario)


def test_a_half_closed_stream_ends_when_nothing_is_queued() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        stream = bound(told.queue)
        stream.half_close()
        assert await stream.next_response() == b"one"
        stream.confirm_written()
        assert await stream.next_response() is None
        assert stream.status is None

    story(scenario)


def test_forgetting_everything_lets_a_late_write_mean_nothing() -> None:
    async def scenario(told: Told) -> None:
        told.queue.extend([b"one"])
        stream = bound(told.queue)
        await stream.next_response()
        told.queue.clear()
        told.queue.extend([b"new"])
        stream.confirm_written()
        assert (len(told.queue), told.queue.size) == (1, 3)

    story(scenario)


def test_the_first_ending_holds() -> None:
    stream = RmStream()
    stream.end(StatusKind.STOPPING.make())
    stream.end(StatusKind.LEFT.make(rm_id="R"))
    assert stream.status == StatusKind.STOPPING.make()
