"""Measures the impact of a configuration: reads from the partitions what runs now, and compares it with the new maxima
and limits (`common/config/difference.py`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from yunishard.common.config.difference import Difference, Effect, PartitionUse, PrincipalUse, QueueUse, find_effects
from yunishard.common.config.model import Configuration, PartitionConfig, normalise
from yunishard.common.messages.query_messages import PartitionEntry, Query
from yunishard.common.rest.catalogue import ROWS_MAX, TableName
from yunishard.common.rest.records import DifferenceView, ImpactView
from yunishard.common.rest.views import TableView
from yunishard.webservice.broker_client import decode_answer
from yunishard.webservice.calls import Call, read_registry
from yunishard.webservice.views import RequestError

USE_ROWS_MAX: Final = 5 * ROWS_MAX
"""Rows of each table that are compared in one partition: queues, users, groups. `incomplete` names what is left out."""

SHOWN_MAX: Final = 1000
"""Differences, and effects, in one answer. It has their numbers, too."""

Row = Mapping[str, object]


async def measure_impact(
    call: Call,
    rm: str,
    checksum: str,
    configurations: tuple[Configuration, Configuration],
    differences: Sequence[Difference],
) -> ImpactView:
    """The differences between two configurations of an RM, and the effects of the second on what runs now."""
    before, after = (_index_partitions(one) for one in configurations)
    known = await read_registry(call)
    entries = {entry.name: entry for entry in known.partitions if entry.rm_id == rm}
    incomplete: list[str] = []
    effects: list[Effect] = []
    if differences:
        for name, old in before.items():
            use = PartitionUse()
            if name in entries:
                use = await _read_use(call, entries[name], incomplete)
            effects += await asyncio.to_thread(find_effects, old, after.get(name), name, use)
    return ImpactView(
        checksum=checksum,
        differences=[_view_difference(one) for one in differences[:SHOWN_MAX]],
        difference_count=len(differences),
        effects=effects[:SHOWN_MAX],
        effect_count=len(effects),
        incomplete=incomplete,
    )


def _index_partitions(configuration: Configuration) -> dict[str, PartitionConfig]:
    return {partition.name.lower(): partition for partition in normalise(configuration).partitions}


def _view_difference(one: Difference) -> DifferenceView:
    return DifferenceView(kind=one.kind, path=one.path, before=one.before, after=one.after, text=str(one))


# Reading from a partition ---------------------------------------------------------------------------------------------


async def _read_use(call: Call, entry: PartitionEntry, incomplete: list[str]) -> PartitionUse:
    """The use of a partition now. Adds a text for what is missing to `incomplete`."""
    try:
        queues = await _read_rows(call, entry, "queues", incomplete)
        users = await _read_rows(call, entry, "users", incomplete)
        groups = await _read_rows(call, entry, "groups", incomplete)
    except RequestError as error:
        incomplete.append(f"partition {entry.name}: {error}")
        return PartitionUse()
    return PartitionUse(
        list(map(_read_queue, queues)), list(map(_read_principal, users)), list(map(_read_principal, groups))
    )


async def _read_rows(call: Call, entry: PartitionEntry, table: TableName, incomplete: list[str]) -> list[Row]:
    rows: list[Row] = []
    total = 1
    while len(rows) < min(total, USE_ROWS_MAX):
        args = {"limit": str(ROWS_MAX), "offset": str(len(rows))}
        query = Query(what=f"table-{table}", name=entry.name, args=args, viewer=call.viewer)
        answer = await call.services.broker.ask(entry.full_name, query)
        part = decode_answer(answer, TableView, f"Partition {entry.name}")
        rows += [dict(zip(part.columns, row, strict=True)) for row in part.rows]
        total = part.total
        if not part.rows:
            break
    if total > USE_ROWS_MAX:
        incomplete.append(
            f"partition {entry.name}: only the first {USE_ROWS_MAX} of {total} rows of {table} are compared"
        )
    return rows


def _read_queue(row: Row) -> QueueUse:
    return QueueUse(
        queue=str(row["queue"]),
        used=_read_amounts(row["used"]),
        running=_read_number(row["runningApplications"]),
        applications=_read_number(row["applications"]),
        is_leaf=bool(row["leaf"]),
    )


def _read_principal(row: Row) -> PrincipalUse:
    return PrincipalUse(
        name=str(row["name"]),
        queue=str(row["queue"]),
        used=_read_amounts(row["used"]),
        running=_read_number(row["runningApplications"]),
    )


def _read_amounts(value: object) -> dict[str, int]:
    """Amounts by resource type; none if the caller may not see them."""
    return msgspec.convert(value or {}, dict[str, int])


def _read_number(value: object) -> int:
    return value if isinstance(value, int) else 0
