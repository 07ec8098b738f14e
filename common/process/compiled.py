"""The compiled engine of these sources, if there is one.

`make compiled` compiles the engine to machine code (docs/decisions/0009-compiled-engine.md) and puts the packages of a
worker into the environment, in a folder named after the digest of the sources. Workers find them there before the
others (`yunishard/__init__.py`). An engine of other sources is never used, so a changed file takes effect at once, as
Python.

    python -m yunishard.common.process.compiled        print the folder, whether or not it exists

Not here: compiling (`hatch_build.py`), starting workers (`deploy/processes.py`).
"""

import hashlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("common", "partition_worker")
"""The packages of a worker."""

LIBRARY: Final = "yunishard__mypyc"
"""The module of an engine that is compiled in this environment."""


def engine_folder() -> Path:
    """Return the folder of the compiled engine of these sources, which need not exist."""
    return Path(sys.prefix) / "compiled" / digest(_sources())


def find_engine() -> Path | None:
    """Return the folder of the compiled engine if it exists."""
    path = engine_folder()
    return path if path.is_dir() else None


def is_engine_compiled() -> bool:
    """Whether workers run a compiled engine by default."""
    return find_spec(LIBRARY) is not None or find_engine() is not None


def digest(sources: Iterator[tuple[str, bytes]]) -> str:
    """Return the digest of files, given by name and content, for this version of Python."""
    summed = hashlib.blake2b(str(sys.implementation.cache_tag).encode(), digest_size=16)
    for name, content in sources:
        summed.update(f"{name} {len(content)}\n".encode())
        summed.update(content)
    return summed.hexdigest()


def _sources() -> Iterator[tuple[str, bytes]]:
    """Yield the files of a worker by their paths in the package."""
    for package in PACKAGES:
        root = Path(__file__).parents[2] / package
        for path in sorted(root.rglob("*.py")):
            yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()


if __name__ == "__main__":
    sys.stdout.write(f"{engine_folder()}\n")
