"""The requests and answers of admission webhooks, as the API server sends and reads them.

Not here: what is admitted or changed (`mutations.py`), the transport (`server.py`).
"""

import base64
from typing import Final, Literal

import msgspec
from msgspec import Struct, field

from yunishard.kubernetes_shim.objects import Part

API_VERSION: Final = "admission.k8s.io/v1"

Operation = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]


class RequestUser(Part, frozen=True):
    """The user who sends the request to the API server."""

    username: str = ""
    groups: list[str] = field(default_factory=list)
    extra: dict[str, list[str]] = field(default_factory=dict)
    """Facts that the authentication adds, such as the pod whose token it was."""


class RequestKind(Part, frozen=True):
    """The kind of the object; group and version are not read, because the kinds of the webhooks are distinct."""

    kind: str = ""


class AdmissionRequest(Part, frozen=True, kw_only=True):
    """A request to the API server that creates, changes or deletes an object."""

    uid: str
    kind: RequestKind = RequestKind()
    name: str = ""
    namespace: str = ""
    operation: Operation = "CREATE"
    user_info: RequestUser = RequestUser()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(Part, frozen=True):
    request: AdmissionRequest


class PatchOperation(Struct, frozen=True):
    """One step of a JSON patch."""

    op: Literal["add", "replace"]
    path: str
    value: str | dict[str, str] | dict[str, dict[str, str]]


class Verdict(Struct, frozen=True):
    """The answer to a request."""

    refusal: str = ""
    """Why the request is refused, for the user; empty if it is admitted."""
    patch: tuple[PatchOperation, ...] = ()
    warnings: tuple[str, ...] = ()
    """Lines that the client shows its user."""


ADMITTED: Final = Verdict()


class ReviewError(ValueError):
    """The body is no request of an admission webhook; the reason, for the API server."""


def decode_review(body: bytes) -> AdmissionRequest:
    """Return the request in the body. Raises ReviewError."""
    try:
        return _decoder.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(f"expected an AdmissionReview of {API_VERSION}: {error}") from None


def encode_review(uid: str, verdict: Verdict) -> bytes:
    """Return the body of an answer."""
    response: dict[str, object] = {"uid": uid, "allowed": not verdict.refusal}
    if verdict.warnings:
        response["warnings"] = verdict.warnings
    if verdict.refusal:
        response["status"] = {"code": 403, "reason": "Forbidden", "message": verdict.refusal}
    elif verdict.patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(verdict.patch)).decode()
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


_decoder: Final = msgspec.json.Decoder(_Review)
