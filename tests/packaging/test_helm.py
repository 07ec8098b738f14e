"""The Helm chart: it renders with all kinds of values, and its parts agree with each other, the image and the commands.
`tests/kubernetes/test_chart.py` applies it to a real API server.
"""

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.packaging.test_image import instructions
from yunishard.cli.main import build_parser, parse_words
from yunishard.common.settings import SETTINGS
from yunishard.deploy.settings import resolve_settings
from yunishard.kubernetes_shim.admission.controller import SECRET
from yunishard.kubernetes_shim.admission.registrations import Endpoint, describe_policies, describe_webhooks
from yunishard.kubernetes_shim.admission.users import Access
from yunishard.kubernetes_shim.command import LEASE_DEFAULT
from yunishard.kubernetes_shim.settings import CONFIG_MAPS_READ, AdmissionSettings, read_settings

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "packaging" / "helm" / "yunishard"
HELM: Final = os.environ.get("HELM") or shutil.which("helm")
NAMESPACE: Final = "yunikorn"

Object = Mapping[str, Any]

pytestmark = pytest.mark.skipif(HELM is None, reason="helm is not installed, and HELM names none")


def render(*values: str, files: Sequence[Path] = ()) -> dict[str, Object]:
    """The objects of a release `yunishard` with these values, by kind and name."""
    assert HELM is not None
    options = [word for value in values for word in ("--set", value)]
    options += [word for file in files for word in ("--values", str(file))]
    command = [
        HELM,
        "template",
        "yunishard",
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--kube-version",
        "1.34.0",
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in yaml.safe_load_all(done.stdout) if one}


VARIANTS: Final = (
    (),
    ("core.persistence.enabled=true", "core.persistence.storageClass=fast", "nodeFailureTolerationSeconds=0"),
    ("core.persistence.enabled=true", "core.persistence.accessMode=ReadWriteOncePod"),
    ("core.settings.store=postgresql://yunishard@db/yunishard", "core.storeSecret=database"),
    ("core.settings.store=postgresql://yunishard@db/yunishard?passfile=/x/pgpass", "core.settings.host-name=a"),
    ("core.restTlsSecret=rest", "admission.core=https://yunikorn-service:9080", "admission.coreCaSecret=rest"),
    ("core.enabled=false", "shim.connect=tcp://core:9090", "shim.keysSecret=keys", "shim.replicas=2"),
    ("admission.enabled=false", "networkPolicy.enabled=false", "podAnnotations.a=b", "tolerations[0].operator=Exists"),
    ("podMonitor.enabled=true", "podMonitor.labels.release=prometheus", "podMonitor.rest.authorization.type=Bearer"),
    (
        "admission.replicas=1",
        "priorityClassName=system-cluster-critical",
        "imagePullSecrets={registry}",
        "nodeSelector.a=b",
    ),
)


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda values: " ".join(values) or "defaults")
def objects(request: pytest.FixtureRequest) -> dict[str, Object]:
    return render(*request.param)


@pytest.fixture(scope="module")
def defaults() -> dict[str, Object]:
    return render()


def find_pods(objects: Mapping[str, Object]) -> Iterator[Object]:
    for one in objects.values():
        if one["kind"] == "Deployment":
            yield one["spec"]["template"]


def find_containers(objects: Mapping[str, Object]) -> dict[str, Object]:
    specs = [pod["spec"] for pod in find_pods(objects)]
    return {one["name"]: one for spec in specs for one in (*spec.get("initContainers", ()), *spec["containers"])}


