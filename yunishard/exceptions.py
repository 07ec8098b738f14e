"""What a program that uses the SDK may have to catch.

Not here: when each is raised (`dialogue.py`, `manager.py`), and keys (`common/keys.py`, `connection.py`).
"""

from common.rm_messages import Refused


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


class KeyRefused(ConnectionError):
    """The core and this resource manager do not accept each other's keys; trying again is of no use."""


class Closed(RuntimeError):
    """This resource manager was closed by its own program."""


class ResyncFailed(RuntimeError):
    """The partition has not taken the report: nothing was removed, and nothing is placed until another one is complete.
    The text says why.
    """


def silence(address: str, rm_id: str, timeout_s: float, *, spoken: bool, complaint: str, found: str = "") -> Exception:
    """That a registration was not answered in time: whether there was anybody to say it to (`spoken`), why the core
    wanted another attempt, if it said so, and what a probe `found` at the address.
    """
    if complaint:
        return RegistrationRefused(f"{complaint} (tried for {timeout_s:g} s)")
    if not spoken:
        found = f" ({found})" if found else ""
        return ConnectionError(
            f"nothing answers at {address} within {timeout_s:g} s{found}: is the core running there "
            "(`yunishard up`), and is this its port for resource managers (9090 unless configured otherwise)?"
        )
    return TimeoutError(
        f"{address} took the registration of {rm_id} and did not answer within {timeout_s:g} s: "
        "look at the core's log, then try again; hundreds of partitions take minutes, so give them a longer timeout_s"
    )
