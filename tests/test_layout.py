"""Everything is imported as `yunishard`, and the folders at the root are linked there."""

import importlib
import importlib.metadata
import sys
from pathlib import Path

from tests.size import LINKED

ROOT = Path(__file__).parents[1]


def test_the_folders_at_the_root_are_packages_of_yunishard() -> None:
    for package in LINKED:
        file = importlib.import_module(f"yunishard.{package}").__file__
        assert file is not None
        assert Path(file).resolve() == ROOT / package / "__init__.py"
    assert not {*LINKED, "webservice"} & {name.partition(".")[0] for name in sys.modules}


def test_no_other_distribution_has_a_package_of_this_name() -> None:
    assert set(importlib.metadata.packages_distributions().get("yunishard", [])) <= {"yunishard"}


def test_every_directory_with_shipped_code_is_a_package() -> None:
    for package in (*LINKED, "yunishard"):
        for folder in {file.parent for file in (ROOT / package).rglob("*.py")}:
            assert (folder / "__init__.py").exists(), folder
