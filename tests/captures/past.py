"""The history of the scenario: the web service's own, asked of the partitions a minute apart by a clock of its own,
whenever the scenario says so.

Not here: asking for it (`answers.py`).
"""

from pathlib import Path
from typing import Final

import msgspec

from tests.captures.system import BEGIN_S, SystemLink
from yunishard.common.messages.query_messages import Account
from yunishard.common.process.health import WriteTimes
from yunishard.webservice.history.collector import SAMPLE_NS, Collector, RowBatch
from yunishard.webservice.history.sqlite_store import SqliteHistory

_account: Final = msgspec.json.Decoder(Account)


class RecordedPast:
    """A history in a file, to which a minute is added at a time."""

    problem = failure = ""
    writes = WriteTimes()

    def __init__(self, path: Path, link: SystemLink) -> None:
        self.history = SqliteHistory(path)
        self._link = link
        self._store = self.history.open_writer()
        self._now_ns = int(BEGIN_S * 1e9)
        self._collector = Collector(self._store.positions(), self._store.latest(), self._now_ns)

    async def add(self) -> None:
        """What a minute later is kept."""
        self._now_ns += SAMPLE_NS
        partitions = (await self._link.partitions()).partitions
        portions: list[RowBatch | None] = []
        for partition, query in self._collector.plan_queries(partitions, self._now_ns):
            answer = await self._link.ask(partition.full_name, query)
            portions.append(self._collector.process_answer(partition, _account.decode(answer.body), self._now_ns))
        self._store.write(one for one in portions if one is not None)

    def close(self) -> None:
        """Nothing is added any more."""
        self._store.close()
