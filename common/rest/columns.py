"""The parts of the catalogue: columns with their kinds and views, filters, actions, and tables of them.

`catalogue.py` has the tables themselves, and states what follows from them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Flag, StrEnum, auto
from typing import Final, NamedTuple


class Kind(StrEnum):
    """The kind of a value, which decides how it is shown, aligned and sorted. Any value may be null."""

    TEXT = "text"
    CODE = "code"
    """A reason code, which the dashboard shows as words: `node-full`."""
    STATE = "state"
    NUMBER = "number"
    PERCENT = "percent"
    SHARE = "share"
    """A percentage of a limit; on a terminal, in a colour where it is nearly used up."""
    TIME = "time"
    """Unix nanoseconds; 0 if it has not happened."""
    FLAG = "flag"
    TEXTS = "texts"
    PAIRS = "pairs"
    """Texts by name."""
    BYTES = "bytes"
    AMOUNTS = "amounts"
    """An amount of each resource type, in base units."""
    LIMITS = "limits"
    """Likewise; a missing type is unlimited."""


_TYPES: Final[Mapping[Kind, str]] = {
    Kind.CODE: "a reason code",
    Kind.NUMBER: "a number",
    Kind.PERCENT: "a percentage",
    Kind.SHARE: "a percentage",
    Kind.TIME: "Unix nanoseconds, 0 for never",
    Kind.FLAG: "true or false",
    Kind.TEXTS: "a list of texts",
    Kind.PAIRS: "texts by name",
    Kind.BYTES: "a number of bytes",
    Kind.AMOUNTS: "amounts by resource type",
    Kind.LIMITS: "amounts by resource type",
}


def describe_kind(kind: Kind) -> str:
    """Return what values of this kind are in JSON."""
    return _TYPES.get(kind, "a text")


class View(Flag):
    """Where a column is shown without being asked for. JSON and CSV have all columns."""

    LIST = auto()
    """The list of a command."""
    TOP = auto()
    TOP_WIDE = auto()
    """`yunishard top` on a screen that is wide enough."""
    BOARD = auto()
    """The table of the dashboard."""
    DETAIL = auto()
    """The facts of one object: `yunishard … show`, and its page of the dashboard."""


NOWHERE: Final = View(0)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    """In answers, and for sorting."""
    kind: Kind
    meaning: str
    source: str = ""
    """The attribute of the object in the worker that has the value; empty if the worker computes it."""
    views: View = NOWHERE
    """Lists with `-o wide` have every column."""
    heading: str = ""
    """The heading of tables; the name as words if empty."""
    of: str = ""
    """A column with the maximum: both are shown together, as in `3 / 5`."""
    also: str = ""
    """A column with a flag, whose heading is added if it is set, as in `schedulable, reserved`."""
    link: str = ""
    """The kind of object that the value names."""
    is_public: bool = False
    """Whether it is also shown of a queue in which the viewer has no right, but in one below it."""
    is_sortable: bool = True

    @property
    def title(self) -> str:
        """The heading of tables."""
        return self.heading or self.words

    @property
    def words(self) -> str:
        """The name as words, for the facts of one object."""
        return re.sub("([A-Z])", r" \1", self.name).lower()

    @property
    def has_amounts(self) -> bool:
        """Whether it has an amount of each resource type; `COLUMN.TYPE` sorts by one type."""
        return self.kind in (Kind.AMOUNTS, Kind.LIMITS)


@dataclass(frozen=True, slots=True)
class Filter:
    """A parameter that selects rows."""

    name: str
    meaning: str
    label: str = ""
    """The name of the field of the dashboard; empty if it has none."""
    choices: tuple[str, ...] = ()
    """The only values; without them any text."""
    unset: str = "all"
    """The choice that removes it."""
    option: str = ""
    """The option of the commands, if its name is another one."""
    metavar: str = ""

    @property
    def is_flag(self) -> bool:
        """Whether the filter is set or not."""
        return self.choices == FLAG


FLAG: Final = ("true", "false")


@dataclass(frozen=True, slots=True)
class Argument:
    """A query parameter of an action."""

    name: str
    meaning: str
    label: str
    """The name of the field of the dashboard."""
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """A change that an operator makes to one object. The answer of the worker has a sentence about the outcome."""

    name: str
    label: str
    """The button of the dashboard."""
    about: str
    """The change in one sentence, without the first capital and the full stop."""
    more: str
    """Its consequences, for the dialog of the dashboard and the description of the route."""
    arguments: tuple[Argument, ...] = ()
    is_for_admins: bool = True
    """Whether it needs the role of scheduler administrator; otherwise the worker decides by the ACLs of the queue."""
    is_dangerous: bool = False
    """Whether the button is in the colour of a warning."""
    states: tuple[str, ...] = ()
    """States in which the dashboard offers it; empty for all."""


class Bars(NamedTuple):
    """Columns that are shown as a bar for each resource type."""

    used: tuple[str, ...]
    """The sum of these is used."""
    total: str
    guaranteed: str = ""
    pending: str = ""
    sort: str = "used"
    """The column that sorts the table by a resource type of a bar."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table."""

    key: str
    """The column that names the object."""
    noun: str
    """The name of an object, in the singular."""
    summary: str
    columns: tuple[Column, ...]
    filters: tuple[Filter, ...]
    sorts: tuple[str, ...]
    """Orders to choose from, the usual one first."""
    argument: str = "text"
    """The filter that follows `list` in commands."""
    bars: Bars | None = None
    is_tree: bool = False
    """Whether the key is a path, so that a row belongs below another."""
    actions: tuple[Action, ...] = ()

    def find_column(self, name: str) -> Column | None:
        """Return the column of this name; None if there is none."""
        return next((one for one in self.columns if one.name == name), None)

    def list_columns(self, view: View) -> tuple[Column, ...]:
        """Return the columns of a view."""
        return tuple(one for one in self.columns if one.views & view)

    @property
    def sortable(self) -> tuple[str, ...]:
        """The columns that rows can be sorted by."""
        return tuple(one.name for one in self.columns if one.is_sortable)
