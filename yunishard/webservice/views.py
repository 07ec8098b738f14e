"""JSON objects that the web service itself makes, and `RequestError`, the exception that becomes an error object.

Everything about a partition comes from its worker as finished JSON (`common/rest/views.py`). A key without a default is
always present; one with a default is omitted when it has that value.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.json import Encoder

from yunishard.common.config.problems import Problem

_encoder: Final = Encoder(order="deterministic")  # maps by key, objects in the order of their fields


class ClusterView(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One partition among the clusters, with the build information of every resource manager."""

    start_time: int = 0
    """When the system started, in Unix nanoseconds."""
    rm_build_information: list[dict[str, str]] = field(default_factory=list)
    partition: str
    cluster_name: str
    rm_id: str = ""
    """The RM of the partition."""
    away_since: int = 0
    """When that resource manager disconnected, in Unix nanoseconds; 0 while it is connected."""


class VerdictView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a configuration is valid, and if not, its first problem."""

    allowed: bool
    reason: str = ""
    problems: list[Problem] = []
    """All of them, with their places, if the request asks for them."""


class SettingView(Struct, frozen=True):
    """One setting in force, and its source."""

    name: str
    value: str
    source: str


class ErrorView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error; both texts are the same."""

    status_code: int
    message: str = ""
    description: str = ""
    problems: list[Problem] = field(default_factory=list)
    """All problems of a configuration; the message is the first of them."""


def encode(view: Struct | Sequence[Struct]) -> bytes:
    """Encode views as compact JSON with a line break."""
    return _encoder.encode(view) + b"\n"


class RequestError(Exception):
    """A failed request. Handlers raise it, and the client gets its `body`."""

    def __init__(self, status: int, text: str, *, problems: Sequence[Problem] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.body = encode(ErrorView(status_code=status, message=text, description=text, problems=[*problems]))
        """The error object."""
