"""Every benchmark by its name, in the order in which a reader wants them."""

from typing import Final

from benchmarks import (
    budget,
    engine,
    footprint,
    growth,
    latency,
    queue_tree,
    recovery,
    reload,
    scaling,
    victims,
    ways,
)
from benchmarks.results import Benchmark

BENCHMARKS: Final = (
    Benchmark("engine", "each shape with the engine alone", engine.figures, judged=True),
    Benchmark("native", "each shape over the native protocol, end to end", ways.native_figures),
    Benchmark("grpc", "each shape over the scheduler interface, end to end, and the reference", ways.grpc_figures),
    Benchmark("latency", "one ask, idle and under load, on both ways", latency.figures),
    Benchmark("budget", "processor time of each process for an allocation", budget.figures, judged=True),
    Benchmark("flatness", "what an allocation costs more where there is more", growth.flatness_figures, judged=True),
    Benchmark("memory", "bytes of an ask and of an allocation in the engine", footprint.engine_figures, judged=True),
    Benchmark("footprint", "the same in a real worker, and one with nothing in it", footprint.worker_figures),
    Benchmark("preemption", "one decision among 2,000 who might have to go", victims.figures, judged=True),
    Benchmark("reload", "how long decisions wait for 10,000 queues", reload.figures),
    Benchmark("queue-tree", "a whole tree of 2,000 queues over REST, at the worker", queue_tree.figures, judged=True),
    Benchmark("recovery", "from the start of a worker to its Hello, with 150,000 allocations", recovery.figures),
    Benchmark("scaling", "one, two and four partitions, and what more cores would do", scaling.figures),
    Benchmark("growth-engine", "growth curves of the engine alone", growth.engine_figures),
    Benchmark("growth-native", "growth curves over the native protocol", growth.native_figures),
    Benchmark("growth-grpc", "growth curves over the scheduler interface", growth.grpc_figures),
)
