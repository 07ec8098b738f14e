"""All routes of the API, in one table.

Not here: what answers them (the modules that are joined here), and how a path finds its route (`router.py`).
"""

from typing import Final

from webservice import admin_routes, config_routes, event_routes, overall, partition_routes
from webservice.calls import ApiRoute

ROUTES: Final[tuple[ApiRoute, ...]] = (
    *overall.ROUTES,
    *event_routes.ROUTES,
    *config_routes.ROUTES,
    *partition_routes.ROUTES,
    *admin_routes.ROUTES,
)
