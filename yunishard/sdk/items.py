"""The items of updates and results: builders, callbacks, predicates, and the check of arguments.

`node`, `application`, `ask`, `release` and `removal` build the items of an update: structs of
`common/messages/rm_messages.py`, which have every field of the scheduler interface; the builders have the fields of
everyday use. Amounts are integers in base units (`memory` in bytes, `vcore` in thousandths) or text as in
`queues.yaml`: `{"vcore": "500m"}`.

A result is a `(partition, news)` pair. Every item in it has `partition_name`, the normalised name of its partition.
`termination_type` and `state` hold the enums of this module, which are equal to the numbers and texts of the protocol.

A wrong argument raises TypeError or ValueError at the call, in a message that names the function, the argument, the
expected type and the value.

Not here: sending and receiving (`session.py`), the thread that the callbacks run in (`client.py`, `blocking.py`), what
the core decides (ids that exist already, unknown queues).
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from functools import wraps
from inspect import formatannotation, signature
from math import inf
from types import UnionType
from typing import Annotated, Final, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin

from msgspec import Struct, structs
from msgspec.msgpack import encode

from yunishard.common.messages import rm_messages
from yunishard.common.messages.kinds import INT64_MAX, INT64_MIN, Command, Resources
from yunishard.common.messages.wire import BODY_BYTES_MAX, WireError, decode_body, encode_body
from yunishard.common.names import NODE_PARTITION
from yunishard.common.resources import CORES, QuantityError, parse_quantity

# The check of arguments -----------------------------------------------------------------------------------------------

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ArgumentType:
    """A type annotation, prepared for checking many values. `Annotated[int, (LOW, HIGH)]` has bounds; a float is a
    number of seconds, 0 or more.
    """

    def __init__(self, annotation: object) -> None:
        kinds: Sequence[object] = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        main = next((one for one in kinds if get_origin(one)), kinds[0])  # one at most has parameters
        origin, parts = get_origin(main), get_args(main)
        special: dict[object, type] = {Annotated: int, Literal: str}
        types = [special.get(get_origin(one)) or get_origin(one) or one for one in kinds]
        self._types = tuple(one for one in (*types, *([int] if float in types else [])) if isinstance(one, type))
        self._excluded = tuple(one for one in (bool, str, bytes) if one not in types)
        """Types that would pass by accident: a bool is an int, and text is a sequence."""
        self._text = re.sub(r"\w+\.", "", "int" if origin is Annotated else formatannotation(annotation))
        self._parts = [ArgumentType(one) for one in parts] if origin in (Mapping, Sequence) else []
        self._choices = parts if origin is Literal else ()
        self._bounds: tuple[float, float] = (0, inf) if float in types else (INT64_MIN, INT64_MAX)
        if origin is Annotated:
            self._bounds = parts[1]

    def check(self, place: str, value: object, *at: object) -> None:
        """Check a value, or its part at these keys or indexes. `place` names the function and the argument.

        Raises:
            TypeError: it has another type.
            ValueError: it is out of bounds, or text that UTF-8 cannot encode.
        """
        problem = ""
        if not isinstance(value, self._types) or isinstance(value, self._excluded):
            got = f"{_shorten(value)} ({type(value).__name__})"
            raise TypeError(f"{_locate(place, at)} must be {self._text}, got {got}")
        if self._parts and isinstance(value, Mapping):
            for key, item in value.items():
                self._parts[0].check(place, key, *at, key)
                self._parts[1].check(place, item, *at, key)
        elif self._parts and isinstance(value, Sequence):
            for number, item in enumerate(value):
                self._parts[0].check(place, item, *at, number)
        elif isinstance(value, str):
            if self._choices and value not in self._choices:
                problem = f"one of {', '.join(map(repr, self._choices))}"
            try:
                value.encode()
            except UnicodeEncodeError:
                problem = "text that UTF-8 can encode"
        elif isinstance(value, int | float) and not self._bounds[0] <= value <= self._bounds[1]:
            problem = "from {} to {}".format(*self._bounds)
        if problem:
            raise ValueError(f"{_locate(place, at)} must be {problem}, got {_shorten(value)}")


def check_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Check the arguments of each call against their annotations (`ArgumentType`) before the function is called."""
    checks = {
        name: (ArgumentType(annotation).check, f"{function.__name__}(): {name}")
        for name, annotation in function.__annotations__.items()
        if name != "return"
    }
    names = tuple(signature(function).parameters)

    @wraps(function)
    def check_and_call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in checks:
                check, place = checks[name]
                check(place, value)
        return function(*args, **kwargs)

    return check_and_call


