"""The measuring tools: they detect regressions, workloads are what the tables say, and documents follow the figures."""

import gc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as program
from benchmarks import auditor, configuration, kubernetes_predicates, neighbours, rest, simulate, store, tenants
from benchmarks.calibration import as_in_a_worker, loop
from benchmarks.catalogue import BENCHMARKS
from benchmarks.charts import PATHS, Curve, Panel, chart, drawn
from benchmarks.document import TABLES, render_files, rewritten
from benchmarks.end_to_end import latency_figures, measured, prepare, timed
from benchmarks.engine import EVERY, Engine
from benchmarks.expensive import ROWS, write_selector
from benchmarks.growth import Point, figures, points
from benchmarks.local_worker import NAME
from benchmarks.longest_turn import SCENARIOS
from benchmarks.must import GROWTH, RATIOS, growth, verdicts
from benchmarks.processor_time import budget_figures, reckoned, spread
from benchmarks.recovery import Shape, write_journal
from benchmarks.resource_managers import Heard, TooSlow
from benchmarks.results import (
    COMMITTED,
    Benchmark,
    Figure,
    Machine,
    Plan,
    Results,
    absent,
    checked,
    merged,
    read,
    regressions,
    table,
    write,
)
from benchmarks.shapes import SHAPES, Workload, nearly_full
from benchmarks.systems import WAYS
from tests.benchmarks.fake_scheduler import CONNECTED, fake
from tests.invariants import check
from yunishard.common.config.validation import find_build_problems, load
from yunishard.common.process.gc_tuning import YOUNG_OBJECTS
from yunishard.common.rest.catalogue import TABLE_NAMES
from yunishard.partition_worker.journal.database import JournalReader
from yunishard.partition_worker.journal.files import Files
from yunishard.partition_worker.partition_host import PartitionHost
from yunishard.partition_worker.worker import Worker

HERE = Machine("a processor", 2, "3.11.7")
TINY = Plan(share=0.01, rounds=1)
TINIER = Plan(share=0.002, rounds=1)
SVG = "{http://www.w3.org/2000/svg}"


def committed(*figures: Figure) -> Results:
    return Results(HERE, list(figures))


def cost(value: float | None, name: str = "engine/two-queues") -> Figure:
    return Figure(name, 20_000.0, "allocations/s", value)


def test_a_cost_that_is_a_fifth_above_the_committed_one_is_a_regression() -> None:
    before = committed(cost(10.0))
    assert [bool(regressions(before, [cost(now)])) for now in (5.0, 10.0, 11.9, 12.1, 30.0)] == [0, 0, 0, 1, 1]
    [line] = regressions(before, [cost(13.0)])
    assert line == (
        "engine/two-queues: costs +30 % (at most +20 %), 10 committed, 13 now: 2e+04 allocations/s; "
        "look closer: python -m benchmarks engine"
    )
    assert regressions(committed(cost(None)), [cost(99.0)]) == regressions(before, [cost(None)]) == []
    was = committed(cost(10.0, "engine/old"), cost(10.0, "memory/ask"), cost(None, "engine/rate"))
    assert absent(was, [cost(10.0, "engine/new")], ["engine"]) == [
        "engine/old: committed, but not measured any more; python -m benchmarks --update engine",
        "engine/new: measured, but not committed yet; python -m benchmarks --update engine",
    ]


def test_a_regression_is_measured_again_with_more_rounds() -> None:
    for costs, rounds, regression in (
        ([10.0], [1], False),
        ([13.0, 10.5], [1, 2], False),
        ([14.0, 13.0], [1, 2], True),
    ):
        found, plans = iter(costs), []

        def measure(plan: Plan, found: Iterator[float] = found, plans: list[int] = plans) -> Iterator[Figure]:
            plans.append(plan.rounds)
            yield cost(next(found))

        benchmark = Benchmark("engine", "", measure, judged=True)
        _, complaints = checked([benchmark], committed(cost(10.0)), TINY, lambda _: None)
        assert (plans, bool(complaints)) == (rounds, regression)


