"""Which traces this core has to pass now, and what the others wait for. A trace moves up when its feature arrives.

The tests run those that pass and no others: what waits is not a test that is skipped, but one that is not there yet.
`python -m tests.conformance NAME` plays any of them. `test_expected.py` sees to it that each trace is in one list.
"""

from typing import Final

PASSING_PREFIXES: Final = ("app-", "fair-share-", "node-", "priority-within", "queue-")

PASSING_TOO: Final = (
    "acl-denied-rule-falls-through",
    "acl-submit-by-user-group-and-parent",
    "ask-update-resizes-pending-and-running",
    "config-none-uses-the-default",
    "config-validation-over-rest",
    "contention-released-room-goes-to-the-most-deprived",
    "foreign-allocations-take-room-on-a-node",
    "max-applications-of-a-parent-queue",
    "max-applications-of-a-queue",
    "metrics-of-queues",
    "partitions-are-scheduled-independently",
    "placement-filters-allow-and-deny",
    "placement-provided-below-user-parent",
    "placement-provided-rule-without-create-falls-to-default",
    "placement-tag-rule-under-fixed-parent",
    "placement-user-rule-creates-queues",
    "priority-fence-hides-inner-priorities",
    "priority-of-application-beats-submission-order",
    "priority-offset-of-a-queue",
    "recovery-queue-for-forced-applications",
    "recovery-takes-over-existing-allocations",
    "release-of-a-whole-application",
    "release-of-running-pending-and-unknown",
    "required-node-is-used-or-waited-for",
    "scale-1000-asks-all-fit-then-leave",
    "scale-1000-asks-by-guarantee",
    "template-shapes-dynamic-queues",
    "unschedulable-asks-do-not-block-others",
)

WAITING: Final = {
    "config-adds-and-changes-queues": "configuration changes",
    "config-lowered-maximum-stops-new-allocations": "configuration changes",
    "config-refused-changes-nothing": "configuration changes: it passes, because everything is refused",
    "config-removed-queue-drains": "configuration changes",
    "contention-of-priority-guarantee-and-limits": "limits",
    "events-of-a-short-life": "events, configuration changes",
    "gang-hard-timeout-fails-the-application": "gangs",
    "gang-placeholders-are-replaced": "gangs",
    "gang-rejected-when-it-can-never-fit": "gangs",
    "gang-smaller-real-asks-give-back-the-rest": "gangs",
    "gang-soft-timeout-goes-on-as-normal-application": "gangs",
    "limit-group-is-shared-by-its-users": "limits",
    "limit-max-applications-of-a-user": "limits",
    "limit-user-max-resources": "limits",
    "limit-wildcard-for-users-without-their-own": "limits",
    "namespace-tags-set-quota-of-dynamic-queue": "quotas from tags",
    "partitions-added-by-configuration": "configuration changes",
    "preemption-leaves-the-guarantee-of-others": "preemption",
    "preemption-needs-an-ask-that-may-preempt": "preemption: it passes, because nothing is preempted",
    "preemption-prefers-those-that-agreed": "preemption",
    "preemption-reclaims-what-is-guaranteed": "preemption",
    "preemption-spares-fenced-and-disabled-queues": "preemption: it passes, because nothing is preempted",
    "quota-preemption-after-maximum-is-lowered": "configuration changes, preemption",
    "required-node-evicts-to-make-room": "preemption",
    "reservation-for-big-ask-on-fragmented-cluster": "reservations",
    "reservation-is-dropped-when-another-node-has-room": "reservations",
    "rest-objects-and-their-absence": "the rest of REST",
    "two-rms-with-partitions-of-their-own": "configuration changes",
    "unschedulable-backoff-pauses-an-application": "backoff",
}

SLOWEST: Final = ("app-completed-after-completing-timeout",)
"""Begun first when several are played at once: this one waits for 30 seconds."""


def passes(name: str) -> bool:
    return name.startswith(PASSING_PREFIXES) or name in PASSING_TOO
