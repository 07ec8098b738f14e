"""What a worker counts that YuniKorn does not."""

from common.control_messages import Settings
from common.families import Family, families
from common.histogram import Histogram
from common.query_messages import Answer, Query
from common.rm_messages import (
    PREDICATES,
    AllocationRelease,
    AllocationReleasesRequest,
    AllocationRequest,
    PredicatesAnswered,
)
from common.wire import decoded
from partition_worker.answers import own_figures
from partition_worker.recorder import UNKEPT_BYTES_MAX, Recorder
from partition_worker.replica import Replica
from tests.builders import PARTITION, apps, asks, nodes
from tests.partition_worker.bench import NOW, Bench, ask
from tests.trial import Trial


def samples(found: list[Family], name: str) -> dict[tuple[str, ...], float]:
    return dict(sample for family in found if family.name == f"yunishard_{name}" for sample in family.samples)


def told(bench: Bench) -> list[Family]:
    [sent] = bench.hear(Query(what="metrics"), ref="q", session="")
    answer = decoded(Answer, sent.body)
    assert answer.status == 200
    return families(answer.body)


def of(trial: Trial, name: str) -> dict[tuple[str, ...], float]:
    replica = Replica(partition=PARTITION, epoch=1)
    replica.partition = trial.partition
    found = own_figures.families(replica, trial.partition, Histogram(), None, trial.now)
    return samples(list(found), name)


def test_decisions_what_waits_and_what_is_not_acknowledged_are_told() -> None:
    bench = Bench()
    bench.furnish()
    bench.tell(ask("k1", "k2"))
    assert samples(told(bench), "asks_pending") == {(bench.worker.name,): 2}
    bench.schedule()
    found = told(bench)
    assert samples(found, "asks_pending") == {(bench.worker.name,): 0}
    assert samples(found, "decisions_total") == {(bench.worker.name,): 2}
    outbox = bench.worker.replica.lane.outbox
    assert samples(found, "outbox_messages") == {(bench.worker.name,): len(outbox)}
    assert samples(found, "outbox_bytes") == {(bench.worker.name,): outbox.size}
    assert outbox.size > 0


def test_what_the_shell_tells_of_the_process_is_among_it() -> None:
    bench = Bench()
    bench.worker.around = lambda: [Family("own", "gauge", "Own.", (), [((), 1)])]
    assert [family.help for family in told(bench) if family.name == "own"] == ["Own."]


def test_preemptions_and_what_the_thrash_guard_held_back_are_counted() -> None:
    trial = Trial("root.a guaranteed=memory:4; root.b guaranteed=memory:4")
    trial.does(nodes("n1 memory=6"), apps("a root.a", "b root.b"))
    trial.does(asks(*(f"a a{number} memory=1 victim" for number in range(6))))
    assert of(trial, "preemptions_total") == {(PARTITION, kind): 0 for kind in ("guaranteed", "quota", "required-node")}
    trial.does(asks("b b1 memory=2 preemptor"), asks("a a9 memory=1 preemptor"))
    for _ in range(10):
        trial.waits(6)
    assert of(trial, "preemptions_total")[PARTITION, "guaranteed"] == 1
    assert of(trial, "preemption_victims_total") == {(PARTITION,): 2}
    assert of(trial, "truces") == {(PARTITION,): 1}
    assert of(trial, "preemptions_held_back_total")[PARTITION,] > 0
    trial.waits(301)
    assert of(trial, "truces") == {(PARTITION,): 0}


def test_questions_about_predicates_are_counted_by_what_came_of_them() -> None:
    bench = Bench()
    bench.hear(Settings(values={}, capabilities=[PREDICATES]))
    bench.furnish()
    bench.tell(ask("k"))
    bench.schedule()
    verdicts = bench.worker.replica.partition
    assert verdicts is not None
    bench.hear(PredicatesAnswered(question=verdicts.fleet.predicates.verdicts.numbers))
    name = bench.worker.name
    found = samples(told(bench), "predicate_questions_total")
    assert found == {(name, "asked"): 1, (name, "answered"): 1, (name, "unanswered"): 0}
    bench.tell(ask("k2"))
    bench.schedule()
    bench.worker.tick(NOW + 1)
    assert samples(told(bench), "predicate_questions_total")[name, "unanswered"] == 1


def test_releases_without_an_effect_are_counted() -> None:
    bench = Bench()
    bench.furnish()
    assert samples(told(bench), "releases_ignored_total") == {(bench.worker.name,): 0}
    wrong = [AllocationRelease(application_id="a", allocation_key=f"k{number}") for number in range(3)]
    bench.tell(AllocationRequest(releases=AllocationReleasesRequest(allocations_to_release=wrong)))
    assert samples(told(bench), "releases_ignored_total") == {(bench.worker.name,): 3}


def test_steps_that_wait_for_the_disk_are_told() -> None:
    recorder, trial = Recorder(), Trial()
    for number in range(3):
        recorder.note(at=float(number), body=b"x" * 100)
    recorder.flushed()
    found = list(own_figures.families(Replica(partition=PARTITION, epoch=1), trial.partition, Histogram(), recorder, 0))
    assert samples(found, "journal_steps_total") == {(PARTITION,): 3}
    [unkept] = samples(found, "journal_unkept_bytes").values()
    assert 300 < unkept < UNKEPT_BYTES_MAX
