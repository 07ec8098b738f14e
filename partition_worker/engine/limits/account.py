"""To whom the use of one application is charged: to its user, and to one group of the user if a limit names one."""

from dataclasses import dataclass, field

from common.resources import Limit, less, tightened
from partition_worker.engine.applications.application import Application
from partition_worker.engine.limits.trackers import Level
from partition_worker.engine.needs import Shape


@dataclass(slots=True, eq=False)
class Account:
    """Kept from the first time that anybody asks what the application may have until it is forgotten."""

    application: Application
    user: Level = field(init=False)
    """Of the user, at the application's leaf."""
    group_name: str | None = None
    """The group that is charged; None if none is. Chosen once."""
    group: Level | None = None
    """Of that group, at the application's leaf."""
    counted: bool = False
    """Whether the application counts as running."""
    user_bounds: tuple[Level, ...] = ()
    """What limits its user, from the leaf up."""
    group_bounds: tuple[Level, ...] = ()
    """What limits its group, from the leaf up."""
    bounds: tuple[Level, ...] = ()
    """Both of them."""

    def bind(self) -> None:
        """Take note of the limits that there are now."""
        self.user_bounds = self.user.bounds
        self.group_bounds = () if self.group is None else self.group.bounds
        self.bounds = self.user_bounds + self.group_bounds

    def has_room(self, shape: Shape) -> bool:
        """Whether user and group may have these amounts more."""
        for level in self.bounds:  # noqa: SIM110 - for every ask that is tried, and mostly there is no bound
            if not level.has_room(shape):
                return False
        return True

    def headroom(self) -> Limit | None:
        """What user and group may still have, per type; None is no limit."""
        room: Limit | None = None
        for level in self.bounds:
            if level.allowance is not None:
                room = tightened(room, less(level.allowance.resources, level.used))
        return room

    def may_start(self) -> bool:
        """Whether user and group may run this application too; one that counts already may."""
        return self.counted or all(level.may_start() for level in self.bounds)
