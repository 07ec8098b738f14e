"""The settings of a session of PostgreSQL on which the statements of this program depend.

A role, a database or the server may have other values (`ALTER ROLE ... SET`). Statements set them in each new session,
because poolers refuse settings in the connection string; all of them take one round trip. The isolation level is also
part of each `BEGIN` (`connection.py`), so that not even a pooler that loses settings between two transactions changes
it.

Without an effect on what the statements do, and therefore not here: the formats of dates and byte strings, the time
zone, settings of the planner.
"""

from typing import Final

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

Connection = psycopg.Connection[tuple[object, ...]]

LOCK_MAX_S: Final = 2
"""Time limit for the lock of a row: an earlier worker or broker that is not fenced yet."""

IDLE_TRANSACTION_MAX_S: Final = 5
"""Time after which the server ends a transaction whose client is stopped, as its locks stop the successor."""

UNANSWERED_MAX_S: Final = 10
"""Time after which a connection counts as lost whose packets are not acknowledged."""

ENCODING: Final = "UTF8"
"""Of all texts between client and server."""

_UNCHECKED: Final = "SQL_ASCII"
"""Encoding of a database that stores the bytes of texts as they are."""

SETTINGS: Final = {
    # A statement that has waited for a lock reads what was committed meanwhile, not an earlier snapshot.
    "default_transaction_isolation": "read committed",
    # A time limit would end the wait for the standby, and the commit would count as durable.
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "lock_timeout": f"{LOCK_MAX_S}s",
    "idle_in_transaction_session_timeout": f"{IDLE_TRANSACTION_MAX_S}s",
    # A session may be idle for as long as its partition is.
    "idle_session_timeout": "0",
    # Sessions of a lost host end after 25 s; by default they would stay for hours, and a server has few.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": f"{UNANSWERED_MAX_S}s",
    # The warning that a commit has not reached the standby must arrive.
    "client_min_messages": "warning",
    # A policy that hides rows is an error: without some of its rows, a journal looks like an earlier one.
    "row_security": "off",
    # An error of a statement must not end the session.
    "exit_on_error": "off",
    # Fractions of a second of a lease are not rounded.
    "extra_float_digits": "1",
}
"""Values by name. A server of an earlier version does not have all of them."""

_DURABLE: Final = ("on", "remote_apply")
"""Values of `synchronous_commit` with which a commit is on the disks of the server and its standby when it returns."""

_VALUES: Final = ", ".join(f"('{name}', '{value}')" for name, value in SETTINGS.items())

_SET: Final = (
    f"SELECT pg_catalog.set_config(name, value, false) FROM (VALUES {_VALUES}) AS wanted (name, value)"  # noqa: S608
    " WHERE pg_catalog.current_setting(name, true) IS NOT NULL"
)

_SET_DURABLE: Final = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false)"
    f" WHERE pg_catalog.current_setting('synchronous_commit') NOT IN {_DURABLE}"
)

_SET_SCHEMA: Final = (
    "SELECT pg_catalog.set_config('search_path', pg_catalog.quote_ident(nspname) || ', pg_temp', false)"
    " FROM pg_catalog.pg_class AS found JOIN pg_catalog.pg_namespace AS home ON home.oid = relnamespace"
    " WHERE found.oid = pg_catalog.to_regclass('store_format')"
)
"""All tables are those of one schema: the one in which the search path finds the first of them."""

_PREPARATION: Final = (
    "SET statement_timeout = 0",  # first, as it may be too short for what follows
    _SET,
    _SET_DURABLE,
    _SET_SCHEMA,
    "SELECT pg_catalog.current_setting('server_encoding')",
)


def prepare_session(connection: Connection, query: str = "SELECT") -> psycopg.Cursor[tuple[object, ...]]:
    """Set up a new session, and run a query in the same round trip; the result of the query.

    Raises:
        OSError: the database has another encoding.
        psycopg.Error: the connection or the query fails.
    """
    cursor = connection.execute("; ".join((*_PREPARATION, query)))
    for _ in _PREPARATION[1:]:
        cursor.nextset()
    row = cursor.fetchone()
    encoding = row[0] if row else ""
    if encoding == _UNCHECKED:
        connection.adapters.register_loader("text", _LenientTextLoader)
    elif encoding != ENCODING:
        raise OSError(f"the database has the encoding {encoding}: create one with ENCODING '{ENCODING}'")
    cursor.nextset()
    return cursor


class _LenientTextLoader(Loader):
    """Decodes texts that the database has not validated; what is no UTF-8 becomes U+FFFD."""

    def load(self, data: Buffer) -> str:
        return bytes(data).decode(errors="replace")
