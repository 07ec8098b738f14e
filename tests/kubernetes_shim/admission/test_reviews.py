"""Requests and answers of webhooks in the format of the API server."""

import base64
import json

import pytest

from yunishard.kubernetes_shim.admission.reviews import (
    ADMITTED,
    PatchOperation,
    ReviewError,
    Verdict,
    decode_review,
    encode_review,
)


def test_a_request_is_read_with_its_object_as_it_is() -> None:
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": "dev",
            "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["a"], "extra": {}},
            "object": {"metadata": {"name": "x"}},
            "oldObject": None,
        },
    }
    found = decode_review(json.dumps(body).encode())
    assert (found.uid, found.kind.kind, found.namespace, found.operation) == ("u", "Pod", "dev", "CREATE")
    assert found.user_info.username == "alice"
    assert json.loads(bytes(found.object)) == {"metadata": {"name": "x"}}


@pytest.mark.parametrize("body", [b"", b"{}", b'{"request": null}', b'{"request": {"uid": 1}}', b"\xff"])
def test_another_body_is_an_error(body: bytes) -> None:
    with pytest.raises(ReviewError, match=r"^expected an AdmissionReview of admission.k8s.io/v1"):
        decode_review(body)


def response(verdict: Verdict) -> dict[str, object]:
    found: dict[str, object] = json.loads(encode_review("u", verdict))["response"]
    return found


def test_answers_are_in_the_format_of_the_api_server() -> None:
    assert response(ADMITTED) == {"uid": "u", "allowed": True}
    assert response(Verdict(refusal="no")) == {
        "uid": "u",
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "no"},
    }
    found = response(Verdict(patch=(PatchOperation("add", "/a", "b"),), warnings=("careful",)))
    assert json.loads(base64.b64decode(str(found.pop("patch")))) == [{"op": "add", "path": "/a", "value": "b"}]
    assert found == {"uid": "u", "allowed": True, "patchType": "JSONPatch", "warnings": ["careful"]}
