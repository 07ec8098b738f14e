"""How calls and streams over gRPC end: each code and text in one place. `docs/grpc.md` has the same as a table.

Not here: when they end (`grpc_port.py`, `grpc_registry.py`, `grpc_rm.py`).
"""

from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

import grpc

STATUS_TEXT_BYTES_MAX: Final = 2000
"""Of the text in a status. It travels percent-encoded, at most three times as long, in metadata, of which clients take
8 KiB; beyond that they would see neither code nor text."""

RETRY_METADATA: Final = "grpc-retry-pushback-ms"
"""Trailing metadata that says how long to wait before trying again; the name is gRPC's own."""

RETRY_S: Final = 1.0
"""How long to wait where trying again soon is right."""

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


@dataclass(frozen=True, slots=True)
class Ending:
    """A status other than OK, and how long to wait before trying again; 0 where that alone is of no use."""

    code: grpc.StatusCode
    text: str
    retry_s: float = 0


class EndedError(Exception):
    """A call or stream is over, so."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.text)
        self.ending = ending


async def abort(context: grpc.aio.ServicerContext[_Request, _Response], ending: Ending) -> NoReturn:
    """End a call so; the text is cut to what clients can read."""
    text = ending.text.encode()[:STATUS_TEXT_BYTES_MAX].decode(errors="ignore")
    trailing = ((RETRY_METADATA, str(int(ending.retry_s * 1000))),) if ending.retry_s else ()
    await context.abort(ending.code, text, trailing)


_STATUSES: Final = {
    "busy": grpc.StatusCode.ABORTED,
    "flood": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unknown-session": grpc.StatusCode.FAILED_PRECONDITION,
    "window": grpc.StatusCode.ABORTED,
}
"""Native refusal code to status; any other refusal is the request's fault."""

_WORTH_ANOTHER: Final = frozenset({grpc.StatusCode.ABORTED, grpc.StatusCode.RESOURCE_EXHAUSTED})


# In the order of an RM's life ---------------------------------------------------------------------------------------


def stopping(retry_s: float = RETRY_S) -> Ending:
    """The proxy ends in order."""
    return Ending(grpc.StatusCode.UNAVAILABLE, "the scheduler is stopping", retry_s)


def not_permitted(rm_id: str, permitted: tuple[str, ...]) -> Ending:
    """The client's certificate is for others."""
    named = ", ".join(f'"{name}"' for name in permitted) or "nobody"
    return Ending(grpc.StatusCode.PERMISSION_DENIED, f'this certificate is for RM {named}, not for "{rm_id}"')


def key_required(rm_id: str) -> Ending:
    """The RM has a native key, and the client shows no certificate."""
    text = (
        f'RM "{rm_id}" has a native key: connect to the native port with that key, or over gRPC with a client '
        "certificate for this RM id (the core needs --grpc-tls-client-ca)"
    )
    return Ending(grpc.StatusCode.UNAUTHENTICATED, text)


def refused(code: str, reason: str) -> Ending:
    """The core refused a call; `code` is the one of the native protocol."""
    status = _STATUSES.get(code, grpc.StatusCode.INVALID_ARGUMENT)
    return Ending(status, reason, RETRY_S if status in _WORTH_ANOTHER else 0)


def in_progress(rm_id: str) -> Ending:
    """A registration is on its way, by whomever."""
    return Ending(grpc.StatusCode.ABORTED, f"a registration of RM {rm_id} is in progress", RETRY_S)


def unanswered(waited_s: float) -> Ending:
    """The core said nothing about a registration."""
    return Ending(grpc.StatusCode.DEADLINE_EXCEEDED, f"the core did not answer within {waited_s:g} s", RETRY_S)


def unregistered(request: str, rm_id: str) -> Ending:
    """Something other than a registration came first. The text is the reference's."""
    return Ending(grpc.StatusCode.FAILED_PRECONDITION, f'received {request}, but RmID="{rm_id}" not registered')


def registered_again(rm_id: str) -> Ending:
    """Another registration took the place of this one."""
    return Ending(grpc.StatusCode.ABORTED, f"RM {rm_id} registered again")


def lost(reason: str) -> Ending:
    """The core and the RM no longer agree on what was said."""
    return Ending(grpc.StatusCode.ABORTED, f"{reason}: register again")


def left(rm_id: str) -> Ending:
    """The RM went, as it wished."""
    return Ending(grpc.StatusCode.ABORTED, f"RM {rm_id} left")


def taken_over(rm_id: str) -> Ending:
    """Another stream of the same sort has the responses now."""
    return Ending(grpc.StatusCode.ABORTED, f"another stream of RM {rm_id} took over")


def foreign(rm_id: str, named: str) -> Ending:
    """A request on this RM's stream names another."""
    return Ending(grpc.StatusCode.INVALID_ARGUMENT, f'this stream is of RM "{rm_id}", not of "{named}"')


def too_large(size: int, most: int) -> Ending:
    """A request beyond what is taken."""
    text = f"a message of {size} bytes, at most {most} are taken: send fewer items at once"
    return Ending(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


def malformed(request: str, problem: str) -> Ending:
    """Bytes that are not what they should be."""
    return Ending(grpc.StatusCode.INVALID_ARGUMENT, f"not a {request}: {problem}")
