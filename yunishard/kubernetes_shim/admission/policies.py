"""The policy by which the API server itself guards the users of pods, also while no admission controller runs.

It is evaluated after the webhook. An object passes if what names its user is what the webhook writes for the user of
the request, is missing, or stays as it was; trusted users pass. So without a webhook, pods are created as before, but
without a user. The expressions are the rules of `users.py` in CEL, the language of the API server. They end in no
error: an error would refuse the object.

`packaging/helm/yunishard/templates/policy.yaml` has the same for the time before the controller has run.

Not here: when it is written (`controller.py`).
"""

import json
from collections.abc import Sequence
from typing import Final

from yunishard.kubernetes_shim.admission.registrations import Registration
from yunishard.kubernetes_shim.admission.users import CREATOR, NOBODY_INFO, WORKLOADS, Access
from yunishard.kubernetes_shim.objects import POLICIES, POLICY_BINDINGS
from yunishard.kubernetes_shim.pods import USER_INFO

NAME: Final = "yunikorn-admission-controller-users"

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
        Registration(POLICIES, NAME, "spec", _describe_policy(access)),
        Registration(POLICY_BINDINGS, NAME, "spec", {"policyName": NAME, "validationActions": ["Deny"]}),
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
