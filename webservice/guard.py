"""Everything that stands between the port and the routes, as it was set up at the start.

Not here: what each does.
"""

from dataclasses import dataclass

from webservice.audit import AuditLog
from webservice.cors import Cors
from webservice.door.entrance import Entrance


@dataclass(frozen=True, slots=True)
class Guard:
    """Who is let in, whose pages may read, and where changes are written down; None for nowhere."""

    entrance: Entrance
    cors: Cors
    audit: AuditLog | None = None
