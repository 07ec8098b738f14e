"""Where a compiled engine lies, if there is one of these very sources.

`make compiled` has the engine made into machine code (docs/decisions/0009-compiled-engine.md) and lays what a worker
consists of into the environment, in a folder that bears the digest of the sources. Workers are started from there. What
was made of other sources is never used, so whoever changes a file runs what it says now, as Python.

    python -m common.compiled        print the folder, whether or not it exists

Not here: making it (`hatch_build.py`), starting workers (`deploy/processes.py`).
"""

import hashlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("common", "partition_worker")
"""What a worker consists of."""

LIBRARY: Final = "yunishard__mypyc"
"""Where an engine is compiled in this very environment, this module is there."""


def folder() -> Path:
    """Where the compiled engine of these sources lies, or would."""
    return Path(sys.prefix) / "compiled" / digest(_sources())


def found() -> Path | None:
    """The same, if it is there."""
    path = folder()
    return path if path.is_dir() else None


def used() -> bool:
    """Whether workers run a compiled engine, unless they are told not to."""
    return find_spec(LIBRARY) is not None or found() is not None


def digest(sources: Iterator[tuple[str, bytes]]) -> str:
    """Of files, by their names, for this version of Python."""
    summed = hashlib.blake2b(str(sys.implementation.cache_tag).encode(), digest_size=16)
    for name, content in sources:
        summed.update(f"{name} {len(content)}\n".encode())
        summed.update(content)
    return summed.hexdigest()


def _sources() -> Iterator[tuple[str, bytes]]:
    """All files of ours that a worker runs, by their paths in the package."""
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec is not None, package
        assert spec.origin is not None, package
        root = Path(spec.origin).parent
        for path in sorted(root.rglob("*.py")):
            yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()


if __name__ == "__main__":
    sys.stdout.write(f"{folder()}\n")
