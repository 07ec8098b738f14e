"""What the document says about a route besides its path: the words that an area of the API is described with.

Not here: what each route is said to do (`areas.py` joins that), the document itself (`document.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Final, Literal, Union

Json = Union[Mapping[str, "Json"], Sequence["Json"], str, int, float, bool, None]  # noqa: UP007 - refers to itself
Schema = Mapping[str, Json]

JSON: Final = "application/json"
TEXT: Final = "text/plain"
YAML: Final = "application/x-yaml"
CSV: Final = "text/csv"
HTML: Final = "text/html"
BINARY: Final = "application/octet-stream"

ANY_TEXT: Final[Schema] = {"type": "string"}
BYTES: Final[Schema] = {"type": "string", "format": "binary"}
ANY_OBJECT: Final[Schema] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something that may be said in the query, or in a header."""

    name: str
    says: str
    schema: Schema = field(default_factory=lambda: ANY_TEXT)
    place: Literal["query", "header"] = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Content:
    """A form that a body may have: a schema, or a type from which one is made."""

    schema: Schema | type[object] | UnionType
    media: str = JSON

    @property
    def types(self) -> tuple[object, ...]:
        """Of which schemas have to be made for it."""
        return () if isinstance(self.schema, Mapping) else (self.schema,)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a route does, takes and answers.

    Besides what is said here, every route may answer 400, 404 and 503, and while people have to say who they are 401
    and 403, unless it is for anybody.
    """

    summary: str
    answers: tuple[Content, ...]
    """With which it answers when all is well; none for a redirect."""
    says: str = ""
    """More than fits into a summary."""
    parameters: tuple[Parameter, ...] = ()
    segments: Mapping[str, Schema] = field(default_factory=dict)
    """What named segments of the path may be, where that is less than on other paths."""
    body: tuple[Content, ...] = ()
    body_required: bool = True
    """Whether an empty body is refused; of no account where there is none."""
    statuses: Mapping[int, str] = field(default_factory=dict)
    """Others than those of every route, and what they mean."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Of a good answer, and what they mean."""
    redirects: bool = False
    """It answers 301, and nothing else when all is well."""
    streams: bool = False
    """The answer is one line after the other, as things happen, and has no end of its own."""


@dataclass(frozen=True, slots=True)
class Area:
    """Routes that belong together, by method and path."""

    name: str
    says: str
    operations: Mapping[str, Operation]
