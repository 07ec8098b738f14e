"""Rate of `yunishard simulate`: the committed log on a busy cluster, from its file to the result folder.

The figure is the processor time of the process of a run, so that it does not depend on what else the machine does.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

from benchmarks.calibration import as_in_a_worker, calibrated
from benchmarks.results import Figure, Plan
from yunishard.workloads.simulator.simulation import RunSpec, simulate

LOG: Final = Path(__file__).parents[1] / "examples" / "lcg-2005.swf.gz"
JOBS: Final = 20_000
MONTH: Final = 200_000
"""Jobs of a month of a large cluster."""

NODES: Final = "name,count,vcore\nnode,60,16\n"
"""The jobs of the log keep 85 % of them busy."""

QUEUES: Final = """
partitions:
  - name: default
    placementrules: [{name: user, create: true, parent: {name: tag, value: group, create: true}}]
    queues: [{name: root, submitacl: "*"}]
"""


def figures(plan: Plan) -> Iterator[Figure]:
    """Jobs per second, and the time for a month of jobs at this rate."""
    jobs = plan.scaled(JOBS)
    with TemporaryDirectory() as folder:
        spec = _prepare(Path(folder), jobs)
        with as_in_a_worker():
            rounds = [calibrated(lambda: _simulate_s(spec)) for _ in range(plan.rounds)]
    spent, unit = min(rounds, key=lambda one: one[0] / one[1])
    yield Figure("simulate/rate", jobs / spent, "jobs/s")
    yield Figure(f"simulate/{MONTH:,} jobs", spent / jobs * MONTH, "s", spent / jobs / unit)


def _prepare(folder: Path, jobs: int) -> RunSpec:
    lines = [line for line in gzip.decompress(LOG.read_bytes()).splitlines(keepends=True) if line[:1] != b";"]
    (folder / "log.swf").write_bytes(b"".join(lines[:jobs]))
    (folder / "nodes.csv").write_text(NODES)
    return RunSpec(
        name="run",
        config="queues.yaml",
        config_text=QUEUES,
        nodes=str(folder / "nodes.csv"),
        traces=[str(folder / "log.swf")],
        output=str(folder / "run"),
    )


def _simulate_s(spec: RunSpec) -> float:
    """Simulate; return the processor time."""
    began = process_time()
    simulate(spec, lambda done, jobs, time: None)
    return process_time() - began
