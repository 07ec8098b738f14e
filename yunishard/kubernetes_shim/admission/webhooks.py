"""The configurations that make the API server call the webhooks.

The names are those of YuniKorn's admission controller: whichever runs last has the webhooks.

Not here: when they are written (`controller.py`).
"""

import base64
from typing import Final

from msgspec import Struct

from yunishard.kubernetes_shim.admission.policies import describe_template
from yunishard.kubernetes_shim.admission.registrations import Registration
from yunishard.kubernetes_shim.admission.users import WORKLOADS
from yunishard.kubernetes_shim.objects import CONFIG_MAPS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from yunishard.kubernetes_shim.pods import USER_INFO
from yunishard.kubernetes_shim.settings import CONFIG_MAPS_READ

MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate-conf"
HEALTH_PATH: Final = "/health"

WEBHOOK_S_MAX: Final = 5
"""Seconds that the API server waits for an answer; then it continues as if there were no webhook."""


_INFO: Final = f"?metadata.?annotations[?'{USER_INFO}']"
_POD_DIFFERS: Final = f"object.{_INFO} != oldObject.{_INFO}"
_TEMPLATE_DIFFERS: Final = f"({describe_template('object')}) != ({describe_template('oldObject')})"
_USERS_MAY_CHANGE: Final = (
    f"request.operation == 'CREATE' || (request.resource.resource == 'pods' ? {_POD_DIFFERS} : {_TEMPLATE_DIFFERS})"
)
"""Most updates change neither who a pod runs as nor a template; they do not wait for a webhook."""


class Endpoint(Struct, frozen=True):
    """Where the API server reaches the webhooks."""

    namespace: str
    service: str
    url: str = ""
    """Replaces the service, for a controller outside of the cluster, such as `https://10.0.0.1:9089`."""

    def names(self) -> tuple[str, ...]:
        """Return the names that the certificate of the server needs."""
        if self.url:
            host = self.url.split("://")[1].rpartition(":")[0]
            return (host.strip("[]"),)
        name = f"{self.service}.{self.namespace}"
        return (self.service, name, f"{name}.svc")


def describe_webhooks(endpoint: Endpoint, authorities: bytes) -> list[Registration]:
    """Return the configurations for an endpoint whose certificate is by one of these authorities."""
    mutation = _describe(
        "admission-webhook.yunikorn.mutate-pods",
        endpoint,
        MUTATE_PATH,
        authorities,
        {
            "apiGroups": ["", "apps", "batch"],
            "resources": ["pods", "pods/status", *(one.plural for one in WORKLOADS)],
        },
    )
    mutation["matchConditions"] = [{"name": "users-may-change", "expression": _USERS_MAY_CHANGE}]
    validation = _describe(
        "admission-webhook.yunikorn.validate-conf",
        endpoint,
        VALIDATE_PATH,
        authorities,
        {"apiGroups": [""], "resources": [CONFIG_MAPS.plural]},
    )
    validation["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": endpoint.namespace}}
    names = ", ".join(f"'{name}'" for name in CONFIG_MAPS_READ)
    validation["matchConditions"] = [{"name": "maps-that-are-read", "expression": f"request.name in [{names}]"}]
    mutation["reinvocationPolicy"] = "Never"
    prefix = "yunikorn-admission-controller"
    return [
        Registration(MUTATING_WEBHOOKS, f"{prefix}-mutations", "webhooks", [mutation]),
        Registration(VALIDATING_WEBHOOKS, f"{prefix}-validations", "webhooks", [validation]),
    ]


def _describe(
    name: str, endpoint: Endpoint, path: str, authorities: bytes, objects: dict[str, object]
) -> dict[str, object]:
    client: dict[str, object] = {"caBundle": base64.b64encode(authorities).decode()}
    if endpoint.url:
        client["url"] = endpoint.url + path
    else:
        client["service"] = {"namespace": endpoint.namespace, "name": endpoint.service, "path": path, "port": 443}
    return {
        "name": name,
        "clientConfig": client,
        "rules": [{**objects, "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "scope": "*"}],
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "sideEffects": "None",
        "timeoutSeconds": WEBHOOK_S_MAX,
        "admissionReviewVersions": ["v1"],
    }
