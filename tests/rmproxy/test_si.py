"""The interface is the one that RMs were built against, name by name and number by number."""

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

from yunishard.rmproxy.si import scheduler_pb2 as pb

S, B, I32, I64 = "string", "bool", "int32", "int64"
STRINGS = "map<string,string>"

MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "RegisterResourceManagerRequest": {
        1: ("rmID", S),
        2: ("version", S),
        3: ("policyGroup", S),
        4: ("buildInfo", STRINGS),
        5: ("config", S),
        6: ("extraConfig", STRINGS),
    },
    "RegisterResourceManagerResponse": {},
    "AllocationRequest": {
        2: ("releases", "AllocationReleasesRequest"),
        3: ("rmID", S),
        4: ("allocations", "*Allocation"),
    },
    "ApplicationRequest": {
        1: ("new", "*AddApplicationRequest"),
        2: ("remove", "*RemoveApplicationRequest"),
        3: ("rmID", S),
    },
    "NodeRequest": {1: ("nodes", "*NodeInfo"), 2: ("rmID", S)},
    "AllocationResponse": {
        1: ("new", "*Allocation"),
        2: ("released", "*AllocationRelease"),
        5: ("rejectedAllocations", "*RejectedAllocation"),
    },
    "ApplicationResponse": {
        1: ("rejected", "*RejectedApplication"),
        2: ("accepted", "*AcceptedApplication"),
        3: ("updated", "*UpdatedApplication"),
    },
    "NodeResponse": {1: ("rejected", "*RejectedNode"), 2: ("accepted", "*AcceptedNode")},
    "UpdatedApplication": {
        1: ("applicationID", S),
        2: ("state", S),
        3: ("stateTransitionTimestamp", I64),
        4: ("message", S),
    },
    "RejectedApplication": {1: ("applicationID", S), 2: ("reason", S)},
    "AcceptedApplication": {1: ("applicationID", S)},
    "RejectedNode": {1: ("nodeID", S), 2: ("reason", S)},
    "AcceptedNode": {1: ("nodeID", S)},
    "Resource": {1: ("resources", "map<string,Quantity>")},
    "Quantity": {1: ("value", I64)},
    "PreemptionPolicy": {1: ("allowPreemptSelf", B), 2: ("allowPreemptOther", B)},
    "AddApplicationRequest": {
        1: ("applicationID", S),
        2: ("queueName", S),
        3: ("partitionName", S),
        4: ("ugi", "UserGroupInformation"),
        5: ("tags", STRINGS),
        6: ("executionTimeoutMilliSeconds", I64),
        7: ("placeholderAsk", "Resource"),
        8: ("gangSchedulingStyle", S),
    },
    "RemoveApplicationRequest": {1: ("applicationID", S), 2: ("partitionName", S)},
    "UserGroupInformation": {1: ("user", S), 2: ("groups", "*string")},
    "Allocation": {
        1: ("allocationKey", S),
        2: ("allocationTags", STRINGS),
        5: ("resourcePerAlloc", "Resource"),
        6: ("priority", I32),
        8: ("nodeID", S),
        9: ("applicationID", S),
        10: ("partitionName", S),
        11: ("taskGroupName", S),
        12: ("placeholder", B),
        14: ("originator", B),
        15: ("preemptionPolicy", "PreemptionPolicy"),
    },
    "AllocationReleasesRequest": {1: ("allocationsToRelease", "*AllocationRelease")},
    "AllocationRelease": {
        1: ("partitionName", S),
        2: ("applicationID", S),
        4: ("terminationType", "TerminationType"),
        5: ("message", S),
        6: ("allocationKey", S),
    },
    "RejectedAllocation": {1: ("allocationKey", S), 2: ("applicationID", S), 3: ("reason", S)},
    "NodeInfo": {
        1: ("nodeID", S),
        2: ("action", "NodeInfo.ActionFromRM"),
        3: ("attributes", STRINGS),
        4: ("schedulableResource", "Resource"),
    },
    "PredicatesArgs": {1: ("allocationKey", S), 2: ("nodeID", S), 3: ("allocate", B)},
    "PreemptionPredicatesArgs": {
        1: ("allocationKey", S),
        2: ("nodeID", S),
        3: ("preemptAllocationKeys", "*string"),
        4: ("startIndex", I32),
    },
    "PreemptionPredicatesResponse": {1: ("success", B), 2: ("index", I32)},
    "UpdateContainerSchedulingStateRequest": {
        1: ("applicationID", S),
        2: ("allocationKey", S),
        3: ("state", "UpdateContainerSchedulingStateRequest.SchedulingState"),
        4: ("reason", S),
    },
    "UpdateConfigurationRequest": {
        2: ("rmID", S),
        3: ("policyGroup", S),
        4: ("config", S),
        5: ("extraConfig", STRINGS),
    },
    "EventRecord": {
        1: ("type", "EventRecord.Type"),
        2: ("objectID", S),
        5: ("message", S),
        6: ("timestampNano", I64),
        7: ("eventChangeType", "EventRecord.ChangeType"),
        8: ("eventChangeDetail", "EventRecord.ChangeDetail"),
        9: ("referenceID", S),
        10: ("resource", "Resource"),
    },
}

