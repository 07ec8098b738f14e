"""The import name is the directory name; nobody else's package of that name may win over ours."""

import importlib
import importlib.metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "broker",
    "common",
    "deploy",
    "kubernetes_shim",
    "partition_worker",
    "rmproxy",
    "simulator",
    "store",
    "webservice",
    "yunishard",
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_ours(package: str) -> None:
    file = importlib.import_module(package).__file__
    assert file is not None
    assert Path(file).resolve() == ROOT / package / "__init__.py"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_other_distribution_has_a_package_of_this_name(package: str) -> None:
    assert set(importlib.metadata.packages_distributions().get(package, [])) <= {"yunishard"}


def test_every_directory_with_shipped_code_is_a_package() -> None:
    for package in PACKAGES:
        for folder in {file.parent for file in (ROOT / package).rglob("*.py")}:
            assert (folder / "__init__.py").exists(), folder
