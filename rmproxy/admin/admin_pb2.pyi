from rmproxy.si import scheduler_pb2 as _scheduler_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UpdateConfigurationResponse(_message.Message):
    __slots__ = ("checksum", "partitions")
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    checksum: str
    partitions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, checksum: _Optional[str] = ..., partitions: _Optional[_Iterable[str]] = ...) -> None: ...

class EventsRequest(_message.Message):
    __slots__ = ("rm_id", "partition", "types", "begin", "history")
    RM_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TYPES_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    rm_id: str
    partition: str
    types: _containers.RepeatedScalarFieldContainer[_scheduler_pb2.EventRecord.Type]
    begin: int
    history: str
    def __init__(self, rm_id: _Optional[str] = ..., partition: _Optional[str] = ..., types: _Optional[_Iterable[_Union[_scheduler_pb2.EventRecord.Type, str]]] = ..., begin: _Optional[int] = ..., history: _Optional[str] = ...) -> None: ...

class EventsResponse(_message.Message):
    __slots__ = ("partition", "history", "events", "next")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    partition: str
    history: str
    events: _containers.RepeatedCompositeFieldContainer[Event]
    next: int
    def __init__(self, partition: _Optional[str] = ..., history: _Optional[str] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("number", "record")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    number: int
    record: _scheduler_pb2.EventRecord
    def __init__(self, number: _Optional[int] = ..., record: _Optional[_Union[_scheduler_pb2.EventRecord, _Mapping]] = ...) -> None: ...

class PredicatesQuestion(_message.Message):
    __slots__ = ("partition", "question", "deadline_ms", "asked", "preemptions")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    partition: str
    question: int
    deadline_ms: int
    asked: _containers.RepeatedCompositeFieldContainer[_scheduler_pb2.PredicatesArgs]
    preemptions: _containers.RepeatedCompositeFieldContainer[_scheduler_pb2.PreemptionPredicatesArgs]
    def __init__(self, partition: _Optional[str] = ..., question: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., asked: _Optional[_Iterable[_Union[_scheduler_pb2.PredicatesArgs, _Mapping]]] = ..., preemptions: _Optional[_Iterable[_Union[_scheduler_pb2.PreemptionPredicatesArgs, _Mapping]]] = ...) -> None: ...

class PredicatesAnswer(_message.Message):
    __slots__ = ("rm_id", "partition", "question", "verdicts", "preemptions")
    RM_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    rm_id: str
    partition: str
    question: int
    verdicts: _containers.RepeatedCompositeFieldContainer[PredicatesVerdict]
    preemptions: _containers.RepeatedCompositeFieldContainer[PreemptionVerdict]
    def __init__(self, rm_id: _Optional[str] = ..., partition: _Optional[str] = ..., question: _Optional[int] = ..., verdicts: _Optional[_Iterable[_Union[PredicatesVerdict, _Mapping]]] = ..., preemptions: _Optional[_Iterable[_Union[PreemptionVerdict, _Mapping]]] = ...) -> None: ...

class PredicatesVerdict(_message.Message):
    __slots__ = ("allocation_key", "node_id", "allocate", "refusal")
    ALLOCATION_KEY_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ALLOCATE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    allocation_key: str
    node_id: str
    allocate: bool
    refusal: str
    def __init__(self, allocation_key: _Optional[str] = ..., node_id: _Optional[str] = ..., allocate: _Optional[bool] = ..., refusal: _Optional[str] = ...) -> None: ...

class PreemptionVerdict(_message.Message):
    __slots__ = ("allocation_key", "node_id", "index", "refusal")
    ALLOCATION_KEY_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    allocation_key: str
    node_id: str
    index: int
    refusal: str
    def __init__(self, allocation_key: _Optional[str] = ..., node_id: _Optional[str] = ..., index: _Optional[int] = ..., refusal: _Optional[str] = ...) -> None: ...

class SchedulingStatesRequest(_message.Message):
    __slots__ = ("rm_id",)
    RM_ID_FIELD_NUMBER: _ClassVar[int]
    rm_id: str
    def __init__(self, rm_id: _Optional[str] = ...) -> None: ...

class SchedulingStatesResponse(_message.Message):
    __slots__ = ("partition", "updated")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    partition: str
    updated: _containers.RepeatedCompositeFieldContainer[_scheduler_pb2.UpdateContainerSchedulingStateRequest]
    def __init__(self, partition: _Optional[str] = ..., updated: _Optional[_Iterable[_Union[_scheduler_pb2.UpdateContainerSchedulingStateRequest, _Mapping]]] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("rm_id", "reason")
    RM_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    rm_id: str
    reason: str
    def __init__(self, rm_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
