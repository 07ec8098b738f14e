"""The same inputs give the same effects, to the byte, whatever seeds Python's hashes: no order is that of a set."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.builders import PROVIDED_CREATE
from tests.properties.workload import LEAVES, TREES, Workload
from tests.trial import Trial
from yunishard.partition_worker.engine.effects import LogLine

COMMANDS = 560
SHOW = "from tests.test_determinism import digest; print(digest())"


def digest() -> str:
    """The hash of everything that a long and varied day makes the engine tell."""
    told = hashlib.sha256()
    encode = msgspec.msgpack.Encoder().encode
    for seed, tree in enumerate(TREES):
        rng = random.Random(seed)
        trial = Trial(tree, nodes=("fair", "binpacking")[seed % 2], rules=(PROVIDED_CREATE,))
        workload = Workload(rng, leaves=(*LEAVES, "root.new.x"))
        for command in [*workload.start(), *(workload.next() for _ in range(COMMANDS // len(TREES)))]:
            trial.does(command)
            if rng.random() < 0.1:
                trial.waits(rng.choice((1.0, 15.0, 40.0)))
        assert sum(" on " in line for line in trial.told()) > 10, "a day on which nothing is placed tells little"
        for effect in trial.effects:
            part = effect.part
            content = part.text if isinstance(part, LogLine) else part
            told.update(encode([effect.cause, type(part).__name__, content]))
    return told.hexdigest()


def test_effects_do_not_depend_on_the_hash_seed() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SHOW],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[1],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "2")
    ]
    digests = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(digests[0]) == 64
    assert len(set(digests)) == 1, digests
