"""What a worker answers to a question, whatever it is about, and whether the answer is small enough to be sent.

Not here: the answers themselves (`queries.py` about the partition, `events.py` about its history).
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from msgspec.structs import replace

from common.event_lines import EVENT_LINES
from common.families import Family, encoded
from common.histogram import Histogram
from common.query_messages import NOT_MODIFIED, TOO_LONG, Answer, Query
from common.wire import BODY_BYTES_MAX
from partition_worker.answers import event_lines, events, figures, own_figures, queries, samples
from partition_worker.answers.figure_memo import Memo
from partition_worker.answers.visibility import Visibility
from partition_worker.recorder import Recorder
from partition_worker.replica import Replica

OK: Final = 200

ANSWER_BYTES_MAX: Final = BODY_BYTES_MAX - 1024
"""The document in an answer, so that the message stays within its limit."""


def answer(
    replica: Replica,
    query: Query,
    now: float,
    *,
    cycles: Histogram,
    recorder: Recorder | None = None,
    around: Callable[[], list[Family]] = list,
    memo: Memo | None = None,
) -> Answer:
    """The answer, or why there is none; nothing changes. `around` tells the figures of the process and its journal."""
    if replica.partition is None:
        return Answer(status=503, body=b"the partition is starting")
    if query.what not in queries.FOR_VIEWERS and not Visibility(replica.partition, query.viewer).everything:
        return Answer(status=403, body=f"who may not see everything may not ask for {query.what}".encode())
    if query.what == "events":
        return events.answer(replica.events, replica.extra, query.args, bytes_max=ANSWER_BYTES_MAX)
    if query.what == EVENT_LINES:
        return event_lines.answer(replica.events, replica.extra, query.args, bytes_max=ANSWER_BYTES_MAX)
    problem = recorder.problem if recorder is not None else ""
    if query.what == "metrics":
        told = figures.families(replica.partition, cycles, now, full_name=replica.name, kept=not problem, memo=memo)
        own = own_figures.families(replica, replica.partition, cycles, recorder, now)
        found = Answer(status=200, body=encoded([*told, *own, *around()]))
    elif query.what == "account":
        found = samples.answer(replica.partition, replica.events, query.args)
    else:
        version = _version(replica, query)
        if version and query.known == version:
            return Answer(status=NOT_MODIFIED, body=b"", version=version)
        found = queries.answer(
            replica.partition, replica.lane.rm, query, journal_problem=problem, poison=replica.recent_poison(now)
        )
        found = replace(found, version=version if found.status in (OK, TOO_LONG) else "")
    if len(found.body) > ANSWER_BYTES_MAX:
        text = f"the answer has {len(found.body)} bytes, at most {ANSWER_BYTES_MAX} can be sent: ask for a part of it"
        return Answer(status=503, body=f"{text}, a list with limit".encode())
    return found


def _version(replica: Replica, query: Query) -> str:
    """What the answer to this question is the answer of, or nothing for one that changes with time as well.

    With the time of the last change, as another process under the same lease counts its changes from 0 again.
    """
    if query.what not in queries.LASTING:
        return ""
    who = query.viewer
    asked = (query.what, query.name, sorted(query.args.items()), who and (who.user, who.groups, who.scheduler_admin))
    digest = blake2b(repr(asked).encode(), digest_size=8).hexdigest()
    return f"{replica.epoch:x}-{replica.changes:x}-{int(replica.changed_at * 1e6):x}-{digest}"
