"""`make release`: builds what a release consists of into `dist/`, and checks it on each Python that it supports.

That is the source distribution, the wheel, for each Python a wheel with the compiled engine, SHA256SUMS, and a bill of
materials in CycloneDX JSON: the distributions that the wheel and all of its extras have installed. All wheels are built
from the source distribution. pip installs each in an empty environment, which then runs a system with an RM, and a
simulation, in a folder outside the checkout. A Python that this machine lacks is named at the end.

Not here: publishing anything, or signing it.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from packaging.requirements import Requirement

ROOT: Final = Path(__file__).parents[1]
NAME: Final = "yunishard"
EXTRAS: Final = ("cluster", "kubernetes")
"""All extras of users: `cluster` includes `server`, which includes `cli`."""

PYTHONS: Final = ("3.11", "3.12", "3.13")
CHECK_MAX_S: Final = 120.0
"""Seconds that a program of a check may take."""

RM: Final = """
import asyncio, sys
from yunishard import AllocationResponse, application, ask, connect, node

QUEUES = "{partitions: [{name: default, queues: [{name: root, submitacl: '*', queues: [{name: batch}]}]}]}"

async def main() -> None:
    async with connect(sys.argv[1], rm_id="rm-1", config=QUEUES) as rm:
        await rm.update_nodes([node("node-1", {"vcore": "4"})])
        await rm.update_applications(new=[application("app-1", "root.batch", user="alice")])
        await rm.update_allocations(allocations=[ask("task-1", "app-1", {"vcore": "1"})])
        async for _, news in rm.results():
            if isinstance(news, AllocationResponse):
                print(*(f"{one.allocation_key} runs on {one.node_id}" for one in news.new))
                return

