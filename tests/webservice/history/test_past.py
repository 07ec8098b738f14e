"""Questions to the history: in threads, not too many at once, and what goes wrong in words for whoever asked."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from webservice.errors import RequestError
from webservice.history.past import READERS_MAX, WAITING_MAX, Past
from webservice.history.reading import BadCursor, NoSuchPartition, TooMuch, Unreadable


@dataclass
class Kept:
    path: Path = Path("/somewhere")
    problem: str = ""


def refused(past: Past, question: Callable[[Path], object]) -> tuple[int, str]:
    with pytest.raises(RequestError) as caught:
        asyncio.run(past.read(question))
    return caught.value.status, caught.value.text


def test_a_question_is_answered_in_another_thread() -> None:
    past = Past(Kept())
    assert asyncio.run(past.read(lambda path: (path, threading.current_thread() is threading.main_thread()))) == (
        Path("/somewhere"),
        False,
    )
    past.close()


@pytest.mark.parametrize(
    ("problem", "status", "told"),
    [
        (NoSuchPartition(), 404, "Partition not found"),
        (BadCursor(), 400, "after must be what an earlier answer gave as next"),
        (TooMuch(), 503, "This takes longer than 5 s: ask for less time, with since and until"),
        (Unreadable("bad page"), 503, "The history cannot be read: bad page"),
    ],
)
def test_what_goes_wrong_is_told(problem: Exception, status: int, told: str) -> None:
    def fail(_: Path) -> None:
        raise problem

    assert refused(Past(Kept()), fail) == (status, told)


def test_while_it_is_not_kept_nothing_is_read() -> None:
    assert refused(Past(Kept(problem="disk full")), lambda _: 1) == (503, "There is no history: disk full")


def test_more_questions_than_can_wait_are_refused_and_the_others_answered() -> None:
    past, go_on = Past(Kept()), threading.Event()
    bound = READERS_MAX + WAITING_MAX

    async def ask() -> list[int]:
        waiting = [asyncio.ensure_future(past.read(lambda _: int(go_on.wait(20)))) for _ in range(bound)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError, match=f"{bound} questions about the history are waiting already"):
            await past.read(lambda _: 0)
        go_on.set()
        answered = await asyncio.gather(*waiting)
        return [*answered, await past.read(lambda _: 7)]

    assert asyncio.run(ask()) == [1] * bound + [7]
    past.close()
