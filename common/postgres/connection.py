"""A PostgreSQL database that several hosts share: connecting again, errors, commits of unknown outcome, format.

A lost connection is opened again by the next call, to the first server of the connection string that accepts writes;
that is how clients follow a failover. Each error is an OSError with one line, because a later attempt may succeed.

A commit is durable when it returns, on the synchronous standby too if there is one. If the connection breaks before
the answer, the outcome is unknown, and the caller has to read it back *in a transaction that writes*: that one
waits for the standby as well, and everything before it has reached the standby then. A server that sends nothing for
a time, although its machine acknowledges each packet (a stopped process, a hanging disk), counts as a lost connection.

Not here: the tables (`store_formats/`), and what is in them (`broker/postgres_store.py`,
`partition_worker/journal/postgres_journal.py`).
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from select import POLLIN, poll
from typing import ClassVar, Final, TypeVar

try:
    import psycopg
    from psycopg.abc import PQGen
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from yunishard.common.postgres.sessions import ENCODING, UNANSWERED_MAX_S, prepare_session
    from yunishard.common.postgres.sessions import Connection as Connection
    from yunishard.common.postgres.tables import find_missing_parts, find_missing_right
except ImportError as error:  # also if libpq is missing
    raise OSError(f"a store in PostgreSQL needs psycopg, which the extra 'cluster' installs ({error})") from error

FORMATS: Final = Path(__file__).parent / "store_formats"
"""The statements that convert a store to each format, from the one before."""

FORMAT: Final = len([*FORMATS.glob("*.sql")])
"""The format that this release reads and writes."""

CONNECT_MAX_S: Final = 5
"""Time limit for connecting to each server."""

ANSWER_MAX_S: Final = 5.0
"""Time without any part of an answer after which a server counts as hung. Less than the lease of a worker, whose
event loop waits for small commits. A commit that waits longer for a standby that is down is settled like any other.
"""

LONG_ANSWER_MAX_S: Final = 60.0
"""The same for statements that write or delete a whole journal or snapshot."""

CONVERSION_MAX_S: Final = 3600.0
"""The same for the statements that create and convert tables."""

_DEFAULTS: Final = {
    "connect_timeout": str(CONNECT_MAX_S),
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": str(UNANSWERED_MAX_S * 1000),
    "target_session_attrs": "read-write",
}
"""Parameters of libpq that a connection string may replace."""

_FORMAT_QUERY: Final = "SELECT number FROM store_format"

_INACCESSIBLE: Final = ("42P01", "42501", "3F000")
"""Codes of errors whose reason may be a right that the role lacks: no table, no right, no schema."""

_DISK_FULL: Final = "53100"


class OutcomeUnknown(OSError):
    """The connection was lost, so a transaction may have been carried out or not."""


Result = TypeVar("Result")


class _Hung(psycopg.OperationalError):
    """The server has sent no part of an answer for too long."""


class _BoundedConnection(Connection):
    """A connection that closes if the server hangs."""

    answer_max_s = ANSWER_MAX_S

    def wait(self, gen: PQGen[Result], interval: float = 0.1, timeout: float | None = None) -> Result:
        """Drive a command, which yields while it waits for the socket; each INTERVAL seconds it continues anyway."""
        assert timeout is None, timeout
        try:
            return super().wait(_limit_silence(gen, self.answer_max_s), interval)
        except _Hung:
            self.close()
            raise


def _limit_silence(command: PQGen[Result], limit_s: float) -> PQGen[Result]:
    """The same command; it fails once the socket was not ready for this time."""
    active_s = time.monotonic()
    try:
        wanted = next(command)
        while True:
            ready = yield wanted
            if not ready and time.monotonic() - active_s > limit_s:
                raise _Hung(f"the server has not answered for {limit_s:g} s")
            wanted = command.send(ready)
            if ready:
                active_s = time.monotonic()
    except StopIteration as end:
        result: Result = end.value
        return result


def _is_readable(connection: Connection) -> bool:
    """Whether the server has sent something. With `poll`, as `select` fails for descriptors above 1,023."""
    waiting = poll()
    waiting.register(connection, POLLIN)
    return bool(waiting.poll(0))


class Database:
    """A connection for one thread at a time, which is opened when it is needed."""

    latest_server: ClassVar[str] = ""
    """The server to which this process connected last. It is tried first: one that hangs or is off costs its time limit
    only once, which is longer than the lease of a leader."""

    def __init__(self, store: str, name: str, *, answer_max_s: float | None = None, checks_format: bool = True) -> None:
        """Use the database of this connection string; `name` is shown in PostgreSQL's list of clients. A server that is
        silent for `answer_max_s` (default: ANSWER_MAX_S) counts as hung.

        Raises:
            OSError: the connection string is not valid.
        """
        try:
            given = conninfo_to_dict(store)
            self._conninfo = make_conninfo(
                store, **{**_DEFAULTS, **given, "client_encoding": ENCODING, "application_name": name}
            )
        except psycopg.Error as error:
            raise OSError(f"the store is no valid connection string: {_first_line(error)}") from error
        self._answer_max_s, self._checks_format = answer_max_s or ANSWER_MAX_S, checks_format
        self._connection: Connection | None = None
        self._is_doubtful = False
        """Whether the server has stopped to wait for the standby."""

    @contextmanager
    def autocommit(self) -> Iterator[Connection]:
        """The connection; each statement is a transaction. Raises OSError."""
        try:
            connection = self._connect()
            yield connection
            if self._is_doubtful:
                raise psycopg.OperationalError("the server was asked to stop waiting for its standby")
        except psycopg.Error as error:
            lost = self._connection is not None and (
                self._connection.broken or self._is_doubtful or isinstance(error, _Hung)
            )
            reason = self._describe(error, self._connection)
            if isinstance(error, psycopg.OperationalError | psycopg.InternalError):  # also a server that is a standby
                self.close()
            raise (OutcomeUnknown if lost else OSError)(reason) from error

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """All statements within take effect, or none. Raises OSError."""
        with self.autocommit() as connection, connection.transaction():
            yield connection

    def close(self) -> None:
        """Close the connection; it may be used again."""
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
        self._connection, self._is_doubtful = None, False

    def _connect(self) -> Connection:
        if self._connection is not None and _is_readable(self._connection):
            self.close()  # no answer is due: the server has closed it
        if self._connection is None:
            conninfo = _put_first(self._conninfo, Database.latest_server)
            connection = _BoundedConnection.connect(conninfo, autocommit=True)
            Database.latest_server = connection.info.host
            connection.answer_max_s = self._answer_max_s
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: Connection) -> None:
        connection.add_notice_handler(self._note)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # in each BEGIN
        try:
            if not self._checks_format:
                prepare_session(connection)
            elif (found := _check_format(prepare_session(connection, _FORMAT_QUERY))) < FORMAT:
                raise OSError(_describe_earlier(found))
        except psycopg.Error as error:
            raise OSError(self._describe(error, connection)) from error

    def _describe(self, error: psycopg.Error, connection: Connection | None) -> str:
        """The reason of an error in one line. A connection that is still open finds out which right is missing."""
        if error.sqlstate in _INACCESSIBLE and connection is not None:
            with suppress(psycopg.Error):
                if reason := find_missing_right(connection, creates=not self._checks_format):
                    return reason
        return _describe(error)

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        # Not by its text, which depends on the language of the server.
        self._is_doubtful |= (notice.source_function or "").startswith("SyncRep")


def execute(connection: Connection, statement: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
    """Execute a statement that SQLite understands, too: question marks stand for values. The rows that it returns."""
    done = connection.execute(statement.replace("?", "%s"), values)
    return done.fetchall() if done.description is not None else []


def _put_first(conninfo: str, server: str) -> str:
    """The connection string with the servers in turn from this one on, if it is one of them."""
    parameters = conninfo_to_dict(conninfo)
    servers = str(parameters.get("host", "")).split(",")
    if server not in servers[1:]:
        return conninfo
    at = servers.index(server)
    for name in ("host", "hostaddr", "port"):
        values = str(parameters.get(name, "")).split(",")
        if len(values) == len(servers):
            parameters[name] = ",".join(values[at:] + values[:at])
    return make_conninfo("", **parameters)


def read_format(connection: Connection) -> int:
    """The format of a store. Raises OSError for a later one than this release reads, psycopg.Error without tables."""
    return _check_format(connection.execute(_FORMAT_QUERY))


def _check_format(cursor: psycopg.Cursor[tuple[object, ...]]) -> int:
    """The format in the first column. Raises OSError for a later one than this release reads."""
    rows = cursor.fetchall()
    found = rows[0][0] if len(rows) == 1 else 0
    if not isinstance(found, int) or found < 1:
        raise OSError("the table store_format of the store does not have one row with a number: restore a backup")
    if found > FORMAT:
        raise OSError(
            f"the store has format {found}, and this release reads formats up to {FORMAT}: start the release that "
            "converted it, or a later one"
        )
    return found


def _describe_earlier(found: int) -> str:
    return f"the store has format {found}, this release needs {FORMAT}: run `yunishard store migrate`"


def convert(store: str, *, is_new: bool) -> int:
    """Create the tables if the store `is_new`, otherwise convert them to the format of this release; the format before,
    0 without tables.

    Raises:
        OSError: it cannot be done, and nothing has changed.
    """
    with (
        closing(Database(store, "store", answer_max_s=CONVERSION_MAX_S, checks_format=False)) as database,
        database.transaction() as connection,
    ):
        before = 0
        if connection.execute("SELECT to_regclass('store_format')").fetchone() != (None,):
            before = read_format(connection)
            if before == FORMAT:  # also for a role that may not lock tables
                return before
            if is_new:
                raise OSError(f"{_describe_earlier(before)}; stop all hosts first")
            connection.execute("LOCK TABLE store_format IN EXCLUSIVE MODE")  # one after the other
            before = read_format(connection)
        elif not is_new:
            raise OSError(find_missing_right(connection))
        elif reason := find_missing_right(connection, creates=True):
            raise OSError(reason)
        for number in range(before + 1, FORMAT + 1):
            connection.execute((FORMATS / f"{number}.sql").read_bytes())
        if before < FORMAT:
            connection.execute("UPDATE store_format SET number = %s", (FORMAT,))
        return before


JOURNAL_TABLES: Final = ("journals", "steps", "snapshots")

ASIDE: Final = " (set aside)"
"""Behind the name of a partition whose journal was set aside. No partition has a blank in its name."""


def delete_journal(connection: Connection, partition: str) -> None:
    """Delete the journal of a partition, also what was set aside. The caller has checked the epoch."""
    for table in JOURNAL_TABLES:
        names = [partition, partition + ASIDE]
        connection.execute(f"DELETE FROM {table} WHERE partition = ANY(%s)", (names,))  # noqa: S608


def check_store(store: str) -> str:
    """Check the tables, and the rights of the role; the server's version, and whether it waits for a standby.

    Raises:
        OSError: the store cannot be used.
    """
    with closing(Database(store, "store")) as database, database.autocommit() as connection:
        if problem := find_missing_parts(connection) or find_missing_right(connection):
            raise OSError(problem)
        row = connection.execute(
            "SELECT current_setting('server_version'), current_setting('synchronous_standby_names') <> ''"
        ).fetchone()
    assert row is not None
    return f"PostgreSQL {row[0]}, {'with' if row[1] else 'without'} a synchronous standby"


_READ_ONLY: Final = "session is read-only"
"""Of libpq, for a server that it does not use."""


def _describe(error: psycopg.Error) -> str:
    if error.sqlstate == _DISK_FULL:
        return f"the disk of the store is full: {_first_line(error)}"
    text = f"the store cannot be used: {_first_line(error)}"
    if _READ_ONLY in text:
        text += ", because of default_transaction_read_only of the role or database (RESET it), or it is a standby"
    return text


def _first_line(error: psycopg.Error) -> str:
    """The message on one line, without the text of the statement."""
    lines = str(error).splitlines() or [type(error).__name__]
    return "; ".join(line.strip() for line in lines if not line.startswith(("LINE ", " ", "HINT", "CONTEXT")))
