"""Figures of the broker, and of the processes that tell it theirs, as nobody can ask them.

What a process told is kept as long as it goes on telling: what has begun anew or fallen silent leaves nothing behind.
Not here: counting (`tally.py`), the figures of workers, who are asked themselves.
"""

from collections.abc import Callable, Iterator
from typing import Final

from broker.books import Books
from broker.questions import Questions
from broker.revival import Found
from broker.said import answer
from broker.tally import OUTCOMES
from common.control_messages import Figures, NodesAstray
from common.families import Family, Sample, counter, distribution, encoded, families, gauge
from common.machine import Delivery, Send
from common.names import RMPROXY, SUPERVISOR, WEBSERVICE
from common.process_up import up
from common.query_messages import Query
from common.wire import decoded

KEPT_S: Final = 15.0
"""What a process told is forgotten when it has told nothing for so long; it does every five seconds."""

TELLERS: Final = (RMPROXY, SUPERVISOR)
"""The processes that tell theirs."""


class AllFigures:
    """The figures of everybody but workers. `around` tells those of the broker's own process, which its shell knows."""

    def __init__(self, books: Books, questions: Questions) -> None:
        self.around: Callable[[], list[Family]] = list
        self._books = books
        self._questions = questions
        self._told: dict[str, tuple[float, list[Family]]] = {}
        """By peer: when, and what."""

    def began(self, peer: str) -> None:
        """A process has begun anew."""
        self._told.pop(peer, None)

    def heard(self, delivery: Delivery, now: float) -> list[Send]:
        """Somebody tells figures or asks for them. Who may do neither is not answered.

        Raises:
            WireError: it cannot be read.
        """
        header, source = delivery.header, delivery.source
        match header.kind:
            case "Figures" if source in TELLERS:
                self._tell(source, decoded(Figures, delivery.body), now)
            case "NodesAstray" if header.rm in self._books.roster.registrations:
                self._books.tally.astray[header.rm] += decoded(NodesAstray, delivery.body).count
            case "Query" if source == WEBSERVICE and decoded(Query, delivery.body).what == "metrics":
                return [answer(source, header.ref, 200, encoded(self._all(now)))]
            case "Query":
                return [answer(source, header.ref, 404, b"Partition not found")]
        return []

    def _tell(self, source: str, told: Figures, now: float) -> None:
        try:
            self._told[source] = now, families(told.families)
        except ValueError as error:
            self._books.warnings.append(f"the metrics of {source} cannot be read: {error}")

    def _all(self, now: float) -> Iterator[Family]:
        yield from self.around()
        yield from _rollouts(self._books)
        yield from _managers(self._books)
        yield from _workers(self._books)
        what = "Questions that workers have not answered yet. Worry if it stays up: a worker does not get to them."
        yield gauge("yunishard_broker_questions_waiting", what, (), [((), self._questions.waiting)])
        for peer in TELLERS:
            told = self._told.get(peer)
            if told is not None and now - told[0] < KEPT_S:
                yield from told[1]
            else:
                yield up(peer, here=False)


def _rollouts(books: Books) -> Iterator[Family]:
    tally = books.tally
    yield counter(
        "yunishard_broker_rollouts_total",
        "Configurations that were carried to all workers of a resource manager (committed) or to none: one objected, "
        "one did not answer in time (expired), a worker cannot start (unstartable), the disk did not take it "
        "(unrecorded), its resource manager was gone (ended). Worry about expired, unstartable and unrecorded ones.",
        ("outcome",),
        [((outcome,), tally.rollouts[outcome]) for outcome in OUTCOMES],
    )
    what = "Seconds from a configuration's arrival until it was in force everywhere. A worker that takes 20 ends it."
    yield distribution("yunishard_broker_rollout_seconds", what, (), [((), tally.rollout_s)])
    yield counter(
        "yunishard_broker_record_writes_total",
        "Writes of the broker's record that became durable (durable) or failed (refused), attempts to find out whether "
        "the disk takes writes again among them. Worry at any that is refused: the disk is full or broken, and changes "
        "wait.",
        ("outcome",),
        [(("durable",), tally.written), (("refused",), tally.unwritten)],
    )


def _managers(books: Books) -> Iterator[Family]:
    roster, tally = books.roster, books.tally
    away = sum(rm in roster.away for rm in roster.registrations)
    yield gauge(
        "yunishard_broker_managers",
        "Resource managers that are registered: those that are there, and those of which nothing is heard (away), for "
        "which nothing is placed. Worry about one that is away for minutes: it ends when the setting pause-timeout "
        "says.",
        ("state",),
        [(("there",), len(roster.registrations) - away), (("away",), away)],
    )
    yield counter(
        "yunishard_broker_registrations_total",
        "Registrations of resource managers, granted and refused. Many that are granted say that one loses its session "
        "again and again.",
        ("outcome",),
        [(("granted",), tally.granted), (("refused",), tally.refused)],
    )
    yield counter(
        "yunishard_rm_failed_nodes_total",
        "Nodes that the resource manager has registered for a partition that it does not have, so that nothing is ever "
        "placed there. Worry at any: the node's partition attribute or the configuration is wrong.",
        ("rm",),
        [((rm,), tally.astray[rm]) for rm in roster.registrations],
    )


def _workers(books: Books) -> Iterator[Family]:
    roster, tally = books.roster, books.tally
    seats = [(name, seat) for name, seat in roster.seats.items() if name not in roster.leaving]
    running = sum(seat.present for _, seat in seats)
    states: list[Sample] = [
        (("running",), running),
        (("starting",), len(seats) - running),
        (("leaving",), len(roster.leaving)),
    ]
    yield gauge(
        "yunishard_broker_partitions",
        "Partitions with a worker (running), that wait for theirs (starting), and that left the configuration "
        "(leaving). Worry if one is starting for a minute.",
        ("state",),
        states,
    )
    what = (
        "Leases that went over to another worker, as the one that had it was silent for too long. Worry at any: it "
        "hung, or the machine has too much to do."
    )
    yield counter("yunishard_broker_leases_renewed_total", what, (), [((), tally.renewed)])
    yield counter(
        "yunishard_broker_recoveries_total",
        "Workers that came back, by what their journal had: everything (goes_on), all but the latest configuration "
        "(behind), nothing as nothing had begun (unbegun), or not what the resource manager knows (lost), which then "
        "reports everything again. Worry at any that is lost.",
        ("found",),
        [((one.name.lower(),), tally.recoveries[one.name.lower()]) for one in Found],
    )
