"""Build the parts of an update (`node`, `application`, `ask`, `release`, `removal`), and check arguments of the SDK.

Amounts are integers in base units (`memory` in bytes, `vcore` in thousandths) or text as in `queues.yaml`:
`{"vcore": "500m", "memory": "2Gi"}`. These functions return structs of `common/rm_messages.py`. The structs have every
field of the scheduler interface; the functions have the fields of everyday use.

A wrong argument raises TypeError or ValueError at the call, in a message that names the function, the argument, the
expected type and the value.

Not here: sending (`client.py`), what the core decides (ids that exist already, unknown queues).
"""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Final, Literal

from msgspec import Struct
from msgspec.msgpack import encode
from msgspec.structs import fields

from common.messages import INT64_MAX, INT64_MIN, Command, Resources
from common.names import NODE_PARTITION
from common.resources import QuantityError, parse_quantity
from common.rm_messages import (
    NODE_CREATE,
    NODE_CREATE_DRAIN,
    STOPPED_BY_RM,
    AddApplicationRequest,
    Allocation,
    AllocationRelease,
    NodeInfo,
    PreemptionPolicy,
    RemoveApplicationRequest,
    UserGroupInformation,
)
from common.wire import BODY_BYTES_MAX, WireError, decode_body, encode_body

SHOWN_LENGTH_MAX: Final = 80
"""Characters of a wrong value that a message repeats."""


