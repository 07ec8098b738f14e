"""Who may use a route, said once for each of them in the table of routes.

Not here: who somebody is (`people.py`), and what of a partition they see (its worker decides that by its queues).
"""

from enum import Enum


class Access(Enum):
    """Who may use a route while people have to say who they are. Otherwise everybody may read everything."""

    ANYBODY = "anybody"
    """No name needed: nothing is told about anybody's work."""
    KNOWN = "known"
    """Whoever has said who they are; the answer is the same for all."""
    SEEN = "seen"
    """Whoever has said who they are; the answer holds what they may see."""
    OWN = "own"
    """A change that whoever is asked decides about, by the access control lists of the queue."""
    ADMINS = "admins"
    """Scheduler administrators only."""
