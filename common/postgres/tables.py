"""The tables of a store as they are in the database, compared with those of this release; and the rights of a role.

The statements work without the tables and without rights: they read PostgreSQL's catalogue, which every role may read.
"""

from pathlib import Path
from typing import Final

import msgspec

from yunishard.common.postgres.sessions import Connection

TABLES: Final = Path(__file__).parent / "store_formats" / "tables.txt"
"""A line for each table, column and key of the format of this release, as `describe_tables` returns them."""

RIGHTS: Final = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""Rights on each table that the running system needs."""

READ_ONLY: Final = "store_format"
"""A table that the running system only reads."""

SHOWN_MAX: Final = 5
"""Differences and rights that a message names; the others are counted."""

_NOWHERE: Final = (None, "pg_catalog")
"""Values of `current_schema` if the search path has no schema in which a role may create tables."""

_HOME: Final = "(SELECT relnamespace FROM pg_class WHERE oid = to_regclass('store_format'))"

# Not counted: a table whose rows a crash may empty, a key whose index is not valid or is checked late. Other indexes do
# not matter for what is stored.
_DESCRIBE: Final = f"""
    SELECT 'table ' || relname FROM pg_class
    WHERE relnamespace = {_HOME} AND relkind IN ('r', 'p') AND relpersistence = 'p'
    UNION ALL
    SELECT format('column %s of %s: %s', attname, relname, format_type(atttypid, NULL))
        || CASE WHEN attnotnull THEN ' not null' ELSE '' END
        || CASE WHEN attidentity <> '' THEN ' identity' WHEN atthasdef THEN ' with a default' ELSE '' END
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = {_HOME} AND relkind IN ('r', 'p') AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT format(
        '%s of %s: %s', CASE WHEN indisprimary THEN 'primary key' ELSE 'unique index' END, relname,
        string_agg(attname::text, ', ' ORDER BY position)
    ) || CASE WHEN indpred IS NULL THEN '' ELSE ' where ' || pg_get_expr(indpred, indrelid) END
    FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
    CROSS JOIN LATERAL unnest(indkey::smallint[]) WITH ORDINALITY AS part (number, position)
    JOIN pg_attribute ON attrelid = indrelid AND attnum = number
    WHERE relnamespace = {_HOME} AND indisunique AND indisvalid AND indimmediate
    GROUP BY indexrelid, indisprimary, relname, indpred, indrelid
"""  # noqa: S608 - our own text

_FIND_RIGHTS: Final = f"""
    SELECT relname::text, needed FROM pg_class CROSS JOIN unnest(%(rights)s::text[]) AS needed
    WHERE relnamespace = {_HOME} AND relname = ANY(%(tables)s) AND NOT has_table_privilege(pg_class.oid, needed)
        AND (relname <> %(read_only)s OR needed = 'SELECT') ORDER BY needed, relname
"""  # noqa: S608 - our own text


def describe_tables(connection: Connection) -> set[str]:
    """The tables of the store with their columns and keys, a line each."""
    return {line for (line,) in msgspec.convert(connection.execute(_DESCRIBE).fetchall(), list[tuple[str]])}


def find_missing_parts(connection: Connection) -> str:
    """The tables, columns and keys that the store lacks; empty if it lacks nothing."""
    wanted, found = TABLES.read_text().splitlines(), describe_tables(connection)
    missing = [line for line in wanted if line not in found]
    missing = [line for line in missing if f"table {_read_table(line)}" not in missing]
    if not missing:
        return ""
    return f"the tables of the store are not those of its format; missing: {_list(missing)}; restore a backup"


def _read_table(line: str) -> str:
    """The table of a column or key; empty in the line of a table."""
    return line.partition(" of ")[2].partition(":")[0]


def find_missing_right(connection: Connection, *, creates: bool = False) -> str:
    """The right that the role of this session lacks, with the statement that grants it; or why it finds no tables.
    Empty if the role has all rights and finds the tables. With `creates`, it needs none on the tables, but may create
    them.
    """
    query = (
        "SELECT current_user::text, quote_ident(current_user), current_setting('search_path'), current_schema()::text,"
        " to_regclass('store_format') IS NOT NULL"
    )
    row = connection.execute(query).fetchone()
    role, quoted, path, schema, has_tables = msgspec.convert(row, tuple[str, str, str, str | None, bool])
    if not has_tables or creates:
        return _find_missing_schema(connection, role, quoted, path, schema, creates=creates)
    tables = [line.removeprefix("table ") for line in TABLES.read_text().splitlines() if line.startswith("table ")]
    values = {"rights": list(RIGHTS), "tables": tables, "read_only": READ_ONLY}
    missing = msgspec.convert(connection.execute(_FIND_RIGHTS, values).fetchall(), list[tuple[str, str]])
    if not missing:
        return ""
    rights, names = sorted({right for _, right in missing}), sorted({table for table, _ in missing})
    few = ", ".join(f"{schema}.{name}" for name in names)
    granted = few if len(names) <= SHOWN_MAX else f"ALL TABLES IN SCHEMA {schema}"
    lacks = _list([f"{right} on {table}" for table, right in missing])
    return f"role {role} lacks the right {lacks}: GRANT {', '.join(rights)} ON {granted} TO {quoted}"


def _find_missing_schema(
    connection: Connection, role: str, quoted: str, path: str, schema: str | None, *, creates: bool
) -> str:
    """Why this role finds or creates no tables in the schemas of its search path."""
    query = (
        "SELECT quote_ident(nspname) FROM unnest(string_to_array(%s, ',')) AS part JOIN pg_namespace"
        " ON nspname = replace(trim(BOTH ' \"' FROM part), '$user', current_user)"
        " WHERE NOT has_schema_privilege(oid, 'USAGE') AND (%s OR EXISTS"
        " (SELECT FROM pg_class WHERE relnamespace = pg_namespace.oid AND relname = 'store_format')) LIMIT 1"
    )
    closed = connection.execute(query, (path, schema in _NOWHERE)).fetchone()
    if closed is not None:
        return f"role {role} lacks the right USAGE on schema {closed[0]}: GRANT USAGE ON SCHEMA {closed[0]} TO {quoted}"
    if schema in _NOWHERE:
        reason = f"the store has no tables, as the search_path of role {role} ({path!r}) has no schema for them"
        return f"{reason}: ALTER ROLE {quoted} SET search_path = SCHEMA"
    if creates:
        may = connection.execute("SELECT has_schema_privilege(current_schema(), 'CREATE')").fetchone()
        grant = f"GRANT CREATE ON SCHEMA {schema} TO {quoted}"
        return "" if may == (True,) else f"role {role} lacks the right CREATE on schema {schema}: {grant}"
    return f"the store has no tables in schema {schema} (its search_path): run `yunishard store init`"


def _list(parts: list[str]) -> str:
    more = f" and {len(parts) - SHOWN_MAX} more" if len(parts) > SHOWN_MAX else ""
    return ", ".join(parts[:SHOWN_MAX]) + more
