"""The source files that one ask passes from the SDK to its allocation and back: `python -m tests.ask_path`.

It starts a real system with the interpreted engine, allocates one ask so that everything is loaded and connected, and
records for the second ask in which files the SDK, the proxy, the broker and the worker execute a function. Each child
process records through a `sitecustomize` module: SIGRTMIN starts the recording, a second SIGRTMIN writes it to a file.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import Final

from benchmarks.systems import roles_of
from yunishard import AllocationResponse, ResourceManager, application, ask, connect, node

ROOT: Final = Path(__file__).parents[1]
NOT_SHIPPED: Final = ("tests", "benchmarks", ".venv")
FILES_MAX: Final = 35
ROLES: Final = ("rmproxy", "broker", "partition_worker")
WAIT_MAX_S: Final = 30.0

RECORDER: Final = """
import os, signal, sys, threading

files = set()

def record(frame, event, argument):
    if event == "call":
        files.add(frame.f_code.co_filename)

def toggle(number, frame):
    path = os.path.join(os.environ["ASK_PATH"], str(os.getpid()))
    if os.path.exists(path + ".on"):
        sys.setprofile(None)
        with open(path + ".part", "w") as file:
            file.write("\\n".join(sorted(files)))
        os.rename(path + ".part", path)
    else:
        open(path + ".on", "w").close()
        sys.setprofile(record)

signal.signal(signal.SIGRTMIN, toggle)
"""

QUEUES: Final = "partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]"


def files_of_an_ask() -> dict[str, set[str]]:
    """By process, the project's files in which a function ran for one ask."""
    with tempfile.TemporaryDirectory(prefix="ask-path-") as folder:
        (Path(folder) / "sitecustomize.py").write_text(RECORDER)
        environment = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "ASK_PATH": folder}
        ports = ["--native", "tcp://127.0.0.1:0", "--grpc", "off", "--rest", "off"]
        command = [
            sys.executable,
            "-P",
            "-m",
            "yunishard.deploy",
            "--ephemeral",
            "--interpreted",
            "--log-level",
            "warning",
            *ports,
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as system:
            try:
                assert system.stdout is not None
                address = next(line.split()[1] for line in system.stdout if line.startswith("native"))
                return asyncio.run(_ask(address, system.pid, Path(folder)))
            finally:
                system.terminate()


async def _ask(address: str, supervisor: int, folder: Path) -> dict[str, set[str]]:
    async with connect(address, rm_id="path", config=QUEUES) as rm:
        await rm.update_nodes([node("n1", {"vcore": 8})])
        await rm.update_applications(new=[application("app", "root.batch", user="ann")])
        await _allocate(rm, "first")
        processes = {pid: role for pid, role in roles_of(supervisor).items() if role in ROLES}
        _signal(processes, [folder / f"{pid}.on" for pid in processes])
        found: set[str] = set()

        def record(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                found.add(frame.f_code.co_filename)

        sys.setprofile(record)
        await _allocate(rm, "second")
        sys.setprofile(None)
        _signal(processes, [folder / str(pid) for pid in processes])
        by_role = {"SDK": _of_the_project(found), **{role: set() for role in ROLES}}
        for pid, role in processes.items():
            by_role[role] |= _of_the_project((folder / str(pid)).read_text().split("\n"))
        return by_role


async def _allocate(rm: ResourceManager, key: str) -> None:
    await rm.update_allocations(allocations=[ask(key, "app", {"vcore": 1})])
    async for _, message in rm.results():
        if isinstance(message, AllocationResponse) and any(one.allocation_key == key for one in message.new):
            return


def _signal(processes: dict[int, str], files: list[Path]) -> None:
    """Send SIGRTMIN to the processes, and wait for the files that they write."""
    for pid in processes:
        os.kill(pid, signal.SIGRTMIN)
    deadline = time.monotonic() + WAIT_MAX_S
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, "a process does not record"


def _of_the_project(names: set[str] | list[str]) -> set[str]:
    paths = (Path(name) for name in names if name.startswith(f"{ROOT}/"))
    return {path.relative_to(ROOT).as_posix() for path in paths if path.relative_to(ROOT).parts[0] not in NOT_SHIPPED}


def main() -> int:
    """Print the files by process; fail if they are more than FILES_MAX."""
    found = files_of_an_ask()
    for role, files in found.items():
        sys.stdout.write(f"{role}: {len(files)}\n" + "".join(f"    {file}\n" for file in sorted(files)))
    total = len(set().union(*found.values()))
    sys.stdout.write(f"{total} files, at most {FILES_MAX}\n")
    return 0 if total <= FILES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
