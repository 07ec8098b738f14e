"""The partition's metrics: names, labels, numbers."""

import doctest
import json
import random
from pathlib import Path

import pytest

from tests.builders import PARTITION, apps, asks, gone, nodes, released
from tests.machines import said
from tests.partition_worker.bench import NOW, Bench, ask
from tests.partition_worker.journal.hand import Hand, run
from tests.properties.workload import LEAVES, TREES, Workload
from tests.trial import Trial
from yunishard.common.config.model import PlacementRuleConfig
from yunishard.common.messages.control_messages import Settings
from yunishard.common.messages.journal_messages import TICK, Kept, SnapshotTaken, Step, TakeSnapshot
from yunishard.common.messages.kinds import Header
from yunishard.common.messages.query_messages import Answer, Query
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import (
    NODE_DECOMMISSION,
    NODE_DRAIN,
    PREDICATES,
    Allocation,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    PredicatesAnswered,
)
from yunishard.common.messages.wire import decode_body, make_outgoing
from yunishard.common.names import JOURNAL
from yunishard.common.process.metrics import BOUNDS_S, Family, Histogram, decode_families, encode_families
from yunishard.partition_worker import metrics
from yunishard.partition_worker.engine import ledger
from yunishard.partition_worker.engine.administration import NotDone
from yunishard.partition_worker.engine.application import AppState
from yunishard.partition_worker.engine.partition import Partition
from yunishard.partition_worker.engine.rm_errors import RmError
from yunishard.partition_worker.metrics import SampleCache
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.rm_channel import UNKEPT_BYTES_MAX, OutboxBarrier
from yunishard.partition_worker.service import StartedWorker, collect_journal_families
from yunishard.partition_worker.worker import Worker


def document(partition: Partition, cycles: Histogram) -> bytes:
    return encode_families(metrics.collect_yunikorn_families(partition, cycles))


PROVIDED = (PlacementRuleConfig(name="provided", create=True),)

DURATIONS = (
    "scheduling_latency",
    "scheduling_cycle",
    "node_sorting_latency",
    "trynode_latency",
    "trynode_evaluation",
    "trypreemption_latency",
)


def kinds(one: Trial) -> dict[str, str]:
    return {family["name"]: family["kind"] for family in json.loads(document(one.partition, Histogram()))}


def samples(one: Trial, name: str) -> dict[tuple[str, ...], float]:
    (family,) = (found for found in json.loads(document(one.partition, Histogram())) if found["name"] == name)
    return {tuple(labels): number for labels, number in family.get("samples", [])}


def distributions(body: bytes, name: str) -> list[tuple[list[str], list[int], float]]:
    """What was observed of something; empty buckets at the end are left out."""
    full = f"yunikorn_scheduler_{name}_milliseconds"
    (family,) = (found for found in json.loads(body) if found["name"] == full)
    assert tuple(family["bounds"]) == BOUNDS_S
    shown = []
    for labels, counts, observed_s in family.get("distributions", []):
        assert len(counts) == len(BOUNDS_S) + 1
        while counts and not counts[-1]:
            counts.pop()
        shown.append((labels, counts, observed_s))
    return shown


def trial() -> Trial:
    one = Trial("root.a max=memory:8 guaranteed=memory:2 maxapps=3")
    one.does(nodes("n1 memory=10", "n2 memory=1", "n3 memory=1"), apps("app-1 root.a", "app-2 root.a", "app-3 root.x"))
    one.does(nodes("n2", action=NODE_DRAIN), nodes("n3", action=NODE_DECOMMISSION))
    return one.does(asks("app-1 a1 memory=4", "app-1 a2 memory=1"), asks("app-1 a3 memory=5"), asks("app-1 a4"))


