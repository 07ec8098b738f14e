"""`yunishard rm`: list the registered resource managers, and end one, over the REST API.

Not here: their partitions in detail (`status.py`), their configurations (`administration.py`).
"""

import argparse
from dataclasses import dataclass, field
from typing import Final

import msgspec

from yunishard.cli.commands.changes import RM_ACTIONS
from yunishard.cli.commands.console import Action, add_action_table
from yunishard.cli.commands.listing import Row, Rows, Wanted, add_list_options, show_list
from yunishard.cli.commands.partition_tables import make_columns
from yunishard.cli.commands.rest import Rest, add_rest
from yunishard.common.rest.catalogue import RMS


class ClusterEntry(msgspec.Struct, rename="camel"):
    """The part in use of an entry of `/clusters`, one for each partition."""

    partition: str
    rm_id: str = ""
    start_time: int = 0
    away_since: int = 0
    rm_build_information: list[dict[str, str]] = []


@dataclass(slots=True)
class ResourceManager:
    """A registered resource manager."""

    rm: str
    partitions: list[str] = field(default_factory=list)
    away_since: int = 0
    """Unix nanoseconds; 0 while it is connected."""
    build: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """`connected` or `away`. Nothing is placed for an RM that is away."""
        return "away" if self.away_since else "connected"


def read_resource_managers(clusters: list[ClusterEntry]) -> list[ResourceManager]:
    """The resource managers of all partitions, by id; also those that have no partition."""
    found: dict[str, ResourceManager] = {}
    for entry in clusters:
        for build in entry.rm_build_information:
            rm = build.get("rmId", "")
            found.setdefault(rm, ResourceManager(rm)).build = {key: build[key] for key in build if key != "rmId"}
        one = found.setdefault(entry.rm_id, ResourceManager(entry.rm_id))
        one.partitions.append(entry.partition)
        one.away_since = one.away_since or entry.away_since
    return [found[rm] for rm in sorted(found)]


COLUMNS: Final = make_columns(RMS)


def add_rm_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `yunishard rm`."""
    add_action_table(parser, ACTIONS)


def run_rm(args: argparse.Namespace) -> int:
    """List the registered resource managers: whether each is connected, its
    partitions, and what it reports about its build. Nothing is placed for a
    resource manager that is away; its allocations stay. Or end one that does not
    come back.

    examples:
      yunishard rm list
      yunishard rm list --watch
      yunishard rm list -o json
      yunishard rm end rm-1                    it is away, and does not come back

    exit codes:
      0  done
      1  refused, with the reason
      2  wrong usage, or the system does not answer
    """
    return ACTIONS[args.action].run(args)


def _add_list(parser: argparse.ArgumentParser) -> None:
    add_list_options(parser, COLUMNS)
    add_rest(parser)


def _list(args: argparse.Namespace) -> int:
    rest = Rest.from_arguments(args)

    def fetch(_: Wanted) -> Rows:
        return Rows([_make_row(one) for one in read_resource_managers(rest.get("clusters").decode(list[ClusterEntry]))])

    return show_list(args, "resource manager", COLUMNS, fetch)


def _make_row(one: ResourceManager) -> Row:
    return {
        "rm": one.rm,
        "state": one.state,
        "awaySince": one.away_since,
        "partitions": one.partitions,
        "build": one.build,
    }


ACTIONS: Final[dict[str, Action]] = {
    "list": Action("list the resource managers, with their partitions", _add_list, _list),
    **RM_ACTIONS,
}
