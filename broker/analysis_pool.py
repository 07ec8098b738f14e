"""The child processes that analyse configurations, as endpoints of the broker's wire: `@reader/0`, `@reader/1` ...

The machine sends one text at a time to each endpoint (`ReadText`), and receives `TextRead`. A process is started with
the first text, and analyses further ones; it is ended after a text that took much memory. Not here: what the process
does (`analysis_process.py`), which text is next (`config_validation.py`).
"""

import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from subprocess import PIPE, Popen, TimeoutExpired
from time import monotonic
from typing import Final

import msgspec

from yunishard.broker.analysis_process import LENGTH_BYTES, MEMORY_MAX, PROCESSOR_MAX_S, Report
from yunishard.common.messages.control_messages import TextRead
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.wire import Incoming, Outgoing, encode_body
from yunishard.common.text_formats import format_bytes, format_count
from yunishard.common.transport.inbox import ThreadEndpoint

ANALYSIS_MAX_S: Final = 30.0
"""Seconds that the analysis of one text may take on a busy machine. Then its process is killed, and the text is
refused."""

KEPT_BYTES_MAX: Final = 128 << 20
"""A process that has more memory than this after a text is ended: it would keep it."""

ENDING_MAX_S: Final = 1.0
"""Seconds that a process may take to end once its input is closed; then it is killed."""

PROGRAM: Final = (sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "yunishard.broker.analysis_process")

_ADVICE: Final = "make it smaller: fewer queues, rules, expressions or values"

_log = logging.getLogger("core.broker")


class AnalysisProcess(ThreadEndpoint):
    """One child process, which is started when it is needed."""

    def __init__(self, name: str, *, wake: Callable[[], None]) -> None:
        super().__init__("analysis", wake=wake)
        self._name = name
        self._child: Popen[bytes] | None = None
        self._is_closed = False

    def send(self, message: Outgoing) -> None:
        """Start the analysis of a text; needs a running loop."""
        self.run(partial(self._analyze, message))

    def close(self) -> None:
        self._is_closed = True
        child = self._child
        if child is not None:
            child.kill()
        super().close()
        self._end()

    def _analyze(self, message: Outgoing) -> Incoming:
        outcome = self._attempt(message.body)
        if outcome is None:  # it had been idle, and ended at the same time
            outcome = self._attempt(message.body) or TextRead(unavailable="its process ended")
        if (problem := outcome.problem or outcome.unavailable) and not self._is_closed:
            _log.warning("a configuration was not analysed: %s", problem)
        return Incoming(self._name, Header(kind=TextRead.__name__, ref=message.header.ref), encode_body(outcome))

    def _attempt(self, text: bytes) -> TextRead | None:
        """The outcome of a text; None if the process ended without a reason."""
        started_s, is_late = monotonic(), threading.Event()
        try:
            report = self._exchange(text, is_late)
        except (OSError, msgspec.MsgspecError) as error:
            code = self._end()
            if code == 0:
                return None
            return _explain(code, str(error), monotonic() - started_s, is_late=is_late.is_set())
        if report.kept_bytes > KEPT_BYTES_MAX:
            self._end()
        if not report.analysis:
            problem = f"its analysis needs more than {format_bytes(MEMORY_MAX)} of memory: {_ADVICE}"
            return TextRead(problem=problem, used_s=report.used_s)
        return TextRead(analysis=report.analysis, used_s=report.used_s)

    def _exchange(self, text: bytes, is_late: threading.Event) -> Report:
        """Have the process analyse a text. Raises OSError if it ends, and msgspec.MsgspecError for a wrong answer."""
        child = self._child
        if child is None or child.poll() is not None:  # it ends when it has been idle
            self._end()
            child = self._child = Popen(PROGRAM, stdin=PIPE, stdout=PIPE)  # noqa: S603 - our own program
        assert child.stdin is not None
        assert child.stdout is not None

        def kill() -> None:
            is_late.set()
            child.kill()

        timer = threading.Timer(ANALYSIS_MAX_S, kill)
        timer.daemon = True
        timer.start()
        try:
            child.stdin.write(len(text).to_bytes(LENGTH_BYTES) + text)
            child.stdin.flush()
            length = child.stdout.read(LENGTH_BYTES)
            answer = child.stdout.read(int.from_bytes(length)) if length else b""
        finally:
            timer.cancel()
        if not answer:
            raise OSError("its process ended")
        return msgspec.msgpack.decode(answer, type=Report)

    def _end(self) -> int | None:
        """End the process, if there is one, and return its exit status."""
        child, self._child = self._child, None
        if child is None:
            return None
        assert child.stdin is not None
        with suppress(OSError):  # the rest of a text that it has not read
            child.stdin.close()
        try:
            code = child.wait(ENDING_MAX_S)  # without input it ends by itself, and it may be ending
        except TimeoutExpired:
            child.kill()
            code = child.wait()
        assert child.stdout is not None
        child.stdout.close()
        return code


def _explain(code: int | None, error: str, spent_s: float, *, is_late: bool) -> TextRead:
    """The outcome of a text whose process ended, with this exit status, or could not be started."""
    if code is None:
        return TextRead(unavailable=f"the process for it cannot be started: {error}")
    if is_late:
        text = f"its analysis took longer than {ANALYSIS_MAX_S:g} s: {_ADVICE}, or try again on a less busy machine"
        return TextRead(unavailable=text, used_s=min(spent_s, PROCESSOR_MAX_S))
    if code == -signal.SIGXCPU:
        seconds = format_count(PROCESSOR_MAX_S, "second")
        text = f"its analysis takes more than {seconds} of processor time: {_ADVICE}"
        return TextRead(problem=text, used_s=PROCESSOR_MAX_S)
    ending = signal.Signals(-code).name if code < 0 else f"exit status {code}"
    return TextRead(problem=f"the process that analysed it ended ({ending})", used_s=min(spent_s, PROCESSOR_MAX_S))
