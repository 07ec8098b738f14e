"""The check of config maps: which configuration the core has to validate, and what is refused without it."""

import json

import msgspec
import pytest

from yunishard.kubernetes_shim.admission.reviews import AdmissionRequest, Operation, ReviewError, Verdict
from yunishard.kubernetes_shim.admission.validation import CoreVerdict, find_configuration, judge
from yunishard.kubernetes_shim.objects import ConfigMap, ObjectMeta
from yunishard.kubernetes_shim.settings import SettingsError


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name), data={key.replace("_", "."): text for key, text in data.items()})


def configuration(name: str, data: object, *others: ConfigMap, operation: Operation = "UPDATE") -> str:
    request = AdmissionRequest(
        uid="1", name=name, operation=operation, object=msgspec.Raw(json.dumps({"data": data}).encode())
    )
    return find_configuration(request, {one.metadata.name: one for one in others}, "queues")


def test_the_changed_map_is_combined_with_the_other_one() -> None:
    defaults = config_map("yunikorn-defaults", queues_yaml="d")
    configs = config_map("yunikorn-configs", queues_yaml="c")
    assert configuration("yunikorn-configs", {"queues.yaml": "x"}, defaults, configs) == "x"
    assert configuration("yunikorn-configs", {"kubernetes.qps": "5"}, defaults, configs) == "d"
    assert configuration("yunikorn-defaults", {"queues.yaml": "x"}, defaults, configs) == "c"
    assert configuration("yunikorn-defaults", {"queues.yaml": "x"}, operation="CREATE") == "x"
    assert configuration("yunikorn-configs", {"other.yaml": "x"}) == ""


def test_other_maps_are_not_read() -> None:
    assert configuration("coredns", {"queues.yaml": "x"}) == ""
    assert configuration("yunikorn-configs", {"queues.yaml": "x"}, operation="DELETE") == ""


def test_settings_that_cannot_be_read_are_refused_unless_they_are_in_the_other_map() -> None:
    with pytest.raises(SettingsError, match=r"kubernetes.qps is 'x'"):
        configuration("yunikorn-configs", {"kubernetes.qps": "x"})
    broken = config_map("yunikorn-defaults", kubernetes_qps="x")
    assert configuration("yunikorn-configs", {"queues.yaml": "x"}, broken) == "x"


def test_what_is_no_config_map_is_an_error() -> None:
    with pytest.raises(ReviewError, match="data"):
        configuration("yunikorn-configs", {"queues.yaml": 1})


def test_the_verdict_of_the_core_is_that_of_the_webhook() -> None:
    assert judge(CoreVerdict(allowed=True), "queues.yaml") == Verdict()
    assert judge(CoreVerdict(allowed=False, reason="no root"), "queues.yaml").refusal == "queues.yaml: no root"
    assert judge(None, "queues.yaml") == Verdict(
        warnings=("the queues in queues.yaml were not validated, because the scheduler did not answer",)
    )
