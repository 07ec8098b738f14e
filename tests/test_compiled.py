"""The compiled engine is an option: what can be known of it without a compiler."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from yunishard.cli import main as cli
from yunishard.common.process import compiled

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WHEEL = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]
HOOK = WHEEL["hooks"]["custom"]
FILES = sorted(file for pattern in HOOK["modules"] for file in ROOT.glob(pattern))


@pytest.mark.parametrize("pattern", HOOK["modules"])
def test_what_is_to_be_compiled_exists(pattern: str) -> None:
    assert [file for file in ROOT.glob(pattern) if file.suffix == ".py"]
    assert pattern.split("/")[0] in WHEEL["packages"]


def test_nothing_is_compiled_twice() -> None:
    assert len(FILES) == len(set(FILES))


def test_nobody_gets_it_without_asking() -> None:
    assert HOOK["enable-by-default"] is False
    assert "setuptools" not in str(SETTINGS["build-system"]["requires"])


def test_a_checkout_has_no_compiled_modules() -> None:
    """They would be preferred to their sources, whatever has changed there."""
    assert [file for package in WHEEL["packages"] for file in (ROOT / package).rglob("*.so")] == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_compiled_dataclass_names_no_class_that_is_not_there_yet(file: Path) -> None:
    """The compiled module asks for the class of each field when it is loaded, and the process would end there. A union
    with None, or a list or dict of such things, asks for nothing.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    absent = {name.asname or name.name for one in imports for name in one.names}
    assert not absent & set(_types_of_fields(tree))


def _types_of_fields(tree: ast.Module) -> Iterator[str]:
    for one in tree.body:
        if isinstance(one, ast.ClassDef) and any("dataclass" in ast.unparse(word) for word in one.decorator_list):
            for field in one.body:
                if isinstance(field, ast.AnnAssign):
                    yield ast.unparse(field.annotation).strip("'\"")


def test_the_version_says_whether_the_engine_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / f"{compiled.LIBRARY}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"yunishard {version('yunishard')} (compiled engine)\n"


def test_the_library_has_the_name_that_is_looked_for() -> None:
    library = compiled.LIBRARY.removesuffix("__mypyc")
    assert f'LIBRARY: Final = "{library}"\n' in (ROOT / "hatch_build.py").read_text(encoding="utf-8")


def test_what_was_compiled_of_other_sources_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert compiled.find_engine() is None
    compiled.engine_folder().mkdir(parents=True)
    assert compiled.find_engine() == compiled.engine_folder()
    assert compiled.is_engine_compiled()
    monkeypatch.setattr(compiled, "PACKAGES", ("common",))
    assert compiled.find_engine() is None


def test_each_file_counts_with_its_name_and_its_text() -> None:
    texts = [[("a.py", b"x"), ("b.py", b"y")], [("a.py", b"x")], [("a.py", b"y"), ("b.py", b"x")], [("c.py", b"x")]]
    assert len({compiled.digest(iter(one)) for one in texts}) == len(texts)
