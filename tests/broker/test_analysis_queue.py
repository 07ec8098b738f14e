"""Which text is analysed next, and which one is refused."""

import pytest

from yunishard.broker import config_validation
from yunishard.broker.config_validation import (
    BUDGET_S,
    BUDGET_WINDOW_S,
    BYTES_MAX,
    CLIENT_TEXTS_MAX,
    LITTLE_S,
    PROCESSES_MAX,
    SYSTEM,
    TEXTS_MAX,
    WAITING_MAX_S,
    AnalysisQueue,
    Job,
)
from yunishard.common.messages.wire import NEVER


class QueueBench:
    """A queue, and the time."""

    def __init__(self) -> None:
        self.queue = AnalysisQueue()
        self.now = 100.0
        self._numbers = 0

    def add(self, client: str, size: int = 1) -> int:
        """Have a text of a client wait; its number."""
        assert self.queue.find_no_room(client, size) == ""
        self._numbers += 1
        self.queue.add(Job(self._numbers, client, size, self.now))
        return self._numbers

    def start(self) -> list[tuple[int, str]]:
        """The processes that get a text now, and the client of each."""
        return [(process, job.client) for process, job in self.queue.start(self.now)]

    def finish(self, process: int, used_s: float) -> list[tuple[int, str]]:
        """A process has analysed its text; what starts then."""
        self.queue.finish(process, used_s, self.now)
        return self.start()

    def use(self, client: str, seconds: float) -> None:
        """A client has used this much."""
        self.queue.budgets.charge(client, seconds, self.now)


def test_each_client_has_one_text_in_a_process() -> None:
    bench = QueueBench()
    for client in ("a", "a", "b", "a"):
        bench.add(client)
    assert bench.start() == [(0, "a"), (1, "b")]
    assert bench.finish(0, 0.1) == [(0, "a")]


def test_the_first_text_of_a_client_does_not_wait_behind_the_texts_of_another() -> None:
    bench = QueueBench()
    for client in ("a", "b", "c"):
        for _ in range(3):
            bench.add(client)
    bench.start()
    for client in ("a", "b", "c"):
        bench.use(client, LITTLE_S)
    bench.add("late", size=1_000)
    assert bench.finish(1, 0.5) == [(1, "late")]


def test_the_last_free_process_is_for_clients_that_have_used_little() -> None:
    bench = QueueBench()
    heavy = [f"heavy{number}" for number in range(PROCESSES_MAX)]
    for client in heavy:
        bench.use(client, LITTLE_S + 1.0)
        bench.add(client)
    assert [client for _, client in bench.start()] == heavy[:-1]
    bench.add("light")
    assert bench.start() == [(PROCESSES_MAX - 1, "light")]


def test_of_clients_that_have_used_the_same_the_smaller_text_is_first() -> None:
    bench = QueueBench()
    bench.add("large", size=1_000)
    bench.add("small", size=10)
    assert bench.start() == [(0, "small"), (1, "large")]


def test_a_client_beyond_its_budget_waits_until_it_has_used_less() -> None:
    bench = QueueBench()
    bench.use("a", BUDGET_S + 1.0)
    bench.add("a")
    assert bench.start() == []
    assert bench.queue.find_deadline(bench.now) == pytest.approx(bench.now + BUDGET_WINDOW_S / BUDGET_S, abs=0.01)
    bench.now = bench.queue.find_deadline(bench.now)
    assert bench.start() == [(0, "a")]


def test_a_text_that_waits_too_long_is_refused_with_the_budget_of_its_client() -> None:
    bench = QueueBench()
    bench.use("RM a", BUDGET_S + WAITING_MAX_S)
    number = bench.add("RM a")
    assert bench.start() == []
    bench.now += WAITING_MAX_S
    [(job, reason)] = bench.queue.expire(bench.now)
    assert job.number == number
    assert "it has waited 20 s for its analysis, as RM a has used 40 s of processor time for configurations" in reason
    assert "of the 30 s that it has in 60 s: try again in 78 s" in reason
    assert bench.queue.find_deadline(bench.now) == NEVER


def test_a_text_that_waits_too_long_for_others_is_refused() -> None:
    bench = QueueBench()
    for client in ("a", "b", "c"):
        bench.add(client)
    bench.start()
    bench.add("d")
    assert bench.queue.find_deadline(bench.now) == bench.now + WAITING_MAX_S
    bench.now += WAITING_MAX_S
    [(_, reason)] = bench.queue.expire(bench.now)
    assert reason == "it has waited 20 s for its analysis: try again when the core is less busy"


@pytest.mark.parametrize(
    ("limit", "client", "words"),
    [
        (CLIENT_TEXTS_MAX, "a", "4 configurations of a wait for their analysis already: send one at a time"),
        (TEXTS_MAX, "b", "256 configurations with 0 MiB wait for their analysis already: try again later"),
    ],
)
def test_a_text_beyond_the_limits_of_the_queue_is_refused(limit: int, client: str, words: str) -> None:
    bench = QueueBench()
    for number in range(limit):
        bench.add(client if client == "a" else f"client{number // CLIENT_TEXTS_MAX}")
    assert bench.queue.find_no_room(client, 1) == words
    assert bench.queue.find_no_room(SYSTEM, 1) == ""


def test_texts_beyond_the_bytes_of_the_queue_are_refused_unless_none_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = QueueBench()
    assert bench.queue.find_no_room("a", BYTES_MAX + 1) == ""
    monkeypatch.setattr(config_validation, "BYTES_MAX", 100)
    first = bench.add("a", size=60)
    assert "1 configurations with 0 MiB wait" in bench.queue.find_no_room("b", 41)
    assert bench.queue.find_no_room("b", 40) == ""
    bench.queue.cancel(first)
    assert bench.queue.find_no_room("b", 41) == ""


def test_texts_of_the_broker_itself_have_no_budget_and_wait_for_no_other() -> None:
    bench = QueueBench()
    for _ in range(2):
        bench.add(SYSTEM)
    bench.use(SYSTEM, 10 * BUDGET_S)
    assert bench.start() == [(0, SYSTEM), (1, SYSTEM)]
    bench.add(SYSTEM)
    bench.now += 10 * WAITING_MAX_S
    assert bench.queue.expire(bench.now) == []


def test_a_budget_runs_down_evenly_and_idle_clients_are_forgotten() -> None:
    bench = QueueBench()
    bench.use("a", 10.0)
    bench.now += 0.1 * BUDGET_WINDOW_S
    assert bench.queue.budgets.get("a", bench.now) == pytest.approx(10.0 - 0.1 * BUDGET_S)
    bench.now += BUDGET_WINDOW_S
    assert bench.queue.budgets.get("a", bench.now) == 0.0
    bench.use("b", 1.0)
    assert list(bench.queue.budgets._used) == ["b"]
