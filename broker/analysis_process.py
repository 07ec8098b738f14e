"""The child process that analyses configuration texts for the broker (`python -m yunishard.broker.analysis_process`).

It reads texts from its standard input, one after the other, and writes a report of each. It has a lower priority than
other processes, a limit on its memory, and a limit on the processor time for each text, at which the kernel ends it.

    stdin    8 bytes with the length, the text in UTF-8           stdout   8 bytes with the length, an encoded `Report`

Not here: what an analysis is (`config_analysis.py`), starting and ending the process (`analysis_pool.py`).
"""

import gc
import os
import resource
import select
import signal
import sys
import time
from math import ceil
from typing import BinaryIO, Final

import msgspec

from yunishard.broker.config_analysis import analyze

PROCESSOR_MAX_S: Final = 15
"""Processor seconds for the analysis of one text; then the process ends, and the text is refused. A configuration at
the limits (`common/config/validation.py`) takes a third of it."""

MEMORY_MAX: Final = 1 << 30
"""Bytes of address space of the process. A text that needs more is refused. One at the limits needs half of it."""

NICENESS: Final = 10
"""How much lower its priority is than that of the other processes."""

IDLE_MAX_S: Final = 60.0
"""Seconds without a text after which the process ends."""

LENGTH_BYTES: Final = 8


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a text: the encoded analysis, or nothing if the process has no memory for it."""

    analysis: bytes = b""
    used_s: float
    """Processor seconds."""
    kept_bytes: int
    """Memory of the process after the analysis."""


def serve(texts: BinaryIO, reports: BinaryIO) -> None:
    """Analyse texts until there are none for IDLE_MAX_S, or no more."""
    while select.select([texts], [], [], IDLE_MAX_S)[0]:
        length = texts.read(LENGTH_BYTES)
        if not length:
            return
        data = texts.read(int.from_bytes(length))
        started_s = time.process_time()
        _set_limit(resource.RLIMIT_CPU, ceil(started_s) + PROCESSOR_MAX_S)
        try:
            analysis = msgspec.msgpack.encode(analyze(data.decode()))
        except MemoryError:
            analysis = b""
        report = Report(analysis=analysis, used_s=time.process_time() - started_s, kept_bytes=_measure_memory())
        encoded = msgspec.msgpack.encode(report)
        try:
            reports.write(len(encoded).to_bytes(LENGTH_BYTES) + encoded)
            reports.flush()
        except BrokenPipeError:  # the broker has ended
            return


def _measure_memory() -> int:
    """Bytes of memory of this process. Its maximum is no measure: it includes that of the parent at the fork."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _set_limit(kind: int, value: int) -> None:
    """Set a limit of this process, unless a lower one cannot be exceeded anyway."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # asks the other processes for the stacks of their threads
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor stops the broker, which ends this process
    os.nice(NICENESS)
    _set_limit(resource.RLIMIT_AS, MEMORY_MAX)
    gc.disable()  # nothing that an analysis makes has cycles
    serve(sys.stdin.buffer, sys.stdout.buffer)
