"""The catalogue: every benchmark by its name, in the order of the documentation."""

from typing import Final

from benchmarks import end_to_end, engine, footprint, growth, processor_time, recovery, victims, worker_pauses
from benchmarks.results import Benchmark

BENCHMARKS: Final = (
    Benchmark("engine", "each shape with the engine alone", engine.figures, judged=True),
    Benchmark("native", "each shape over the native protocol, end to end", end_to_end.native_figures),
    Benchmark(
        "grpc", "each shape over the scheduler interface, end to end, and the reference", end_to_end.grpc_figures
    ),
    Benchmark("latency", "one ask, idle and under load, on both ways", end_to_end.latency_figures),
    Benchmark("budget", "processor time of each process for an allocation", processor_time.budget_figures, judged=True),
    Benchmark("flatness", "growth of the cost of an allocation", growth.flatness_figures, judged=True),
    Benchmark("memory", "bytes of an ask and of an allocation in the engine", footprint.engine_figures, judged=True),
    Benchmark("footprint", "the same in a real worker, and an empty worker", footprint.worker_figures),
    Benchmark("preemption", "one preemption decision among 2,000 candidates", victims.figures, judged=True),
    Benchmark("reload", "the pause for a change of 10,000 queues", worker_pauses.reload_figures),
    Benchmark("queue-tree", "a tree of 2,000 queues over REST", worker_pauses.tree_figures, judged=True),
    Benchmark("recovery", "from the start of a worker to its Hello, with 150,000 allocations", recovery.figures),
    Benchmark("scaling", "one to four partitions, and calculated rates", processor_time.scaling_figures),
    Benchmark("growth-engine", "growth curves of the engine alone", growth.engine_figures),
    Benchmark("growth-native", "growth curves over the native protocol", growth.native_figures),
    Benchmark("growth-grpc", "growth curves over the scheduler interface", growth.grpc_figures),
)
