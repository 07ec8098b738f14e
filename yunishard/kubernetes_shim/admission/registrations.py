"""The objects by which the API server consults the admission controller or its rules: webhooks and a policy.

All their fields are written, also those that have their default, so that an object in the API server can be compared
with the wanted one. The names are those of YuniKorn's admission controller: whichever runs last has the webhooks.

By the policy the API server itself guards the users of pods, also while no admission controller runs. It is evaluated
after the webhook. An object passes if what names its user is what the webhook writes for the user of the request, is
missing, or stays as it was; trusted users pass. So without a webhook, pods are created as before, but without a user.
The expressions are the rules of `users.py` in CEL, the language of the API server. They end in no error: an error would
refuse the object. `packaging/helm/yunishard/templates/policy.yaml` has the same for the time before the controller has
run.

Not here: when they are written (`controller.py`).
"""

import base64
import json
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from yunishard.kubernetes_shim.admission.users import CREATOR, NOBODY_INFO, WORKLOADS, Access
from yunishard.kubernetes_shim.objects import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    POLICIES,
    POLICY_BINDINGS,
    VALIDATING_WEBHOOKS,
    AdmissionRules,
    Kind,
)
from yunishard.kubernetes_shim.pods import USER_INFO
from yunishard.kubernetes_shim.settings import CONFIG_MAPS_READ

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


# The policy -----------------------------------------------------------------------------------------------------------

POLICY: Final = "yunikorn-admission-controller-users"

REVISIONS: Final = "controllerrevisions"
"""Former templates of stateful sets and daemon sets, which their controllers write."""

_USERNAME: Final = "request.userInfo.?username.orValue('')"
_GROUPS: Final = "request.userInfo.?groups.orValue([])"


def describe_template(variable: str) -> str:
    """Return the expression for the template of pods that the object of this variable has."""
    paths = {one.plural: ".".join(f"?{name}" for name in one.path) for one in WORKLOADS}
    common = "?spec.?template"
    choices = "".join(
        f"request.resource.resource == '{plural}' ? {variable}.{path} : "
        for plural, path in (*paths.items(), (REVISIONS, "?data.?spec.?template"))
        if path != common
    )
    return f"{choices}{variable}.{common}"


def describe_policies(access: Access) -> list[Registration]:
    """Return the policy for these settings, and what puts it in force."""
    return [
        Registration(POLICIES, POLICY, "spec", _describe_policy(access)),
        Registration(POLICY_BINDINGS, POLICY, "spec", {"policyName": POLICY, "validationActions": ["Deny"]}),
    ]


def _describe_policy(access: Access) -> dict[str, object]:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                _describe_rule("", ["pods", "pods/*", "bindings", *_list_plurals("")]),
                _describe_rule("apps", [*_list_plurals("apps"), REVISIONS]),
                _describe_rule("batch", _list_plurals("batch")),
            ],
        },
        "matchConditions": [{"name": "not-trusted", "expression": f"!({_describe_trusted(access)})"}],
        "variables": [{"name": name, "expression": text} for name, text in _VARIABLES.items()],
        "validations": [{"expression": _EXPRESSION, "messageExpression": _MESSAGE, "reason": "Forbidden"}],
    }


def _list_plurals(group: str) -> list[str]:
    return [one.plural for one in WORKLOADS if one.group == group]


def _describe_rule(group: str, resources: list[str]) -> dict[str, object]:
    return {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": resources,
        "scope": "*",
    }


def _describe_trusted(access: Access) -> str:
    """Return the expression for whether who sends the request may name another user."""
    settings = access.settings
    if settings.bypass_auth:
        return "true"
    controllers = _describe_listed(_USERNAME, settings.system_users)
    if not settings.trust_controllers:  # the webhook leaves these to the pods
        controllers = [f"request.resource.resource == 'replicasets' && {one}" for one in controllers]
    users = _describe_listed(_USERNAME, settings.external_users)
    groups = [f"{_GROUPS}.exists(g, {one})" for one in _describe_listed("g", settings.external_groups)]
    shim = [f"{_USERNAME} == {_quote(access.shim_user)}"] if access.shim_user else []
    return " || ".join([*controllers, *users, *groups, *shim]) or "false"


