"""The exceptions of the SDK. All but TypeError and ValueError, for wrong arguments, derive from `YunishardError`."""

from yunishard.common.messages.rm_messages import Refused


class YunishardError(Exception):
    """Base class of all exceptions that the SDK raises, except for wrong arguments."""


class ConnectFailed(YunishardError, ConnectionError):
    """Nothing answers at the address, or the port there has another protocol."""


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
        """`configuration` if the text is invalid, otherwise a code for what prevented the change."""


class OutcomeUnknown(YunishardError, ConnectionError):
    """The answer was lost, so the client cannot tell whether the core took the configuration."""


class SessionLost(YunishardError, ConnectionError):
    """The core dropped this session with everything it had: connect again and report everything."""

    code: str = ""
    """`superseded` if another process registered with this id: stop, or both take the session from each other for ever.
    Otherwise the code of the core's refusal; empty if there was none."""


class Closed(YunishardError, RuntimeError):
    """The program closed this client."""


class UsageError(YunishardError, RuntimeError):
    """The program called a method where it cannot be called; the text gives the reason."""


class ResyncFailed(YunishardError, RuntimeError):
    """The partition refused the full report. It removed nothing, and places nothing until another report is complete.
    The text gives the reason.
    """


class UpdateTooLarge(YunishardError, ValueError):
    """A single item of an update is larger than a message may be."""