asyncio.run(main())
"""


def main() -> int:
    """Build and check a release."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pythons", default=",".join(PYTHONS), help="versions, with commas between")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="the folder, which is replaced")
    args = parser.parse_args()
    dist = args.dist.resolve()
    shutil.rmtree(dist, ignore_errors=True)
    left_out = []
    with TemporaryDirectory(prefix="release-") as temporary:
        folder = Path(temporary)
        source = build_source(dist, folder)
        build(source, "wheel", dist)
        (pure,) = dist.glob("*.whl")
        for version in args.pythons.split(","):
            python = find_python(version)
            if python is None:
                left_out.append(f"this machine has no Python {version}: nothing was checked there")
                continue
            site = check(pure, python, source, folder / f"pure-{version}")
            compiled = build_compiled(python, source, folder / f"compiled-{version}")
            check(Path(shutil.move(compiled, dist)), python, source, folder / f"check-{version}")
            (dist / f"{pure.name.removesuffix('-py3-none-any.whl')}.cdx.json").write_text(describe_materials(site))
    names = sorted(file.name for file in dist.iterdir())
    sums = (f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    (dist / "SHA256SUMS").write_text("".join(sums))
    report(f"{dist}: {', '.join(names)}", *left_out)
    return 0


def report(*lines: str) -> None:
    """Print lines at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


# Build ----------------------------------------------------------------------------------------------------------------


def build(folder: Path, target: str, dist: Path) -> None:
    """Build the sdist or the wheel of a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(dist)]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def build_source(dist: Path, folder: Path) -> Path:
    """Build the source distribution, and return the folder in which it is unpacked."""
    report("building the source distribution and the wheel")
    build(ROOT, "sdist", dist)
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def build_compiled(python: Path, source: Path, folder: Path) -> Path:
    """Build a wheel with the compiled engine for this Python, which needs a C compiler."""
    report(f"compiling the engine for {python} (minutes)")
    variables = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true", "PIP_CONSTRAINT": str(source / "constraints.txt")}
    command = [str(python), "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    subprocess.run(command, env={**os.environ, **variables}, check=True)
    return next(folder.glob("*.whl"))


def find_python(version: str) -> Path | None:
    """Find an interpreter on PATH or among those of pyenv."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for one in (shutil.which(f"python{version}"), *installed.glob(f"{version}.*/bin/python{version}")):
        # pyenv has commands on PATH for versions that are not chosen, and these fail.
        if one and (path := _run_quietly(str(one), "-c", "import sys; print(sys.executable)")):
            return Path(path)
    return None


def _run_quietly(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


# Check ----------------------------------------------------------------------------------------------------------------


def check(wheel: Path, python: Path, source: Path, folder: Path) -> Path:
    """Install a wheel in an empty environment and run it there; return the folder of the installed distributions."""
    report(f"checking {wheel.name} with {python}")
    environment, home = folder / "environment", folder / "home"
    home.mkdir(parents=True)
    run(python, "-m", "venv", environment, cwd=home)
    pip = (environment / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "-c", source / "constraints.txt", f"{wheel}[{','.join(EXTRAS)}]", cwd=home)
    program = environment / "bin" / NAME
    expected = "interpreted" if "-none-any" in wheel.name else "compiled"
    if f"({expected} engine)" not in run(program, "--version", cwd=home):
        raise SystemExit(f"{wheel.name}: the engine is not {expected}")
    _run_system(program, home)
    policies = source / "examples" / "policies"
    trace = (source / "examples" / "lcg-2005.swf.gz", "--nodes", policies / "nodes.csv", "--until", "1h", "--json")
    json.loads(run(program, "simulate", "run", *trace, "--config", policies / "one-queue.yaml", cwd=home))
    return next(environment.glob("lib/*/site-packages"))


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command as a user without this checkout does; return its output, or end with it if it fails."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("YUNISHARD_", "PYTHON"))}
    words = list(map(str, command))
    done = subprocess.run(
        words, cwd=cwd, env={**variables, "HOME": str(cwd)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _run_system(program: Path, home: Path) -> None:
    """Run `yunishard up`, and an RM that gets an allocation."""
    (home / "rm.py").write_text(RM)
    ports = ("--native", "tcp://127.0.0.1:0", "--grpc", "127.0.0.1:0", "--rest", "127.0.0.1:0")
    with (
        (home / "errors").open("w") as errors,
        subprocess.Popen(
            [str(program), "up", "--ephemeral", *ports], cwd=home, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as system,
    ):
        try:
            assert system.stdout is not None
            lines = [line.split() for line in iter(system.stdout.readline, "ready\n") if line or system.wait()]
            found = run(program.parent / "python", "rm.py", dict(lines)["native"], cwd=home)
        finally:
            system.terminate()
        if found != "task-1 runs on node-1\n" or system.wait(CHECK_MAX_S):
            raise SystemExit(f"the system does not work, or does not stop:\n{found}{(home / 'errors').read_text()}")


# Bill of materials ----------------------------------------------------------------------------------------------------


def describe_materials(site: Path) -> str:
    """Return the bill of materials of the distributions in a folder, as CycloneDX JSON."""
    found = {_normalise(one.metadata["Name"]): one for one in distributions(path=[str(site)])}
    found.pop("pip", None)
    found.pop("setuptools", None)
    own = found[NAME]
    components = [_describe(one) for name, one in sorted(found.items()) if name != NAME]
    extras: dict[str, set[str]] = {name: {"", *(EXTRAS if name == NAME else ())} for name in found}
    for required in map(Requirement, own.requires or ()):
        extras.get(_normalise(required.name), set()).update(required.extras)
    edges = [
        {
            "ref": _refer(one),
            "dependsOn": sorted(_refer(found[other]) for other in _required(one, extras[name]) & {*found}),
        }
        for name, one in sorted(found.items())
    ]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([components, own.version]))}",
        "version": 1,
        "metadata": {"component": {**_describe(own), "type": "application"}},
        "components": components,
        "dependencies": edges,
    }
    return json.dumps(bill, indent=2) + "\n"


def _describe(one: Distribution) -> dict[str, object]:
    """Return a distribution as a component. Its licence is an SPDX expression or, from older metadata, a text."""
    described = {"type": "library", "bom-ref": _refer(one), "name": one.metadata["Name"], "version": one.version}
    classifiers = [
        text.rpartition(" :: ")[2] for text in one.metadata.get_all("Classifier", []) if "License ::" in text
    ]
    if expression := one.metadata.get("License-Expression"):
        return {**described, "purl": _refer(one), "licenses": [{"expression": expression}]}
    if names := classifiers or [*filter(None, [(one.metadata.get("License") or "").partition("\n")[0]])]:
        return {**described, "purl": _refer(one), "licenses": [{"license": {"name": name}} for name in names]}
    return {**described, "purl": _refer(one)}


def _required(one: Distribution, extras: Iterable[str]) -> set[str]:
    """Return the names of the other distributions that one requires with these extras, where it is installed."""
    return {
        _normalise(required.name)
        for required in map(Requirement, one.requires or ())
        if required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in extras)
    } - {_normalise(one.metadata["Name"])}


def _refer(one: Distribution) -> str:
    return f"pkg:pypi/{_normalise(one.metadata['Name'])}@{one.version}"


def _normalise(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


if __name__ == "__main__":
    sys.exit(main())
