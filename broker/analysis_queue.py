"""Which configuration text is analysed next: fair between clients, each with a budget of processor time.

    add --text and client--> waiting --a process is free, within the budget--> running --TextRead--> taken out
                                |
                                +--no room, or too long--> refused

A client is an RM, or a user of a front end. Each has one text in a process at a time. The next text is that of the
client with the least processor time in the last BUDGET_WINDOW_S, so that the first text of a client does not wait
behind the many texts of another one; and the last free process is for clients that have used little. Not here: the
messages that wait for a text (`config_validation.py`), the processes (`analysis_pool.py`).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from yunishard.common.messages.wire import NEVER

PROCESSES_MAX: Final = 3
"""Processes that analyse texts at the same time; further texts wait."""

BUDGET_S: Final = 30.0
"""Processor seconds of analyses of one client within BUDGET_WINDOW_S. Beyond it, its texts wait until it has used less,
or are refused after WAITING_MAX_S."""

BUDGET_WINDOW_S: Final = 60.0

LITTLE_S: Final = 1.0
"""Processor seconds up to which a client may use the last free process."""

COST_MIN_S: Final = 0.01
"""Processor seconds that each text counts at least, for the messages about it."""

WAITING_MAX_S: Final = 20.0
"""Seconds that a text may wait for its analysis; then it is refused, before its caller gives up."""

CLIENT_TEXTS_MAX: Final = 4
"""Texts of one client that may wait. A further one is refused at once."""

TEXTS_MAX: Final = 256
"""Texts of all clients that may wait. A further one is refused at once."""

BYTES_MAX: Final = 256 << 20
"""Bytes of all texts that wait. A further one is refused at once, unless none waits."""

SYSTEM: Final = ""
"""The client that the broker is itself, for texts of its record and the default configuration: it has no limits."""


@dataclass(frozen=True, slots=True)
class Job:
    """A text to analyse."""

    number: int
    client: str
    size: int
    """In bytes."""
    added_at: float


class Budgets:
    """The processor time that each client has used lately. It runs down evenly, BUDGET_S within BUDGET_WINDOW_S."""

    def __init__(self) -> None:
        self._used: dict[str, tuple[float, float]] = {}
        """Client to seconds, and when they were that."""

    def get(self, client: str, now: float) -> float:
        """The seconds that count now."""
        used_s, at = self._used.get(client, (0.0, now))
        return max(0.0, used_s - (now - at) * BUDGET_S / BUDGET_WINDOW_S)

    def charge(self, client: str, seconds: float, now: float) -> None:
        if client == SYSTEM:
            return
        self._used = {one: entry for one, entry in self._used.items() if self.get(one, now)}
        self._used[client] = self.get(client, now) + max(seconds, COST_MIN_S), now

    def find_time_below(self, client: str, limit_s: float, now: float) -> float:
        """When the client has used less than this; now if it has."""
        excess_s = self.get(client, now) - limit_s
        return now if excess_s < 0 else now + excess_s * BUDGET_WINDOW_S / BUDGET_S + 1e-3


class AnalysisQueue:
    """The texts that wait and run, by number; the caller has the texts themselves."""

    def __init__(self) -> None:
        self.budgets = Budgets()
        self._waiting: dict[str, deque[Job]] = {}
        """Client to its texts, oldest first."""
        self._running: dict[int, Job] = {}
        """Process to its text."""
        self._bytes = 0
        """Of the texts that wait."""

    def find_no_room(self, client: str, size: int) -> str:
        """Return why a text of this size cannot wait; empty if it can."""
        if client == SYSTEM:
            return ""
        if len(self._waiting.get(client, ())) >= CLIENT_TEXTS_MAX:
            return f"{CLIENT_TEXTS_MAX} configurations of {client} wait for their analysis already: send one at a time"
        count = sum(map(len, self._waiting.values()))
        if count >= TEXTS_MAX or (count and self._bytes + size > BYTES_MAX):
            return (
                f"{count} configurations with {self._bytes >> 20} MiB wait for their analysis already: try again later"
            )
        return ""

    def add(self, job: Job) -> None:
        """Have a text wait; `find_no_room` has nothing against it."""
        self._waiting.setdefault(job.client, deque()).append(job)
        self._bytes += job.size

    def start(self, now: float) -> Iterator[tuple[int, Job]]:
        """Start texts in free processes; yield each with its process."""
        while (job := self._choose(now)) is not None:
            process = next(one for one in range(PROCESSES_MAX) if one not in self._running)
            self._remove(job)
            self._running[process] = job
            yield process, job

    def _choose(self, now: float) -> Job | None:
        """The next text. Of texts of clients that have used the same, the larger one probably takes longer."""
        limit_s = self._find_limit_s()
        used_s = {client: self.budgets.get(client, now) for client in self._iterate_idle()}
        ready = [self._waiting[client][0] for client, seconds in used_s.items() if seconds < limit_s]
        return min(ready, key=lambda job: (used_s[job.client], job.size, job.number), default=None)

    def _find_limit_s(self) -> float:
        """The processor time below which a client may start a text now; 0 if no process is free."""
        free = PROCESSES_MAX - len(self._running)
        return BUDGET_S if free > 1 else LITTLE_S if free else 0.0

    def _iterate_idle(self) -> Iterator[str]:
        """The clients that have texts waiting and none running."""
        busy = {job.client for job in self._running.values()} - {SYSTEM}
        return (client for client in self._waiting if client not in busy)

    def finish(self, process: int, used_s: float, now: float) -> Job:
        """Take out the text of a process, and charge its client."""
        job = self._running.pop(process)
        self.budgets.charge(job.client, used_s, now)
        return job

    def cancel(self, number: int) -> None:
        """Take out a text that waits and is not needed any more."""
        for jobs in self._waiting.values():
            for job in jobs:
                if job.number == number:
                    self._remove(job)
                    return

    def _remove(self, job: Job) -> None:
        jobs = self._waiting[job.client]
        jobs.remove(job)
        self._bytes -= job.size
        if not jobs:
            del self._waiting[job.client]

    def expire(self, now: float) -> list[tuple[Job, str]]:
        """Take out the texts that have waited too long, each with the reason for its refusal."""
        late = [job for job in self._iterate() if self._find_expiry(job) <= now]
        expired: list[tuple[Job, str]] = []
        for job in late:
            self._remove(job)
            used_s = self.budgets.get(job.client, now)
            reason = f"it has waited {WAITING_MAX_S:g} s for its analysis: try again when the core is less busy"
            if used_s >= LITTLE_S:
                reason = (
                    f"it has waited {WAITING_MAX_S:g} s for its analysis, as {job.client} has used {used_s:.0f} s of"
                    f" processor time for configurations, of the {BUDGET_S:g} s that it has in {BUDGET_WINDOW_S:g} s:"
                    f" try again in {max(used_s - LITTLE_S, 1.0) * BUDGET_WINDOW_S / BUDGET_S:.0f} s"
                )
            expired.append((job, reason))
        return expired

    def _iterate(self) -> Iterator[Job]:
        return (job for jobs in self._waiting.values() for job in jobs)

    def _find_expiry(self, job: Job) -> float:
        return NEVER if job.client == SYSTEM else job.added_at + WAITING_MAX_S

    def find_deadline(self, now: float) -> float:
        """When a text may start, or has waited too long."""
        deadline = min(map(self._find_expiry, self._iterate()), default=NEVER)
        if limit_s := self._find_limit_s():
            starts = [self.budgets.find_time_below(one, limit_s, now) for one in self._iterate_idle()]
            deadline = min([deadline, *starts])
        return deadline
