"""Nobody waits for the answer of a worker that died."""

from broker import queries
from broker.queries import PendingQueries
from common.names import SUPERVISOR
from common.query_messages import Query
from common.rm_messages import Leave
from tests.broker.house import GPU, PROXY, WEB, House, kinds, registered
from tests.machines import PARTITION, arrives, two_partitions


def forward(asked: PendingQueries, house: House, ref: str, *, partition: str = PARTITION) -> None:
    query = arrives(WEB, Query(what="queues"), rm="", session="", partition=partition, ref=ref)
    assert len(asked.forward(house.switch.registry, query)) == 1


def test_whoever_still_waits_is_told_that_the_worker_began_anew() -> None:
    house = registered(two_partitions())
    asked = PendingQueries()
    for ref in ("1", "2", "3"):
        forward(asked, house, ref)
    forward(asked, house, "4", partition=GPU)
    asked.remove_query(PARTITION, "webservice", "2")
    lost = asked.fail_partition(PARTITION)
    assert [(one.to, one.header.kind, one.header.ref) for one in lost] == [
        ("webservice", "Answer", "1"),
        ("webservice", "Answer", "3"),
    ]
    assert b"ask again" in lost[0].body
    assert asked.fail_partition(PARTITION) == []


def test_an_answer_to_a_question_that_nobody_asked_is_no_matter() -> None:
    asked = PendingQueries()
    asked.remove_query(PARTITION, "webservice", "1")
    assert asked.fail_partition(PARTITION) == []


def test_only_so_many_are_remembered() -> None:
    house, asked = registered(), PendingQueries()
    for number in range(queries.PENDING_MAX + 2):
        forward(asked, house, str(number))
    lost = asked.fail_partition(PARTITION)
    assert len(lost) == queries.PENDING_MAX
    assert lost[0].header.ref == "2"


def test_who_asked_a_partition_that_ends_is_answered() -> None:
    house = registered()
    house.hear(WEB, Query(what="queues"), rm="", session="", partition=PARTITION, ref="1")
    assert kinds(house.hear(PROXY, Leave())) == [(PROXY, "Left"), (WEB, "Answer"), (SUPERVISOR, "WorkersWanted")]
