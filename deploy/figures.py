"""Figures of the supervisor: which processes there are, and how often what died was started again.

Not here: counting (`supervisor.py`), the figures of the children, who tell their own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from common.metrics import Family, counter, gauge
from deploy.children import STOP_ORDER, Cause, Child, Phase

SPARE: Final = "spare"
"""The role under which workers are counted that wait for a partition."""


def families(children: Iterable[Child], restarts: Mapping[tuple[str, Cause], int]) -> Iterator[Family]:
    """All of them; `restarts` by role and cause."""
    found = Counter((SPARE if child.spare else child.role, child.phase) for child in children)
    yield gauge(
        "yunishard_supervisor_processes",
        "Processes by role (workers without a partition are spare ones) and phase: ready, starting, leaving, killed, "
        "or paused before the next start. Worry if one stays paused or starting: it dies again and again.",
        ("role", "phase"),
        [((role, phase.value), found[role, phase]) for role in (*STOP_ORDER, SPARE) for phase in Phase],
    )
    yield counter(
        "yunishard_supervisor_restarts_total",
        "Processes that were started again, by why: it ended by itself (ended), said that it cannot run (failed), was "
        "not ready in time (slow), or did not say that it is alive (silent). Worry at any; the log has the story.",
        ("role", "cause"),
        [((role, cause.value), restarts.get((role, cause), 0)) for role in STOP_ORDER for cause in Cause],
    )
