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
