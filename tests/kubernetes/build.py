"""Builds a real control plane from Go modules: etcd, kube-apiserver, kube-controller-manager, KWOK, which plays the
kubelets, and the reference's Kubernetes shim, to compare with. This takes ten minutes and 3 GiB of build cache.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).parent / "go"
"""A Go module that names the versions."""

KUBERNETES: Final = "v1.34.2"
KWOK: Final = "sigs.k8s.io/kwok@v0.7.0"

HELM: Final = "helm.sh/helm/v3/cmd/helm@v3.18.4"
"""Installs and renders the chart. It needs other versions of the libraries of Kubernetes, so it is built on its own."""

_VERSION: Final = "k8s.io/component-base/version"
_KUBERNETES_FLAGS: Final = (
    f"-s -w -X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=34"
)

PROGRAMS: Final = {
    "etcd": ("go.etcd.io/etcd/server/v3", "-s -w"),
    "kube-apiserver": ("k8s.io/kubernetes/cmd/kube-apiserver", _KUBERNETES_FLAGS),
    "kwok": ("sigs.k8s.io/kwok/cmd/kwok", "-s -w"),
    "kube-controller-manager": ("k8s.io/kubernetes/cmd/kube-controller-manager", _KUBERNETES_FLAGS),
    "k8shim": ("github.com/apache/yunikorn-k8shim/pkg/cmd/shim", "-s -w"),
}
"""Program to its package and linker flags."""


def find_binaries() -> Path:
    """The folder of the programs: `$K8S_DIR/bin`, by default `.k8s/bin` in the checkout."""
    return Path(os.environ.get("K8S_DIR") or Path(__file__).parents[2] / ".k8s") / "bin"


def build(folder: Path) -> None:
    """Build the programs that are missing in this folder."""
    if not (folder / "helm").exists():
        environment = {**os.environ, "GOBIN": str(folder.absolute()), "CGO_ENABLED": "0"}
        subprocess.run(["go", "install", "-p", "2", HELM], env=environment, check=True)
    missing = [name for name in PROGRAMS if not (folder / name).exists()]
    if not missing:
        return
    source = folder.parent / "src"
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}

    def go(*words: str) -> str:
        done = subprocess.run(
            ["go", *words], cwd=source, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return done.stdout.strip()

    folder.mkdir(parents=True, exist_ok=True)
    shutil.copytree(SOURCE, source, dirs_exist_ok=True)
    go("mod", "download", KWOK)
    go(
        "mod",
        "edit",
        "-replace",
        f"sigs.k8s.io/kwok={_patch_kwok(Path(go('env', 'GOMODCACHE')), folder.parent / 'kwok')}",
    )
    for name in missing:
        package, flags = PROGRAMS[name]
        go("build", "-p", "2", "-ldflags", flags, "-o", str(folder / name), package)


def _patch_kwok(modules: Path, copy: Path) -> Path:
    """Copy KWOK's source, with the value of a constant that this version of Kubernetes does not have."""
    if not copy.exists():
        shutil.copytree(modules / KWOK, copy)
        for path in (copy, *copy.rglob("*")):
            path.chmod(path.stat().st_mode | 0o200)
    informer = copy / "pkg/utils/informer/informer.go"
    value = '"kubernetes.io/initial-events-list-blueprint"'
    informer.write_text(informer.read_text().replace("metav1.InitialEventsListBlueprintAnnotationKey", value))
    return copy
