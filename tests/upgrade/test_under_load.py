"""Three resource managers lose nothing when the system is killed under load and another build continues."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.upgrade.builds import EVEN_NODES, ODD_NODES, SMALL_SNAPSHOTS, Build, CommitUnavailable, export_commit
from tests.upgrade.load import play

ROUNDS: Final = int(os.environ.get("UPGRADE_ROUNDS", "4"))
"""`make upgrades` sets it to 50."""

COMMIT: Final = os.environ.get("UPGRADE_FROM", "HEAD^")
"""The commit that the upgrade starts from; its journal must have a format that the present sources read."""

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120 + 20 * ROUNDS)]

INTERPRETED: Final = Build(
    name="interpreted",
    arguments=("--interpreted", "--spare-workers", "1", "--preemption-pause", "1s"),
    plugins={"even-nodes": EVEN_NODES},
)
COMPILED: Final = Build(
    name="compiled, if it is there",
    arguments=(
        *("--heartbeat", "300ms", "--silence", "1s", "--lease-timeout", "2s", "--pause-timeout", "5m"),
        *("--journal-max", "16MiB", "--history", "false", "--asks-max", "5000", "--disable-reservation"),
        *("--preemption-threshold", "50", "--default-rm", "gamma", "--log-level", "debug", "--same-hierarchy", "off"),
    ),
    plugins={"small-snapshots": SMALL_SNAPSHOTS, "odd-nodes": ODD_NODES},
)


def test_builds_in_turn_lose_nothing(tmp_path: Path) -> None:
    """The previous commit first, unless the checkout has only one."""
    try:
        sources, subject = export_commit(COMMIT, tmp_path / "previous")
        previous = Build(name=subject, sources=sources, plugins={"even-nodes": EVEN_NODES})
    except CommitUnavailable:
        assert "UPGRADE_FROM" not in os.environ
        previous = None
    counts = asyncio.run(play(tmp_path, (COMPILED, INTERPRETED), ROUNDS, seed=1, first=previous))
    sys.stdout.write(f"{ROUNDS} rounds: {dict(counts)}\n")
    assert counts["asks"] > 100 * ROUNDS, counts
    assert counts["made"] > ROUNDS, counts
    assert min(counts[name] for name in ("snapshots", "gangs", "odd nodes", "even nodes")) > 0, (
        counts
    )  # plug-ins did their part
