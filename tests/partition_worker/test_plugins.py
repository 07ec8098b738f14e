"""Predicates of plug-ins are found by their entry point, or the worker says in one line why it does not start."""

import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from common.names import PREDICATE_PLUGINS
from partition_worker.engine.predicates.predicate import NodeView, Predicate
from partition_worker.plugins import PluginError, chosen

ROOT = Path(__file__).parents[2]
PLUGINS = "tests.partition_worker.engine.predicates.plugins"
OBJECT = object()


def raises() -> None:
    raise RuntimeError("no licence\nserver")


class Explodes:
    def __init__(self) -> None:
        raises()


def point(name: str, value: str, group: str = PREDICATE_PLUGINS) -> EntryPoint:
    return EntryPoint(name, value, group)


INSTALLED = (
    point("rack", f"{PLUGINS}:Rack"),
    point("again", f"{PLUGINS}:Rack"),
    point("broken", f"{PLUGINS}:Broken"),
    point("gone", f"{PLUGINS}:Gone"),
    point("nowhere", "no_such_package:Thing"),
    point("explodes", "tests.partition_worker.test_plugins:Explodes"),
    point("object", "tests.partition_worker.test_plugins:OBJECT"),
    point("console", f"{PLUGINS}:Rack", "console_scripts"),
)


def test_those_that_are_chosen_are_loaded_in_this_order() -> None:
    assert [one.name for one in chosen(["broken", "rack"], INSTALLED)] == ["broken", "rack"]
    assert chosen([], INSTALLED) == []


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("racks", "no plug-in 'racks' is installed"),
        ("console", "no plug-in 'console' is installed"),
        ("gone", "gone (tests.partition_worker.engine.predicates.plugins:Gone) cannot be loaded: AttributeError: "),
        ("nowhere", "nowhere (no_such_package:Thing) cannot be loaded: ModuleNotFoundError: "),
        ("explodes", "cannot be loaded: RuntimeError: no licence server"),
        ("object", "is no predicate: it needs `name`, `read` and `refuses`"),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(name: str, reason: str) -> None:
    with pytest.raises(PluginError) as raised:
        chosen(["rack", name], INSTALLED)
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_those_that_are_there_are_named() -> None:
    with pytest.raises(PluginError, match=r"there are: again, broken, explodes, gone, nowhere, object, rack$"):
        chosen(["racks"], INSTALLED)


def test_two_predicates_of_one_name_are_refused() -> None:
    with pytest.raises(PluginError, match="two are called 'rack'"):
        chosen(["rack", "again"], INSTALLED)


def test_the_example_of_the_documentation_is_a_predicate() -> None:
    page = (ROOT / "docs" / "predicates.md").read_text()
    block = next(block for block in page.split("```python\n") if "class Licences" in block)
    found: dict[str, type[Predicate]] = {}
    exec(block[: block.index("```")], found)
    example = found["Licences"]()
    assert isinstance(example, Predicate)
    node = NodeView("n1", {"licences": "matlab ansys"}, {})
    demands = [example.read(tags) for tags in ({"licence": "ansys"}, {"licence": "abaqus"}, {})]
    assert [example.refuses(demand, node) for demand in demands] == ["", "node has no licence for abaqus", ""]
    with pytest.raises(ValueError, match="name one"):
        example.read({"licence": ""})


@pytest.mark.processes
def test_a_worker_without_its_plug_in_does_not_start_and_says_why() -> None:
    where = ("--broker", "ipc:///nowhere", "--partition", "rm-1_default", "--epoch", "1")
    command = [sys.executable, "-P", "-m", "partition_worker", *where, "--predicates", "racks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    line = (
        "partition_worker: predicates: no plug-in 'racks' is installed (entry point yunishard.predicates); there are: "
    )
    assert (done.returncode, done.stderr.startswith(line), done.stderr.count("\n")) == (2, True, 1)