RESERVED: dict[str, tuple[set[int], set[str]]] = {
    "AllocationRequest": ({1}, {"asks"}),
    "AllocationResponse": ({3, 4}, {"releasedAsks", "rejected"}),
    "Allocation": ({3, 7, 13}, {"UUID", "queueName", "allocationID"}),
    "AllocationReleasesRequest": ({2}, {"allocationAsksToRelease"}),
    "AllocationRelease": ({3, 7}, {"UUID", "allocationID"}),
    "NodeInfo": ({5, 6}, {"occupiedResource", "existingAllocations"}),
    "UpdateConfigurationRequest": ({1}, {"configs"}),
    "EventRecord": ({3, 4}, {"groupID", "reason"}),
    "EventRecord.ChangeDetail": ({205, 301}, {"APP_STARTING", "NODE_READY"}),
}

ENUMS: dict[str, dict[int, str]] = {
    "TerminationType": {
        0: "UNKNOWN_TERMINATION_TYPE",
        1: "STOPPED_BY_RM",
        2: "TIMEOUT",
        3: "PREEMPTED_BY_SCHEDULER",
        4: "PLACEHOLDER_REPLACED",
        5: "SCHEDULING_FAILED_ON_RM",
    },
    "NodeInfo.ActionFromRM": {
        0: "UNKNOWN_ACTION_FROM_RM",
        1: "CREATE",
        2: "UPDATE",
        3: "DRAIN_NODE",
        4: "DECOMISSION",
        5: "DRAIN_TO_SCHEDULABLE",
        6: "CREATE_DRAIN",
    },
    "UpdateContainerSchedulingStateRequest.SchedulingState": {
        0: "UNKNOWN_SCHEDULING_STATE",
        1: "SKIPPED",
        2: "SCHEDULED",
        3: "RESERVED",
        4: "FAILED",
    },
    "EventRecord.Type": {0: "UNKNOWN_EVENTRECORD_TYPE", 1: "REQUEST", 2: "APP", 3: "NODE", 4: "QUEUE", 5: "USERGROUP"},
    "EventRecord.ChangeType": {0: "NONE", 1: "SET", 2: "ADD", 3: "REMOVE"},
    "EventRecord.ChangeDetail": {
        0: "DETAILS_NONE",
        100: "REQUEST_CANCEL",
        101: "REQUEST_ALLOC",
        102: "REQUEST_TIMEOUT",
        200: "APP_ALLOC",
        201: "APP_REQUEST",
        202: "APP_REJECT",
        203: "APP_NEW",
        204: "APP_ACCEPTED",
        206: "APP_RUNNING",
        207: "APP_COMPLETING",
        208: "APP_COMPLETED",
        209: "APP_FAILING",
        210: "APP_FAILED",
        211: "APP_RESUMING",
        212: "APP_EXPIRED",
        213: "APP_CANNOTRUN_QUEUE",
        214: "APP_RUNNABLE_QUEUE",
        215: "APP_CANNOTRUN_QUOTA",
        216: "APP_RUNNABLE_QUOTA",
        300: "NODE_DECOMISSION",
        302: "NODE_SCHEDULABLE",
        303: "NODE_ALLOC",
        304: "NODE_CAPACITY",
        305: "NODE_OCCUPIED",
        306: "NODE_RESERVATION",
        400: "QUEUE_CONFIG",
        401: "QUEUE_DYNAMIC",
        402: "QUEUE_TYPE",
        403: "QUEUE_MAX",
        404: "QUEUE_GUARANTEED",
        405: "QUEUE_APP",
        406: "QUEUE_ALLOC",
        407: "QUEUE_PREEMPTION",
        500: "ALLOC_CANCEL",
        501: "ALLOC_PREEMPT",
        502: "ALLOC_TIMEOUT",
        503: "ALLOC_REPLACED",
        504: "ALLOC_NODEREMOVED",
        600: "UG_USER_LIMIT",
        601: "UG_GROUP_LIMIT",
        602: "UG_APP_LINK",
        603: "UG_USER_RESOURCE",
        604: "UG_GROUP_RESOURCE",
    },
}