def _describe_listed(value: str, expressions: Sequence[str]) -> list[str]:
    return [f"{value}.matches({_quote(one)})" for one in expressions]


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_ESCAPED: Final = r""".replace('\\', '\\\\').replace('"', '\\"')"""
_IS_UPDATE: Final = "request.operation == 'UPDATE'"


def _describe_images(variable: str) -> str:
    """Return the expression for the images of a pod, which are all of what it runs that can change."""
    lists = " + ".join(f"{variable}.?spec.?{one}.orValue([])" for one in ("containers", "initContainers"))
    return f"({lists}).map(c, c.?image.orValue(''))"


_VARIABLES: Final = {
    "creators": f"request.userInfo.?extra[?'{CREATOR}'].orValue([]).filter(u, u.matches('^[0-9A-Za-z-]+$'))",
    "groups": f"{_GROUPS}.map(g, g{_ESCAPED})",
    "name": f"""'{{"user":"' + {_USERNAME}{_ESCAPED} + '"'""",
    "own": "variables.name"
    """ + (size(variables.groups) > 0 ? ',"groups":["' + variables.groups.join('","') + '"]' : '')"""
    """ + (size(variables.creators) == 1 ? ',"pod":"' + variables.creators[0] + '"' : '') + '}'""",
    "isPod": "request.resource.resource in ['pods', 'bindings']",
    "template": f"variables.isPod ? object : ({describe_template('object')}).orValue({{}})",
    "oldTemplate": "oldObject == null ? {} : variables.isPod ? oldObject : "
    f"({describe_template('oldObject')}).orValue({{}})",
    "info": f"variables.template.?metadata.?annotations[?'{USER_INFO}']",
    "oldInfo": f"variables.oldTemplate.?metadata.?annotations[?'{USER_INFO}']",
    "mayBeMissing": f"!(variables.isPod && {_IS_UPDATE})",
    "isOwn": f"!variables.info.hasValue() || variables.info.orValue('') in ['{NOBODY_INFO}', variables.name + '}}']"
    " || variables.info.orValue('').startsWith(variables.name + ',')",
    "mayStay": f"{_IS_UPDATE} && (!variables.isPod ? variables.template == variables.oldTemplate"
    f" : variables.isOwn || {_describe_images('object')} == {_describe_images('oldObject')})",
    "mayBeOwn": "!variables.isPod || (request.operation == 'CREATE' && request.resource.resource == 'pods'"
    " && request.?subResource.orValue('') == '')",
}
"""Names to expressions, each of which reads those before it. The template of a pod is the pod itself. It is no optional
value, because CEL finds no field of one in a variable."""

_EXPRESSION: Final = (
    "(variables.mayBeMissing && !variables.info.hasValue())"
    " || (variables.mayStay && variables.info == variables.oldInfo)"
    f" || (variables.mayBeOwn && variables.info.orValue('') in [variables.own, '{NOBODY_INFO}'])"
)
"""Holds for objects that pass."""

_MESSAGE: Final = (
    f"""'the user "' + {_USERNAME} + '" may not ' + ({_IS_UPDATE} && variables.info == variables.oldInfo ?"""
    " (variables.isPod ? 'change the images in a pod of another user'"
    f" : 'change pods of the user in the annotation {USER_INFO}: remove it first, as no admission controller runs')"
    f" : variables.isPod && {_IS_UPDATE} ? 'change the annotation {USER_INFO} of a pod'"
    f" : 'set the annotation {USER_INFO}: leave it out')"
)
"""The reason why others do not pass."""


# The webhooks ---------------------------------------------------------------------------------------------------------

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
