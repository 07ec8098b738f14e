"""The settings of the shim: YuniKorn's keys and defaults, and errors that say what would be right."""

import base64
import gzip

import pytest

from yunishard.kubernetes_shim.objects import ConfigMap, ObjectMeta
from yunishard.kubernetes_shim.settings import (
    UNZIPPED_BYTES_MAX,
    AdmissionSettings,
    Settings,
    SettingsError,
    find_keys_for_restart,
    read_config_map,
    read_settings,
)


def test_missing_maps_mean_the_defaults() -> None:
    assert read_settings([]) == read_settings([{}, {}]) == Settings()


def test_every_key_has_its_meaning() -> None:
    values = {
        "service.clusterId": "c1",
        "service.policyGroup": "batch",
        "service.schedulingInterval": "2s",
        "service.volumeBindTimeout": "90s",
        "service.eventChannelCapacity": "16",
        "service.dispatchTimeout": "1m",
        "service.disableGangScheduling": "true",
        "service.enableConfigHotRefresh": "false",
        "service.placeholderImage": "mirror/pause:3",
        "service.nodeInstanceTypeNodeLabelKey": "example.com/type",
        "kubernetes.qps": "50",
        "kubernetes.burst": "60",
        "admissionController.webHook.amServiceName": "hooks",
        "admissionController.webHook.schedulerServiceAddress": "core:80",
        "admissionController.filtering.processNamespaces": "^a-, ^b$",
        "admissionController.filtering.bypassNamespaces": "",
        "admissionController.filtering.labelNamespaces": "c",
        "admissionController.filtering.noLabelNamespaces": "d",
        "admissionController.filtering.generateUniqueAppId": "T",
        "admissionController.accessControl.bypassAuth": "1",
        "admissionController.accessControl.trustControllers": "f",
        "admissionController.accessControl.systemUsers": "e",
        "admissionController.accessControl.externalUsers": "f",
        "admissionController.accessControl.externalGroups": "g",
    }
    assert read_settings([{**values, "batch.yaml": "partitions: []", "log.level": "-1"}]) == Settings(
        cluster_id="c1",
        policy_group="batch",
        volume_bind_timeout_s=90.0,
        disable_gang_scheduling=True,
        enable_config_hot_refresh=False,
        placeholder_image="mirror/pause:3",
        instance_type_label="example.com/type",
        qps=50,
        burst=60,
        admission=AdmissionSettings(
            service_name="hooks",
            scheduler_address="core:80",
            process_namespaces=("^a-", "^b$"),
            bypass_namespaces=(),
            label_namespaces=("c",),
            no_label_namespaces=("d",),
            generate_unique_app_id=True,
            bypass_auth=True,
            trust_controllers=False,
            system_users=("e",),
            external_users=("f",),
            external_groups=("g",),
        ),
        configuration="partitions: []",
        extra_config={**values, "log.level": "-1"},
    )


def test_later_maps_override_earlier_ones_key_by_key() -> None:
    found = read_settings(
        [{"service.clusterId": "a", "queues.yaml": "x"}, {"queues.yaml": "y", "event.maxStreams": "3"}]
    )
    assert (found.cluster_id, found.configuration) == ("a", "y")
    assert found.extra_config == {"service.clusterId": "a", "event.maxStreams": "3"}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("service.clusterId", "my cluster", "expected 1 to 64 letters"),
        ("service.policyGroup", "", "not empty"),
        ("service.schedulingInterval", "1", "with its unit"),
        ("service.volumeBindTimeout", "0s", "above zero"),
        ("service.eventChannelCapacity", "many", "whole number"),
        ("service.disableGangScheduling", "yes", "true or false"),
        ("kubernetes.qps", "0", "from 1"),
        ("kubernetes.burst", "1.5", "whole number"),
        ("admissionController.webHook.schedulerServiceAddress", "http://core:80", "HOST:PORT"),
        ("admissionController.webHook.schedulerServiceAddress", "core:70000", "HOST:PORT"),
        ("admissionController.filtering.processNamespaces", "a,(b", "of '(b'"),
    ],
)
def test_an_error_names_the_key_the_value_and_what_would_be_right(key: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings([{key: value}])
    assert str(caught.value).startswith(f"{key} is {value!r}: expected")
    assert expected in str(caught.value)


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings([{"kubernetes.qps": "x", "admissionController.accessControl.bypassAuth": "x"}])
    assert len(str(caught.value).splitlines()) == 2


def test_a_running_shim_keeps_what_is_read_at_the_start() -> None:
    current = read_settings([{"service.clusterId": "a", "queues.yaml": "old"}])
    new = [{"service.clusterId": "b", "service.policyGroup": "p", "service.enableConfigHotRefresh": "false",
            "queues.yaml": "new", "p.yaml": "other"}]  # fmt: skip
    found = read_settings(new, current=current)
    assert (found.cluster_id, found.policy_group, found.configuration) == ("a", "queues", "new")
    assert not found.enable_config_hot_refresh
    assert not any(key.endswith(".yaml") for key in found.extra_config)
    assert find_keys_for_restart(current, new) == ["service.clusterId", "service.policyGroup"]
    assert find_keys_for_restart(current, [{"service.clusterId": "a"}]) == []


def config_map(**binary: bytes) -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(name="yunikorn-configs"),
        data={"kubernetes.qps": "5"},
        binary_data={key.replace("_", "."): base64.b64encode(value).decode() for key, value in binary.items()},
    )


def test_zipped_keys_are_unzipped_and_other_binary_ones_are_ignored() -> None:
    found = read_config_map(config_map(queues_yaml_gz=gzip.compress(b"partitions: []"), image=b"\xff"))
    assert found == {"kubernetes.qps": "5", "queues.yaml": "partitions: []"}
    assert read_config_map(None) == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"partitions: []", "incorrect header"),
        (gzip.compress(b"\xff", mtime=0), "utf-8"),
        (gzip.compress(b"partitions: []", mtime=0)[:-4], "not all of it"),
        (gzip.compress(bytes(UNZIPPED_BYTES_MAX + 1), mtime=0), f"longer than {UNZIPPED_BYTES_MAX} bytes"),
    ],
)
def test_what_cannot_be_unzipped_is_an_error(value: bytes, expected: str) -> None:
    with pytest.raises(SettingsError, match=r"^yunikorn-configs: binaryData queues.yaml.gz: expected") as caught:
        read_config_map(config_map(queues_yaml_gz=value))
    assert expected in str(caught.value)


def test_a_key_of_exactly_the_limit_is_read() -> None:
    assert len(read_config_map(config_map(q_gz=gzip.compress(bytes(UNZIPPED_BYTES_MAX))))["q"]) == UNZIPPED_BYTES_MAX


def test_text_that_is_no_base64_is_an_error() -> None:
    with pytest.raises(SettingsError, match="base64"):
        read_config_map(ConfigMap(binary_data={"a.gz": "?"}))
