"""Reads the state of processes from the metrics of the system (`/ws/v1/metrics`, text format of Prometheus).

Not here: what the metrics mean (`docs/metrics.md`), drawing them (`status.py`).
"""

import re
from dataclasses import dataclass
from typing import Final

_LINE: Final = re.compile(r"(yunishard_process_[a-z_]+)\{([^}]*)\} (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(slots=True)
class ProcessStatus:
    """A process as of now."""

    process: str
    partition: str = ""
    """Of a worker."""
    is_up: bool = False
    started_s: float = 0.0
    """Unix seconds; 0 if it does not report."""
    resident_bytes: float = 0.0
    cpu_s: float = 0.0
    loop_lag_s: float = 0.0
    """The longest delay of the event loop within half a minute."""


def parse_processes(text: str) -> list[ProcessStatus]:
    """Return the processes in the metrics, by name and partition."""
    found: dict[tuple[str, str], ProcessStatus] = {}
    for name, labels, value in _LINE.findall(text):
        by_name = dict(_LABEL.findall(labels))
        key = (by_name.get("process", ""), by_name.get("partition", ""))
        one = found.setdefault(key, ProcessStatus(*key))
        match name.removeprefix("yunishard_process_"):
            case "up":
                one.is_up = float(value) > 0
            case "start_time_seconds":
                one.started_s = float(value)
            case "resident_memory_bytes":
                one.resident_bytes = float(value)
            case "cpu_seconds_total":
                one.cpu_s = float(value)
            case "loop_lag_max_seconds":
                one.loop_lag_s = float(value)
            case _:
                pass
    return [found[key] for key in sorted(found)]
