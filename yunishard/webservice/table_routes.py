"""REST routes of the tables of a partition: filtered, sorted and cut by its worker, for commands and the dashboard.

`common/rest/catalogue.py` has the tables; each one has a route, so that the OpenAPI document describes its columns and
filters. One more route returns the catalogue itself.
"""

import re
from collections.abc import Mapping
from hashlib import sha256
from math import inf
from typing import Final

from msgspec.json import encode

from yunishard.common.rest.catalogue import OFFSET_MAX, ROWS_MAX, TABLES, TableName, describe_tables, parse_sort
from yunishard.common.rest.columns import Table, describe_kind
from yunishard.common.rest.event_texts import describe_words
from yunishard.common.rest.views import TableView
from yunishard.webservice.calls import Call, Reply, ask_recent, find_partition
from yunishard.webservice.parameters import (
    IF_NONE_MATCH,
    RM,
    Parameter,
    Schema,
    entity_tag,
    queue_name,
    whole_number,
)
from yunishard.webservice.router import ANY_OBJECT, Access, Route, RouteGroup
from yunishard.webservice.views import RequestError

TABLES_GROUP: Final = RouteGroup("tables", "Filtered, sorted and cut lists of what a partition has.")

_LIMIT: Final = Parameter(
    "limit", f"How many rows; {ROWS_MAX} if not set.", {"type": "integer", "minimum": 1, "maximum": ROWS_MAX}
)
_OFFSET: Final = Parameter(
    "offset", "How many rows come before; 0 if not set.", {"type": "integer", "minimum": 0, "maximum": OFFSET_MAX}
)
_FRESH: Final = Parameter(
    "Cache-Control", "`max-age=SECONDS`: the oldest answer that is accepted from the response cache.", place="header"
)
_MAX_AGE: Final = re.compile(r"\bmax-age=([0-9]{1,9})\b", re.IGNORECASE)


def _list_parameters(name: TableName) -> tuple[Parameter, ...]:
    """The parameters of a table."""
    table = TABLES[name]
    columns = "|".join(table.sortable)
    amounts = "|".join(one.name for one in table.columns if one.has_amounts)
    order: Schema = {"type": "string", "pattern": f"^(-?({columns}|({amounts})[.].+))?$"}
    text = "A column, `-` in front for descending order; of a column with amounts the largest share of the cluster, or"
    found = [_LIMIT, _OFFSET, Parameter("sort", f"{text} with `.TYPE` one resource type.", order)]
    for each in table.filters:
        schema: Schema = {"type": "string", "enum": [*each.choices, ""]} if each.choices else {"type": "string"}
        found.append(Parameter(each.name, each.meaning, schema))
    return (*found, RM, IF_NONE_MATCH, _FRESH)


def _describe_columns(table: Table) -> str:
    """Return the description of a route: what each column has."""
    columns = [f"* `{one.name}` ({describe_kind(one.kind)}): {one.meaning}" for one in table.columns]
    head = "Each row has a value for each of `columns`, null if it is unknown or hidden:"
    tail = "`total` is the number of rows that match. An unknown parameter is refused."
    return "\n".join([head, "", *columns, "", tail])


def _declare_table(name: TableName) -> None:
    """The route of one table."""
    path, table = f"/ws/v1/partition/{{partition}}/table/{name}", TABLES[name]

    @Route(
        TABLES_GROUP,
        "GET",
        path,
        Access.SEEN,
        (TableView,),
        summary=table.summary,
        description=_describe_columns(table),
        parameters=_list_parameters(name),
    )
    async def read_table(call: Call) -> Reply:
        """Rows of the table."""
        partition, args = await find_partition(call), _parse_args(name, call.query)
        age_max_s = _parse_age(call.headers.get("cache-control", ""))
        return await ask_recent(call, partition, f"table-{name}", args, age_max_s=age_max_s)


def _parse_age(cache_control: str) -> float:
    """The seconds in `max-age`: how old an answer the client accepts. Any age without it: `no-cache`, which browsers
    send by themselves, has no effect, so that polling does not cost the worker more.
    """
    found = _MAX_AGE.search(cache_control)
    return inf if found is None else float(found[1])


for _name in TABLES:
    _declare_table(_name)


_CATALOGUE: Final = encode({"tables": describe_tables(), "events": describe_words()})
_CATALOGUE_HEADERS: Final = {"ETag": entity_tag(sha256(_CATALOGUE).hexdigest()), "Cache-Control": "no-cache"}


@Route(TABLES_GROUP, "GET", "/ws/v1/catalogue", Access.ANYBODY, (ANY_OBJECT,), parameters=(IF_NONE_MATCH,))
async def read_catalogue(_: Call) -> Reply:
    """The tables, with the columns, filters and actions of each, and the words of events.

    For programs that show them; the answer only depends on the release.
    """
    return Reply(_CATALOGUE, headers=_CATALOGUE_HEADERS)


def _parse_args(name: TableName, query: Mapping[str, str]) -> dict[str, str]:
    """The arguments of the query to the worker, without those that are empty.

    Raises:
        RequestError: a parameter is unknown or wrong. A misspelt filter would return every row.
    """
    table = TABLES[name]
    possible = [one.name for one in _list_parameters(name) if one.place == "query"]
    for name_given in query:
        if name_given not in possible:
            text = f"{name_given[:64]!r} is no parameter of the table {name}, those are: {', '.join(sorted(possible))}"
            raise RequestError(400, text)
    given = ["sort", *(one.name for one in table.filters)]
    args = {each: query[each] for each in given if query.get(each)}
    limit = query.get("limit", str(ROWS_MAX))
    args["limit"] = str(whole_number(limit, ROWS_MAX, f"limit must be a number from 1 to {ROWS_MAX}"))
    offset = query.get("offset", "0")
    if offset.strip("0"):
        error = f"offset must be a number from 0 to {OFFSET_MAX}"
        args["offset"] = str(whole_number(offset, OFFSET_MAX, error))
    for one in table.filters:
        if one.choices and args.get(one.name, "") not in ("", *one.choices):
            choices = " or ".join(one.choices) if one.is_flag else f"one of {', '.join(one.choices)}"
            raise RequestError(400, f"{one.name} must be {choices}, not {args[one.name][:64]!r}")
    if "queue" in args:
        args["queue"] = queue_name(args["queue"])
    elif args.get("subtree") == "true":
        raise RequestError(400, "subtree=true needs a queue: add queue=PATH, such as root.a")
    try:
        if "sort" in args:
            parse_sort(name, args["sort"])
    except ValueError as error:
        raise RequestError(400, str(error)) from None
    return args
