"""Metrics of several processes are written as one page that Prometheus reads."""

import json
import math
import time

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from yunishard.common.process.metrics import Family, decode_families
from yunishard.webservice.metrics import FamilyCollector, RestMetrics, wants_openmetrics, write_page


def render(*sources: FamilyCollector, is_openmetrics: bool = False) -> bytes:
    registry = CollectorRegistry()
    for source in sources:
        registry.register(source)
    return write_page(registry, is_openmetrics=is_openmetrics)


def family(
    name: str, *samples: tuple[list[str], float], kind: str = "gauge", labels: tuple[str, ...] = ("state",)
) -> Family:
    shape = {"name": name, "kind": kind, "help": f"About {name}.", "labels": labels, "samples": samples}
    [made] = decode_families(json.dumps([shape]).encode())
    return made


def histogram(
    *distributions: tuple[list[str], list[int], float], bounds: tuple[float, ...] = (0.5, 10.0), labels: str = ""
) -> Family:
    shape = {"name": "lag", "kind": "histogram", "help": "About.", "labels": [*labels], "samples": []}
    [made] = decode_families(json.dumps([{**shape, "bounds": bounds, "distributions": distributions}]).encode())
    return made


def written(*partitions: list[Family]) -> bytes:
    """Of as many partitions, called `p0` and so on."""
    several = len(partitions) > 1
    return render(*(FamilyCollector(found, f"p{n}" if several else "") for n, found in enumerate(partitions)))


def lines(*partitions: list[Family]) -> list[str]:
    """What is shown, without what is said about it."""
    return [line for line in written(*partitions).decode().splitlines() if line[0] != "#"]


def test_series_of_several_partitions_have_the_partition_label() -> None:
    one = [family("node", (["active"], 2), (["failed"], 1))]
    other = [family("node", (["active"], 3))]
    assert written(one, other) == (
        b"# HELP node About node.\n# TYPE node gauge\n"
        b'node{partition="p0",state="active"} 2\n'
        b'node{partition="p0",state="failed"} 1\n'
        b'node{partition="p1",state="active"} 3\n'
    )


def test_a_partition_that_stands_alone_has_the_labels_of_yunikorn() -> None:
    assert lines([family("node", (["active"], 2))]) == ['node{state="active"} 2']


def test_a_series_that_names_its_partition_itself_is_not_named_twice() -> None:
    drained = [family("drain", (["p0"], 7), labels=("partition",))]
    assert lines(drained, []) == ['drain{partition="p0"} 7']


def test_what_is_about_the_system_names_no_partition() -> None:
    away = family("away", (["rm-1"], 7), labels=("rm",))
    assert b'away{rm="rm-1"} 7\n' in render(FamilyCollector([], "p0"), FamilyCollector([away]))


def test_families_come_by_name_and_series_by_their_labels() -> None:
    shown = written([family("b", (["y"], 1), (["x"], 1)), family("a", ([], 1), labels=())]).decode()
    assert [line for line in shown.splitlines() if line[0] != "#"] == ["a 1", 'b{state="x"} 1', 'b{state="y"} 1']


def test_labels_come_by_name() -> None:
    shown = written([family("q", (["running", "root.a"], 1), labels=("state", "queue"))])
    assert b'q{queue="root.a",state="running"} 1\n' in shown


def test_a_counter_keeps_its_name_with_or_without_total() -> None:
    shown = written([family("a_total", (["x"], 1), kind="counter"), family("a", (["x"], 1), kind="counter")]).decode()
    assert "# TYPE a counter\n" in shown
    assert "# TYPE a_total counter\n" in shown


def test_a_bucket_of_a_histogram_counts_what_is_below_it_too() -> None:
    assert written([histogram(([], [1, 2, 4], 70.5))]) == (
        b"# HELP lag About.\n# TYPE lag histogram\n"
        b'lag_bucket{le="0.5"} 1\nlag_bucket{le="10"} 3\nlag_bucket{le="+Inf"} 7\nlag_count 7\nlag_sum 70.5\n'
    )


def test_histograms_of_several_partitions_have_the_partition_label() -> None:
    assert lines([histogram(([], [1, 0, 1], 20.25))], [histogram(([], [0, 2], 2), bounds=(1,))]) == [
        'lag_bucket{partition="p0",le="0.5"} 1',
        'lag_bucket{partition="p0",le="10"} 1',
        'lag_bucket{partition="p0",le="+Inf"} 2',
        'lag_count{partition="p0"} 2',
        'lag_sum{partition="p0"} 20.25',
        'lag_bucket{partition="p1",le="1"} 0',
        'lag_bucket{partition="p1",le="+Inf"} 2',
        'lag_count{partition="p1"} 2',
        'lag_sum{partition="p1"} 2',
    ]


def test_a_histogram_is_what_the_client_library_reads() -> None:
    shown = written([histogram(([], [1, 2, 4], 70.5))]).decode()
    [read] = text_string_to_metric_families(shown)
    assert read.type == "histogram"
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in read.samples] == [
        ("lag_bucket", "0.5", 1),
        ("lag_bucket", "10", 3),
        ("lag_bucket", "+Inf", 7),
        ("lag_count", None, 7),
        ("lag_sum", None, 70.5),
    ]


