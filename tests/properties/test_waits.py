"""After a random session, everything that fits and may run is running, and every guarantee and quota that can be
reclaimed is; what still waits has a reason that `explain` names, that is true, and that ends: once all that runs has
ended, only asks wait that would not fit an empty cluster.

PROPERTIES=long plays 3,000 sessions, in about ten minutes.
"""

import os
from collections import Counter

from tests.properties.plain_waits import Judge
from tests.properties.sessions import Session, generate
from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.explain.checks import find_reason
from yunishard.partition_worker.engine.explain.explanations import explain_ask

SESSIONS = 3000 if os.environ.get("PROPERTIES") == "long" else 25
REST_S = 2000.0
LATER_S = 130.0
"""More than each wait that may have begun shortly before the end, such as the minute between looks at a quota."""


def judge(session: Session) -> list[str]:
    """What should have happened; what just had no time to happen does not count."""
    session.rest(REST_S)
    found = Judge(session.trial.partition, session.trial.now).complaints()
    if found:
        session.rest(LATER_S)
        later = set(Judge(session.trial.partition, session.trial.now).complaints())
        found = [text for text in found if text in later]
    session.finish()
    last = Judge(session.trial.partition, session.trial.now)
    return [*found, *last.never_end(), *last.complaints()]


def test_what_waits_after_a_session_waits_with_a_reason() -> None:
    failures: list[str] = []
    seen: Counter[str] = Counter()
    for seed in range(SESSIONS):
        session = generate(seed)
        lines = list(session.lines)
        found = judge(session)
        state = session.trial.partition
        seen["waiting"] += any(one.requests for one in state.applications.values())
        seen.update({one.reason for one in state.preemptions.entries})
        if found:
            failures.append("\n".join([f"seed {seed}, {REST_S:.0f} s after", *lines, "----", *found]))
    assert not failures, f"{len(failures)} of {SESSIONS} sessions\n\n" + "\n\n".join(failures[:3])
    assert min(seen[kind] for kind in ("waiting", "guaranteed", "required-node", "quota")) > SESSIONS / 30, seen


AT_NODES = (Reason.NO_NODE_FITS, Reason.NOT_TRIED, Reason.BEHIND_OTHERS)
"""Only a look at nodes and at other asks tells these apart."""


def test_counts_and_the_explanation_of_an_ask_name_the_same_reason() -> None:
    compared: Counter[str] = Counter()
    for seed in range(SESSIONS):
        session = generate(seed)
        state, now = session.trial.partition, session.trial.now
        for application in state.applications.values() if state.nodes.total else ():
            for group in application.asks.groups:
                found = find_reason(state, application, group, now)
                stopped_by = explain_ask(state, application, group.head, now).stopped_by
                assert found == stopped_by or {found, stopped_by} <= set(AT_NODES), (seed, group.head.key)
                compared[found] += 1
    assert len(compared) > 5, compared
