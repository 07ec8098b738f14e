"""The description of this host for others of the same store: its name and address, its processors and memory."""

import os
import uuid
from pathlib import Path
from typing import Final, NamedTuple

from yunishard.common.names import OFF
from yunishard.common.settings import Settings
from yunishard.common.transport.curve_keys import write_new

ID_FILE: Final = "host-id"
"""In the state directory: the host's id, which is drawn once."""

CGROUP: Final = Path("/sys/fs/cgroup")
"""Limits of a container or service, in version 2 of the kernel's interface."""


class HostFacts(NamedTuple):
    """A host as it describes itself."""

    name: str
    id: str
    """Of its state directory; distinguishes two hosts to which the same name was given."""
    address: str
    """Where other hosts reach its broker; empty if they do not."""
    cores: int
    memory_bytes: int


def measure_capacity() -> tuple[int, int]:
    """Return the processors and the bytes of memory of this host, or of the container that this process runs in."""
    return _count_cores(), _count_memory()


def read_host_facts(settings: Settings) -> HostFacts:
    """Read the facts of this host.

    Raises:
        OSError: the state directory cannot be used.
    """
    address = "" if settings.cluster_address == OFF else settings.cluster_address
    return HostFacts(settings.host_name, _read_id(settings.state), address, *measure_capacity())


def _read_id(state: Path | None) -> str:
    new = uuid.uuid4().hex
    if state is None:
        return new
    try:
        write_new(state / ID_FILE, 0o600, new)
    except FileExistsError:
        return (state / ID_FILE).read_text(encoding="ascii")
    return new


def _count_cores() -> int:
    """Processors that this process may use, at least 1."""
    allowed = len(os.sched_getaffinity(0))
    quota, period = _read_limit("cpu.max") or ("max", "1")
    return allowed if quota == "max" else max(1, min(allowed, int(quota) // int(period)))


def _count_memory() -> int:
    """Bytes of memory that this process may use."""
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = (_read_limit("memory.max") or ("max",))[0]
    return present if limit == "max" else min(present, int(limit))


def _read_limit(name: str) -> tuple[str, ...]:
    """The words of a file of the kernel; none if it is not there."""
    try:
        return tuple((CGROUP / name).read_text(encoding="ascii").split())
    except OSError:
        return ()