def test_the_families_are_those_of_the_reference() -> None:
    one = trial().does(apps("app-4 root.a"), asks("app-4 b1 memory=1 on=n1"))
    assert kinds(one) == {
        "yunikorn_queue_app": "gauge",
        "yunikorn_queue_app_total": "counter",
        "yunikorn_queue_resource": "gauge",
        "yunikorn_root_a_queue_container": "counter",
        "yunikorn_scheduler_application_submission_total": "counter",
        "yunikorn_scheduler_application_total": "gauge",
        "yunikorn_scheduler_container_allocation_attempt_total": "counter",
        "yunikorn_scheduler_memory_node_usage_total": "gauge",
        "yunikorn_scheduler_node": "gauge",
        **{f"yunikorn_scheduler_{name}_milliseconds": "histogram" for name in DURATIONS},
    }


def test_every_family_has_its_own_name_a_help_and_samples_that_match_its_labels() -> None:
    decode_families = json.loads(document(trial().partition, Histogram()))
    assert len({family["name"] for family in decode_families}) == len(decode_families)
    for family in decode_families:
        assert family["help"].endswith(".")
        assert all(len(labels) == len(family.get("labels", [])) for labels, _ in family.get("samples", []))
        assert family["kind"] != "histogram" or not family.get("samples")


# The partition as a whole --------------------------------------------------------------------------------------------


def test_allocations_are_counted() -> None:
    one = trial().does(released("app-1 a1"), released("app-1 a9"))
    assert samples(one, "yunikorn_scheduler_container_allocation_attempt_total") == {
        ("allocated",): 3,
        ("released",): 1,
        ("rejected",): 1,
        ("error",): 1,
    }


def test_submissions_are_counted() -> None:
    assert samples(trial(), "yunikorn_scheduler_application_submission_total") == {
        ("new",): 2,
        ("accepted",): 1,
        ("rejected",): 1,
    }


def test_applications_are_shown_by_state() -> None:
    one = trial()
    assert samples(one, "yunikorn_scheduler_application_total") == {("running",): 1}
    one.does(released("app-1"))
    assert samples(one, "yunikorn_scheduler_application_total") == {("running",): 0, ("completing",): 1}
    one.waits(30)
    assert samples(one, "yunikorn_scheduler_application_total") == {
        ("running",): 0,
        ("completing",): 0,
        ("completed",): 1,
    }


def test_nodes_are_shown_by_state() -> None:
    assert samples(trial(), "yunikorn_scheduler_node") == {
        ("active",): 2,
        ("draining",): 1,
        ("decommissioned",): 1,
    }


def test_an_empty_partition_shows_what_is_there_from_the_start() -> None:
    one = Trial()
    assert samples(one, "yunikorn_queue_app") == {}
    assert samples(one, "yunikorn_queue_app_total") == {}
    assert samples(one, "yunikorn_scheduler_application_submission_total") == {}
    assert samples(one, "yunikorn_scheduler_application_total") == {("running",): 0}
    assert samples(one, "yunikorn_scheduler_container_allocation_attempt_total") == {
        ("allocated",): 0,
        ("released",): 0,
        ("error",): 0,
    }
    assert samples(one, "yunikorn_scheduler_node")["active",] == 0
    assert not [name for name in kinds(one) if name.endswith(("_node_usage_total", "_queue_container"))]


# Usage of nodes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "shown"),
    [
        (0, "[0,10%]"),
        (1, "[0,10%]"),
        (100, "[0,10%]"),
        (101, "(10%,20%]"),
        (200, "(10%,20%]"),
        (700, "(60%,70%]"),
        (701, "(70%,80%]"),
        (900, "(80%,90%]"),
        (901, "(90%,100%]"),
        (1000, "(90%,100%]"),
        (1001, "(90%,100%]"),
        (5000, "(90%,100%]"),
    ],
)
def test_the_upper_bound_belongs_to_a_range_of_usage_and_the_last_has_no_end(used: int, shown: str) -> None:
    one = Trial().does(nodes("n1 memory=1000 gpu=1"), apps("app-1 root.a"))
    if used:
        one.does(asks(f"app-1 a1 memory={used} on=n1"))
    found = samples(one, "yunikorn_scheduler_memory_node_usage_total")
    assert {labels for labels, count in found.items() if count} == {(shown,)}