def test_the_chart_is_in_order() -> None:
    assert HELM is not None
    done = subprocess.run(
        [HELM, "lint", "--strict", "--kube-version", "1.34.0", str(CHART)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_that_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert chart["version"] == chart["appVersion"] == version


def test_every_command_has_options_that_it_knows(objects: dict[str, Object]) -> None:
    for container in find_containers(objects).values():
        if "command" in container:
            continue
        words = container["args"]
        _, unknown, _ = parse_words(build_parser(words[:1]), words)
        assert unknown == []


def test_the_settings_of_the_core_are_valid(objects: dict[str, Object], tmp_path: Path) -> None:
    found = objects.get("ConfigMap/yunishard-core")
    if found is None:
        assert "core" not in find_containers(objects)
        return
    file = tmp_path / "settings.yaml"
    file.write_text(found["data"]["settings.yaml"])
    settings = resolve_settings({}, {}, file=str(file))
    assert (settings.native, settings.grpc, settings.rest) == ("tcp://127.0.0.1:9090", "off", "0.0.0.0:9080")
    assert f"yunikorn-service.{NAMESPACE}.svc" in settings.rest_hosts
    assert settings.insecure == (settings.rest_tls_cert is None)
    assert (settings.host_name in ("yunishard-scheduler", "a")) == bool(settings.store)


def test_the_settings_of_the_shim_are_valid(defaults: dict[str, Object]) -> None:
    data = defaults[f"ConfigMap/{CONFIG_MAPS_READ[0]}"]["data"]
    assert read_settings([data]).configuration.startswith("partitions:")


def test_values_of_settings_arrive_as_they_are(tmp_path: Path) -> None:
    found = render(
        "core.settings.scheduler-admins=alice ops", "core.settings.asks-max=5", r"config.service\.clusterId=c1",
        r"config.kubernetes\.qps=50",
    )  # fmt: skip
    file = tmp_path / "settings.yaml"
    file.write_text(found["ConfigMap/yunishard-core"]["data"]["settings.yaml"])
    settings = resolve_settings({}, {}, file=str(file))
    assert (settings.scheduler_admins, settings.asks_max) == ("alice ops", 5)
    shim = read_settings([found["ConfigMap/yunikorn-defaults"]["data"]])
    assert (shim.cluster_id, shim.qps) == ("c1", 50)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["core.enabled=false"], "set shim.connect"),
        (["shim.replicas=2"], "shim.replicas must be 1"),
        (["core.settings.store=postgresql://db", "core.persistence.enabled=true"], "set core.persistence.enabled="),
        (["core.storeSecret=db"], "the database that core.settings.store names"),
    ],
)
def test_values_that_make_no_sense_are_refused(values: list[str], expected: str) -> None:
    with pytest.raises(AssertionError, match=expected):
        render(*values)


def test_numbers_of_a_file_arrive_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text("core: {settings: {asks-max: 5000000}}\nconfig: {service.eventChannelCapacity: 1048576}\n")
    found = render(files=[file])
    assert 'asks-max: "5000000"' in found["ConfigMap/yunishard-core"]["data"]["settings.yaml"]
    assert found["ConfigMap/yunikorn-defaults"]["data"]["service.eventChannelCapacity"] == "1048576"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("imgae.tag=x", "Additional property imgae is not allowed"),
        ("core.persistance.enabled=true", "core: Additional property persistance is not allowed"),
        ("core.enabled=yes", "core.enabled: Invalid type. Expected: boolean, given: string"),
        ("shim.connect=core:9090", "shim.connect: Does not match pattern"),
        (
            r"config.queues\.yaml.a=b",
            "config.queues.yaml: Invalid type. Expected: [string,number,boolean], given: object",
        ),
        ("logFormat=xml", 'logFormat must be one of the following: "text", "json"'),
    ],
)
def test_a_wrong_value_is_named(value: str, expected: str) -> None:
    with pytest.raises(AssertionError) as caught:
        render(value)
    assert expected in str(caught.value)


def test_the_schema_has_exactly_the_values_of_the_chart() -> None:
    def list_values(found: object, schema: Mapping[str, Any]) -> set[str]:
        """The differences, with their places."""
        if not isinstance(found, dict) or "properties" not in schema:
            return set()
        assert schema["additionalProperties"] is False
        named = schema["properties"]
        inside = {f"{key}.{one}" for key in named if key in found for one in list_values(found[key], named[key])}
        return (set(named) ^ set(found)) | inside

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    resources = {"claims"}  # an amount that few need
    left = {one for one in list_values(values, schema) if one.rpartition(".")[2] not in resources}
    assert left == {"global"}


