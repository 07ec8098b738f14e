"""The compose file: three hosts with valid settings, and two database servers of which each waits for the other."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any, Final

import pytest
import yaml

from tests.packaging.test_image import CLUSTER_PORT, ROOT
from yunishard.common.settings import Settings, host_and_port
from yunishard.deploy.settings import find_unknown_variables, resolve_settings

FOLDER: Final = ROOT / "packaging" / "compose"
SERVICES: Final[Mapping[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
HOSTS: Final = ("a", "b", "c")
DATABASES: Final = ("db-1", "db-2")


def test_there_are_three_hosts_and_two_database_servers() -> None:
    assert set(SERVICES) == {*HOSTS, *DATABASES, "setup"}


def has_compose() -> bool:
    words = ["docker", "compose", "version"]
    return bool(shutil.which("docker")) and not subprocess.run(words, capture_output=True, check=False).returncode


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
def test_compose_accepts_the_file() -> None:
    words = ["docker", "compose", "--file", str(FOLDER / "compose.yaml"), "config", "--quiet"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "DB_PASSWORD": "x"})
    assert (done.returncode, done.stderr) == (0, "")


def effective_settings(name: str) -> Settings:
    environment = SERVICES[name]["environment"]
    assert find_unknown_variables(environment) == []
    return resolve_settings({}, environment)


def test_every_host_has_valid_settings_of_its_own() -> None:
    found = {name: effective_settings(name) for name in HOSTS}
    for name, settings in found.items():
        assert settings.host_name == name
        assert settings.cluster_address == f"tcp://{name}:{CLUSTER_PORT}"
        assert str(settings.state) == f"/var/lib/yunishard/{name}"
        assert str(settings.cluster_keys) == f"/var/lib/yunishard/keys/{name}"
    assert {one.store for one in found.values()} == {f"postgresql://yunishard@{','.join(DATABASES)}/yunishard"}
    assert f"cluster init keys {' '.join(HOSTS)}" in SERVICES["setup"]["entrypoint"][-1]


def test_the_unsecured_ports_are_open_on_loopback_only() -> None:
    taken = set[str]()
    for name in HOSTS:
        settings = effective_settings(name)
        inner = {host_and_port(address)[1] for address in (settings.native, settings.grpc, settings.rest)}
        published = [port.split(":") for port in SERVICES[name]["ports"]]
        assert {address for address, _, _ in published} == {"127.0.0.1"}
        assert {int(port) for _, _, port in published} == inner
        taken |= {port for _, port, _ in published}
    assert len(taken) == 3 * len(HOSTS)


def test_every_service_is_confined() -> None:
    for name, service in SERVICES.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


@pytest.mark.parametrize("name", DATABASES)
def test_each_database_server_copies_the_other_one(name: str) -> None:
    (other,) = set(DATABASES) - {name}
    assert SERVICES[name]["entrypoint"][:3] == ["/bin/sh", "/postgres.sh", other]
    assert SERVICES[name]["environment"]["PGDATA"].startswith(SERVICES[name]["volumes"][0].partition(":")[2])


def test_the_script_of_the_database_servers_is_valid() -> None:
    subprocess.run(["sh", "-n", FOLDER / "postgres.sh"], check=True)
