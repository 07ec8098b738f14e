"""The wheel of this checkout in virtual environments, as a user has it.

A test needs no network: pip installs the wheel alone, and what its metadata require are links to the distributions of
the environment that runs the tests.
"""

import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="session")
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes an environment with the wheel and these extras, once in a session, and returns its folder."""
    made: dict[tuple[str, ...], Path] = {}

    def install(*extras: str) -> Path:
        if extras not in made:
            made[extras] = folder = tmp_path_factory.mktemp("environment")
            venv.create(folder, symlinks=True)
            pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(folder / "bin" / "python"), "install"]
            subprocess.run([*pip, "--no-deps", "--no-index", "--no-compile", str(wheel)], check=True)
            _link_requirements(next(folder.glob("lib/*/site-packages")), extras)
        return made[extras]

    return install


def run(*command: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end, as a shell outside this checkout does."""
    return subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="session")
def client(install: Callable[..., Path]) -> Path:
    """The environment of `pip install yunishard`."""
    return install()


def _link_requirements(site: Path, extras: Iterable[str]) -> None:
    """Link everything that the distribution in this folder requires with the extras."""
    (metadata,) = site.glob("yunishard-*.dist-info")
    own = PathDistribution(metadata)
    found: dict[str, Distribution] = {}
    waiting = [("yunishard", extra) for extra in ("", *extras)]
    for name, extra in waiting:  # it grows
        found[name] = own if name == "yunishard" else distribution(name)
        for required in map(Requirement, found[name].requires or ()):
            if required.marker is None or required.marker.evaluate({"extra": extra}):
                waiting += {(required.name, one) for one in ("", *required.extras)}.difference(waiting)
    for name in found.keys() - {"yunishard"}:
        for part in {file.parts[0] for file in found[name].files or ()} - {"..", "__pycache__"}:
            if not (site / part).exists():  # several distributions have modules in `google`
                (site / part).symlink_to(str(found[name].locate_file(part)))
