"""Log lines of every server process: the format, where they are written (standard error), and levels that RMs set.

The setting `log-format` chooses between lines for readers (`text`) and one JSON object for each line (`json`), for
programs that collect logs. With `json`, warnings of Python and exceptions that end a process or a thread are such
objects, too. Not log lines, and always text: the stacks after SIGUSR1 or a crash in machine code, and the line in which
a command states why it does not start.
"""

import logging
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from yunishard.common.config.extra_config import base_level, logger_levels
from yunishard.common.process.terminal import clean, clean_output

_log = logging.getLogger("core.process")


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object in one line, in UTF-8: the time in UTC as RFC 3339 with milliseconds, the
    level in lower case, the process with its id, the logger, the message, and the traceback of an exception, if any.
    """

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        traceback = [] if record.exc_info is None else [self.formatException(record.exc_info)]
        if record.stack_info:
            traceback.append(self.formatStack(record.stack_info))
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "process": self._process,
            "pid": record.process or 0,
            "logger": record.name,
            "message": _encodable(record.getMessage()),
        }
        if traceback:
            line["exception"] = _encodable("\n".join(traceback))
        return msgspec.json.encode(line).decode()


class TextFormatter(logging.Formatter):
    """Formats a record as one line, with its traceback after it. Texts of clients in it begin no line, and have no
    effect on a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.msg, record.args = clean(record.getMessage()), None
        return clean_output(super().format(record))


def _encodable(text: str) -> str:
    """The text with escapes in place of what UTF-8 cannot express: parts of file names, for example."""
    return text.encode("utf-8", "backslashreplace").decode()


def configure_logging(process: str, level: str, line_format: Literal["text", "json"] = "text") -> None:
    """Log to standard error as this process."""
    text = f"%(asctime)s %(levelname)-7s {process} %(name)s: %(message)s"
    logging.basicConfig(level=level.upper(), stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonFormatter(process) if line_format == "json" else TextFormatter(text))
    if line_format == "json":
        logging.captureWarnings(capture=True)
        sys.excepthook = _log_exception
        threading.excepthook = _log_thread_exception


def _log_exception(kind: type[BaseException], error: BaseException, traceback: object) -> None:
    """Log the exception that ends this process."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, error.__traceback__)
        return
    _log.critical("the process ends: %s: %s", kind.__name__, error, exc_info=error)


def _log_thread_exception(found: threading.ExceptHookArgs) -> None:
    """Log the exception that ends a thread."""
    name = found.thread.name if found.thread is not None else "unknown"
    _log.error("the thread %s ends: %s", name, found.exc_type.__name__, exc_info=found.exc_value)


def log_lines(logger: logging.Logger, lines_by_level: Mapping[int, list[str]], prefix: str = "") -> None:
    """Log the lines of a machine, and clear them."""
    for level, lines in lines_by_level.items():
        for line in lines:
            logger.log(level, "%s%s", prefix, line)
        lines.clear()


class LogLevels:
    """The levels that the RM's settings have set; they are reset when the settings change."""

    def __init__(self, *parents: str) -> None:
        """`parents` are the loggers above all those that the settings may change."""
        self._parents = parents
        self._set: dict[str, int] = {}

    def apply(self, settings: Mapping[str, str]) -> None:
        """Apply the levels in these settings, and reset others that were set before."""
        base = base_level(settings)
        named = {name: level for name, level in logger_levels(settings).items() if self._is_known(name)}
        wanted = named if base is None else {**dict.fromkeys(self._parents, base), **named}
        for name in self._set.keys() - wanted.keys():
            logging.getLogger(name).setLevel(logging.NOTSET)
        for name, level in wanted.items():
            python_level = logging.INFO + level * (logging.INFO - logging.DEBUG)  # level 0 is INFO, as -1 is DEBUG
            logging.getLogger(name).setLevel(min(python_level, logging.CRITICAL))
        self._set = wanted

    def _is_known(self, name: str) -> bool:
        """Whether this is a logger below a parent, or a parent. Settings create no others."""
        is_ours = any(f"{name}.".startswith(f"{parent}.") for parent in self._parents)
        return is_ours and name in logging.Logger.manager.loggerDict
