"""The objects by which the API server consults the admission controller or its rules: webhooks and policies.

All their fields are written, also those that have their default, so that an object in the API server can be compared
with the wanted one.

Not here: their content (`webhooks.py`, `policies.py`), when they are written (`controller.py`).
"""

from typing import Final, Literal

import msgspec
from msgspec import Struct

from yunishard.kubernetes_shim.objects import (
    MUTATING_WEBHOOKS,
    POLICIES,
    POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
    AdmissionRules,
    Kind,
)

_NAMES: Final = {
    MUTATING_WEBHOOKS: "MutatingWebhookConfiguration",
    VALIDATING_WEBHOOKS: "ValidatingWebhookConfiguration",
    POLICIES: "ValidatingAdmissionPolicy",
    POLICY_BINDINGS: "ValidatingAdmissionPolicyBinding",
}


class Registration(Struct, frozen=True):
    """An object as it should be."""

    kind: Kind[AdmissionRules]
    name: str
    field: Literal["webhooks", "spec"]
    """The field with the content."""
    content: list[dict[str, object]] | dict[str, object]

    def is_same(self, found: AdmissionRules) -> bool:
        """Whether the API server has this content."""
        return bool(msgspec.json.decode(getattr(found, self.field)) == self.content)

    def body(self) -> dict[str, object]:
        """Return the whole object."""
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": _NAMES[self.kind],
            "metadata": {"name": self.name, "labels": {"app": "yunikorn"}},
            self.field: self.content,
        }

    def patch(self, found: AdmissionRules) -> list[dict[str, object]]:
        """Return the steps that replace the content of this object, unless it has changed since."""
        return [
            {"op": "test", "path": "/metadata/resourceVersion", "value": found.metadata.resource_version},
            {"op": "add", "path": f"/{self.field}", "value": self.content},
        ]
