"""Asks made of a real log, for resource managers of the chaos."""

import itertools
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.chaos.books import Ask
from tests.chaos.rm import ChaosRm
from yunishard.workloads.replay.workload import Job, load

LOG: Final = Path(__file__).parents[2] / "examples" / "lcg-2005.swf.gz"
STAYS: Final = 10
"""One ask in so many runs until the end; so does the first of each application, which would complete otherwise."""

RUN_MAX_S: Final = 2.0
APPLICATIONS: Final = 50
"""In each partition."""


class Workload:
    """The jobs of the log, over and over."""

    def __init__(self) -> None:
        self._jobs: Iterator[Job] = itertools.cycle(load(LOG).jobs)
        self._asked: Counter[str] = Counter()
        self._begun: set[tuple[str, str]] = set()
        """Partition and id of the applications that something was asked for."""

    @property
    def total(self) -> int:
        """Asks that were made so far."""
        return self._asked.total()

    def make(self, rm: ChaosRm, count: int, partition: str = "") -> list[Ask]:
        """The next jobs as asks of this resource manager, in this partition or in one that depends on the user."""
        return [self._make(rm, next(self._jobs), partition) for _ in range(count)]

    def _make(self, rm: ChaosRm, job: Job, partition: str) -> Ask:
        self._asked[rm.rm_id] += 1
        number = self._asked[rm.rm_id]
        user = zlib.crc32(job.user.encode())
        partition = partition or rm.partitions[user % len(rm.partitions)]
        application = f"user-{user % APPLICATIONS}"
        stays = number % STAYS == 0 or (partition, application) not in self._begun
        self._begun.add((partition, application))
        return Ask(
            key=f"{rm.rm_id}-{number}",
            application=application,
            partition=partition,
            vcore=100 * max(job.processors, 1),
            run_s=0.0 if stays else 0.01 + job.run_s % 1000 / 1000 * RUN_MAX_S,
        )