def test_all_ranges_of_a_resource_are_shown_over_the_nodes_that_have_it() -> None:
    one = Trial().does(nodes("n1 memory=10", "n2 memory=10 gpu=2", "n3 memory=10"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=3 on=n1", "app-1 a2 memory=10 on=n2"))
    ranges = ["[0,10%]", *(f"({low}%,{low + 10}%]" for low in range(10, 100, 10))]
    usage = {(label,): 0 for label in ranges}
    assert samples(one, "yunikorn_scheduler_gpu_node_usage_total") == usage | {("[0,10%]",): 1}
    assert samples(one, "yunikorn_scheduler_memory_node_usage_total") == usage | {
        ("[0,10%]",): 1,
        ("(20%,30%]",): 1,
        ("(90%,100%]",): 1,
    }


def test_the_name_of_a_resource_becomes_one_of_a_metric_and_of_equal_ones_only_the_first_is_shown() -> None:
    one = Trial().does(nodes("n1 example.com/gpu=1 example.com-gpu=2 2nd=3", "n2 example.com/gpu=1"))
    assert {name for name in kinds(one) if name.endswith("_node_usage_total")} == {
        "yunikorn_scheduler_example_com_gpu_node_usage_total",
        "yunikorn_scheduler__2nd_node_usage_total",
    }
    assert sum(samples(one, "yunikorn_scheduler_example_com_gpu_node_usage_total").values()) == 1


# Queues --------------------------------------------------------------------------------------------------------------


def test_applications_of_a_queue_are_shown_in_every_state_that_one_has_had() -> None:
    one = trial()
    before = {("root.a", "new"): 1, ("root.a", "accepted"): 0, ("root.a", "running"): 1}
    refused = {("", "rejected"): 1}
    assert samples(one, "yunikorn_queue_app") == before | refused
    one.does(released("app-1")).waits(30)
    assert samples(one, "yunikorn_queue_app") == before | refused | {
        ("root.a", "running"): 0,
        ("root.a", "completing"): 0,
        ("root.a", "completed"): 1,
    }


def test_a_refused_application_is_not_taken_off_the_new_ones_of_its_queue() -> None:
    one = Trial("root.a; root.b").does(apps("app-1 root.a"), apps("app-1 root.b", "app-1 root.b"))
    assert samples(one, "yunikorn_queue_app") == {
        ("root.a", "new"): 1,
        ("root.b", "rejected"): 2,
    }
    assert samples(one, "yunikorn_queue_app_total") == {("root.b", "rejected"): 2}
    one.does(apps("app-2 root.b"))
    assert samples(one, "yunikorn_queue_app")["root.b", "new"] == 1


def test_names_of_queues_that_do_not_exist_make_no_series() -> None:
    one = Trial().does(apps("app-1 root.a"), apps(*(f"app-1 root.made-up-{number}" for number in range(100))))
    assert samples(one, "yunikorn_queue_app_total") == {("", "rejected"): 100}


def test_the_series_of_a_removed_queue_end_and_continue_when_it_is_back() -> None:
    one = Trial("root.p parent", rules=PROVIDED).does(nodes("n1 memory=10"))

    def runs_in_a_dynamic_queue() -> None:
        one.does(apps("app-1 root.p.x"), asks("app-1 a1 memory=1"), released("app-1 a1")).waits(60)
        assert one.partition.tree.find("root.p.x") is None

    for ended in (1, 2):
        runs_in_a_dynamic_queue()
        assert samples(one, "yunikorn_queue_app_total") == {}
        assert samples(one, "yunikorn_queue_app") == {}
        assert one.partition.counters.entries(AppState.COMPLETED) == ended
    one.does(apps("app-2 root.p.x"))
    assert samples(one, "yunikorn_queue_app") == {("root.p.x", "new"): 1}
    assert samples(one, "yunikorn_queue_app_total") == {("root.p.x", "completed"): 2}


def test_resources_of_every_queue_are_shown() -> None:
    shown = samples(trial(), "yunikorn_queue_resource")
    assert {labels[1:]: number for labels, number in shown.items() if labels[0] == "root.a"} == {
        ("max", "memory"): 8,
        ("guaranteed", "memory"): 2,
        ("allocated", "memory"): 5,
        ("pending", "memory"): 5,
        ("maxRunningApps", "apps"): 3,
    }
    assert shown["root", "max", "memory"] == 11


def test_a_maximum_or_guarantee_that_is_gone_is_shown_as_0() -> None:
    one = trial().does(nodes("n1", action=NODE_DECOMMISSION))
    one.reconfigures("root.a max=gpu:1")
    shown = samples(one, "yunikorn_queue_resource")
    assert shown["root.a", "max", "gpu"] == 1
    assert shown["root.a", "max", "memory"] == shown["root.a", "guaranteed", "memory"] == 0


def test_what_is_asked_back_is_shown_from_the_first_time_on() -> None:
    one = trial()
    application = one.app("app-1")
    allocation = next(iter(application.allocations.values()))
    ledger.mark_preempted(one.partition, application, allocation)
    shown = samples(one, "yunikorn_queue_resource")
    amount = allocation.resources["memory"]
    assert shown["root.a", "preempting", "memory"] == shown["root", "preempting", "memory"] == amount
    one.does(released(f"app-1 {allocation.key} type=PREEMPTED_BY_SCHEDULER"))
    assert samples(one, "yunikorn_queue_resource")["root.a", "preempting", "memory"] == 0


def test_how_many_applications_may_run_is_shown_where_it_can_be_set() -> None:
    one = Trial("root.a; root.p parent; root.t parent template.max=memory:5", rules=PROVIDED)
    one.does(apps("app-1 root.p.x", "app-2 root.t.x"))
    shown = samples(one, "yunikorn_queue_resource")
    assert {path for path, state, _ in shown if state == "maxRunningApps"} == {
        "root",
        "root.a",
        "root.p",
        "root.t",
        "root.t.x",
    }
    assert shown["root.a", "maxRunningApps", "apps"] == 0


def test_amounts_of_any_size_can_be_shown() -> None:
    most = 2**63 - 1
    one = Trial().does(apps("app-1 root.a"), asks(*(f"app-1 a{number} memory={most}" for number in range(3))))
    assert samples(one, "yunikorn_queue_resource")["root.a", "pending", "memory"] == 3 * most


# Containers of queues ------------------------------------------------------------------------------------------------


def test_a_queue_counts_what_its_resource_manager_placed_and_not_what_was_scheduled() -> None:
    one = Trial().does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=1"), asks("app-1 a2 memory=1 on=n1"))
    one.takes(asks("app-1 a3 memory=1"), asks("app-1 a3 memory=1 on=n1"), asks("app-1 a3 memory=1 on=n1"))
    assert samples(one, "yunikorn_root_a_queue_container") == {("allocated",): 2}


def test_a_queue_counts_what_was_released_or_went_with_its_node_but_not_with_its_application() -> None:
    one = Trial().does(nodes("n1 memory=10", "n2 memory=10"), apps("app-1 root.a"))
    one.does(asks(*(f"app-1 a{number} memory=1 on=n{node}" for number, node in enumerate((1, 1, 1, 2, 2)))))
    assert samples(one, "yunikorn_root_a_queue_container") == {("allocated",): 5}
    one.does(released("app-1 a0"), released("app-1 a1 type=PREEMPTED_BY_SCHEDULER"), released("app-1 a9"))
    assert samples(one, "yunikorn_root_a_queue_container") == {("allocated",): 5, ("released",): 2}
    one.does(nodes("n2", action=NODE_DECOMMISSION))
    assert samples(one, "yunikorn_root_a_queue_container") == {("allocated",): 5, ("released",): 4}
    one.does(gone("app-1"))
    assert samples(one, "yunikorn_root_a_queue_container") == {("allocated",): 5, ("released",): 4}


def test_of_queues_whose_metrics_would_have_the_same_name_only_the_first_is_shown() -> None:
    one = Trial("root.a-b; root.a_b").does(nodes("n1 memory=10"), apps("app-1 root.a-b", "app-2 root.a_b"))
    one.does(asks("app-1 a1 memory=1 on=n1"), asks("app-2 b1 memory=1 on=n1", "app-2 b2 memory=1 on=n1"))
    assert samples(one, "yunikorn_root_a_b_queue_container") == {("allocated",): 1}


# Durations -----------------------------------------------------------------------------------------------------------


def test_cycles_are_shown_as_cycles_and_as_passes_over_the_only_partition() -> None:
    cycles = Histogram()
    for seconds in (0.0, 0.25, 0.5):
        cycles.observe(seconds)
    body = document(Trial().partition, cycles)
    for name in ("scheduling_latency", "scheduling_cycle"):
        assert distributions(body, name) == [([], [1, 0, 0, 0, 2], 0.75)]


@pytest.mark.parametrize("name", ["trynode_latency", "trynode_evaluation", "trypreemption_latency"])
def test_what_the_engine_cannot_time_is_shown_as_empty(name: str) -> None:
    assert distributions(document(trial().partition, Histogram()), name) == [([], [], 0.0)]


def test_sorting_takes_no_time_from_the_first_cycle_on() -> None:
    cycles = Histogram()
    assert distributions(document(Trial().partition, cycles), "node_sorting_latency") == []
    cycles.observe(0.5)
    body = document(Trial().partition, cycles)
    assert distributions(body, "node_sorting_latency") == [(["app"], [], 0.0), (["queue"], [], 0.0)]


def test_a_worker_counts_the_ticks_that_decide() -> None:
    bench = Bench()

    def cycles() -> int:
        answer = said(bench.hear(Query(what="metrics", name="default")))[0]
        assert isinstance(answer, Answer)
        ((_, counts, _),) = distributions(answer.body, "scheduling_cycle")
        return sum(counts)

    bench.furnish()
    bench.tell(ask("a1"))
    assert cycles() == 0
    bench.worker.tick(NOW)
    assert cycles() == 1
    bench.worker.tick(NOW)
    assert cycles() == 1, "nothing was left to decide, only timers could have gone off"


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(metrics).failed == 0


def test_each_draining_queue_shows_for_how_long() -> None:
    one = Trial("root.a; root.b").takes(apps("app-1 root.b")).reconfigures("root.a").waits(100)
    assert of(one, "queue_draining_seconds") == {(PARTITION, "root.b"): pytest.approx(100)}


def test_an_application_that_was_moved_counts_where_it_is() -> None:
    one = Trial("root.a; root.b").does(nodes("n1 memory=10"), apps("app-1 root.a"), asks("app-1 a1 memory=4"))
    one.moves("app-1", "root.b")
    shown = samples(one, "yunikorn_queue_app")
    assert (shown["root.b", "running"], shown["root.a", "running"]) == (1, 0)


def test_rounds_of_the_auditor_and_what_drifted_are_counted() -> None:
    one = Trial().does(nodes("n1 memory=10"))
    one.partition.auditor.check_slice(one.partition)
    one.partition.nodes.total["memory"] = 11
    one.partition.auditor.check_slice(one.partition)
    assert of(one, "audit_rounds_total") == {(PARTITION,): 2}
    assert of(one, "audit_drift_total") == {(PARTITION,): 2}, "the total, and the root maximum"


def test_an_application_that_begins_is_shown_as_starting() -> None:
    one = Trial("root.a application.sort.policy=stateaware").does(nodes("n1 memory=10"), apps("app-1 root.a"))
    one.does(asks("app-1 a1 memory=4"))
    assert samples(one, "yunikorn_scheduler_application_total")["starting",] == 1
    assert samples(one, "yunikorn_queue_app")["root.a", "starting"] == 1


def worker_samples(found: list[Family], name: str) -> dict[tuple[str, ...], float]:
    return dict(sample for family in found if family.name == f"yunishard_{name}" for sample in family.samples)


def told(bench: Bench) -> list[Family]:
    [sent] = bench.hear(Query(what="metrics"), ref="q", session="")
    answer = decode_body(Answer, sent.body)
    assert answer.status == 200
    return decode_families(answer.body)


def of(trial: Trial, name: str) -> dict[tuple[str, ...], float]:
    replica = PartitionHost(partition=PARTITION, epoch=1)
    replica.partition = trial.partition
    found = metrics.collect_worker_families(
        replica, trial.partition, Histogram(), OutboxBarrier(journalled=False), trial.now
    )
    return worker_samples(list(found), name)


def test_decisions_what_waits_and_what_is_not_acknowledged_are_told() -> None:
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k1", "k2"))
    assert worker_samples(told(bench), "asks_pending") == {(bench.worker.name,): 2}
    bench.schedule()
    found = told(bench)
    assert worker_samples(found, "asks_pending") == {(bench.worker.name,): 0}
    assert worker_samples(found, "decisions_total") == {(bench.worker.name,): 2}
    outbox = bench.worker.host.channel.outbox
    assert worker_samples(found, "outbox_messages") == {(bench.worker.name,): len(outbox)}
    assert worker_samples(found, "outbox_bytes") == {(bench.worker.name,): outbox.size}
    assert outbox.size > 0


def test_asks_are_counted_by_the_reason_why_they_wait() -> None:
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k1", "k2"))
    assert worker_samples(told(bench), "waiting_asks") == {(bench.worker.name, Reason.NOT_TRIED): 2}
    bench.schedule()
    assert worker_samples(told(bench), "waiting_asks") == {}


def test_what_the_shell_tells_of_the_process_is_among_it() -> None:
    bench = Bench()
    bench.worker.process_families = lambda: [Family("own", "gauge", "Own.", (), [((), 1)])]
    assert [family.help for family in told(bench) if family.name == "own"] == ["Own."]


def test_preemptions_and_what_the_thrash_guard_held_back_are_counted() -> None:
    trial = Trial("root.a guaranteed=memory:4; root.b guaranteed=memory:4")
    trial.does(nodes("n1 memory=6"), apps("a root.a", "b root.b"))
    trial.does(asks(*(f"a a{number} memory=1 victim" for number in range(6))))
    assert of(trial, "preemptions_total") == {(PARTITION, kind): 0 for kind in ("guaranteed", "quota", "required-node")}
    trial.does(asks("b b1 memory=2 preemptor"), asks("a a9 memory=1 preemptor"))
    for _ in range(8):
        trial.waits(6)
    assert of(trial, "preemptions_total")[PARTITION, "guaranteed"] == 1
    assert of(trial, "preemption_victims_total") == {(PARTITION,): 2}
    assert of(trial, "truces") == {(PARTITION,): 1}
    assert of(trial, "preemptions_held_back_total")[PARTITION,] > 0
    trial.waits(30)  # the loser's preemption.delay
    assert of(trial, "truces") == {(PARTITION,): 0}


def test_questions_about_predicates_are_counted_by_what_came_of_them() -> None:
    bench = Bench()
    bench.hear(Settings(values={}, capabilities=[PREDICATES]))
    bench.furnish()
    bench.tell(ask("k"))
    bench.schedule()
    verdicts = bench.worker.host.partition
    assert verdicts is not None
    bench.hear(PredicatesAnswered(question=verdicts.nodes.predicates.verdicts.numbers))
    name = bench.worker.name
    found = worker_samples(told(bench), "predicate_questions_total")
    assert found == {(name, "asked"): 1, (name, "answered"): 1, (name, "unanswered"): 0}
    bench.tell(ask("k2"))
    bench.schedule()
    bench.worker.tick(NOW + 1)
    assert worker_samples(told(bench), "predicate_questions_total")[name, "unanswered"] == 1


def test_errors_of_the_resource_manager_are_counted_by_cause() -> None:
    bench = Bench()
    bench.furnish()
    name = bench.worker.name
    assert set(worker_samples(told(bench), "rm_errors_total").values()) == {0}
    bench.tell(AllocationRequest(allocations=[Allocation(allocation_key="k", application_id="unknown")]))
    found = worker_samples(told(bench), "rm_errors_total")
    assert {labels for labels, number in found.items() if number} == {(name, "unknown-application")}
    assert len(found) == len(RmError)


def test_releases_without_an_effect_are_counted() -> None:
    bench = Bench()
    bench.furnish()
    assert worker_samples(told(bench), "releases_ignored_total") == {(bench.worker.name,): 0}
    wrong = [AllocationRelease(application_id="a", allocation_key=f"k{number}") for number in range(3)]
    bench.tell(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=wrong)))
    assert worker_samples(told(bench), "releases_ignored_total") == {(bench.worker.name,): 3}


