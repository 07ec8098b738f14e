"""The catalogue: every benchmark by its name, in the order of the documentation."""

from functools import partial
from typing import Final

from benchmarks import (
    auditor,
    configuration,
    end_to_end,
    engine,
    footprint,
    growth,
    kubernetes_predicates,
    longest_turn,
    processor_time,
    recovery,
    rest,
    search_backlog,
    simulate,
    store,
    tenants,
    victims,
    worker_pauses,
)
from benchmarks.results import Benchmark

BENCHMARKS: Final = (
    Benchmark("engine", "each shape with the engine alone", engine.figures, judged=True),
    Benchmark("engine-compiled", "the same with the engine of `make compiled`", engine.compiled_figures),
    Benchmark("native", "each shape over the native protocol, end to end", partial(end_to_end.rate_figures, "native")),
    Benchmark(
        "grpc", "the same over the scheduler interface, and the reference", partial(end_to_end.rate_figures, "grpc")
    ),
    Benchmark("latency", "one ask, idle and under load, on both ways", end_to_end.latency_figures),
    Benchmark("budget", "processor time of each process for an allocation", processor_time.budget_figures, judged=True),
    Benchmark("flatness", "growth of the cost of an allocation", growth.flatness_figures, judged=True),
    Benchmark("memory", "bytes of an ask and of an allocation in the engine", footprint.engine_figures, judged=True),
    Benchmark("footprint", "the same in a real worker, and an empty worker", footprint.worker_figures),
    Benchmark("preemption", "one preemption decision among 2,000 candidates", victims.figures, judged=True),
    Benchmark("search-backlog", "preemption while 4,000 applications wait, against none", search_backlog.figures),
    Benchmark("reload", "the pause for a change of 10,000 queues", worker_pauses.reload_figures, judged=True),
    Benchmark("longest-turn", "the longest turn with large backlogs and clusters", longest_turn.figures, judged=True),
    Benchmark("queue-tree", "a tree of 2,000 queues over REST", worker_pauses.tree_figures, judged=True),
    Benchmark("recovery", "from the start of a worker to its Hello, with 150,000 allocations", recovery.figures),
    Benchmark("configuration", "validation and use of a configuration with 10,000 queues", configuration.figures),
    Benchmark("auditor", "the auditor's share of the time, with 50,000 allocations", auditor.figures),
    Benchmark("rest", "ten REST clients of a cluster of 5,000 nodes", rest.figures),
    Benchmark("tenants", "several resource managers, busy and idle", tenants.figures),
    Benchmark("scaling", "one to four partitions, and calculated rates", processor_time.scaling_figures),
    Benchmark("store", "a store in PostgreSQL with a synchronous standby, and reckoned rates", store.figures),
    Benchmark("hosts", "several partitions on two hosts, beside one partition on one", store.hosts_figures),
    Benchmark("simulate", "jobs of a log in virtual time, from file to results", simulate.figures, judged=True),
    Benchmark("kubernetes", "predicates of the Kubernetes shim", kubernetes_predicates.figures, judged=True),
    Benchmark("growth-engine", "growth curves of the engine alone", growth.engine_figures),
    Benchmark("growth-native", "growth curves over the native protocol", partial(growth.end_to_end_figures, "native")),
    Benchmark("growth-grpc", "growth curves over the scheduler interface", partial(growth.end_to_end_figures, "grpc")),
)