def test_settings_that_are_read_at_the_start_restart_the_scheduler_and_others_do_not() -> None:
    def find_checksum(*values: str) -> str:
        found = render(*values)["Deployment/yunishard-scheduler"]
        return str(found["spec"]["template"]["metadata"]["annotations"]["checksum/settings"])

    page = (ROOT / "docs" / "kubernetes.md").read_text()
    keys = re.findall(r"`([\w.]+)`\*", page)
    assert len(keys) == 8
    checksums = {find_checksum(rf"config.{key.replace('.', chr(92) + '.')}=5") for key in keys}
    assert len({*checksums, find_checksum()}) == 9
    assert find_checksum(r"config.log\.level=debug", r"config.queues\.yaml=x") == find_checksum()


def test_every_container_is_confined(objects: dict[str, Object]) -> None:
    uid, gid = map(int, instructions("USER")[0].split(":"))
    for pod in find_pods(objects):
        context = pod["spec"]["securityContext"]
        assert (context["runAsUser"], context["fsGroup"], context["runAsNonRoot"]) == (uid, gid, True)
        assert pod["spec"]["automountServiceAccountToken"] is False
        # Otherwise the admission controller would give the scheduler's own pod to the scheduler.
        assert pod["metadata"]["labels"]["app"] == pod["spec"].get("schedulerName", "").replace(
            "default-scheduler", "yunikorn"
        )
    for container in find_containers(objects).values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert set(container["resources"]) == {"requests", "limits"}


def test_only_what_needs_the_api_server_has_a_token(objects: dict[str, Object]) -> None:
    for name, container in find_containers(objects).items():
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert ("/var/run/secrets/kubernetes.io/serviceaccount" in paths) == (name in ("shim", "admission"))


def test_a_pod_whose_node_fails_is_replaced_and_gets_room(objects: dict[str, Object]) -> None:
    classes = {one["metadata"]["name"] for one in objects.values() if one["kind"] == "PriorityClass"}
    for pod in find_pods(objects):
        found = [one for one in pod["spec"]["tolerations"] if one.get("effect") == "NoExecute"]
        assert [one["key"] for one in found] == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        assert all(one["tolerationSeconds"] in (0, 30) for one in found)
        assert pod["spec"]["priorityClassName"] in (classes or {"system-cluster-critical"})


def test_two_cores_never_get_the_same_volume_and_two_shims_never_the_same_identity(objects: dict[str, Object]) -> None:
    deployment = objects["Deployment/yunishard-scheduler"]["spec"]
    containers = {one["name"]: one for one in deployment["template"]["spec"]["containers"]}
    if "core" in containers:
        assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})
    fields = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in containers["shim"]["env"]
        if "valueFrom" in one
    }
    assert "--identity=$(POD_NAME)_$(POD_UID)" in containers["shim"]["args"]
    assert (fields["POD_NAME"], fields["POD_UID"]) == ("metadata.name", "metadata.uid")


def test_a_database_is_prepared_before_the_core_starts() -> None:
    found = find_containers(render("core.settings.store=postgresql://db", "core.storeSecret=database"))
    assert [name for name in found if name != "admission"] == ["pgpass", "store-init", "shim", "core"]
    for name in ("store-init", "core"):
        assert {"name": "PGPASSFILE", "value": found["pgpass"]["command"][-1]} in found[name]["env"]
    assert "pgpass" not in find_containers(render("core.settings.store=postgresql://db"))


def test_every_mount_has_a_volume(objects: dict[str, Object]) -> None:
    for pod in find_pods(objects):
        volumes = {one["name"] for one in pod["spec"]["volumes"]}
        containers = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
        mounts = {mount["name"] for one in containers for mount in one["volumeMounts"]}
        assert mounts == volumes
        claims = [one["persistentVolumeClaim"] for one in pod["spec"]["volumes"] if "persistentVolumeClaim" in one]
        assert all(f"PersistentVolumeClaim/{one['claimName']}" in objects for one in claims)


def test_every_selector_has_its_pods(objects: dict[str, Object]) -> None:
    labels = [pod["metadata"]["labels"] for pod in find_pods(objects)]
    selectors = [one["spec"]["selector"] for one in objects.values() if one["kind"] == "Service"]
    kinds = ("Deployment", "PodDisruptionBudget")
    selectors += [one["spec"]["selector"]["matchLabels"] for one in objects.values() if one["kind"] in kinds]
    selectors += [
        one["spec"]["podSelector"]["matchLabels"] for one in objects.values() if one["kind"] == "NetworkPolicy"
    ]
    for selector in selectors:
        assert sum(selector.items() <= one.items() for one in labels) == 1


