"""The compiled engine: an option of whoever builds a wheel, never needed to run.

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=true pip wheel .      (`make compiled` does it)

mypyc makes C of the modules that `pyproject.toml` names and a compiler makes extension modules of it. They go into the
wheel beside their sources, which tracebacks quote, and nowhere else: in a checkout an old one would silently be
preferred to the source that has changed since. So an editable installation stays pure whatever is set.

Not here: which modules, and what the build needs (`pyproject.toml`).
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY: Final = "yunishard"
"""The code is in one library, `yunishard__mypyc`, so that modules call each other directly."""


class CustomBuildHook(BuildHookInterface):
    """Adds the extension modules to a wheel."""

    folder: TemporaryDirectory[str] | None = None
    """Where they are until they are in it."""

    def initialize(self, version: str, build_data: dict[str, object]) -> None:
        if version == "editable":
            return
        self.folder = TemporaryDirectory()
        root = Path(self.root)
        files = [file for one in self.config["modules"] for file in sorted(root.glob(one)) if file.stem != "__init__"]
        paths = [str(file.relative_to(root)) for file in files]
        build_data["force_include"] = _compiled(paths, Path(self.folder.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, object], artifact_path: str) -> None:
        if self.folder is not None:
            self.folder.cleanup()


def _compiled(paths: list[str], folder: Path) -> dict[str, str]:
    """The extension modules, and where in the wheel they belong."""
    from mypyc.build import mypycify  # as what follows: only there if something is compiled
    from setuptools import Distribution

    extensions = mypycify(
        ["--cache-dir", str(folder / "cache"), *paths],
        opt_level="2",
        debug_level="0",
        target_dir=str(folder / "c"),
        group_name=LIBRARY,
    )
    for extension in extensions:
        extension.extra_compile_args += [
            "-Wno-error",  # what newer compilers warn of, in C that nobody wrote
            # Nothing outside the library calls its functions by name: calls within it need no table, and may be
            # inlined. That makes decisions 3 to 5 % faster.
            *("-fvisibility=hidden", "-fno-semantic-interposition"),
        ]
    distribution = Distribution({"name": LIBRARY, "ext_modules": extensions})
    build = distribution.get_command_obj("build_ext")
    build.build_lib, build.build_temp = str(folder / "lib"), str(folder / "temp")
    build.ensure_finalized()
    build.run()
    built = Path(build.build_lib)
    return {str(file): str(file.relative_to(built)) for file in built.rglob("*") if file.is_file()}
