"""What a program that uses the SDK may have to catch.

Not here: when each is raised (`dialogue.py`, `manager.py`), and keys (`common/keys.py`, `connection.py`).
"""

from common.messages import Refused


class RegistrationRefused(Exception):
    """The core does not want this resource manager; the text says why."""


class ConfigurationRefused(Exception):
    """The core goes on with the configuration that it has; the text says why."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.code = refused.code
        """For programs: `configuration` if the text is at fault, otherwise what stood in the way."""


class OutcomeUnknown(ConnectionError):
    """Whether the core took the configuration is not known, since its answer was lost."""


class SessionLost(ConnectionError):
    """The core has forgotten all it knew of this resource manager: connect again and report everything."""


class Closed(RuntimeError):
    """This resource manager was closed by its own program."""


class ResyncFailed(RuntimeError):
    """The partition has not taken the report: nothing was removed, and nothing is placed until another one is complete.
    The text says why.
    """
