"""The line that is left of an application in the log: whose it was, how long it took, and what it used.

Not here: when it is written (`engine/lifecycle.py`).
"""

from datetime import UTC, datetime

from common.messages import Resources
from common.resources import described
from partition_worker.engine.applications.application import Application
from partition_worker.engine.applications.history import Use


def summary(application: Application) -> str:
    """What an application that has ended used; times are UTC, and it has run."""
    times = (application.submitted_ns, application.started_ns, application.finished_ns)
    submitted, started, finished = (datetime.fromtimestamp(at // 10**9, UTC).isoformat() for at in times)
    return (
        f"summary of application {application.application_id}: {application.state}, "
        f"user {application.user.name}, queue {application.queue.path}, "
        f"submitted {submitted}, started {started}, finished {finished}, "
        f"used {_used(application, Use.REAL)}, preempted {_used(application, Use.PREEMPTED)}, "
        f"placeholders {_used(application, Use.PLACEHOLDER)} (amounts times seconds, by type of instance)"
    )


def _used(application: Application, wanted: Use) -> str:
    by_type: dict[str, Resources] = {kind: used for (use, kind), used in application.history.items() if use is wanted}
    return "{" + ", ".join(f"{kind}: {described(by_type[kind])}" for kind in sorted(by_type)) + "}"
