"""`python -m tests.kubernetes`: tests of the Kubernetes shim against a real control plane."""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.cluster import network
from tests.kubernetes import bench
from tests.kubernetes.build import build, find_binaries

ABOUT: Final = """\
Starts etcd, kube-apiserver, kube-controller-manager and KWOK in a network namespace, builds them from Go modules first
if they are missing in $K8S_DIR/bin (by default .k8s/bin), and runs the tests of the Kubernetes shim in them. All other
arguments are pytest's. It needs Go, and root or user namespaces, iproute2 and util-linux."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes", description=ABOUT, allow_abbrev=False)
    parser.add_argument("--bench", nargs=argparse.REMAINDER, metavar="OPTION", help="measure instead of testing")
    parser.add_argument("--shell", nargs=argparse.REMAINDER, metavar="COMMAND", help="run this command there instead")
    args, others = parser.parse_known_args()
    build(find_binaries())
    os.environ.setdefault("HELM", str(find_binaries() / "helm"))
    try:
        network.enter()
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if args.shell:
        return subprocess.run(args.shell, check=False).returncode
    if args.bench is not None:
        return bench.main(args.bench)
    folder = Path(__file__).parent
    paths = [] if any(one.startswith("tests/kubernetes/") for one in others) else [str(folder)]
    return pytest.main(["-q", "-o", "norecursedirs=.*", *paths, *others])


if __name__ == "__main__":
    sys.exit(main())
