"""Requests of the web service to the broker and the workers: read-only queries, and changes that an operator requests.

Each request except `ListPartitions` is answered by an `Answer` with the same `ref`.
"""

from typing import Annotated, Final

from msgspec import Meta, field

from common.messages import Control, Part


class Actor(Part, frozen=True):
    """Who wants something done, as the front end has established it."""

    user: str
    groups: list[str] = field(default_factory=list)
    scheduler_admin: bool = False
    """Whether the scheduler's own access control list names them; then no queue is asked."""


class Query(Control, frozen=True):
    """A read-only question to a partition; answered by an `Answer` with the same `ref`. Without a partition in the
    header the broker answers: what it has heard of the figures of all processes that are no workers (`metrics`).
    """

    what: str
    name: str = ""
    """The partition's name as the asker wants to see it."""
    args: dict[str, str] = field(default_factory=dict)
    viewer: "Actor | None" = None
    """Who wants to know, and is shown only what the queues' access control lists let them see; None for one who may
    see everything.
    """
    known: str = ""
    """The `version` of an answer to the same question that the asker still has; status 304 says that it holds."""


class Answer(Control, frozen=True):
    """Status as in HTTP, and a JSON document that is passed on as it is."""

    status: int
    body: bytes
    version: str = ""
    """Of what was asked about: as long as it is the same, so is the answer. Empty if that is not known."""
    next: str = ""
    """The `after` with which the list goes on; empty at its end."""
    took_micro_seconds: int = 0
    """How long it took to answer, in which nothing else was done."""


NOT_MODIFIED: Final = 304
"""The status of an answer without a body: that of the version that the asker knows holds."""

TOO_LONG: Final = 413
"""The status of an answer that would be too long, to a question that has pages."""


# Changes to one partition --------------------------------------------------------------------------------------------


class KillApplication(Control, frozen=True):
    """Front end to worker: fail an application and release all it has. Answered by an `Answer` with the same `ref`."""

    application_id: str
    actor: Actor
    seen_only: bool = False
    """Whether what the actor may not see is, for them, not there."""
    name: str = ""
    """The partition's name for the answer, as in `Query`; empty for its plain name."""


class MoveApplication(Control, frozen=True):
    """Front end to worker: let an application go on in another leaf. Answered by an `Answer` with the same `ref`."""

    application_id: str
    queue: str
    """Full path of an existing leaf."""
    actor: Actor
    seen_only: bool = False
    """As in `KillApplication`."""
    name: str = ""
    """As in `KillApplication`."""


STEPS_MAX: Final = 1000
"""Decisions that may be asked for at once: all that time the worker does nothing else, and all are in its answer."""


class Schedule(Control, frozen=True):
    """Front end to worker: make so many decisions, fewer if nothing is left to decide. Answered by an `Answer` with the
    same `ref` and a JSON document: `made`, how many; `decisions`, what each was; `idle`, whether nothing is left.
    """

    steps: Annotated[int, Meta(ge=1, le=STEPS_MAX)]
    name: str = ""
    """As in `KillApplication`."""


# Configuration -------------------------------------------------------------------------------------------------------


class ChangeConfig(Control, frozen=True):
    """Front end to broker: give the RM of the header this configuration. Answered by an `Answer` with a JSON
    document: `checksum`, `version`, `partitions`, whether it is written back to the watched `file`, and the
    `followers` of that file who get it too; or with an error status the problems.
    """

    config: str
    author: str
    origin: str = "api"
    """Where it comes from, for the history: `api`, or `rollback to N`."""
    expected: str = ""
    """Checksum of what the author believes to change; with another one in force the answer is 412. Empty: any."""
    overwrite: bool = False
    """Whether to overwrite the watched file even if it was edited and the edit is not in force; else the answer is
    409.
    """


class ReadConfig(Control, frozen=True):
    """Front end to broker: what the RM of the header runs, or has run. Answered by an `Answer` with a JSON document."""

    what: str
    """`current`, `history`, `version` with its number, or `default`: what an RM gets that sends no configuration."""
    version: int = 0


# Registered RMs and partitions ---------------------------------------------------------------------------------------


class ListPartitions(Control, frozen=True):
    """Front end to broker: who is registered, with what?"""


class PartitionEntry(Part, frozen=True):
    """A partition: its normalised name, its own name within the RM, and the RM."""

    full_name: str
    name: str
    rm_id: str
    epoch: int = 0
    """Of its worker's lease."""
    life: int = 0
    """In the RM's session."""
    session: str = ""
    """Of the RM."""
    problem: str = ""
    """Why its worker cannot start; empty once it has started."""

    @property
    def generation(self) -> str:
        """Another text for each partition of this name that began from nothing."""
        return f"{self.session} {self.life}"


class ManagerEntry(Part, frozen=True):
    """An RM, also one without partitions. Times in Unix nanoseconds."""

    rm_id: str
    session: str
    registered_ns: int = 0
    """When this session began."""
    away_since_ns: int = 0
    """Since when nothing is heard of it; 0 while it is there."""
    nodes_astray: int = 0
    """Nodes that it has registered for partitions that it does not have, since the broker began."""


class PartitionList(Control, frozen=True):
    """All partitions, and the build information of every RM, in the order of registration."""

    partitions: list[PartitionEntry]
    build_information: dict[str, dict[str, str]]
    started_ns: int
    """When the broker started, in Unix nanoseconds."""
    managers: list[ManagerEntry] = field(default_factory=list)
    record_problem: str = ""
    """Why the broker's record could not be written the last time; empty if it could."""
