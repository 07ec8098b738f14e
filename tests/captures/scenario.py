"""The recorded scenario as data: what the resource manager is, its configurations, the steps, and what is asked for.

Not here: playing it (`player.py`).
"""

from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

DATA: Final = Path(__file__).parents[1] / "data" / "captures"

Amounts = dict[str, int]


class Manager(Struct, frozen=True, kw_only=True):
    """The resource manager, and the asks that it refuses on every node."""

    id: str
    version: str
    policy_group: str
    build_info: dict[str, str]
    predicate_errors: dict[str, str]
    state_dump: str


class Node(Struct, frozen=True, kw_only=True):
    id: str
    action: Literal["CREATE", "CREATE_DRAIN", "UPDATE", "DRAIN_NODE", "DRAIN_TO_SCHEDULABLE", "DECOMISSION"]
    attributes: dict[str, str] = {}
    resources: Amounts | None = None


class Application(Struct, frozen=True, kw_only=True):
    id: str
    queue: str
    user: str
    groups: list[str]
    tags: dict[str, str] = {}
    gang_style: str = ""
    timeout_ms: int = 0
    placeholder_ask: Amounts = {}


class Allocation(Struct, frozen=True, kw_only=True):
    """An ask, or with a node what runs already."""

    key: str
    app: str = ""
    node: str = ""
    created: int = 0
    """Unix seconds."""
    priority: int = 0
    originator: bool = False
    placeholder: bool = False
    task_group: str = ""
    preempt_self: bool = False
    preempt_other: bool = False
    tags: dict[str, str] = {}
    resources: Amounts


class Release(Struct, frozen=True, kw_only=True):
    key: str
    app: str
    type: Literal["STOPPED_BY_RM", "TIMEOUT", "PLACEHOLDER_REPLACED"]


class Register(Struct, frozen=True, kw_only=True, tag_field="op", tag="register"):
    config: str
    extra: dict[str, str]


class UpdateConfig(Struct, frozen=True, kw_only=True, tag_field="op", tag="update_config"):
    config: str
    extra: dict[str, str]


class Nodes(Struct, frozen=True, kw_only=True, tag_field="op", tag="nodes"):
    nodes: list[Node]


class Applications(Struct, frozen=True, kw_only=True, tag_field="op", tag="apps"):
    apps: list[Application]


class RemoveApplications(Struct, frozen=True, kw_only=True, tag_field="op", tag="remove_apps"):
    apps: list[str]


class Allocations(Struct, frozen=True, kw_only=True, tag_field="op", tag="allocations"):
    allocations: list[Allocation]


class Releases(Struct, frozen=True, kw_only=True, tag_field="op", tag="release"):
    releases: list[Release]


class Schedule(Struct, frozen=True, kw_only=True, tag_field="op", tag="schedule"):
    cycles: int


class Sleep(Struct, frozen=True, kw_only=True, tag_field="op", tag="sleep"):
    ms: int


class CompletingTimeout(Struct, frozen=True, kw_only=True, tag_field="op", tag="set_completing_timeout"):
    ms: int


class WaitApplication(Struct, frozen=True, kw_only=True, tag_field="op", tag="wait_app"):
    app: str
    state: str
    timeout_ms: int


class InspectOutstanding(Struct, frozen=True, tag_field="op", tag="inspect_outstanding"):
    pass


class EnableHistory(Struct, frozen=True, tag_field="op", tag="history_enable"):
    pass


class StoreHistory(Struct, frozen=True, tag_field="op", tag="store_history"):
    pass


class Capture(Struct, frozen=True, kw_only=True, tag_field="op", tag="capture"):
    group: str


Step = (
    Register
    | UpdateConfig
    | Nodes
    | Applications
    | RemoveApplications
    | Allocations
    | Releases
    | Schedule
    | Sleep
    | CompletingTimeout
    | WaitApplication
    | InspectOutstanding
    | EnableHistory
    | StoreHistory
    | Capture
)


class Request(Struct, frozen=True, kw_only=True):
    """What is asked for in a group."""

    name: str
    path: str
    method: str = "GET"
    headers: dict[str, str] = {}
    body: str = ""
    max_lines: int = 0
    """Of a stream: so many lines are read, then it is closed."""
    while_streaming: bool = False
    """While somebody else reads the stream of events."""


class Scenario(Struct, frozen=True, kw_only=True):
    rm: Manager
    configs: dict[str, str]
    steps: list[Step]
    captures: dict[str, list[Request]]


class Recorded(Struct, frozen=True, kw_only=True):
    """What the reference answered to a request."""

    group: str
    name: str
    file: str
    status: int
    headers: dict[str, str]


def scenario() -> Scenario:
    return msgspec.yaml.decode((DATA / "scenario.yaml").read_bytes(), type=Scenario)


def recorded() -> list[Recorded]:
    return msgspec.json.decode((DATA / "index.json").read_bytes(), type=list[Recorded])