def test_families_of_one_name_from_several_processes_have_one_help_and_one_type() -> None:
    one = Family("up", "gauge", "Whether.", ("process", "partition"), [(("worker", "p0"), 1)])
    other = Family("up", "gauge", "Whether it is.", ("process",), [(("broker",), 1)])
    assert render(FamilyCollector([one]), FamilyCollector([other])) == (
        b'# HELP up Whether.\n# TYPE up gauge\nup{process="broker"} 1\nup{partition="p0",process="worker"} 1\n'
    )


def test_a_family_that_is_of_another_type_than_the_first_of_its_name_is_left_out() -> None:
    assert lines([family("a", ([], 1), labels=()), family("a", ([], 2), kind="counter", labels=())]) == ["a 1"]


def test_queues_of_two_partitions_with_one_metric_name_stay_apart() -> None:
    one = [family("yunikorn_root_a_b_queue_container", (["released"], 1), kind="counter")]
    assert lines(one, one) == [
        'yunikorn_root_a_b_queue_container{partition="p0",state="released"} 1',
        'yunikorn_root_a_b_queue_container{partition="p1",state="released"} 1',
    ]


def test_a_family_without_series_is_left_out() -> None:
    assert written([family("a"), histogram(labels="z")]) == b""


def test_the_text_is_what_the_client_library_reads() -> None:
    odd = 'quote " slash \\ line \n end'
    shown = written([family("node", ([odd], 1.68e10), kind="gauge"), family("n_total", (["a"], 7), kind="counter")])
    read = {found.name: found for found in text_string_to_metric_families(shown.decode())}
    assert read["node"].samples[0].labels == {"state": odd}
    assert read["node"].samples[0].value == 1.68e10
    assert (read["n"].type, read["n"].samples[0].name) == ("counter", "n_total")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (21.0, "21"),
        (-3.0, "-3"),
        (999_999.0, "999999"),
        (1e6, "1e+06"),
        (2.0**70, "1.1805916207174113e+21"),
        (0.0001, "0.0001"),
        (0.000012, "1.2e-05"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
    ],
)
def test_a_number_is_written_in_its_shortest_form(value: float, shown: str) -> None:
    collector = FamilyCollector([Family("a", "gauge", "About a.", (), [((), value)])])
    assert render(collector).decode().splitlines()[-1] == f"a {shown}"


def test_without_partitions_there_are_no_metrics() -> None:
    assert written() == b""


def test_requests_are_counted_by_route_and_status_and_timed() -> None:
    metrics = RestMetrics()
    metrics.record("GET", "/ws/v1/queues", 200, 0.002)
    shown = write_page(metrics.registry, is_openmetrics=False).decode().splitlines()
    assert 'yunishard_rest_requests_total{method="GET",route="/ws/v1/queues",status="200"} 1' in shown
    assert 'yunishard_rest_request_seconds_bucket{route="/ws/v1/queues",le="0.005"} 1' in shown


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_the_page_of_2000_queues_takes_less_than_300_ms_of_a_processor(*, is_openmetrics: bool) -> None:
    """Decision 2 has the figures, less than half of it."""
    kinds = [
        (state, kind) for state in ("max", "guaranteed", "allocated", "pending") for kind in ("memory", "vcore", "pods")
    ]
    resources = [((f"root.q{n}", *kind), float(n)) for n in range(2000) for kind in kinds]
    names = ("queue", "state", "resource")
    families = [Family("yunikorn_queue_resource", "gauge", "Resources.", names, resources)]
    families += [family(f"yunikorn_root_q{n}_queue_container", (["allocated"], n), kind="counter") for n in range(2000)]

    def measure() -> float:
        began = time.thread_time()
        render(FamilyCollector(families, "rm-1_default"), is_openmetrics=is_openmetrics)
        return time.thread_time() - began

    assert min(measure() for _ in range(3)) < 0.3


# OpenMetrics ----------------------------------------------------------------------------------------------------------


def test_a_strict_reader_of_openmetrics_finds_the_series_of_the_text() -> None:
    """YuniKorn's counters without `_total`, and its counter beside a gauge of the same name."""
    families = [
        family("queue_app", (["running"], 3)),
        family("queue_app_total", (["failed"], 2), kind="counter"),
        family("root_a_queue_container", (["released"], 1), kind="counter"),
        family("n_total", (['quote " slash \\ line \n end'], 7), kind="counter"),
        histogram(([], [1, 2, 4], 70.5)),
    ]
    text = render(FamilyCollector(families), is_openmetrics=True).decode()
    read = {found.name: found for found in read_openmetrics(text)}
    assert {name: found.type for name, found in read.items()} == {
        "lag": "histogram",
        "n": "counter",
        "queue_app": "gauge",
        "queue_app_total": "unknown",
        "root_a_queue_container": "unknown",
    }
    classic = [line for line in written(families).decode().splitlines() if line[0] != "#"]
    assert [line.replace('le="10.0"', 'le="10"') for line in text.splitlines() if line[0] != "#"] == classic


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1", True),
        ("text/html, application/openmetrics-text", True),
        ("application/openmetrics-text;version=x", True),
        ("text/plain;version=0.0.4", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_openmetrics_is_for_those_who_name_it(accept: str, wanted: bool) -> None:
    assert wants_openmetrics(accept) == wanted
