"""The exceptions of the SDK. All but TypeError and ValueError, for wrong arguments, derive from `YunishardError`."""

from common.rm_messages import Refused
from common.wire import WireError


class YunishardError(Exception):
    """Base class of all exceptions that the SDK raises, except for wrong arguments."""


class ConnectFailed(YunishardError, ConnectionError):
    """Nothing answers at the address, or the port there speaks another protocol."""


class AnswerTimeout(YunishardError, TimeoutError):
    """The core did not answer in time."""


class RegistrationRefused(YunishardError):
    """The core refused to register this resource manager; the text gives the reason."""


class KeyRefused(YunishardError, ConnectionError):
    """The core and this resource manager do not accept each other's keys. Trying again does not help."""


class KeyFileError(YunishardError, OSError):
    """A key file cannot be used; the text names the file and what to do."""


class ConfigurationRefused(YunishardError):
    """The core refused the configuration and keeps the one in force; the text gives the reason."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.reason)
        self.code = refused.code
        """For programs: `configuration` if the text is invalid, otherwise what prevented the change."""


class OutcomeUnknown(YunishardError, ConnectionError):
    """The answer was lost, so the client cannot tell whether the core took the configuration."""


class SessionLost(YunishardError, ConnectionError):
    """The core dropped this session with everything it had: connect again and report everything."""


class Closed(YunishardError, RuntimeError):
    """The program closed this client."""


class ResyncFailed(YunishardError, RuntimeError):
    """The partition refused the full report. It removed nothing, and places nothing until another report is complete.
    The text gives the reason.
    """


class UpdateTooLarge(YunishardError, WireError):
    """A single item of an update is larger than a message may be."""


def registration_failure(
    address: str, rm_id: str, timeout_s: float, *, spoken: bool, complaint: str, found: str = ""
) -> YunishardError:
    """Build the exception for a registration without an answer in time.

    `spoken` is whether there was a connection, `complaint` why the core asked for another attempt, and `found` what the
    probe of the address found.
    """
    if complaint:
        return RegistrationRefused(f"{complaint} (tried for {timeout_s:g} s)")
    if not spoken:
        found = f" ({found})" if found else ""
        return ConnectFailed(
            f"nothing answers at {address} within {timeout_s:g} s{found}: is the core running there "
            "(`yunishard up`), and is this its port for resource managers (9090 unless configured otherwise)?"
        )
    return AnswerTimeout(
        f"{address} took the registration of {rm_id} and did not answer within {timeout_s:g} s: "
        "look at the core's log, then try again; hundreds of partitions take minutes, so give them a longer timeout_s"
    )
