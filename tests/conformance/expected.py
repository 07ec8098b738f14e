"""Which traces this core has to pass now, and what the others wait for. A trace moves up when its feature arrives.

The tests run those that pass and no others: what waits is not a test that is skipped, but one that is not there yet.
`python -m tests.conformance NAME` plays any of them. `test_expected.py` sees to it that each trace is in one list.
"""

from typing import Final

PASSING_PREFIXES: Final = (
    "acl-",
    "app-",
    "config-",
    "fair-share-",
    "limit-",
    "max-applications-",
    "namespace-",
    "node-",
    "partitions-",
    "placement-",
    "priority-within",
    "queue-",
    "template-",
)

PASSING_TOO: Final = (
    "ask-update-resizes-pending-and-running",
    "contention-of-priority-guarantee-and-limits",
    "contention-released-room-goes-to-the-most-deprived",
    "foreign-allocations-take-room-on-a-node",
    "gang-rejected-when-it-can-never-fit",
    "metrics-of-queues",
    "priority-fence-hides-inner-priorities",
    "priority-of-application-beats-submission-order",
    "priority-offset-of-a-queue",
    "recovery-queue-for-forced-applications",
    "recovery-takes-over-existing-allocations",
    "release-of-a-whole-application",
    "release-of-running-pending-and-unknown",
    "required-node-is-used-or-waited-for",
    "rest-objects-and-their-absence",
    "scale-1000-asks-all-fit-then-leave",
    "scale-1000-asks-by-guarantee",
    "two-rms-with-partitions-of-their-own",
    "unschedulable-asks-do-not-block-others",
)

WAITING: Final = {
    "events-of-a-short-life": "events",
    "gang-hard-timeout-fails-the-application": "gangs",
    "gang-placeholders-are-replaced": "gangs",
    "gang-smaller-real-asks-give-back-the-rest": "gangs",
    "gang-soft-timeout-goes-on-as-normal-application": "gangs",
    "preemption-leaves-the-guarantee-of-others": "preemption",
    "preemption-needs-an-ask-that-may-preempt": "preemption: it passes, because nothing is preempted",
    "preemption-prefers-those-that-agreed": "preemption",
    "preemption-reclaims-what-is-guaranteed": "preemption",
    "preemption-spares-fenced-and-disabled-queues": "preemption: it passes, because nothing is preempted",
    "quota-preemption-after-maximum-is-lowered": "preemption",
    "required-node-evicts-to-make-room": "preemption",
    "reservation-for-big-ask-on-fragmented-cluster": "reservations",
    "reservation-is-dropped-when-another-node-has-room": "reservations",
    "unschedulable-backoff-pauses-an-application": "backoff",
}

SLOWEST: Final = ("app-completed-after-completing-timeout",)
"""Begun first when several are played at once: this one waits for 30 seconds."""


def passes(name: str) -> bool:
    return name.startswith(PASSING_PREFIXES) or name in PASSING_TOO
