import pytest
from msgspec import DecodeError, Raw

from yunishard.kubernetes_shim.objects import CsiNode, Pod, decode_object


def test_null_counts_as_absent() -> None:
    data = b'{"metadata": {"creationTimestamp": null, "labels": {"a": "1"}}, "spec": {"containers": null}}'
    pod = decode_object(data, Pod)
    assert (pod.metadata.creation_timestamp, pod.metadata.labels, pod.spec.containers) == ("", {"a": "1"}, [])
    assert decode_object(Raw(b'{"spec": {"drivers": null}}'), CsiNode).spec.drivers == []


DEEP = b'{"spec": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize("data", [b"{", b"null", b'{"spec": {"nodeName": 1, "priority": null}}', DEEP], ids=len)
def test_what_is_no_object_is_an_error(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_object(data, Pod)
