"""The container image: its build gets all it needs, and its defaults are those of the system."""

import re
import tomllib
from pathlib import Path
from typing import Final

from tests.size import LINKED
from yunishard.common.settings import SETTINGS, host_and_port

ROOT: Final = Path(__file__).parents[2]
DOCKERFILE: Final = (ROOT / "packaging" / "image" / "Dockerfile").read_text()
CLUSTER_PORT: Final = 9094
"""The port of the links between hosts in all files of `packaging/`."""


def instructions(name: str) -> list[str]:
    """The arguments of an instruction, in the last stage of the build."""
    stage = re.split(r"^FROM .*$", DOCKERFILE, flags=re.MULTILINE)[-1].replace("\\\n", "")
    return re.findall(rf"^{name} (.*)$", stage, re.MULTILINE)


def test_the_build_gets_everything_that_a_wheel_needs_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    files = {"pyproject.toml", "hatch_build.py", "constraints.txt", project["project"]["readme"]}
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert [line for line in lines if not line.startswith(("#", "!"))] == ["*", "**/__pycache__"]
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert sent == {*packages, *LINKED, *files, *project["project"]["license-files"]}
    assert all((ROOT / name).exists() for name in sent)


def test_the_image_runs_as_a_user_that_kubernetes_knows_is_not_root() -> None:
    (user,) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    uid, gid = user.split(":")
    (made,) = (line for line in instructions("RUN") if "useradd" in line)
    assert f"--uid {uid} " in made
    assert f"--owner={uid} --group={gid} --mode=0700 /var/lib/yunishard" in made


def test_the_image_exposes_the_default_ports() -> None:
    ports = {host_and_port(SETTINGS[name].default)[1] for name in ("native", "grpc", "rest")}
    assert {int(port) for port in instructions("EXPOSE")[0].split()} == {*ports, CLUSTER_PORT}


def test_the_variables_of_the_image_are_settings() -> None:
    variables = re.findall(r"\b(YUNISHARD_\w+)=", " ".join(instructions("ENV")))
    assert variables == ["YUNISHARD_STATE"]
    assert {setting.variable for setting in SETTINGS.values()} >= set(variables)
