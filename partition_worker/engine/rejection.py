"""An application that was refused, remembered for those who ask why."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rejection:
    """Who submitted what, when it was refused, and the reason that the RM was given."""

    application_id: str
    queue_name: str
    """As it was asked for; empty if the application had no queue yet."""
    user: str
    groups: tuple[str, ...]
    at_ns: int
    reason: str
