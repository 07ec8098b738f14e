"""The list of settings, and that help and documentation have all of them."""

import subprocess
import sys
from pathlib import Path

from yunishard.common.config.extra_config import effective
from yunishard.common.settings import SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "operating" / "settings.md"


def test_the_help_of_up_fits_into_80_columns() -> None:
    command = [sys.executable, "-P", "-m", "yunishard.deploy", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "80"})
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert all(f"  {setting.flag}" in done.stdout for setting in SETTINGS.values())


def test_every_setting_is_documented_with_its_default() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {name: row[2] for row in rows for name in row[1].replace("`", "").replace(" ", "").split(",")}
    for name, setting in SETTINGS.items():
        assert name in documented
        assert not setting.default or name == "state" or f"`{setting.default}`" in documented[name]


def test_every_key_of_a_resource_manager_is_documented() -> None:
    text = PAGE.read_text()
    assert [one.key for one in effective({}) if f"| `{one.key}` |" not in text] == []


def test_flags_and_variables_are_different_for_each() -> None:
    assert len({setting.flag for setting in SETTINGS.values()}) == len(SETTINGS)
    assert len({setting.variable for setting in SETTINGS.values()}) == len(SETTINGS)