def check_text(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is a `str`, and ValueError if it cannot be written as UTF-8."""
    if not isinstance(value, str):
        raise wrong_type(function, argument, value, "text (str)")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{function}: {argument} must be text that UTF-8 can write, got {shown(value)}: {error.reason} "
            f"at character {error.start}"
        ) from None


def check_whole(
    function: str, argument: str, value: object, *, low: int = INT64_MIN, high: int = INT64_MAX, unit: str = ""
) -> None:
    """Raises TypeError unless it is an `int`, and ValueError if it is out of these bounds."""
    what = f"a whole number{' of ' + unit if unit else ''} (int)"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(function, argument, value, what)
    if not low <= value <= high:
        raise ValueError(f"{function}: {argument} must be {what} from {low} to {high}, got {shown(value)}")


def check_flag(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is True or False."""
    if not isinstance(value, bool):
        raise wrong_type(function, argument, value, "True or False")


def check_seconds(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is a number, and ValueError if it is negative."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(function, argument, value, "a number of seconds")
    if not value >= 0:  # also of what is not a number
        raise ValueError(f"{function}: {argument} must be a number of seconds, 0 or more, got {shown(value)}")


def check_choice(function: str, argument: str, value: object, choices: Sequence[str]) -> None:
    """Raises TypeError unless it is a `str`, and ValueError unless it is one of these."""
    check_text(function, argument, value)
    if value not in choices:
        raise ValueError(f"{function}: {argument} must be one of {', '.join(map(repr, choices))}, got {shown(value)}")


def check_one_of(function: str, argument: str, value: object, kind: type | UnionType, what: str = "") -> None:
    """Raises TypeError unless it is None or an instance of one of these classes."""
    if value is not None and not isinstance(value, kind):
        raise wrong_type(function, argument, value, what or f"{getattr(kind, '__name__', kind)} or None")


def check_callable(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is None or can be called."""
    if value is not None and not callable(value):
        raise wrong_type(function, argument, value, "a function or None")


def check_texts(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is a sequence of texts, and not one text, whose letters would become the items."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        hint = f": write [{shown(value)}] for a single one" if isinstance(value, str) else ""
        raise wrong_type(function, argument, value, "a list or tuple of texts", hint)
    for number, item in enumerate(value):
        check_text(function, f"{argument}[{number}]", item)


def check_text_map(function: str, argument: str, value: object) -> None:
    """Raises TypeError unless it is None, or a mapping from text to text."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise wrong_type(function, argument, value, "a dict of text to text, or None")
    for key, item in value.items():
        if not isinstance(key, str):
            raise wrong_type(function, f"a key of {argument}", key, "text (str)")
        check_text(function, f"{argument}[{key!r}]", item)


def check_items(function: str, argument: str, value: object, kind: type, builder: str) -> None:
    """Raises TypeError unless it is a sequence of these structs."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        hint = ": put it into a list" if isinstance(value, kind) else ""
        raise wrong_type(function, argument, value, f"a list of {kind.__name__} (`{builder}` makes one)", hint)
    for number, item in enumerate(value):
        if not isinstance(item, kind):
            raise wrong_type(function, f"{argument}[{number}]", item, f"{kind.__name__} (`{builder}` makes one)")


def check_command(function: str, command: Command) -> int:
    """Encode a command and return its size in bytes.

    Raises:
        TypeError: a field of a struct has a value that no message can carry; names the place.
    """
    try:
        body = encode_body(command)
        if len(body) <= BODY_BYTES_MAX:  # otherwise the caller checks it in parts
            decode_body(type(command), body)
        return len(body)
    except WireError as error:
        reason = str(error).removeprefix(f"{type(command).__name__}: ")
    except _UNENCODABLE as error:
        reason = f"{error} - at `{_unencodable_part(command, '$')}`"
    raise TypeError(f"{function}: a field has a value that cannot be sent: {reason}")


_UNENCODABLE: Final = (TypeError, OverflowError, UnicodeEncodeError)


def _unencodable_part(value: object, place: str) -> str:
    """The place of the innermost part of a value that cannot be encoded, written as in the errors of decoding."""
    parts: list[tuple[str, object]] = []
    if isinstance(value, Struct):
        parts = [(f"{place}.{one.encode_name}", getattr(value, one.name)) for one in fields(value)]
    elif isinstance(value, list):
        parts = [(f"{place}[{number}]", item) for number, item in enumerate(value)]
    for inner, part in parts:
        try:
            encode(part)
        except _UNENCODABLE:
            return _unencodable_part(part, inner)
    return place


def wrong_type(function: str, argument: str, value: object, wanted: str, hint: str = "") -> TypeError:
    """That an argument has another type than it should."""
    return TypeError(f"{function}: {argument} must be {wanted}, got {shown(value)} ({type(value).__name__}){hint}")


def shown(value: object) -> str:
    """A value as a program would write it, shortened."""
    text = repr(value)
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}..."


INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def node(
    node_id: str,
    resources: Mapping[str, int | str] | None = None,
    *,
    partition: str = "",
    attributes: Mapping[str, str] | None = None,
    action: int = NODE_CREATE,
) -> NodeInfo:
    """A node that joins; with another `action` (the `NODE_` numbers of `common.messages`) one that changes or goes.

    Raises:
        TypeError, ValueError: (every function of this file) names the argument that is wrong, and what would be right.
    """
    check_text("node()", "node_id", node_id)
    check_text("node()", "partition", partition)
    check_text_map("node()", "attributes", attributes)
    check_whole("node()", "action", action, low=NODE_CREATE, high=NODE_CREATE_DRAIN)
    own = {NODE_PARTITION: partition} if partition else {}
    return NodeInfo(
        node_id=node_id,
        action=action,
        attributes={**(attributes or {}), **own},
        schedulable_resource=None if resources is None else _amounts("node()", "resources", resources),
    )


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
    gang_timeout_s: int = 0,
) -> AddApplicationRequest:
    """A new application of a user, with the queue it would like; the partition's placement rules decide.

    `gang` is what its placeholders need in all. After `gang_timeout_s` (0: a quarter of an hour) those whose places no
    real ask has taken go; if not all had a node by then, all it asked for goes, and it asks anew (`Soft`) or has failed
    (`Hard`).
    """
    function = "application()"
    check_text(function, "application_id", application_id)
    check_text(function, "queue", queue)
    check_text(function, "user", user)
    check_texts(function, "groups", groups)
    check_text(function, "partition", partition)
    check_text_map(function, "tags", tags)
    check_choice(function, "gang_style", gang_style, ("Soft", "Hard"))
    check_whole(function, "gang_timeout_s", gang_timeout_s, low=0, high=INT64_MAX // 1000, unit="seconds")
    return AddApplicationRequest(
        application_id=application_id,
        queue_name=queue,
        partition_name=partition,
        ugi=UserGroupInformation(user=user, groups=list(groups)),
        tags=dict(tags or {}),
        placeholder_ask={} if gang is None else _amounts(function, "gang", gang),
        gang_scheduling_style="" if gang is None else gang_style,
        execution_timeout_milli_seconds=gang_timeout_s * 1000,
    )


def ask(
    allocation_key: str,
    application_id: str,
    resources: Mapping[str, int | str],
    *,
    partition: str = "",
    priority: int = 0,
    node_id: str = "",
    tags: Mapping[str, str] | None = None,
    preemption: PreemptionPolicy | None = None,
    task_group: str = "",
    placeholder: bool = False,
) -> Allocation:
    """An ask for one allocation, with a key unique in its partition; with a node, one that already runs there.

    With a task group it takes the place of one of the placeholders of that group, or is one.
    """
    function = "ask()"
    check_text(function, "allocation_key", allocation_key)
    check_text(function, "application_id", application_id)
    check_text(function, "partition", partition)
    check_whole(function, "priority", priority, low=INT32_MIN, high=INT32_MAX)
    check_text(function, "node_id", node_id)
    check_text_map(function, "tags", tags)
    check_one_of(function, "preemption", preemption, PreemptionPolicy)
    check_text(function, "task_group", task_group)
    check_flag(function, "placeholder", placeholder)
    return Allocation(
        allocation_key=allocation_key,
        application_id=application_id,
        partition_name=partition,
        resource_per_alloc=_amounts(function, "resources", resources),
        node_id=node_id,
        priority=priority,
        allocation_tags=dict(tags or {}),
        preemption_policy=preemption,
        task_group_name=task_group,
        placeholder=placeholder,
    )


def removal(application_id: str, *, partition: str = "") -> RemoveApplicationRequest:
    """Build the removal of an application with all its asks and allocations."""
    check_text("removal()", "application_id", application_id)
    check_text("removal()", "partition", partition)
    return RemoveApplicationRequest(application_id=application_id, partition_name=partition)


def release(
    application_id: str, allocation_key: str = "", *, partition: str = "", termination_type: int = STOPPED_BY_RM
) -> AllocationRelease:
    """The end of an allocation or ask; without a key, of all that the application has."""
    check_text("release()", "application_id", application_id)
    check_text("release()", "allocation_key", allocation_key)
    check_text("release()", "partition", partition)
    check_whole("release()", "termination_type", termination_type, low=0, high=INT32_MAX)
    return AllocationRelease(
        partition_name=partition,
        application_id=application_id,
        allocation_key=allocation_key,
        termination_type=termination_type,
    )


def amounts(resources: Mapping[str, int | str]) -> Resources:
    """Resources in base units.

    Raises:
        QuantityError: a text is no quantity; names the resource and the text.
    """
    return _amounts("amounts()", "resources", resources)


def _amounts(function: str, argument: str, resources: Mapping[str, int | str]) -> Resources:
    if not isinstance(resources, Mapping):
        raise wrong_type(function, argument, resources, 'a dict such as {"vcore": "500m", "memory": "2Gi"}')
    return {kind: _amount(function, argument, kind, value) for kind, value in resources.items()}


def _amount(function: str, argument: str, kind: str, value: int | str) -> int:
    check_text(function, f"a key of {argument}", kind)
    place = f"{argument}[{kind!r}]"
    if not isinstance(value, str):
        if not isinstance(value, int) or isinstance(value, bool):
            wanted = 'a whole number in base units (int), or text such as "1500m" or "2Gi"'
            raise wrong_type(function, place, value, wanted)
        check_whole(function, place, value)
        return value
    try:
        return parse_quantity(value, resource_type=kind)
    except QuantityError as error:
        raise QuantityError(f"{kind}: {value!r}: {error}") from None
