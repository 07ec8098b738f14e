"""What the processes of a system do about signals, besides those that stop them.

`kill -USR1` writes the stack of each thread to the log. Signals that end a process only because nobody handles them are
ignored: a stray one must not end the scheduler. `docs/operating/monitoring.md` has the whole table.

Not here: SIGTERM and SIGINT, which stop a process in order (`process.py`, `deploy/service.py`), and what SIGHUP means
to `yunishard up` (`deploy/service.py`).
"""

import faulthandler
import signal
import sys
from typing import Final

IGNORED: Final = (
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGPIPE,
    signal.SIGXFSZ,  # a file that reaches the limit on its size is an OSError
)
"""Processes that are started inherit this."""


def install() -> None:
    """Write stacks to standard error on SIGUSR1 and on a crash, and ignore what means nothing. Call it first."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if sys.stderr is not None:  # closed by whoever started us: there is no log
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1)
    else:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
