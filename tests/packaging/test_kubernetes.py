"""The Kubernetes manifests: they render, and their parts agree with each other, the image and the settings."""

import argparse
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest
import yaml

from tests.packaging.test_image import instructions
from yunishard.cli.main import build_parser
from yunishard.common.settings import DEFAULT, FILE, SETTINGS, Settings, host_and_port
from yunishard.common.transport.curve_keys import SERVER
from yunishard.deploy.settings import PORTS, find_unknown_variables, resolve_settings
from yunishard.deploy.supervisor import STOP_MAX_S, WORKER_STOP_MAX_S
from yunishard.webservice.api_document import ROUTES

FOLDER: Final = Path(__file__).parents[2] / "packaging" / "kubernetes"
SETTINGS_PATH: Final = "/etc/yunishard/settings"

Object = Mapping[str, Any]


def read(name: str) -> dict[str, Object]:
    """The objects of a file, by kind and name."""
    found = yaml.safe_load_all((FOLDER / name).read_text())
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in found}


HOSTS: Final = read("hosts/hosts.yaml")
SET: Final = HOSTS["StatefulSet/yunishard"]["spec"]
POD: Final = SET["template"]["spec"]
(HOST,) = POD["containers"]
CONTAINERS: Final = [*POD["initContainers"], HOST]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("name", ["hosts", "cloudnative-pg"])
def test_the_manifests_render(name: str) -> None:
    done = subprocess.run(["kubectl", "kustomize", FOLDER / name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    rendered = {one["kind"]: one for one in yaml.safe_load_all(done.stdout)}
    volumes = rendered["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
    (settings,) = (one["configMap"]["name"] for one in volumes if one["name"] == "settings")
    assert settings == rendered["ConfigMap"]["metadata"]["name"]
    assert settings != "yunishard-settings"  # a hash of its content follows, so that a change restarts the hosts
    assert set(rendered["ConfigMap"]["data"]) == {"settings.yaml", "queues.yaml"}


def variables(pod: str) -> dict[str, str]:
    """The environment of a host, as Kubernetes makes it."""
    found: dict[str, str] = {}
    fields = {"metadata.name": pod, "status.podIP": "10.1.2.3"}
    for one in HOST["env"]:
        text = one["value"] if "value" in one else fields[one["valueFrom"]["fieldRef"]["fieldPath"]]
        found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda name: found[name[1]], text)
    return found


def effective_settings(pod: str, tmp_path: Path) -> Settings:
    """The settings of a host; its paths begin with `tmp_path` if they are in the settings' directory."""
    for file in ("settings.yaml", "queues.yaml"):
        (tmp_path / file).write_text((FOLDER / "hosts" / file).read_text())
    environment = {**variables(pod), "YUNISHARD_STATE": "/var/lib/yunishard"}
    assert find_unknown_variables(environment) == []
    assert PurePosixPath(environment["YUNISHARD_SETTINGS"]).parent == PurePosixPath(SETTINGS_PATH)
    return resolve_settings({}, environment, file=str(tmp_path / "settings.yaml"))


def mounted_files() -> Iterator[str]:
    """The paths of the files that the volumes bring, as far as the manifests tell."""
    volumes = {one["name"]: one for one in POD["volumes"]}
    secrets = {"native-keys": (f"{SERVER}.key_secret", "allowed"), "tls": ("tls.crt", "tls.key", "ca.crt")}
    for mount in HOST["volumeMounts"]:
        volume = volumes[mount["name"]]
        items = volume.get("secret", {}).get("items", [])
        for path in [*(one["path"] for one in items), *secrets.get(mount["name"], ())]:
            yield f"{mount['mountPath']}/{path}"
    yield "/run/yunishard/pgpass"


def test_every_host_has_valid_settings_and_the_files_that_they_name(tmp_path: Path) -> None:
    files = set(mounted_files())
    for number in range(SET["replicas"]):
        pod = f"yunishard-{number}"
        settings = effective_settings(pod, tmp_path)
        assert (settings.host_name, settings.cluster_address) == (pod, "tcp://10.1.2.3:9094")
        assert {f"{settings.cluster_keys}/{name}" for name in ("host.key_secret", "allowed")} <= files
        assert {f"{settings.native_keys}/{name}" for name in (f"{SERVER}.key_secret", "allowed")} <= files
        assert set(re.findall(r"(?:sslrootcert|passfile)=([^&]*)", settings.store)) <= files
        given = {one.name: one.value for one in settings.effective if one.source != DEFAULT}
        paths = {value for name, value in given.items() if SETTINGS[name].kind is FILE}
        assert paths <= files | {str(tmp_path / "queues.yaml")}
        assert not settings.insecure


def test_the_keys_of_as_many_hosts_as_there_are_can_be_mounted() -> None:
    (keys,) = (one["secret"]["items"] for one in POD["volumes"] if one["name"] == "cluster-keys")
    assert {one["path"].partition("/")[0] for one in keys} == {f"yunishard-{n}" for n in range(SET["replicas"])}


def test_ports_are_those_of_the_settings_everywhere(tmp_path: Path) -> None:
    settings = effective_settings("yunishard-0", tmp_path)
    ports = {name: host_and_port(str(getattr(settings, name)))[1] for name in PORTS}
    cluster = host_and_port(settings.cluster_address)[1]
    assert {one["name"]: one["containerPort"] for one in HOST["ports"]} == {**ports, "cluster": cluster}
    for name in ("Service/yunishard", "Service/yunishard-hosts"):
        assert {one["name"]: one["port"] for one in HOSTS[name]["spec"]["ports"]} == ports
    policy = read("hosts/network-policy.yaml")["NetworkPolicy/yunishard"]["spec"]
    allowed = [{one["port"] for one in rule["ports"]} for rule in policy["ingress"]]
    assert allowed == [{"cluster"}, set(ports), {"rest"}]


def test_everything_selects_the_pods_of_the_hosts() -> None:
    labels = SET["template"]["metadata"]["labels"]
    policy = read("hosts/network-policy.yaml")["NetworkPolicy/yunishard"]["spec"]
    selectors = [SET["selector"], HOSTS["PodDisruptionBudget/yunishard"]["spec"]["selector"], policy["podSelector"]]
    selectors += [one["labelSelector"] for one in POD["topologySpreadConstraints"]]
    assert all(one == {"matchLabels": labels} for one in selectors)
    assert all(HOSTS[f"Service/{name}"]["spec"]["selector"] == labels for name in ("yunishard", SET["serviceName"]))


def test_every_container_is_confined() -> None:
    uid, gid = map(int, instructions("USER")[0].split(":"))
    assert (POD["securityContext"]["runAsUser"], POD["securityContext"]["fsGroup"]) == (uid, gid)
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["automountServiceAccountToken"] is False
    for container in CONTAINERS:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_every_mount_has_a_volume_and_secrets_are_not_readable_for_others() -> None:
    volumes = {one["name"]: one for one in POD["volumes"]}
    assert {mount["name"] for container in CONTAINERS for mount in container["volumeMounts"]} == set(volumes)
    for name in ("cluster-keys", "native-keys"):
        assert volumes[name]["secret"]["defaultMode"] == 0o400


def test_probes_use_routes_that_need_no_authentication() -> None:
    paths = {route.path for route in ROUTES if route.access.value == "anybody"}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert HOST[probe]["httpGet"]["path"] in paths


def hook(name: str) -> argparse.Namespace:
    """The command of yunishard in a hook, as the command line parses it."""
    script = HOST["lifecycle"][name]["exec"]["command"][-1]
    (command,) = re.findall(r"yunishard (hosts [^&;]*)", script)
    words = shlex.split(command.replace("$YUNISHARD_HOST_NAME", "yunishard-0"))
    return build_parser(words[:1]).parse_args(words)


def test_a_host_drains_before_it_stops_and_has_the_time_to_stop() -> None:
    drain = hook("preStop")
    assert (drain.action, drain.host, drain.wait) == ("drain", "yunishard-0", True)
    assert POD["terminationGracePeriodSeconds"] >= drain.timeout + WORKER_STOP_MAX_S + 3 * STOP_MAX_S


def test_a_host_accepts_partitions_again_when_it_has_started() -> None:
    undrain = hook("postStart")
    assert (undrain.action, undrain.host) == ("undrain", "yunishard-0")


@pytest.mark.parametrize("name", ["preStop", "postStart"])
def test_the_hooks_use_the_port_and_the_certificate_of_this_host(name: str, tmp_path: Path) -> None:
    rest = effective_settings("yunishard-0", tmp_path).rest
    assert hook(name).rest == f"https://localhost:{host_and_port(rest)[1]}"
    assert str(hook(name).ca) in set(mounted_files())


def test_the_container_that_an_upgrade_of_the_store_patches_is_where_the_page_says() -> None:
    page = (FOLDER.parents[1] / "docs" / "operating" / "upgrade.md").read_text()
    assert "/spec/template/spec/initContainers/1/args/1" in page
    assert POD["initContainers"][1]["args"] == ["store", "init"]


def test_the_database_has_the_names_that_the_hosts_use() -> None:
    (database,) = read("cloudnative-pg/database.yaml").values()
    name, boot = database["metadata"]["name"], database["spec"]["bootstrap"]["initdb"]
    store = yaml.safe_load((FOLDER / "hosts" / "settings.yaml").read_text())["store"]
    assert store.startswith(f"postgresql://{boot['owner']}@{name}-rw/{boot['database']}?sslmode=verify-full&")
    secrets = {one["secret"]["secretName"] for one in POD["volumes"] if one["name"].startswith("database")}
    assert secrets == {f"{name}-app", f"{name}-ca"}
    assert database["spec"]["postgresql"]["synchronous"]["dataDurability"] == "required"
