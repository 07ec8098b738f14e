"""All that is said about routes, in the order in which readers meet it.

Not here: the routes (`webservice/routes.py`); a route that nothing is said about has no place in the document.
"""

from typing import Final

from webservice.openapi.changes import CHANGES
from webservice.openapi.configuration import CONFIGURATION
from webservice.openapi.everything import EVERYTHING
from webservice.openapi.happenings import HAPPENINGS
from webservice.openapi.inside import INSIDE
from webservice.openapi.operation import Area
from webservice.openapi.partitions import PARTITIONS
from webservice.openapi.past import PAST

AREAS: Final[tuple[Area, ...]] = (EVERYTHING, PARTITIONS, HAPPENINGS, PAST, CONFIGURATION, CHANGES, INSIDE)
