"""The statements in docs/operating/disaster-recovery.md, after the only standby of a database was lost."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg

from tests import postgres
from tests.machines import PARTITION
from tests.partition_worker.journal.hand import encoded
from yunishard.common.postgres.connection import convert
from yunishard.partition_worker.journal.postgres_journal import PostgresJournals

PAGE: Final = (Path(__file__).parents[2] / "docs" / "operating" / "disaster-recovery.md").read_text()


def test_commits_that_wait_for_a_lost_standby_are_stored_once_the_primary_waits_for_none() -> None:
    place = postgres.Server()
    convert(place.dsn, is_new=True)
    (block,) = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    with (
        psycopg.connect(place.dsn, autocommit=True) as operator,
        closing(PostgresJournals(place.dsn).open(PARTITION, 1)) as journal,
        ThreadPoolExecutor(1) as thread,
    ):
        operator.execute("ALTER SYSTEM SET synchronous_standby_names = 'lost'")
        operator.execute("SELECT pg_reload_conf()")
        postgres.wait_for(place, "SELECT WHERE current_setting('synchronous_standby_names') <> ''")
        stored = thread.submit(journal.append, encoded(1), fresh=False)
        postgres.wait_for(place, "SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        assert not stored.done()
        for statement in filter(str.strip, block.split(";")):
            operator.execute(statement)
        stored.result(postgres.WAIT_MAX_S)
        assert journal.statistics().last == 1
