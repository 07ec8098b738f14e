"""What kinds and fields mean where the docstrings of common/rm_messages.py do not say it, or say it with words of our
code.

By `Class`, `Class.field`, or `*.field` for one that means the same everywhere.
"""

from typing import Final

_NODE_ACTIONS: Final = (
    "1 joins, and takes allocations; 6 joins, and takes none yet; 2 has another `schedulableResource`; 3 takes "
    "nothing new; 5 takes allocations again; 4 goes, and all that runs on it has ended. 1 and 6 are answered, the "
    "others not"
)
_TERMINATION_TYPES: Final = (
    "0 and 1 (stopped by the RM), 2 (time is over), 3 (preempted), 4 (placeholder replaced), 5 (said by RMs only: "
    "could not be started, wants a node again), see [releases](#releases)"
)

MEANINGS: Final = {
    # Everywhere
    "*.application_id": "Which application",
    "*.allocation_key": "Which ask or allocation: unique in its partition, chosen by the RM",
    "*.node_id": "Which node: unique in its partition, chosen by the RM",
    "*.rm_id": "The RM's id, as in the header; may be left out",
    "*.reason": "Why, for people",
    "*.cause": "Number of the input or decision in the partition that this follows from, for people who look for the "
    "reason",
    "*.partition_name": "Plain or normalised name of the partition, empty for `default`; only looked at where the "
    "header names no partition",
    "Allocation.partition_name": "From the RM: plain or normalised name of the partition, empty for `default`; only "
    "looked at where the header names no partition. In news left out: the header names it",
    "Refused.partition_name": "Left out: the header names the partition",
    "ReleasesIgnored": "Releases of one `AllocationRequest` that had no effect, also those for a partition that does "
    "not exist. For diagnosis: not numbered, not acknowledged, and not repeated if it is lost",
    "ReleasesIgnored.ignored": "The releases as the RM sent them, at most 100, each with the reason as `message`",
    "ReleasesIgnored.more": "How many others of the same request are not in the list",
    "*.policy_group": "Name of the group of queues, as in YuniKorn; not looked at",
    "*.config": "Text of a `queues.yaml`; empty for the queues that the core has for RMs without",
    "*.extra_config": "The RM's [settings](operating/settings.md#service-settings-of-an-rm), all of them",
    "*.checksum": "SHA-256 of the configuration's text, 64 upper case hexadecimal digits. A part `checksum: ` with up "
    "to 64 more characters does not count, if the text carries one",
    "*.question": "Number of the question, repeated in its answer",
    # From the RM
    "NodeInfo": "A node, and what happens to it",
    "NodeInfo.action": _NODE_ACTIONS,
    "NodeInfo.attributes": "Only looked at when it joins. `si/node-partition` names its partition, others are for "
    "[tags of asks](predicates.md#tags)",
    "NodeInfo.schedulable_resource": "All that may be allocated on it, foreign allocations included. Nil or left out: "
    "unchanged, and nothing for a new node",
    "NodeRequest": "Nodes that appear, change or go",
    "NodeRequest.nodes": "Handled in order",
    "ApplicationRequest.new": "Handled first. Each is answered, accepted or rejected",
    "ApplicationRequest.remove": "Handled after. They go with all they have; one that is unknown has no effect",
    "AllocationRequest.allocations": "Handled first. Those with a node, and asks that get one, are told as `new`",
    "AllocationRequest.releases": "Handled after",
    "SyncBegin": "The RM is about to report everything that it has in this partition, see [full "
    "reports](#full-reports)",
    "SyncEnd.nodes": "Nodes that were reported since `SyncBegin` (action 1 or 6), each id once",
    "SyncEnd.applications": "Applications that were reported (`new`), each id once",
    "SyncEnd.allocations": "Asks, allocations and foreign allocations that were reported, each key once",
    "RegisterResourceManager.version": "Of the RM, for people; not looked at",
    "RegisterResourceManager.build_info": "Texts about the RM's program, shown over REST",
    "RegisterResourceManager.capabilities": "What it can do, or wants, that not every RM does: `predicates`, `events`, "
    "`state-dump`. Unknown ones are passed over",
    "UpdateConfiguration.extra_config": "The RM's settings: they replace all earlier ones, even if the configuration "
    "is refused. Left out: none",
    "Resume": "Go on in the same session: what was sent and not acknowledged is sent again, both ways",
    "Resume.received": "Partition to the number of the last news that was dealt with. All partitions with which "
    "anything was exchanged, also with 0",
    "AddApplicationRequest.queue_name": "Full path of the wished queue; the placement rules decide",
    "AddApplicationRequest.ugi": "Who submits",
    "AddApplicationRequest.tags": "For placement rules and settings of the queue, as in YuniKorn",
    "AddApplicationRequest.execution_timeout_milli_seconds": "Of a gang: how long its placeholders may take and stay; "
    "0 for 15 minutes",
    "AddApplicationRequest.placeholder_ask": "Of a gang: what all its placeholders need together",
    "AddApplicationRequest.gang_scheduling_style": "`Soft` (or empty) or `Hard`: whether a gang whose time is over "
    "goes on without places, or fails",
    "UserGroupInformation.user": "Their name; required",
    "UserGroupInformation.groups": "The primary one first; empty for those that the partition's configuration finds",
    "Allocation.application_id": "Its application; empty for a foreign allocation",
    "Allocation.resource_per_alloc": "What it takes. For an allocation that is known already: what it takes from now "
    "on",
    "Allocation.node_id": "Empty for an ask. Said by the RM: it runs there already. Said by the core: start it there",
    "Allocation.priority": "The higher comes first",
    "Allocation.allocation_tags": "`foreign` (any value): not the core's, only takes room on its node; "
    "`creationTime`: Unix seconds; [where it may run](predicates.md#tags)",
    "Allocation.task_group_name": "Its group in a gang",
    "Allocation.placeholder": "Whether it keeps a place for a real ask of its task group",
    "Allocation.originator": "Whether its application depends on it: others go first",
    "Allocation.preemption_policy": "Nil or left out: neither",
    "AllocationReleasesRequest": "The releases of an `AllocationRequest`, nested as in the scheduler interface",
    "AllocationReleasesRequest.allocations_to_release": "Handled in order",
    "AllocationRelease.application_id": "Its application; empty for a foreign allocation",
    "AllocationRelease.allocation_key": "Which one; empty for all asks and allocations of the application",
    "AllocationRelease.termination_type": _TERMINATION_TYPES,
    "AllocationRelease.message": "Why, for people",
    "PreemptionPolicy.allow_preempt_self": "Whether it may be made to go for others",
    "PreemptionPolicy.allow_preempt_other": "Whether others may be made to go for it",
    "Verdict": "The answer to one of the pairs that were asked, whose fields it repeats",
    # From the core
    "NodeResponse.accepted": "Nodes that joined",
    "NodeResponse.rejected": "Nodes that did not",
    "ApplicationResponse.accepted": "Applications that have a queue",
    "ApplicationResponse.rejected": "Applications that were refused, and are unknown",
    "ApplicationResponse.updated": "States that applications entered, in order",
    "AllocationResponse.new": "What has a node now: start it there, unless it was reported as running",
    "AllocationResponse.released": "What is gone, or has to go: see [releases](#releases)",
    "AllocationResponse.rejected_allocations": "What was refused, and is unknown",
    "EventResponse": "Events that concern the RM, such as a queue of its applications that drains",
    "EventResponse.events": "In order",
    "SchedulingStateResponse.updated": "Those asks",
    "SyncDone.nodes": "Nodes that are gone",
    "SyncDone.applications": "Applications that are gone",
    "SyncDone.allocations": "Asks, allocations and foreign allocations that are gone",
    "SyncDone.problem": "Why nothing was removed, if the numbers did not agree; then nothing is placed until another "
    "report is complete",
    "Registered": "The RM is in, or in again",
    "Registered.partitions": "Normalised names of all its partitions: use them in headers",
    "Registered.lives": "Partition to its life, where that is not the first (0)",
    "ConfigurationUpdated.lives": "Partition to its life, where that is not the first (0)",
    "Goodbye.retry_after_milli_seconds": "How long to wait before connecting again",
    "Refused.code": "For programs, see [refusals](#refusals)",
    "Refused.seq": "Number of the command that was refused, if it had one",
    "Received": "The core's `Ack`: only the `ack` of its header counts",
    "Heartbeat.incarnation": "Only used inside the core",
    "PredicatesAsked.deadline_milli_seconds": "An answer that takes longer counts as no",
    "StateDumpAsked.deadline_milli_seconds": "An answer that takes longer is of no use",
    "StateDumpAnswered.text": "What the RM knows, as a JSON object of at most 1 MiB",
    "PredicatesAsked.asked": "The pairs, at most 1,024",
    "PredicatesArgs.allocate": "Whether it is to run there now. Otherwise the node is to be kept for it, or it is to "
    "take the place of its placeholder there",
    "UpdateContainerSchedulingState.state": "Always 4, scheduling failed",
    "UpdatedApplication": "A state that an application entered",
    "UpdatedApplication.state": "`Accepted`, `Starting`, `Running`, `Resuming`, `Completing`, `Completed`, `Failing`, "
    "`Failed`, `Rejected` or `Expired`",
    "UpdatedApplication.state_transition_timestamp": "Unix nanoseconds",
    "UpdatedApplication.message": "Why",
    "EventRecord": "Something that happened, with the numbers of the scheduler interface (`EventRecord` in "
    "[scheduler.proto](../rmproxy/si/scheduler.proto))",
    "EventRecord.type": "What it is about: 1 ask, 2 application, 3 node, 4 queue, 5 user or group",
    "EventRecord.object_id": "Its id or path",
    "EventRecord.message": "For people",
    "EventRecord.timestamp_nano": "Unix nanoseconds",
    "EventRecord.event_change_type": "0 none, 1 set, 2 added, 3 removed",
    "EventRecord.event_change_detail": "Which part of it, as in the interface",
    "EventRecord.reference_id": "Id of the other one that it concerns",
    "EventRecord.resource": "How much",
}