def test_steps_that_wait_for_the_disk_are_told() -> None:
    recorder, trial = OutboxBarrier(), Trial()
    for number in range(1, 4):
        recorder.record_step(Step(number, float(number), "", Header(kind=TICK), b"x" * 100))
    recorder.flush()
    found = list(
        metrics.collect_worker_families(
            PartitionHost(partition=PARTITION, epoch=1), trial.partition, Histogram(), recorder, 0
        )
    )
    assert worker_samples(found, "journal_steps_total") == {(PARTITION,): 3}
    [unkept] = worker_samples(found, "journal_unkept_bytes").values()
    assert 300 < unkept < UNKEPT_BYTES_MAX


def told_with(trial: Trial, memo: SampleCache | None) -> bytes:
    return encode_families(metrics.collect_yunikorn_families(trial.partition, Histogram(), memo))


@pytest.mark.parametrize("seed", range(len(TREES)))
def test_whatever_happens_the_same_is_told_as_by_somebody_who_sees_it_for_the_first_time(seed: int) -> None:
    rng = random.Random(seed)
    trial, workload, memo = Trial(TREES[seed], preemption=True), Workload(rng), SampleCache()
    trial.does(*workload.start())
    for _ in range(60):
        match rng.randrange(8):
            case 0:
                trial.waits(rng.choice((1.1, 31.0)))
            case 1 if trial.partition.applications:
                application = rng.choice(list(trial.partition.applications))
                try:
                    trial.moves(application, rng.choice(LEAVES))
                except NotDone:
                    trial.settles()
            case 2:
                trial.reconfigures(rng.choice(TREES))
            case _:
                trial.does(workload.next())
        if rng.random() < 0.7:
            assert told_with(trial, memo) == told_with(trial, None)


