"""Limits of users and groups for the plain scheduler: everything is added up again for every question.

It shares nothing with the engine but the configuration. Limits never change in it.
"""

from collections.abc import Iterator

from tests.properties.plain_model import PlainApp, summed
from yunishard.common.config.model import LimitConfig, parse_amounts
from yunishard.common.messages.kinds import Resources


class PlainLimits:
    """Limits of users and groups, added up again for every question."""

    def allow(self, app: PlainApp, wanted: Resources) -> bool:
        for limit, others in self._bounds(app):
            most = parse_amounts(limit.max_resources)
            used = summed(other.charged for other in others)
            if any(wanted.get(kind, 0) > max(0, most[kind] - used.get(kind, 0)) for kind in most):
                return False
        return True

    def may_start(self, app: PlainApp) -> bool:
        return app.counts or all(
            limit.max_applications == 0 or sum(other.counts for other in others) < limit.max_applications
            for limit, others in self._bounds(app)
        )

    def _bounds(self, app: PlainApp) -> Iterator[tuple[LimitConfig, list[PlainApp]]]:
        """Each limit that binds the application, with the applications that count against it."""
        group = self._group(app)
        for queue in app.queue.path_up():
            limits = queue.config.limits
            own = next((one for one in limits if app.user in one.users), None)
            own = own or next((one for one in limits if "*" in one.users), None)
            if own is not None:
                yield own, [one for one in queue.all_apps() if one.user == app.user]
            for limit in (one for one in limits if group in one.groups):
                yield limit, [one for one in queue.all_apps() if self._group(one) == group]

    def _group(self, app: PlainApp) -> str | None:
        for queue in app.queue.path_up():
            for limit in queue.config.limits:
                for name in limit.groups:
                    if name == "*" or name in app.groups:
                        return name
        return None