def _locate(place: str, at: Iterable[object]) -> str:
    return place + "".join(f"[{one!r}]" for one in at)


def _shorten(value: object) -> str:
    """Return a value as Python code, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


def check_command(function: str, command: Command) -> bytes:
    """Encode a command.

    Raises:
        TypeError: a field of a struct has a value that no message can carry; names the place.
    """
    try:
        body = encode_body(command)
        if len(body) <= BODY_BYTES_MAX:  # otherwise the caller checks it in parts
            decode_body(type(command), body)
        return body
    except WireError as error:
        reason = str(error).removeprefix(f"{type(command).__name__}: ")
    except _UNENCODABLE as error:
        reason = f"{error} - at `{_unencodable_part(command, '$')}`"
    raise TypeError(f"{function}: a field has a value that cannot be sent: {reason}")


_UNENCODABLE: Final = (TypeError, OverflowError, UnicodeEncodeError)


def _unencodable_part(value: object, place: str) -> str:
    """Return the place of the innermost part of a value that cannot be encoded, written as in errors of decoding."""
    parts = {f"{place}[{number}]": item for number, item in enumerate(value)} if isinstance(value, list) else {}
    if isinstance(value, Struct):
        parts = {f"{place}.{one.encode_name}": getattr(value, one.name) for one in structs.fields(value)}
    for inner, part in parts.items():
        try:
            encode(part)
        except _UNENCODABLE:
            return _unencodable_part(part, inner)
    return place


# Builders -------------------------------------------------------------------------------------------------------------


@check_arguments
def node(
    node_id: str,
    resources: Mapping[str, int | str] | None = None,
    *,
    partition: str = "",
    attributes: Mapping[str, str] | None = None,
    action: Annotated[int, (rm_messages.NODE_CREATE, rm_messages.NODE_CREATE_DRAIN)] = rm_messages.NODE_CREATE,
) -> rm_messages.NodeInfo:
    """Build a node that joins or, with another `action` (a `NodeAction`), a node that changes or leaves.

    Raises:
        TypeError, ValueError: an argument is wrong; the text names it.
    """
    own = {NODE_PARTITION: partition} if partition else {}
    return rm_messages.NodeInfo(
        node_id=node_id,
        action=action,
        attributes={**(attributes or {}), **own},
        schedulable_resource=None if resources is None else _parse_amounts("node(): resources", resources),
    )


@check_arguments
def application(
    application_id: str,
    queue: str = "",
    *,
    user: str,
    groups: Sequence[str] = (),
    partition: str = "",
    tags: Mapping[str, str] | None = None,
    gang: Mapping[str, int | str] | None = None,
    gang_style: Literal["Soft", "Hard"] = "Soft",
    gang_timeout_s: Annotated[int, (0, INT64_MAX // 1000)] = 0,
) -> rm_messages.AddApplicationRequest:
    """Build a new application of a user. The queue is a request; the placement rules of the partition decide.

    `gang` is the total of its placeholders. After `gang_timeout_s` (0: 15 minutes) the core releases placeholders that
    no real ask has replaced. If some never had a node, it releases everything that the application asked for; the
    application then asks again (`Soft`) or has failed (`Hard`).
    """
    return rm_messages.AddApplicationRequest(
        application_id=application_id,
        queue_name=queue,
        partition_name=partition,
        ugi=rm_messages.UserGroupInformation(user=user, groups=list(groups)),
        tags=dict(tags or {}),
        placeholder_ask={} if gang is None else _parse_amounts("application(): gang", gang),
        gang_scheduling_style="" if gang is None else gang_style,
        execution_timeout_milli_seconds=gang_timeout_s * 1000,
    )


@check_arguments
def ask(
    allocation_key: str,
    application_id: str,
    resources: Mapping[str, int | str],
    *,
    partition: str = "",
    priority: Annotated[int, (-(2**31), 2**31 - 1)] = 0,
    node_id: str = "",
    tags: Mapping[str, str] | None = None,
    preemption: rm_messages.PreemptionPolicy | None = None,
    task_group: str = "",
    placeholder: bool = False,
) -> rm_messages.Allocation:
    """Build an ask for one allocation, with a key unique in its partition; with a `node_id`, an allocation that already
    runs there.

    With a `task_group` it replaces a placeholder of that group or, with `placeholder`, is one.
    """
    return rm_messages.Allocation(
        allocation_key=allocation_key,
        application_id=application_id,
        partition_name=partition,
        resource_per_alloc=_parse_amounts("ask(): resources", resources),
        node_id=node_id,
        priority=priority,
        allocation_tags=dict(tags or {}),
        preemption_policy=preemption,
        task_group_name=task_group,
        placeholder=placeholder,
    )


@check_arguments
def removal(application_id: str, *, partition: str = "") -> rm_messages.RemoveApplicationRequest:
    """Build the removal of an application with all its asks and allocations."""
    return rm_messages.RemoveApplicationRequest(application_id=application_id, partition_name=partition)


@check_arguments
def release(
    application_id: str,
    allocation_key: str = "",
    *,
    partition: str = "",
    termination_type: Annotated[int, (0, 2**31 - 1)] = rm_messages.STOPPED_BY_RM,
) -> rm_messages.AllocationRelease:
    """Build the release of an allocation or ask; without a key, of everything that the application has."""
    return rm_messages.AllocationRelease(
        partition_name=partition,
        application_id=application_id,
        allocation_key=allocation_key,
        termination_type=termination_type,
    )


@check_arguments
def amounts(resources: Mapping[str, int | str]) -> Resources:
    """Return resources in base units.

    Raises:
        QuantityError: a text is not a quantity; names the resource and the text.
    """
    return _parse_amounts("amounts(): resources", resources)


def _parse_amounts(place: str, resources: Mapping[str, int | str]) -> Resources:
    parsed: Resources = {}
    for kind, value in resources.items():
        try:
            parsed[kind] = parse_quantity(value, resource_type=kind) if isinstance(value, str) else value
        except QuantityError as error:
            text = f"{_locate(place, (kind,))}: {_shorten(value)} is not a quantity"
            reason = str(error).removeprefix("invalid quantity").removeprefix(": ")
            example = "4 or 4000m" if kind == CORES else "8G (10^9) or 8Gi (2^30)"
            raise QuantityError(f"{text}{f' ({reason})' if reason else ''}; write {example}") from None
    return parsed


# Results -------------------------------------------------------------------------------------------------------------

Predicate = Callable[[str, str, bool], str | None]
"""Called with the key of an ask, the id of a node, and whether the ask is to be allocated there now: False if the node
is only to be reserved, or the ask is to replace its placeholder there. Returns the reason why the ask must not run
there; None or "" if it may. The thread of the connection calls it for many pairs at once, so it must not block.
"""


PreemptionPredicate = Callable[[str, str, Sequence[str], int], int | str]
"""Called with the key of an ask, the id of a node, the keys of allocations there that would be preempted for the ask,
in this order, and the index of the last of them that goes in any case. Returns the index of the last one that has to go
so that the ask may run there, or the reason why it must not even without all of them. Called as `Predicate` is.
"""


def answer_predicates(
    asked: rm_messages.PredicatesAsked, predicate: Predicate, preemption_predicate: PreemptionPredicate | None = None
) -> rm_messages.PredicatesAnswered:
    """Return the verdicts on all pairs and preemptions in a question."""
    verdicts = []
    for one in asked.asked:
        try:
            refusal = predicate(one.allocation_key, one.node_id, one.allocate) or ""
            if not isinstance(refusal, str):
                raise TypeError(f"it must return the reason (str) or None, got {refusal!r}")
        except Exception as error:  # a fault of the program must not end the connection
            refusal = _describe_failure("predicate", error)
        verdicts.append(rm_messages.Verdict(**structs.asdict(one), refusal=_make_sendable(refusal)))
    preemptions = [
        _answer_preemption(one, preemption_predicate) for one in asked.preemptions if preemption_predicate is not None
    ]
    return rm_messages.PredicatesAnswered(question=asked.question, verdicts=verdicts, preemptions=preemptions)


def _answer_preemption(
    asked: rm_messages.PreemptionPredicatesArgs, predicate: PreemptionPredicate
) -> rm_messages.PreemptionVerdict:
    key, node_id, victims, start = structs.astuple(asked)
    index, refusal = 0, ""
    try:
        found = predicate(key, node_id, victims, start)
        if isinstance(found, str):
            refusal = found or "the predicate gave no reason"
        elif isinstance(found, bool) or not isinstance(found, int) or not start <= found < len(victims):
            raise ValueError(f"it must return an index from {start} to {len(victims) - 1} or a reason, got {found!r}")
        else:
            index = found
    except Exception as error:  # as above
        refusal = _describe_failure("preemption_predicate", error)
    return rm_messages.PreemptionVerdict(
        allocation_key=key, node_id=node_id, index=index, refusal=_make_sendable(refusal)
    )


def _describe_failure(name: str, error: Exception) -> str:
    return f"{name} of the resource manager failed: {type(error).__name__}: {error}"


def _make_sendable(text: str) -> str:
    return text.encode(errors="replace").decode()


class NodeAction(IntEnum):
    """An operation on a node: the `action` of `node()`."""

    CREATE = rm_messages.NODE_CREATE
    """Add a node that takes allocations."""
    UPDATE = rm_messages.NODE_UPDATE
    """Set the resources of a node if given, and replace all its attributes if any are given."""
    DRAIN = rm_messages.NODE_DRAIN
    """Place nothing new on a node; its allocations continue."""
    DECOMMISSION = rm_messages.NODE_DECOMMISSION
    """Remove a node and release its allocations."""
    DRAIN_TO_SCHEDULABLE = rm_messages.NODE_DRAIN_TO_SCHEDULABLE
    """Let a drained node take allocations again."""
    CREATE_DRAIN = rm_messages.NODE_CREATE_DRAIN
    """Add a node in the drained state."""


class TerminationType(IntEnum):
    """Why an allocation ends: the `termination_type` of a release."""

    UNKNOWN = rm_messages.UNKNOWN_TERMINATION
    STOPPED_BY_RM = rm_messages.STOPPED_BY_RM
    """The RM ended it, or removed its application."""
    TIMEOUT = rm_messages.TIMEOUT
    """The core releases a placeholder that no real ask replaced in time."""
    PREEMPTED_BY_SCHEDULER = rm_messages.PREEMPTED_BY_SCHEDULER
    """The core releases a victim for another ask."""
    PLACEHOLDER_REPLACED = rm_messages.PLACEHOLDER_REPLACED
    """The core releases a placeholder that a real ask replaces."""
    SCHEDULING_FAILED_ON_RM = rm_messages.SCHEDULING_FAILED_ON_RM
    """The RM could not start what the core allocated."""


class SchedulingState(IntEnum):
    """The `state` of an ask that found no node."""

    FAILED = rm_messages.SCHEDULING_FAILED


class ApplicationState(StrEnum):
    """The `state` of an application."""

    NEW = "New"
    ACCEPTED = "Accepted"
    STARTING = "Starting"
    RUNNING = "Running"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILING = "Failing"
    FAILED = "Failed"
    REJECTED = "Rejected"
    RESUMING = "Resuming"
    EXPIRED = "Expired"


_TERMINATIONS: Final[dict[int, TerminationType]] = {one.value: one for one in TerminationType}
_STATES: Final[dict[str, ApplicationState]] = {one.value: one for one in ApplicationState}

Update = (
    rm_messages.NodeResponse
    | rm_messages.ApplicationResponse
    | rm_messages.AllocationResponse
    | rm_messages.EventResponse
    | rm_messages.SchedulingStateResponse
    | rm_messages.ConfigurationUpdated
    | rm_messages.ReleasesIgnored
    | rm_messages.PartitionRestarted
    | rm_messages.Goodbye
    | rm_messages.Refused
)
"""Everything that a result can hold."""

_T = TypeVar("_T")
Answer = Awaitable[None] | None
"""Return value of a callback: an awaitable from an `async def`, None from a plain function."""
Callback = Callable[[_T], Answer]


class Result(NamedTuple):
    """A message of the core about one partition."""

    partition: str
    """Normalised name; "" if the news concern no single partition."""
    news: Update
    """The message; its class is the kind."""


class Results(AsyncIterator[Result]):
    """An iterator over results. It is not a generator, so that a consumer may stop, and another one continue."""

    def __init__(self, take: Callable[[], Awaitable[Result]]) -> None:
        self._take = take

    async def __anext__(self) -> Result:
        return await self._take()


@dataclass(frozen=True, kw_only=True, slots=True)
class Callbacks:
    """Functions to call for each kind of item; items without a function are dropped.

    Each function takes one item, of the class in its type. For `ResourceManager.run` it may be `async def`; for
    `BlockingResourceManager` it must be a plain function.
    """

    allocated: Callback[rm_messages.Allocation] | None = None
    """An ask has a node, or the core has accepted a running allocation that was reported."""
    released: Callback[rm_messages.AllocationRelease] | None = None
    """An allocation ends. With TIMEOUT, PREEMPTED_BY_SCHEDULER or PLACEHOLDER_REPLACED the core
    requests it: stop the work, then confirm by sending the same release. Its resources stay in use until then."""
    release_ignored: Callback[rm_messages.AllocationRelease] | None = None
    """A release that this RM sent had no effect; `message` gives the reason. Harmless if both
    sides ended the same allocation at the same time; otherwise the partition, the application or the key is wrong."""
    allocation_rejected: Callback[rm_messages.RejectedAllocation] | None = None
    """The core refused an ask or allocation; `reason` tells why."""
    application_accepted: Callback[rm_messages.AcceptedApplication] | None = None
    """The core accepted a new application."""
    application_rejected: Callback[rm_messages.RejectedApplication] | None = None
    """The core refused a new application; `reason` tells why."""
    application_updated: Callback[rm_messages.UpdatedApplication] | None = None
    """An application entered a state, an `ApplicationState`."""
    node_accepted: Callback[rm_messages.AcceptedNode] | None = None
    """The core accepted a new node."""
    node_rejected: Callback[rm_messages.RejectedNode] | None = None
    """The core refused a new node; `reason` tells why."""
    partition_restarted: Callback[str] | None = None
    """The partition with this normalised name lost its state; report everything in it again."""
    configuration_changed: Callback[rm_messages.ConfigurationUpdated] | None = None
    """An operator or another client changed the configuration of this RM."""
    event: Callback[rm_messages.EventRecord] | None = None
    """An event of this RM's partitions, such as a queue that starts to drain."""
    scheduling_state_updated: Callback[rm_messages.UpdateContainerSchedulingState] | None = None
    """Only more nodes would help this ask. Called once for each ask."""
    goodbye: Callback[rm_messages.Goodbye] | None = None
    """The core stops temporarily. The session continues without any action of the program."""
    refused: Callback[rm_messages.Refused] | None = None
    """The core did not act on a whole message."""

    def __post_init__(self) -> None:
        """Check that all callbacks can be called.

        Raises:
            TypeError: one cannot be called; the text names it.
        """
        for one in fields(self):
            ArgumentType(one.type).check(f"Callbacks(): {one.name}", getattr(self, one.name))

    def dispatch(self, result: Result) -> Iterator[Answer]:
        """Call the callback for each item of a result, one item a step; yields what the callback returned."""
        for name, item in _iterate_items(result.news):
            callback: Callback[object] | None = getattr(self, name)
            if callback is not None:
                yield callback(result.partition if name == "partition_restarted" else item)