def test_ports_and_probes_agree(objects: dict[str, Object]) -> None:
    for container in find_containers(objects).values():
        named = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if probe in container:
                assert container[probe]["httpGet"]["port"] in named
    ports = {port["name"] for one in find_containers(objects).values() for port in one.get("ports", [])}
    for service in (one for one in objects.values() if one["kind"] == "Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


def test_names_are_those_that_the_settings_and_the_admission_controller_have(defaults: dict[str, Object]) -> None:
    settings = AdmissionSettings()
    assert f"Service/{settings.service_name}" in defaults
    service, _, port = settings.scheduler_address.partition(":")
    assert [str(one["port"]) for one in defaults[f"Service/{service}"]["spec"]["ports"]] == [port]
    assert f"Secret/{SECRET}" in defaults
    (rule, _) = (one for one in defaults["Role/yunishard-shim"]["rules"] if one["resources"] == ["leases"])
    assert rule["resourceNames"] == [LEASE_DEFAULT]
    registrations = [*describe_webhooks(Endpoint(NAMESPACE, settings.service_name), b""), *describe_policies(Access())]
    for wanted in registrations:
        assert f"{wanted.body()['kind']}/{wanted.name}" in defaults
        rules = defaults["ClusterRole/yunishard-admission"]["rules"]
        (rule,) = [one for one in rules if wanted.kind.plural in one["resources"]]
        assert rule["resourceNames"] == [wanted.name]


ACCESS: Final = "admissionController.accessControl."


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"systemUsers": ""},
        {"systemUsers": r"^system:serviceaccount:(kube-system|ops):, ^a\.b$"},
        {"externalUsers": '^"alice<&>"$,^bob$', "externalGroups": "^ops$, ^admins$"},
        {"trustControllers": "false", "externalUsers": "^bob$"},
        {"bypassAuth": "true"},
    ],
    ids=str,
)
def test_the_policy_of_the_chart_is_the_one_that_the_admission_controller_writes(
    settings: dict[str, str], tmp_path: Path
) -> None:
    values = {f"{ACCESS}{key}": value for key, value in settings.items()}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"config": values}))
    objects = render(files=[file])
    (option,) = [one for one in find_containers(objects)["admission"]["args"] if one.startswith("--shim-user=")]
    account = f"system:serviceaccount:{NAMESPACE}:yunishard-shim"
    assert option == f"--shim-user={account}"
    for wanted in describe_policies(Access(read_settings([values]).admission, account)):
        assert objects[f"{wanted.body()['kind']}/{wanted.name}"]["spec"] == wanted.content


def test_without_an_admission_controller_nothing_vouches_for_users() -> None:
    def read(*values: str) -> bool:
        return read_settings([render(*values)["ConfigMap/yunikorn-defaults"]["data"]]).admission.bypass_auth

    assert not read()
    assert read("admission.enabled=false")
    assert not read("admission.enabled=false", rf"config.{ACCESS.replace('.', chr(92) + '.')}bypassAuth=false")


def test_every_role_is_bound_to_a_service_account_that_pods_use(objects: dict[str, Object]) -> None:
    accounts = {pod["spec"]["serviceAccountName"] for pod in find_pods(objects)}
    assert accounts == {one["metadata"]["name"] for one in objects.values() if one["kind"] == "ServiceAccount"}
    for binding in (
        one for one in objects.values() if one["kind"].endswith("RoleBinding") or one["kind"] == "RoleBinding"
    ):
        role = binding["roleRef"]
        assert f"{role['kind']}/{role['name']}" in objects or role["name"].startswith("system:")
        (subject,) = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": subject["name"], "namespace": NAMESPACE}
        assert subject["name"] in accounts


def test_documented_keys_of_the_core_are_settings() -> None:
    examples = re.findall(r"^  #   ([a-z-]+): ", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert examples
    assert {setting.replace("_", "-") for setting in examples} <= {one.replace("_", "-") for one in SETTINGS}
