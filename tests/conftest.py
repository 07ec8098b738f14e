"""What holds for all tests, and which of them only run in `make test LONG=1`."""

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import hypothesis
import pytest

from tests import leftovers
from yunishard.common.process.gc_tuning import collect_rarely

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

ROOT: Final = Path(__file__).parent

_FOLDER: Final = pytest.StashKey[Path]()
_MAKERS: Final = pytest.StashKey[leftovers.MakerLog]()

LONG: Final = (
    "benchmarks",
    "chaos",
    "cluster",
    "dashboard",
    "overload",
    "partition_worker/test_service.py",
    "processes/test_descriptors.py",
    "processes/test_flood.py",
    "processes/test_full_disk.py",
    "processes/test_host_keys.py",
    "processes/test_hosts_over_rest.py",
    "processes/test_new_start.py",
    "processes/test_old_files.py",
    "processes/test_partition_names.py",
    "processes/test_poison.py",
    "processes/test_restored_backup.py",
    "processes/test_slow_clients.py",
    "processes/test_store.py",
    "processes/test_two_partitions.py",
    "properties",
    "sim/test_mutations.py",
    "simulator/test_long_validation.py",
    "tenants",
    "upgrade/test_released_states.py",
    "upgrade/test_under_load.py",
    "webservice/history/test_failover.py",
)
"""Directories and files of tests that take long: 50 seeds of the simulation, deliberate defects, properties with many
examples, a browser, overload, upgrades, rare faults of real systems. Continuous integration runs them, too."""

SLOW: Final = (
    "sim/test_sim.py",
    "webservice/test_openapi_conformance.py",
    "test_marks.py",
    "sim",
    "test_rollout_races.py",
    "test_rollout_crashes.py",
    "benchmarks",
    "cluster",
    "dashboard",
    "upgrade",
    "chaos",
    "tenants",
    "overload",
    "processes",
    "deploy",
    "metrics",
    "fuzz",
    "properties",
    "partition_worker/journal",
    "test_docs.py",
    "test_doc_lines.py",
    "test_lost_links.py",
    "conformance",
    "captures",
    "stories",
)
"""Directories and files in the order in which they start, before all others. Workers get whole files, so those that
take long would leave one worker without work if they came last.
"""

# Tests start processes, and some of them have used gRPC before. Its fork handlers would break the child between fork
# and exec; nothing here forks without exec, so they are not needed.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Tests start about a thousand processes. Without bytecode files, each of them would compile all of its modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# While tests are collected, hardly any object becomes garbage; looking for it would be a fifth of the work.
gc.disable()

# How long an example takes says more about a shared machine than about the code. The examples are the same in each run,
# so that a test fails for whoever broke it; PROPERTIES=long looks for examples that nobody has seen.
hypothesis.settings.register_profile(
    "repeatable",
    deadline=None,
    database=None,
    derandomize=os.environ.get("PROPERTIES") != "long",
)
hypothesis.settings.load_profile("repeatable")

# A test runner in the background (`nohup`, `&`) ignores these, and all processes of the tests would inherit that.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give the run a temporary directory of its own, and each process that runs tests a subfolder of it."""
    worker = getattr(config, "workerinput", None)
    if worker is None:
        config.stash[_FOLDER] = leftovers.make_run_folder()
        config.option.basetemp = config.option.basetemp or str(config.stash[_FOLDER] / leftovers.KEPT)
    else:
        config.stash[_FOLDER] = Path(worker["run_folder"])
    own = config.stash[_FOLDER] / (worker["workerid"] if worker else "gw")
    leftovers.use_folder(own)
    config.stash[_MAKERS] = leftovers.MakerLog(own)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: "WorkerController") -> None:
    """Tell a worker of pytest-xdist the folder of the run."""
    node.workerinput["run_folder"] = str(node.config.stash[_FOLDER])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Note which test made a temporary file."""
    result = yield
    item.config.stash[_MAKERS].record(item.nodeid)
    return result


def pytest_sessionfinish() -> None:
    """Remove what the tests of this process shared. A worker does so before it reports its end to pytest-xdist, which
    kills it ten seconds later.
    """
    leftovers.at_end.close()


@pytest.hookimpl(specname="pytest_sessionfinish", wrapper=True, tryfirst=True)
def pytest_find_leftovers(session: pytest.Session) -> Iterator[None]:
    """Look for files that the tests left behind, once all workers have ended."""
    yield
    if not hasattr(session.config, "workerinput"):
        leftovers.end_run(session.config.stash[_FOLDER], session)


def pytest_xdist_auto_num_workers() -> int:
    """With `-n auto`: three for two processors, because many tests of real processes wait for a time to pass."""
    return (os.cpu_count() or 1) * 3 // 2 or 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long tests, for `-m "not long"`, and start with the slow files."""
    for item in items:
        if _place(item.path)[0]:
            item.add_marker("long")
    items.sort(key=lambda item: _place(item.path)[1])


@cache
def _place(path: Path) -> tuple[bool, int]:
    """Whether the tests of a file are long, and its rank in the order in which files start."""
    names = {str(one.relative_to(ROOT)) for one in (path, *path.parents) if one.is_relative_to(ROOT)}
    return not names.isdisjoint(LONG), next((rank for rank, name in enumerate(SLOW) if name in names), len(SLOW))


def pytest_collection_finish() -> None:
    """Collect garbage as rarely as servers do: each collection would visit all tests and what they import."""
    gc.enable()
    gc.collect()
    collect_rarely()
