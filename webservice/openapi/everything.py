"""What is said about the routes that are about all partitions at once (`webservice/cluster_routes.py`)."""

from typing import Final

from common.rest_views import PartitionView, UtilisationView
from webservice.health import HealthView
from webservice.openapi.operation import ANY_OBJECT, ANY_TEXT, TEXT, Area, Content, Operation
from webservice.openapi.words import IF_NONE_MATCH, RM, UNCHANGED
from webservice.views import ClusterView

EVERYTHING: Final = Area(
    "cluster",
    "All partitions of all resource managers.",
    {
        "GET /ws/v1/clusters": Operation(
            "Every partition with the resource managers' build information",
            (Content(list[ClusterView]),),
            parameters=(RM,),
        ),
        "GET /ws/v1/partitions": Operation(
            "Every partition with its sums",
            (Content(list[PartitionView]),),
            says="A partition that does not answer has the `state` `Silent`, and everything of it is empty or 0.",
            parameters=(RM,),
        ),
        "GET /ws/v1/scheduler/node-utilizations": Operation(
            "How full nodes are",
            (Content(list[UtilisationView] | None),),
            says="By resource type, in ten buckets. `null` while no RM is registered.",
            parameters=(RM,),
        ),
        "GET /ws/v1/scheduler/healthcheck": Operation(
            "What the latest look at each partition found",
            (Content(HealthView),),
            says="The status is 200 whether or not all is well.",
            parameters=(RM,),
        ),
        "GET /ws/v1/metrics": Operation(
            "The figures of all processes, for Prometheus",
            (Content(ANY_TEXT, TEXT),),
            parameters=(RM,),
        ),
        "GET /ws/v1/openapi.json": Operation(
            "This document",
            (Content(ANY_OBJECT),),
            parameters=(IF_NONE_MATCH,),
            statuses=UNCHANGED,
            headers={"ETag": "Changes when the document does."},
        ),
    },
)
