"""Meanings of message kinds and fields for docs/protocol.md, where the docstrings of common/messages/rm_messages.py
have none or refer to the code.

The keys are `Class`, `Class.field`, or `*.field` for a field with the same meaning everywhere.
"""

from typing import Final

_NODE_ACTIONS: Final = (
    "1: register, schedulable. 6: register, unschedulable. 2: change `schedulableResource` and `attributes`. 3: drain, "
    "no new allocations. 5: end of draining. 4: remove the node with its allocations. The core answers 1 and 6 only"
)
_TERMINATION_TYPES: Final = (
    "0 and 1 (stopped by the RM), 2 (timeout), 3 (preempted), 4 (placeholder replaced), 5 (from RMs only: the "
    "allocation could not be started, the ask is scheduled again), see [releases](#releases)"
)

MEANINGS: Final = {
    # Everywhere
    "*.application_id": "Id of the application",
    "*.allocation_key": "Key of the ask or allocation, unique in its partition; the RM chooses it",
    "*.node_id": "Id of the node, unique in its partition; the RM chooses it",
    "*.rm_id": "The RM's id, as in the header; may be omitted",
    "*.reason": "The reason, as text for users",
    "*.cause": "Number of the input or decision in the partition that led to this message, for debugging",
    "*.partition_name": "Plain or normalised name of the partition, empty for `default`; used only if the header has "
    "no partition",
    "Allocation.partition_name": "From the RM: plain or normalised name of the partition, empty for `default`; used "
    "only if the header has no partition. Omitted in news: the header has it",
    "Refused.partition_name": "Omitted: the header has the partition",
    "ReleasesIgnored": "Releases of one `AllocationRequest` that had no effect, also those for a partition that does "
    "not exist. For diagnosis: not numbered, not acknowledged, and not retransmitted",
    "ReleasesIgnored.ignored": "The releases as the RM sent them, at most 100, each with the reason as `message`",
    "ReleasesIgnored.more": "Number of further releases of the same request that are not in the list",
    "*.policy_group": "Name of the policy group, as in YuniKorn; ignored",
    "*.config": "Text of a `queues.yaml`; empty for the default configuration",
    "*.extra_config": "All [settings](operating/settings.md#service-settings-of-an-rm) of the RM",
    "*.checksum": "SHA-256 of the configuration's text, 64 upper case hexadecimal digits. A part `checksum: ` with up "
    "to 64 more characters does not count, if the text has one",
    "*.question": "Number of the question; the answer repeats it",
    # From the RM
    "NodeInfo": "A node with an action",
    "NodeInfo.action": _NODE_ACTIONS,
    "NodeInfo.attributes": "When the node registers, its attributes; with action 2, they replace all those it has, "
    "unless there are none but `si/node-partition`. That names its partition, others are for [tags of asks]"
    "(predicates.md#tags)",
    "NodeInfo.schedulable_resource": "The capacity for allocations, including foreign ones. Nil or omitted: unchanged, "
    "or no capacity for a new node",
    "NodeRequest": "Registers, changes or removes nodes",
    "NodeRequest.nodes": "Processed in order",
    "ApplicationRequest.new": "Processed first. The core accepts or rejects each",
    "ApplicationRequest.remove": "Processed second. The core removes them with their asks and allocations, and ignores "
    "unknown ones",
    "AllocationRequest.allocations": "Asks and allocations, processed first. An `AllocationResponse` lists those with "
    "a node, and asks that get one, in `new`",
    "AllocationRequest.releases": "Processed second",
    "SyncBegin": "The RM starts to report its whole state in this partition, see [full reports](#full-reports)",
    "SyncEnd.nodes": "Number of nodes that were reported since `SyncBegin` (action 1 or 6), each id counted once",
    "SyncEnd.applications": "Number of applications that were reported (`new`), each id counted once",
    "SyncEnd.allocations": "Number of asks, allocations and foreign allocations that were reported, each key counted "
    "once",
    "RegisterResourceManager.version": "Version of the RM, for users; ignored",
    "RegisterResourceManager.build_info": "Build information of the RM, shown over REST",
    "RegisterResourceManager.capabilities": "Optional parts of the protocol that the RM supports: `predicates`, "
    "`preemption-predicates` (only with the former), `events`, `state-dump`. The core ignores unknown ones",
    "UpdateConfiguration.extra_config": "The RM's settings: they replace all earlier ones, even if the configuration "
    "is refused. Omitted: no settings",
    "Resume": "Continue the session: both sides retransmit the messages that were not acknowledged",
    "Resume.received": "Partition to the number of the last news that the RM has processed. It has an entry for every "
    "partition with which messages were exchanged, also if the number is 0",
    "AddApplicationRequest.queue_name": "Full path of the requested queue; the placement rules decide",
    "AddApplicationRequest.ugi": "The submitting user",
    "AddApplicationRequest.tags": "For placement rules and settings of the queue, as in YuniKorn",
    "AddApplicationRequest.execution_timeout_milli_seconds": "For gang scheduling: the timeout of the placeholders; 0 "
    "for 15 minutes",
    "AddApplicationRequest.placeholder_ask": "For gang scheduling: the total resources of all placeholders",
    "AddApplicationRequest.gang_scheduling_style": "`Soft` (or empty) or `Hard`: after the timeout of its "
    "placeholders the application continues without them, or fails",
    "UserGroupInformation.user": "Name of the user; required",
    "UserGroupInformation.groups": "The primary group first; if empty, the partition's resolver determines them",
    "Allocation.application_id": "Id of its application; empty for a foreign allocation",
    "Allocation.resource_per_alloc": "Resources of the ask or allocation; for an existing allocation the new ones",
    "Allocation.node_id": "Empty for an ask. From the RM: the node on which the allocation runs. From the core: the "
    "node on which the RM starts it",
    "Allocation.priority": "Asks with a higher priority are scheduled first",
    "Allocation.allocation_tags": "`foreign` (any value): not scheduled by the core, only uses resources of its node; "
    "`creationTime`: Unix seconds; [placement constraints](predicates.md#tags)",
    "Allocation.task_group_name": "Its task group in gang scheduling",
    "Allocation.placeholder": "Whether it is a placeholder, which a real ask of its task group replaces",
    "Allocation.originator": "Whether it is the originator (driver) of its application; preemption prefers other "
    "victims",
    "Allocation.preemption_policy": "Nil or omitted: both flags are false",
    "AllocationReleasesRequest": "The releases of an `AllocationRequest`, nested as in the scheduler interface",
    "AllocationReleasesRequest.allocations_to_release": "Processed in order",
    "AllocationRelease.application_id": "Id of its application; empty for a foreign allocation",
    "AllocationRelease.allocation_key": "Key of the ask or allocation; empty for all of the application",
    "AllocationRelease.termination_type": _TERMINATION_TYPES,
    "AllocationRelease.message": "The reason, as text for users",
    "PreemptionPolicy.allow_preempt_self": "Whether other asks may preempt it",
    "PreemptionPolicy.allow_preempt_other": "Whether it may preempt others",
    "Verdict": "The answer for one pair of the question; it repeats the fields of the pair",
    # From the core
    "NodeResponse.accepted": "Registered nodes",
    "NodeResponse.rejected": "Nodes that could not be registered",
    "ApplicationResponse.accepted": "Applications that were placed in a queue",
    "ApplicationResponse.rejected": "Applications that were rejected; the core does not keep them",
    "ApplicationResponse.updated": "State changes of applications, in order",
    "AllocationResponse.new": "Allocations with a node. The RM starts each there, except those that it reported as "
    "running",
    "AllocationResponse.released": "Allocations that were released, or that the RM has to stop: see "
    "[releases](#releases)",
    "AllocationResponse.rejected_allocations": "Asks and allocations that were rejected; the core does not keep them",
    "EventResponse": "Events that concern the RM, such as a draining queue with applications of the RM",
    "EventResponse.events": "In order",
    "SchedulingStateResponse.updated": "The asks with their scheduling state",
    "SyncDone.nodes": "Nodes that were removed",
    "SyncDone.applications": "Applications that were removed",
    "SyncDone.allocations": "Asks, allocations and foreign allocations that were removed",
    "SyncDone.problem": "Why nothing was removed, if the counts of `SyncEnd` did not match or the worker was restarted "
    "during the report. Then the partition makes no allocations until another report is complete",
    "Registered": "The RM is registered, or has resumed its session",
    "Registered.partitions": "Normalised names of all partitions of the RM, for use in headers",
    "Registered.lives": "Partition to its generation, without partitions in the first one (0)",
    "ConfigurationUpdated.lives": "Partition to its generation, without partitions in the first one (0)",
    "Goodbye.retry_after_milli_seconds": "Time to wait before connecting again",
    "Refused.code": "Code for programs, see [refusals](#refusals)",
    "Refused.seq": "Number of the refused command, if it had one",
    "Received": "The core's `Ack`: only the `ack` of its header counts",
    "Heartbeat.incarnation": "Used only inside the core",
    "PredicatesAsked.deadline_milli_seconds": "After this time the core treats a missing answer as a no",
    "StateDumpAsked.deadline_milli_seconds": "After this time the core ignores the answer",
    "StateDumpAnswered.text": "The state of the RM, as a JSON object of at most 1 MiB",
    "PredicatesAsked.asked": "The pairs, at most 1,024",
    "PredicatesAsked.preemptions": "Only to RMs with the capability `preemption-predicates`; at most one for an ask "
    "and node",
    "PredicatesAnswered.preemptions": "A preemption without a verdict is refused",
    "PreemptionPredicatesArgs": "Would the ask run on the node if allocations there were preempted for it?",
    "PreemptionPredicatesArgs.preempt_allocation_keys": "The victims, in the order in which they would go",
    "PreemptionPredicatesArgs.start_index": "The index of the last victim that has to go in any case, so that there is "
    "room",
    "PreemptionVerdict.index": "The index of the last victim that has to go, at least `startIndex`",
    "PreemptionVerdict.refusal": "The reason if the ask must not run there without all of them either, for operators; "
    "empty or omitted for yes",
    "PredicatesArgs.allocate": "True: allocate the ask on the node now. False: reserve the node for it, or "
    "replace its placeholder there",
    "UpdateContainerSchedulingState.state": "Always 4, scheduling failed",
    "UpdatedApplication": "A state change of an application",
    "UpdatedApplication.state": "The new state: `Accepted`, `Starting`, `Running`, `Resuming`, `Completing`, "
    "`Completed`, `Failing`, `Failed`, `Rejected` or `Expired`",
    "UpdatedApplication.state_transition_timestamp": "Unix nanoseconds",
    "UpdatedApplication.message": "The reason",
    "EventRecord": "An event, with the numbers of the scheduler interface (`EventRecord` in "
    "[scheduler.proto](../rmproxy/si/scheduler.proto))",
    "EventRecord.type": "Type of the object: 1 ask, 2 application, 3 node, 4 queue, 5 user or group",
    "EventRecord.object_id": "Id or path of the object",
    "EventRecord.message": "Text for users",
    "EventRecord.timestamp_nano": "Unix nanoseconds",
    "EventRecord.event_change_type": "0 none, 1 set, 2 added, 3 removed",
    "EventRecord.event_change_detail": "Detail of the change, as in the interface",
    "EventRecord.reference_id": "Id of the other object that the event concerns",
    "EventRecord.resource": "Amount of resources",
}
