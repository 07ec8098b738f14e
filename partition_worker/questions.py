"""What a worker answers to a question, whatever it is about, and whether the answer is small enough to be sent.

Not here: the answers themselves (`queries.py` about the partition, `events.py` about its history).
"""

from typing import Final

from common.messages import Answer, Query
from common.wire import BODY_BYTES_MAX
from partition_worker import events, queries
from partition_worker.histogram import Histogram
from partition_worker.replica import Replica

ANSWER_BYTES_MAX: Final = BODY_BYTES_MAX - 1024
"""The document in an answer, so that the message stays within its limit."""


def answer(replica: Replica, query: Query, now: float, *, cycles: Histogram, journal_problem: str) -> Answer:
    """The answer, or why there is none; nothing changes."""
    if replica.partition is None:
        return Answer(status=503, body=b"the partition is starting")
    if query.what == "events":
        return events.answer(replica.events, replica.extra, query.args, bytes_max=ANSWER_BYTES_MAX)
    rm = replica.lane.rm
    found = queries.answer(replica.partition, rm, query, now, cycles, journal_problem=journal_problem)
    if len(found.body) > ANSWER_BYTES_MAX:
        text = f"the answer has {len(found.body)} bytes, at most {ANSWER_BYTES_MAX} can be sent: ask for a part of it"
        return Answer(status=503, body=text.encode())
    return found
