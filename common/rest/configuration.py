"""What the REST API tells about the versions of a configuration: the broker says it, the web service passes it on.

Not here: how a configuration itself is shown (`webservice/config_view.py`).
"""

from msgspec import Struct

from common.config.problems import Problem


class VersionView(Struct, frozen=True, kw_only=True):
    """One entry of the history of a resource manager; `at` in Unix nanoseconds."""

    version: int
    checksum: str
    at: int
    author: str
    origin: str
    current: bool


class ChangedView(Struct, frozen=True, kw_only=True):
    """A change that was made; `version` counts from 1 for each resource manager."""

    checksum: str
    version: int
    partitions: list[str]
    file: bool
    """Whether the change is written back to the watched file."""
    followers: list[str]
    """Ids of the other resource managers that follow the file, and so the change."""
    warnings: list[Problem] = []
    """What is allowed in this configuration and probably not meant, at most 100 and one that counts the others."""
