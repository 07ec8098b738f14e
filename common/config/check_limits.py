"""The rules for limits of users and groups: each entry by itself, and compared with the limits further up the tree.

Not here: what a limit means while applications run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from common.config.check_queues import read_amounts
from common.config.model import LimitConfig
from common.config.normal import Place
from common.config.problems import Report
from common.names import GROUP, ROOT, USER
from common.resources import Limit, admits, described, is_zero, text, tightened

Bound = TypeVar("Bound")

ANYONE: Final = "*"

ONLY_WILDCARD: Final = (
    "should not specify only one group limit that is using the wildcard. "
    "There must be at least one limit with a group name defined "
)


_ABOVE: Final = "immediate or ancestor parent"


def check_limits(place: Place, report: Report) -> None:
    """The limits of one queue, entry by entry; names count once for all entries together."""
    users, groups = _Names("user", USER, ", already exists"), _Names("group", GROUP)
    for index, entry in enumerate(place.queue.limits):
        path = f"{place.limits_path}[{index}]"
        if not entry.users and not entry.groups:
            name = f"'{entry.limit}' " if entry.limit else ""
            message = f"the limit {name}names neither users nor groups"
            report.add("limit-entry", path, message)
        users.check(entry.users, f"{path}.users", report)
        groups.check(entry.groups, f"{path}.groups", report)
        if groups.seen == {ANYONE}:
            report.add("limit-entry", f"{path}.groups", ONLY_WILDCARD, hint="before it, on the same queue")
        _check_values(entry, place, path, report)


@dataclass(slots=True)
class _Names:
    """The names that the limits of one queue have used so far; `*` closes the list."""

    noun: str
    pattern: re.Pattern[str]
    after_twice: str = ""
    """What is said of a name that comes again, after it."""
    seen: set[str] = field(default_factory=set)

    def check(self, names: Iterable[str], path: str, report: Report) -> None:
        for index, name in enumerate(names):
            place = f"{path}[{index}]"
            if name != ANYONE and not self.pattern.fullmatch(name):
                report.add("limit-entry", place, f"invalid limit {self.noun} name '{name}' in limit definition")
                continue
            if name in self.seen:
                report.add("limit-entry", place, f"duplicated {self.noun} name '{name}'{self.after_twice}")
            elif ANYONE in self.seen:
                message = f"should not set no wildcard {self.noun} {name} after wildcard {self.noun} limit"
                report.add("limit-entry", place, message)
            self.seen.add(name)


def _check_values(entry: LimitConfig, place: Place, path: str, report: Report) -> None:
    """An entry limits something, and to no more than its queue has."""
    queue = place.queue
    most = read_amounts(entry.max_resources, f"{path}.maxresources", report)
    if len(most) == len(entry.max_resources) and most and is_zero(most):
        message = f"MaxResources should be greater than zero in '{entry.limit}' limit"
        report.add("limit-entry", f"{path}.maxresources", message)
    if not entry.max_resources and entry.max_applications == 0:
        message = f"invalid resource combination for limit {entry.limit} all resource limits are null"
        report.add("limit-entry", path, message, hint="it needs maxapplications above 0 or maxresources")
    if 0 < queue.max_applications < entry.max_applications:
        message = f"invalid MaxApplications settings for limit {entry.limit} exceed current the queue MaxApplications"
        hint = f"{entry.max_applications} is above {queue.max_applications}"
        report.add("limit-entry", f"{path}.maxapplications", message, hint=hint)
    if queue.name == ROOT:
        return
    maximum = read_amounts(queue.resources.max, f"{place.path}.resources.max", report)
    if not admits(maximum, most):
        message = f"invalid MaxResources settings for limit {entry.limit} exeecd current the queue MaxResources"
        hint = f"{described(most)} is above {described(maximum)}"
        report.add("limit-entry", f"{path}.maxresources", message, hint=hint)


def check_limit_resources(root: Place, report: Report) -> None:
    """Nobody may use more resources on a queue than further up."""

    def amount(entry: LimitConfig, path: str) -> Limit:
        return read_amounts(entry.max_resources, f"{path}.maxresources", report)

    def both(above: Limit, own: Limit) -> Limit:
        return tightened(above, own) or {}

    for found in _compared(root, {}, value_of=amount, carried=both):
        if not admits(found.above, found.value):
            message = f"{found.holder} max resource {text(found.value)} of queue {found.queue} is greater than " + (
                f"wildcard maximum resource {text(found.above)} of {_ABOVE} queue"
                if found.by_wildcard
                else f"{_ABOVE} maximum resource {text(found.above)}"
            )
            report.add("limit-hierarchy-resources", f"{found.path}.maxresources", message)


def check_limit_applications(root: Place, report: Report) -> None:
    """Nobody may run more applications on a queue than further up; no number is more than any number."""

    def number(entry: LimitConfig, path: str) -> int:
        return entry.max_applications

    def own_number(above: int, own: int) -> int:
        return own

    for found in _compared(root, {}, value_of=number, carried=own_number):
        if found.above and not 0 < found.value <= found.above:
            message = f"{found.holder} max applications {found.value} of queue {found.queue} is greater than " + (
                f"wildcard max applications {found.above} of {_ABOVE} queue"
                if found.by_wildcard
                else f"{_ABOVE} max applications {found.above}"
            )
            hint = "" if found.value else "0 is any number of them"
            report.add("limit-hierarchy-apps", f"{found.path}.maxapplications", message, hint=hint)


@dataclass(frozen=True, slots=True)
class _Holder:
    """A user or group that a limit is for. Users and groups of one name have nothing to do with each other."""

    noun: str
    name: str

    def __str__(self) -> str:
        return f"{self.noun} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared(Generic[Bound]):
    """The value that an entry gives to one holder, beside the value that binds the holder further up."""

    holder: _Holder
    value: Bound
    queue: str
    path: str  # of the entry
    holder_above: _Holder  # the same, or `*`
    above: Bound

    @property
    def by_wildcard(self) -> bool:
        """Whether the holder itself is not bound further up, but everybody is."""
        return self.holder_above != self.holder


def _compared(
    place: Place,
    inherited: Mapping[_Holder, Bound],
    *,
    value_of: Callable[[LimitConfig, str], Bound],
    carried: Callable[[Bound, Bound], Bound],
) -> Iterator[_Compared[Bound]]:
    """Yield each pair to compare at this queue and below, parents first.

    Where a holder is bound by the same holder further up, `carried` says what binds it further down. Where `*` binds
    it, and where nothing does, that is its own value as written: a type it leaves out is open again further down.
    """
    own: dict[_Holder, Bound] = {}
    for index, entry in enumerate(place.queue.limits):
        path = f"{place.limits_path}[{index}]"
        value = value_of(entry, path)
        holders = [_Holder("user", name) for name in entry.users] + [_Holder("group", name) for name in entry.groups]
        for holder in holders:
            anyone = _Holder(holder.noun, ANYONE)
            above = next((other for other in (holder, anyone) if other in inherited), None)
            own[holder] = carried(inherited[holder], value) if above == holder else value
            if above is not None:
                yield _Compared(
                    holder=holder,
                    value=value,
                    queue=place.queue.name,
                    path=path,
                    holder_above=above,
                    above=inherited[above],
                )
    here = {**inherited, **own} if own else inherited
    for child in place.children:
        yield from _compared(child, here, value_of=value_of, carried=carried)