def test_the_check_fails_on_an_engine_that_is_slower_than_committed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real benchmark of real code, compared with a tenth of its own figures."""
    found, doctored = tmp_path / "measured.json", tmp_path / "doctored.json"
    assert program.main(["preemption", "--rounds", "1", "--json", str(found)]) == 0
    [one] = read(found).figures
    assert one.cost is not None
    for share, status in ((3.0, 0), (0.1, 1)):
        write(doctored, Results(read(found).machine, [Figure(one.name, one.value, one.unit, one.cost * share)]))
        capsys.readouterr()
        assert program.main(["preemption", "--rounds", "1", "--check", "--committed", str(doctored)]) == status
    assert "look closer: python -m benchmarks preemption" in capsys.readouterr().out


def test_the_calibration_loop_is_the_one_of_the_committed_figures() -> None:
    """If this fails, the loop was changed, and every figure has to be measured again."""
    assert loop(2_000) == loop(2_000) == 20_221
    before = gc.get_threshold()
    with as_in_a_worker():
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_every_shape_is_deterministic_and_every_timed_ask_runs() -> None:
    for name, shape in EVERY.items():
        for nodes, asks in ((10, 100), (7, 61)):
            workload = shape(nodes, asks)
            assert workload == shape(nodes, asks), name
            assert find_build_problems(load(workload.config).partitions[0]) == [], name
            engine = Engine(workload)
            engine.run()
            check(engine.partition)
            running = workload.running if workload.released else workload.running + asks
            assert (engine.partition.running_allocations, workload.timed) == (running, asks), name


def test_a_shape_has_the_queues_and_asks_of_its_description() -> None:
    for name, leaves, applications, needs, priorities in (
        ("two-queues", 2, 2, 1, 1),
        ("many-queues", 500, 500, 1, 1),
        ("many-apps", 1, 1000, 1, 1),
        ("mixed", 20, 200, 12, 5),
    ):
        assert sum(queue.leaf for queue in Engine(SHAPES[name](5, 10)).partition.tree) == leaves, name
        asks = SHAPES[name](10, 3000).asks
        kinds = {tuple(ask.resource_per_alloc.items()) for ask in asks}
        ids = {ask.application_id for ask in asks}
        assert (len(ids), len(kinds), len({ask.priority for ask in asks})) == (applications, needs, priorities), name


def test_results_are_written_read_merged_and_compared(tmp_path: Path) -> None:
    found = committed(Figure("engine/a", 123456.789, "x", 0.123456), Figure("grpc/a", 5.0, "ms", reference=2.0))
    write(tmp_path / "results.json", found)
    rounded = committed(Figure("engine/a", 123500.0, "x", 0.1235), Figure("grpc/a", 5.0, "ms", reference=2.0))
    assert read(tmp_path / "results.json") == rounded
    before = committed(Figure("engine/gone", 2.0, "x"), Figure("memory/a", 3.0, "x"))
    names = [one.name for one in merged(before, committed(Figure("engine/new", 5.0, "x"))).figures]
    assert names == ["memory/a", "engine/new"]
    line = table([Figure("grpc/a", 30.0, "x", reference=2.0)], committed(Figure("grpc/a", 20.0, "x")))
    assert "+50.0 % of committed 20" in line
    assert "15.00 times the reference's 2" in line
    kept = read(COMMITTED).figures
    assert {one.benchmark for one in kept} <= {one.name for one in BENCHMARKS}
    assert {one.benchmark for one in kept if one.cost} >= {one.name for one in BENCHMARKS if one.judged}


def test_every_requirement_has_a_verdict_and_only_real_declines_fail() -> None:
    named = [one.what for one in verdicts(TINIER._replace(reference=fake), fake)]
    assert [what.partition(",")[0] for what in named[: len(RATIOS)]] == list(RATIOS)
    assert sum(what.startswith("latency") for what in named) == 2
    assert sum(what.startswith("the longest turn") for what in named) == len(SCENARIOS)
    assert len(named) == len(RATIOS) + 2 + len(SCENARIOS) + len(list(points(ends=True))) // 2

    def declining(point: Point) -> float:
        return 50.0 if (point.sorting, point.room) == ("binpacking", "full") and point.at > 10_000 else 100.0

    failed = [one.what for one in growth(declining, 1) if not one.holds]
    assert failed == ["binpacking, full: 100,000 asks", "binpacking, full: 100,000 nodes"]
    assert all(least >= 0.60 for least in GROWTH.values())
    rounds = iter(range(10**6))
    assert all(one.holds for one in growth(lambda _: 10.0 if next(rounds) % 10 in (3, 5) else 100.0, 5))
    assert all(one.holds for one in growth(lambda _: 0.95 ** next(rounds), 5)), "the machine slows down steadily"


def test_growth_curves_have_every_point_at_its_size() -> None:
    seen: list[Workload] = []
    found = list(figures("growth-x", lambda workload: float(len(seen)) if seen.append(workload) else 0.0, TINIER))  # type: ignore[func-returns-value]
    assert [one.name for one in found] == [f"growth-x/{point.name}" for point in points()]
    sizes = {point: (len(work.nodes), len(work.asks)) for point, work in zip(points(), seen, strict=True)}
    assert sizes[Point("fair", "empty", "asks", 100_000)] == (2, 200)
    assert sizes[Point("binpacking", "full", "nodes", 20_000)] == (40, 20)


def test_the_document_and_the_drawings_show_the_committed_figures() -> None:
    outdated = [path.name for path, text in render_files(read(COMMITTED)) if path.read_text(encoding="utf-8") != text]
    assert outdated == [], "python -m benchmarks.document writes them"
    found = committed(
        Figure("grpc/churn", 30_000.0, "allocations/s", reference=6_000.0),
        Figure("preemption/decision", 5.5, "ms"),
        Figure("latency/grpc/idle/median", 1.5, "ms", reference=1.0),
    )
    text = rewritten("".join(f"<!-- figures {name} -->\n<!-- end -->\n" for name in TABLES), found)
    for row in (
        "| churn | not measured | not measured | not measured | 30,000 | 6,000 | 5 | 5 |",
        "| idle, median | not measured | 1.5 | 1 | 1.5 | 2.5 |",
        "| a decision to preempt, 2,000 candidates on 500 nodes | at most 5 ms | 5.5 ms | **no** |",
    ):
        assert row in text


def test_drawings_have_every_curve_at_its_height() -> None:
    def curves(text: str) -> list[list[tuple[float, ...]]]:
        lines = ElementTree.fromstring(text).iter(f"{SVG}polyline")
        return [[tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()] for line in lines]

    flat, falling = Curve("flat", [(1, 100), (10, 100)]), Curve("a < b", [(1, 100), (10, 50)])
    [[(_, first), (_, same)], [(_, high), (_, low)]] = curves(chart([Panel("t", "x", [flat, falling])], "y"))
    assert first == same == high
    assert 250.0 - low == pytest.approx((250.0 - high) / 2)
    all_figures = [Figure(f"{path}/{point.name}", 2e4, "/s") for path in list(PATHS)[:2] for point in points()]
    found = dict(drawn(committed(*all_figures)))
    assert list(found) == ["growth-engine.svg", "growth-native.svg"]
    assert all([len(curve) for curve in curves(text)] == [7] * 4 + [5] * 4 for text in found.values())


def test_the_command_measures_what_is_named_and_refuses_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [one.name for one in BENCHMARKS]
    file = tmp_path / "found.json"
    assert program.main(["preemption", "--quick", "--rounds", "1", "--json", str(file)]) == 0
    assert [one.name for one in read(file).figures] == ["preemption/decision"]
    for words, complaint in (
        (["nothing"], "there is no nothing; there are engine, engine-compiled, native"),
        (["--quick", "--update"], "go without --quick"),
        (["--quick", "--check"], "go without --quick"),
    ):
        with pytest.raises(SystemExit):
            program.main(words)
        assert complaint in capsys.readouterr().err
    assert program.main(["--own-network", "--reference-dir", str(tmp_path)]) == 2
    assert "there is no Go source of the reference" in capsys.readouterr().err


def test_a_run_ends_when_every_ask_runs_or_one_is_refused() -> None:
    workload = SHAPES["churn"](10, 120)
    assert measured(fake, workload, 0).allocations == 120
    assert len(CONNECTED[-1].heard.running) == 50
    assert CONNECTED[-1].closed
    found = list(latency_figures(TINY._replace(reference=fake), {"grpc": fake}))
    assert len(found) == 4
    assert all(one.value > 0 and one.reference for one in found)
    heard = Heard()
    heard.take(nodes=1, refused=["n2: no"])
    with pytest.raises(TooSlow, match=r"1 nodes, .* 1 refusals: .'n2: no'."):
        heard.until(lambda: heard.nodes == 2)
    with pytest.raises(TooSlow, match="0 allocations"):
        Heard().until(lambda: False, patience_s=0)


def test_more_cores_help_until_a_process_is_busy_all_the_time() -> None:
    us = {"client": 5.0, "rmproxy": 4.0, "broker": 1.0, "partition_worker": 20.0}
    for cores, partitions, busiest_us in ((1, 1, 30), (2, 1, 20), (2, 4, 15), (8, 2, 10), (64, 64, 5)):
        assert reckoned(us, cores=cores, partitions=partitions) == pytest.approx(1e6 / busiest_us)
    workload = spread(12, 120, 3)
    assert [one.name for one in load(workload.config).partitions] == ["p0", "p1", "p2"]
    assert {ask.partition_name for ask in workload.asks[:3]} == {"p0", "p1", "p2"}


def test_several_hosts_are_limited_by_a_process_their_cores_or_the_log() -> None:
    us = {
        "client": 5.0,
        "rmproxy": 1.0,
        "broker": 1.0,
        "partition_worker": 25.0,
        store.SESSIONS: 3.0,
        store.SENDER: 0.5,
    }
    for partitions, busiest_us in ((1, 25), (10, 2.5), (25, 1.0), (100, 1.0)):
        assert store.reckoned(us, 400, partitions=partitions) == pytest.approx(1e6 / busiest_us)
    assert store.reckoned(us, 4_000, partitions=25) == store.LOG_BYTES_PER_SECOND / 4_000
    assert store.reckoned(us | {"partition_worker": 96.0}, 400, partitions=100) == pytest.approx(1e6 * 48 / 98)


@pytest.mark.processes
@pytest.mark.timeout(400)
def test_real_systems_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for way in WAYS.values():
        with way() as up:
            for shape in (*SHAPES.values(), nearly_full):
                workload = shape(10, 200)
                rm = up.connect(workload.config)
                try:
                    prepare(rm, workload, 0)
                    run = timed(up, rm, workload)
                finally:
                    rm.close()
                assert run.allocations == 200
                assert {"client", "rmproxy", "broker", "partition_worker"} <= run.cpu_us().keys()
    names = {one.name for one in budget_figures(TINY) if one.cost}
    assert names == {f"budget/{way}/{what}" for way in ("native", "grpc") for what in ("partition_worker", "server")}
    for benchmark in BENCHMARKS:
        if benchmark.name in ("memory", "footprint", "reload", "longest-turn", "queue-tree", "store"):
            assert all(one.value >= 0 for one in benchmark.measured(Plan(share=0.02, rounds=1))), benchmark.name
    files = Files(tmp_path, NAME)
    steps = write_journal(files, Shape("small", nodes=10, allocations=150, applications=7, tail=40))
    worker = Worker(PartitionHost(partition=NAME, epoch=2), journalled=True)
    with closing(JournalReader(files)) as reader:
        meta, snapshot = reader.open_snapshot()
        worker.recover(snapshot, reader.read_steps(meta.snapshot + 1))
    assert steps >= 40
    assert worker.partition is not None
    assert worker.partition.running_allocations == 150
    share, *_ = auditor.figures(Plan(share=0.04, rounds=1))
    assert 0 < share.value < 100
    assert len(list(configuration.figures(TINY))) == 7
    assert all(one.value > 0 for one in simulate.figures(TINY))
    assert all(one.value > 0 for one in kubernetes_predicates.figures(TINY))
    monkeypatch.setattr(tenants, "SETTLING_S", 0.1)
    monkeypatch.setattr(tenants, "SECONDS_MIN", 0.5)
    systems = {one.name.rpartition("/")[0] for one in tenants.figures(TINY)}
    busy = {f"tenants/busy, beside {idle} idle and {busy} busy" for idle, busy in ((0, 0), (1, 0), (0, 1))}
    assert systems == busy | {"tenants/1 idle", "tenants/2 idle"}
    answers = rest.measured(rest.Size(nodes=20, queues=10, applications=30), count=2, seconds=3.0)
    names = {one.name for one in answers if one.value > 0}
    assert names >= {f"rest/{name}/{what}" for name in rest.PATHS for what in ("median", "99 of 100", "answers")}
    assert names >= {f"rest/table of {name}/all rows" for name in TABLE_NAMES}


# Neighbours -----------------------------------------------------------------------------------------------------------


def waits(p99_ms: float) -> neighbours.Waits:
    return neighbours.Waits(400, 10.0, p99_ms, 2_000.0)


@pytest.mark.parametrize(
    ("p99_ms", "ended", "message"),
    [
        (249.0, [], ""),
        (251.0, [], "heavy: one ask of a hundred beside it waited 251 ms, at most 250 are right\n"),
        (9.0, ["broker"], "heavy: ended: broker\n"),
    ],
)
def test_neighbours_that_wait_too_long_or_processes_that_end_fail_the_program(
    p99_ms: float,
    ended: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = neighbours.Found("heavy", "64 KB", waits(p99_ms), waits(3_000.0), waits(70.0), ended)
    monkeypatch.setattr(neighbours, "measure", lambda row, seconds: found)
    assert neighbours.main([ROWS[0].name]) == bool(message)
    output = capsys.readouterr()
    assert f"| heavy | 64 KB | {p99_ms:.0f} ms | 3,000 ms | 2,000 ms" in output.out
    assert output.err.endswith(message)


def test_the_table_of_neighbours_replaces_the_earlier_one_in_the_document(tmp_path: Path) -> None:
    document = tmp_path / "limits.md"
    document.write_text("before\n<!-- neighbours -->\nearlier\n<!-- end -->\nafter\n")
    neighbours.update_document([neighbours.Found("heavy", "64 KB", waits(9), waits(9), waits(9), [])], document)
    lines = document.read_text().splitlines()
    assert (lines[:2], lines[-2:], len(lines)) == (["before", "<!-- neighbours -->"], ["<!-- end -->", "after"], 7)


def test_the_document_has_a_row_for_each_expensive_input() -> None:
    text = neighbours.LIMITS.read_text()
    assert [one.name for one in ROWS if f"| {one.name} | {one.limit} |" not in text] == []


def test_an_expensive_input_and_its_neighbours_run_against_a_real_system() -> None:
    [row] = [one for one in ROWS if one.name.startswith("2,500 foreign allocations")]
    found = neighbours.measure(row, 1.0)
    assert found.ended == []
    assert found.beside.count >= 30
    assert found.same.count >= 30
    assert found.status.count >= 1


def test_the_expensive_selector_is_within_its_limits() -> None:
    selector = write_selector(7)
    assert 60_000 < len(selector) <= 65_536
    assert selector.count("||") < 64