CALLS = {
    "RegisterResourceManager": ("RegisterResourceManagerRequest", "RegisterResourceManagerResponse", False),
    "UpdateAllocation": ("AllocationRequest", "AllocationResponse", True),
    "UpdateApplication": ("ApplicationRequest", "ApplicationResponse", True),
    "UpdateNode": ("NodeRequest", "NodeResponse", True),
}

SCALARS = {
    FieldDescriptor.TYPE_STRING: S,
    FieldDescriptor.TYPE_BOOL: B,
    FieldDescriptor.TYPE_INT32: I32,
    FieldDescriptor.TYPE_INT64: I64,
}


def short(full_name: str) -> str:
    return full_name.removeprefix("si.v1.")


def type_of(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"map<{type_of(key)},{type_of(value)}>"
    composite = field.message_type or field.enum_type
    name = short(composite.full_name) if composite is not None else SCALARS[field.type]
    return f"*{name}" if field.is_repeated else name


def enums() -> list[EnumDescriptor]:
    messages: list[Descriptor] = list(pb.DESCRIPTOR.message_types_by_name.values())
    nested = [enum for message in messages for enum in message.enum_types]
    return [*pb.DESCRIPTOR.enum_types_by_name.values(), *nested]


def test_every_message_has_the_fields_numbers_and_types_of_the_interface() -> None:
    assert {
        name: {field.number: (field.name, type_of(field)) for field in message.fields}
        for name, message in pb.DESCRIPTOR.message_types_by_name.items()
    } == MESSAGES


def test_every_enumeration_has_the_numbers_of_the_interface() -> None:
    assert {short(enum.full_name): {value.number: value.name for value in enum.values} for enum in enums()} == ENUMS


def test_what_is_no_longer_used_stays_reserved() -> None:
    reserved: dict[str, tuple[set[int], set[str]]] = {}
    for message in pb.DESCRIPTOR.message_types_by_name.values():
        proto = DescriptorProto()
        message.CopyToProto(proto)
        numbers = {number for span in proto.reserved_range for number in range(span.start, span.end)}
        reserved[short(message.full_name)] = (numbers, set(proto.reserved_name))
    for enum in enums():
        enum_proto = EnumDescriptorProto()
        enum.CopyToProto(enum_proto)
        numbers = {number for span in enum_proto.reserved_range for number in range(span.start, span.end + 1)}
        reserved[short(enum.full_name)] = (numbers, set(enum_proto.reserved_name))
    assert {name: both for name, both in reserved.items() if both != (set(), set())} == RESERVED


def test_the_service_has_one_call_and_three_streams_both_ways() -> None:
    service = pb.DESCRIPTOR.services_by_name["Scheduler"]
    assert service.full_name == "si.v1.Scheduler"
    assert {
        call.name: (call.input_type.name, call.output_type.name, call.client_streaming and call.server_streaming)
        for call in service.methods
    } == CALLS


def test_the_option_for_secrets_exists_and_no_field_uses_it() -> None:
    assert pb.si_secret.number == 1059
    assert pb.si_secret.containing_type is not None
    assert pb.si_secret.containing_type.full_name == "google.protobuf.FieldOptions"
    fields = [field for message in pb.DESCRIPTOR.message_types_by_name.values() for field in message.fields]
    assert not any(field.GetOptions().HasExtension(pb.si_secret) for field in fields)