def test_what_is_as_it_was_is_not_looked_through_again() -> None:
    trial, memo = Trial(TREES[0]), SampleCache()
    trial.does(nodes("n1 memory=10"))

    def samples() -> list[bytes]:
        applications, resources = memo.encode_queues(trial.partition.tree, trial.partition.applications)
        return applications + resources

    before = samples()
    assert all(one is other for one, other in zip(samples(), before, strict=True))


NAME = "rm-1_default"


def journal_told(hand: Hand) -> dict[str, Family]:
    worker = Worker(PartitionHost(partition=NAME, epoch=1))
    found = collect_journal_families(StartedWorker(worker, hand.journal, steps=7, took_s=0.25))
    return {family.name.removeprefix("yunishard_"): family for family in found}


def value(family: Family) -> float:
    [(labels, number)] = family.samples
    assert labels == (NAME,)
    return number


def test_transactions_are_timed_and_the_size_is_that_on_the_disk(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1, 2, 3)
        await hand.hears(Kept)
        found = journal_told(hand)
        [(labels, counts, total_s)] = found["journal_commit_seconds"].distributions
        assert (labels, sum(counts)) == ((NAME,), 1)
        assert 0 < total_s < 5
        assert value(found["journal_size_bytes"]) == hand.files.size_bytes() > 0
        assert (value(found["recovery_steps"]), value(found["recovery_seconds"])) == (7, 0.25)
        assert value(found["journal_snapshot_seconds"]) == 0
        hand.journal.close()

    run(test)


def test_a_snapshot_has_a_duration_and_an_age(tmp_path: Path) -> None:
    async def test() -> None:
        hand = Hand(tmp_path)
        hand.appends(1)
        await hand.hears(Kept)
        hand.journal.send(make_outgoing(JOURNAL, TakeSnapshot(number=1)))
        assert await hand.hears(SnapshotTaken) == SnapshotTaken(number=1)
        found = journal_told(hand)
        assert value(found["journal_snapshot_seconds"]) > 0
        assert value(found["journal_snapshot_age_seconds"]) >= 0
        hand.journal.close()

    run(test)
