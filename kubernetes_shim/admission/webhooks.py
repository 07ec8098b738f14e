"""The configurations that make the API server call the webhooks.

All fields are written, also those that have their default, so that the configuration in the API server can be compared
with the wanted one. The names are those of YuniKorn's admission controller: whichever runs last has the webhooks.

Not here: when they are written (`controller.py`).
"""

import base64
from typing import Final

import msgspec
from msgspec import Struct

from kubernetes_shim.objects import CONFIG_MAPS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Kind, WebhookConfiguration
from kubernetes_shim.settings import CONFIG_MAPS_READ

MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate-conf"
HEALTH_PATH: Final = "/health"

WEBHOOK_S_MAX: Final = 5
"""Seconds that the API server waits for an answer; then it continues as if there were no webhook."""


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


class Webhooks(Struct, frozen=True):
    """A webhook configuration as it should be."""

    kind: Kind[WebhookConfiguration]
    name: str
    webhooks: list[dict[str, object]]

    def is_same(self, found: WebhookConfiguration) -> bool:
        """Whether the API server has this configuration."""
        return [msgspec.json.decode(one) for one in found.webhooks] == self.webhooks

    def body(self) -> dict[str, object]:
        """Return the whole object."""
        kind = f"{'Mutating' if self.kind is MUTATING_WEBHOOKS else 'Validating'}WebhookConfiguration"
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": self.name, "labels": {"app": "yunikorn"}},
            "webhooks": self.webhooks,
        }


def describe_webhooks(endpoint: Endpoint, authorities: bytes) -> list[Webhooks]:
    """Return the configurations for an endpoint whose certificate is by one of these authorities."""
    mutation = _describe(
        "admission-webhook.yunikorn.mutate-pods",
        endpoint,
        MUTATE_PATH,
        authorities,
        {
            "apiGroups": ["", "apps", "batch"],
            "resources": ["pods", "deployments", "replicasets", "statefulsets", "daemonsets", "jobs", "cronjobs"],
        },
    )
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
    return [
        Webhooks(
            MUTATING_WEBHOOKS, "yunikorn-admission-controller-mutations", [{**mutation, "reinvocationPolicy": "Never"}]
        ),
        Webhooks(VALIDATING_WEBHOOKS, "yunikorn-admission-controller-validations", [validation]),
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
