"""The configurations that make the API server call the webhooks."""

import base64
import json

import msgspec

from yunishard.kubernetes_shim.admission.registrations import Endpoint, describe_webhooks
from yunishard.kubernetes_shim.objects import AdmissionRules

SERVICE = Endpoint("yunikorn", "hooks")


def test_a_service_has_the_names_by_which_it_is_called() -> None:
    assert SERVICE.names() == ("hooks", "hooks.yunikorn", "hooks.yunikorn.svc")
    assert Endpoint("a", "b", "https://10.0.0.1:9089").names() == ("10.0.0.1",)
    assert Endpoint("a", "b", "https://[::1]:9089").names() == ("::1",)
    assert Endpoint("a", "b", "https://hooks.example:9089").names() == ("hooks.example",)


def test_a_failed_webhook_hinders_nobody() -> None:
    for one in describe_webhooks(SERVICE, b"ca"):
        (webhook,) = one.content
        assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")


def test_the_webhooks_are_called_for_pods_workloads_and_our_config_maps() -> None:
    mutations, validations = describe_webhooks(SERVICE, b"ca")
    assert mutations.body()["kind"] == "MutatingWebhookConfiguration"
    (webhook,) = mutations.content
    assert webhook["clientConfig"] == {
        "caBundle": base64.b64encode(b"ca").decode(),
        "service": {"namespace": "yunikorn", "name": "hooks", "path": "/mutate", "port": 443},
    }
    assert webhook["rules"] == [
        {
            "apiGroups": ["", "apps", "batch"],
            "apiVersions": ["v1"],
            "resources": [
                *("pods", "pods/status", "replicationcontrollers", "podtemplates", "deployments", "replicasets"),
                *("statefulsets", "daemonsets", "jobs", "cronjobs"),
            ],
            "operations": ["CREATE", "UPDATE"],
            "scope": "*",
        }
    ]
    assert validations.body()["kind"] == "ValidatingWebhookConfiguration"
    (webhook,) = validations.content
    assert webhook["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "yunikorn"}}
    (condition,) = webhook["matchConditions"]  # type: ignore[misc]
    assert condition["expression"] == "request.name in ['yunikorn-defaults', 'yunikorn-configs']"


def test_an_address_replaces_the_service() -> None:
    (webhook,) = describe_webhooks(Endpoint("a", "b", "https://10.0.0.1:9089"), b"")[1].content
    assert webhook["clientConfig"] == {"caBundle": "", "url": "https://10.0.0.1:9089/validate-conf"}


def test_a_difference_of_any_field_is_seen() -> None:
    wanted = describe_webhooks(SERVICE, b"ca")[0]
    same = msgspec.json.decode(json.dumps(wanted.body()), type=AdmissionRules)
    assert wanted.is_same(same)
    for other in (describe_webhooks(SERVICE, b"cb")[0], describe_webhooks(Endpoint("yunikorn", "b"), b"ca")[0]):
        assert not other.is_same(same)
    assert not wanted.is_same(AdmissionRules())