_CALLBACKS: Final[dict[type[Update], dict[str, str]]] = {
    rm_messages.AllocationResponse: {
        "allocated": "new",
        "released": "released",
        "allocation_rejected": "rejected_allocations",
    },
    rm_messages.ApplicationResponse: {
        "application_accepted": "accepted",
        "application_rejected": "rejected",
        "application_updated": "updated",
    },
    rm_messages.NodeResponse: {"node_accepted": "accepted", "node_rejected": "rejected"},
    rm_messages.EventResponse: {"event": "events"},
    rm_messages.SchedulingStateResponse: {"scheduling_state_updated": "updated"},
    rm_messages.ReleasesIgnored: {"release_ignored": "ignored"},
    rm_messages.PartitionRestarted: {"partition_restarted": ""},
    rm_messages.ConfigurationUpdated: {"configuration_changed": ""},
    rm_messages.Goodbye: {"goodbye": ""},
    rm_messages.Refused: {"refused": ""},
}
"""Class of news to its callbacks, each with the field that holds the items; "" if the news are the item."""


def _iterate_items(news: Update) -> Iterator[tuple[str, Struct]]:
    """Yield each item of the news with the name of its callback."""
    for name, field in _CALLBACKS[type(news)].items():
        items: list[Struct] = getattr(news, field) if field else [news]
        for item in items:
            yield name, item


def complete_result(result: Result) -> Result:
    """Set the partition's name, which the core sends in the header, and the enums in the items of a result.

    Only this result refers to the decoded items, so they are changed in place: a tenth of the cost of copying them. A
    value that is unknown to this version, from a newer core, stays as it is.
    """
    for _, item in _iterate_items(result.news):
        structs.force_setattr(item, "partition_name", result.partition)
        match item:
            case rm_messages.AllocationRelease(termination_type=kind) if kind in _TERMINATIONS:
                structs.force_setattr(item, "termination_type", _TERMINATIONS[kind])
            case rm_messages.UpdatedApplication(state=state) if state in _STATES:
                structs.force_setattr(item, "state", _STATES[state])
            case rm_messages.UpdateContainerSchedulingState(state=number) if number == SchedulingState.FAILED:
                structs.force_setattr(item, "state", SchedulingState.FAILED)
    return result
