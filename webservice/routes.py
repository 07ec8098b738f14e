"""All routes of the API, in one table.

Not here: what answers them (the modules that are joined here), and how a path finds its route (`router.py`).
"""

from typing import Final

from webservice import cluster_routes, config_routes, debug_routes, history_routes, partition_routes
from webservice.calls import ApiRoute
from webservice.openapi_routes import with_document

_DESCRIBED: Final[tuple[ApiRoute, ...]] = (
    *cluster_routes.ROUTES,
    *partition_routes.ROUTES,
    *history_routes.ROUTES,
    *config_routes.ROUTES,
    *debug_routes.ROUTES,
)

ROUTES: Final = with_document(_DESCRIBED)

_HIDDEN: Final = frozenset(route.path for route in debug_routes.HIDDEN)


def routes(*, debug: bool) -> tuple[ApiRoute, ...]:
    """Those that there are, with the setting `debug` or without."""
    return ROUTES if debug else tuple(route for route in ROUTES if route.path not in _HIDDEN)
