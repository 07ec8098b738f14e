"""The systemd unit: systemd accepts it, it is confined, and it leaves the system the time that it needs."""

import shlex
import shutil
import subprocess
from configparser import RawConfigParser
from pathlib import Path
from typing import Final

import pytest

from yunishard.cli.main import build_parser
from yunishard.common.settings import SETTINGS
from yunishard.deploy.supervisor import STOP_MAX_S, WORKER_STOP_MAX_S
from yunishard.deploy.up import ALIVE_S

UNIT: Final = Path(__file__).parents[2] / "packaging" / "systemd" / "yunishard.service"

EXPOSURE_MAX: Final = 20
"""In tenths, as in `systemd-analyze security`: up to 10.0 is possible, and 2.0 is rated OK."""

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


class Unit(RawConfigParser):
    """A unit. Of a repeated key the last value remains."""

    def __init__(self) -> None:
        super().__init__(delimiters="=", strict=False, interpolation=None)
        self.optionxform = str  # type: ignore[method-assign, assignment]
        self.read(UNIT)


SERVICE: Final = Unit()["Service"]


def analyze(unit: Path, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Analyze the unit with a program that exists."""
    unit.write_text(UNIT.read_text().replace(shlex.split(SERVICE["ExecStart"])[0], "/bin/true"))
    words = ["systemd-analyze", "--no-pager", command, *options, str(unit)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    done = analyze(tmp_path / UNIT.name, "verify")
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_the_unit_is_confined(tmp_path: Path) -> None:
    done = analyze(tmp_path / UNIT.name, "security", "--offline=yes", f"--threshold={EXPOSURE_MAX}")
    assert done.returncode == 0, done.stdout.splitlines()[-1]


def test_the_unit_starts_the_system_with_options_and_variables_that_exist() -> None:
    _, *words = shlex.split(SERVICE["ExecStart"])
    assert build_parser(words[:1]).parse_args(words).settings == "/etc/yunishard/yunishard.yaml"
    assert SERVICE["Environment"] == f"{SETTINGS['state'].variable}=/var/lib/{SERVICE['StateDirectory']}"


def test_the_unit_gives_the_system_time_to_stop_and_signals_only_the_supervisor() -> None:
    roles_beside_workers = 3
    assert int(SERVICE["TimeoutStopSec"]) > WORKER_STOP_MAX_S + roles_beside_workers * STOP_MAX_S
    assert SERVICE["KillMode"] == "mixed"


def test_the_watchdog_tolerates_several_late_reports() -> None:
    assert SERVICE["Type"] == "notify"
    assert int(SERVICE["WatchdogSec"]) >= 10 * ALIVE_S
