"""A worker that is killed at any moment: nothing that it was told to be kept is ever missing, and nothing is there that
it did not write.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.partition_worker.journal.hand import files_in, found_in, opened, step

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
LIVES = 8
LIVES_MAX = 100
"""Under load, a worker may have written too little for a snapshot when it is killed; then more lives follow."""

WRITES = """
import asyncio, sys
from pathlib import Path
from yunishard.common.messages.journal_messages import Kept, SnapshotTaken, TakeSnapshot
from yunishard.common.messages.wire import decode_body
from tests.partition_worker.journal.hand import Hand

async def main():
    hand = Hand(Path(sys.argv[1]), epoch=int(sys.argv[2]))
    number = hand.journal._last
    snapshot = 0
    print("ready", flush=True)
    while True:
        for _ in range(number % 7 + 1):
            number += 1
            hand.appends(number, size=number % 300)
        if number - snapshot > 150:
            hand.state = str(number).encode()
            hand.gives(TakeSnapshot(number=number))
            snapshot = number
        await hand.wire.receive(0) if number % 3 else None
        while incoming := hand.journal.receive():
            if incoming.header.kind == "Kept":
                print(decode_body(Kept, incoming.body).number, flush=True)

asyncio.run(main())
"""


def life(folder: Path, epoch: int, chance: random.Random) -> int:
    """One worker until it is killed; the last step that it was told to be kept."""
    command = [sys.executable, "-P", "-c", WRITES, str(folder), str(epoch)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lines = [process.stdout.readline() for _ in range(chance.randrange(1, 60))]
        process.send_signal(signal.SIGKILL)
        lines += process.stdout.readlines()
    return int(next(line for line in reversed(lines) if line.endswith("\n")))


def test_nothing_that_was_kept_is_missing_after_any_number_of_crashes(tmp_path: Path) -> None:
    chance = random.Random(6)
    kept = 0
    snapshots = set()
    for epoch in range(1, LIVES_MAX + 1):
        kept = life(tmp_path, epoch, chance)
        database = opened(files_in(tmp_path), epoch)
        found = found_in(files_in(tmp_path))
        steps = found.steps
        assert steps == [
            step(found.snapshot_number + n + 1, one_size)
            for n, one_size in enumerate((found.snapshot_number + n + 1) % 300 for n in range(len(steps)))
        ]
        assert found.snapshot_number + len(steps) >= kept
        assert database.statistics().last == found.snapshot_number + len(steps)
        assert found.snapshot == (str(found.snapshot_number).encode() if found.snapshot_number else None)
        snapshots.add(found.snapshot_number)
        database.close()
        if epoch >= LIVES and len(snapshots) > 3:
            break
    assert len(snapshots) > 3
