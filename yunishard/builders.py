"""Build the parts of an update (`node`, `application`, `ask`, `release`, `removal`), and check arguments of the SDK.

Amounts are integers in base units (`memory` in bytes, `vcore` in thousandths) or text as in `queues.yaml`:
`{"vcore": "500m", "memory": "2Gi"}`. These functions return structs of `common/rm_messages.py`. The structs have every
field of the scheduler interface; the functions have the fields of everyday use.

A wrong argument raises TypeError or ValueError at the call, in a message that names the function, the argument, the
expected type and the value.

Not here: sending (`client.py`), what the core decides (ids that exist already, unknown queues).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from inspect import signature
from types import NoneType, UnionType
from typing import Annotated, Final, Literal, NamedTuple, ParamSpec, Protocol, TypeVar, get_args, get_origin

from msgspec import Struct
from msgspec.msgpack import encode
from msgspec.structs import fields

from common import rm_messages
from common.messages import INT64_MAX, INT64_MIN, Command, Resources
from common.names import NODE_PARTITION
from common.resources import CORES, QuantityError, parse_quantity
from common.wire import BODY_BYTES_MAX, WireError, decode_body, encode_body

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Check(Protocol):
    """Checks a value. It formats no text unless the check fails, as programs build many asks."""

    def __call__(self, place: str, value: object, /, *at: object) -> None:
        """Check the value at these keys or indexes of the argument `place`, which names the function, too."""


class Bounds(NamedTuple):
    """Bounds of a whole number, for the annotation of an argument."""

    low: int = INT64_MIN
    high: int = INT64_MAX
    unit: str = ""


def check_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Check the arguments of each call against their annotations before the function is called.

    The function then raises TypeError for a wrong type, and ValueError for a value out of bounds.
    """
    checks = {
        name: (_find_check(kind), f"{function.__name__}(): {name}")
        for name, kind in function.__annotations__.items()
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


def _find_check(annotation: object) -> Check:
    """Return the check for arguments with this annotation."""
    if annotation in _CHECKS:
        return _CHECKS[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return partial(_check_whole, bounds=parts[1])
    if origin is Literal:
        return partial(_check_choice, choices=parts)
    if origin is Sequence:
        return partial(_check_list, kind=parts[0])
    if parts and get_origin(parts[0]) is Callable:
        return check_callable
    assert isinstance(annotation, type | UnionType), annotation
    return partial(_check_instance, kind=annotation)


def _check_text(place: str, value: object, *at: object) -> None:
    if not isinstance(value, str):
        raise wrong_type(place, value, "text (str)", at=at)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        problem = f"got {_shorten(value)}: {error.reason} at character {error.start}"
        raise ValueError(f"{_locate(place, at)} must be text that UTF-8 can write, {problem}") from None


def _check_whole(place: str, value: object, *at: object, bounds: Bounds) -> None:
    what = f"a whole number{' of ' + bounds.unit if bounds.unit else ''} (int)"
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(place, value, what, at=at)
    if not bounds.low <= value <= bounds.high:
        text = f"must be {what} from {bounds.low} to {bounds.high}, got {_shorten(value)}"
        raise ValueError(f"{_locate(place, at)} {text}")


def _check_seconds(place: str, value: object, *_: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(place, value, "a number of seconds")
    if not value >= 0:  # also for NaN
        raise ValueError(f"{place} must be a number of seconds, 0 or more, got {_shorten(value)}")


def _check_choice(place: str, value: object, *_: object, choices: Sequence[str]) -> None:
    _check_text(place, value)
    if value not in choices:
        raise ValueError(f"{place} must be one of {', '.join(map(repr, choices))}, got {_shorten(value)}")


def _check_instance(place: str, value: object, *_: object, kind: type | UnionType) -> None:
    if not isinstance(value, kind):
        names = {bool: "True or False", NoneType: "None"}
        wanted = " or ".join(names.get(one, one.__name__) for one in get_args(kind) or (kind,))
        raise wrong_type(place, value, wanted)


def check_callable(place: str, value: object, *_: object) -> None:
    """Raises TypeError unless it is None or can be called."""
    if value is not None and not callable(value):
        raise wrong_type(place, value, "a function or None")


def _check_list(place: str, value: object, *_: object, kind: type) -> None:
    wanted = "text (str)" if kind is str else f"{kind.__name__} (`{_BUILDERS[kind]}` makes one)"
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray):
        hint = ": put it into a list" if isinstance(value, kind) else ""
        raise wrong_type(place, value, f"a list of {wanted}", hint)
    for number, item in enumerate(value):
        if kind is str:
            _check_text(place, item, number)
        elif not isinstance(item, kind):
            raise wrong_type(place, item, wanted, at=(number,))


def _check_dict(place: str, value: object, *_: object, check: Check, wanted: str) -> None:
    if not isinstance(value, Mapping):
        raise wrong_type(place, value, wanted)
    for key, item in value.items():
        if not isinstance(key, str):
            raise wrong_type(place.replace(": ", ": a key of "), key, "text (str)")
        _check_text(place, key, key)
        check(place, item, key)


def _check_amount(place: str, value: object, *at: object) -> None:
    if isinstance(value, int) and not isinstance(value, bool):
        if not INT64_MIN <= value <= INT64_MAX:
            _check_whole(place, value, *at, bounds=Bounds())
    elif not isinstance(value, str):
        wanted = 'a whole number in base units (int), or text such as "1500m" or "2Gi"'
        raise wrong_type(place, value, wanted, at=at)


def _optional(check: Check) -> Check:
    return lambda place, value, /, *_: None if value is None else check(place, value)


_check_amounts = partial(_check_dict, check=_check_amount, wanted='a dict such as {"vcore": "500m", "memory": "2Gi"}')
_check_texts = partial(_check_dict, check=_check_text, wanted="a dict of text to text, or None")
_CHECKS: Final[dict[object, Check]] = {
    str: _check_text,
    float: _check_seconds,
    float | None: _optional(_check_seconds),
    Mapping[str, str] | None: _optional(_check_texts),
    Mapping[str, int | str]: _check_amounts,
    Mapping[str, int | str] | None: _optional(_check_amounts),
}
_BUILDERS: Final[dict[type, str]] = {
    rm_messages.NodeInfo: "node",
    rm_messages.AddApplicationRequest: "application",
    rm_messages.RemoveApplicationRequest: "removal",
    rm_messages.Allocation: "ask",
    rm_messages.AllocationRelease: "release",
}


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


def wrong_type(place: str, value: object, wanted: str, hint: str = "", at: Iterable[object] = ()) -> TypeError:
    """Build the error for a value of a wrong type."""
    return TypeError(f"{_locate(place, at)} must be {wanted}, got {_shorten(value)} ({type(value).__name__}){hint}")


def _locate(place: str, at: Iterable[object]) -> str:
    return place + "".join(f"[{one!r}]" for one in at)


def _shorten(value: object) -> str:
    """Return a value as Python code, shortened."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


# Builders -------------------------------------------------------------------------------------------------------------


@check_arguments
def node(
    node_id: str,
    resources: Mapping[str, int | str] | None = None,
    *,
    partition: str = "",
    attributes: Mapping[str, str] | None = None,
    action: Annotated[int, Bounds(rm_messages.NODE_CREATE, rm_messages.NODE_CREATE_DRAIN)] = rm_messages.NODE_CREATE,
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
    gang_timeout_s: Annotated[int, Bounds(0, INT64_MAX // 1000, "seconds")] = 0,
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
    priority: Annotated[int, Bounds(-(2**31), 2**31 - 1)] = 0,
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
    termination_type: Annotated[int, Bounds(0, 2**31 - 1)] = rm_messages.STOPPED_BY_RM,
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
