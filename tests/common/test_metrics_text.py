"""Series of several partitions are rendered as one text that Prometheus reads."""

import doctest
import json
import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from yunishard.common.process import metrics_text
from yunishard.common.process.metrics import Family, decode_families
from yunishard.common.process.metrics_text import number, render


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
    named = [(f"p{number}", found) for number, found in enumerate(partitions)]
    return render(named, several=len(partitions) > 1)


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


def test_of_several_partitions_the_only_one_that_answers_is_named_all_the_same() -> None:
    shown = render([("p1", [family("node", (["active"], 2))])], several=True)
    assert b'node{partition="p1",state="active"} 2\n' in shown


def test_a_series_that_names_its_partition_itself_is_not_named_twice() -> None:
    drained = [family("drain", (["p0"], 7), labels=("partition",))]
    assert lines(drained, []) == ['drain{partition="p0"} 7']


def test_what_is_about_the_system_names_no_partition() -> None:
    away = family("away", (["rm-1"], 7), labels=("rm",))
    assert b'away{rm="rm-1"} 7\n' in render([("p0", []), ("p1", [])], [away], several=True)


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
        b'lag_bucket{le="0.5"} 1\nlag_bucket{le="10"} 3\nlag_bucket{le="+Inf"} 7\nlag_sum 70.5\nlag_count 7\n'
    )


def test_histograms_of_several_partitions_have_the_partition_label() -> None:
    assert lines([histogram(([], [1, 0, 1], 20.25))], [histogram(([], [0, 2], 2), bounds=(1,))]) == [
        'lag_bucket{partition="p0",le="0.5"} 1',
        'lag_bucket{partition="p0",le="10"} 1',
        'lag_bucket{partition="p0",le="+Inf"} 2',
        'lag_sum{partition="p0"} 20.25',
        'lag_count{partition="p0"} 2',
        'lag_bucket{partition="p1",le="1"} 0',
        'lag_bucket{partition="p1",le="+Inf"} 2',
        'lag_sum{partition="p1"} 2',
        'lag_count{partition="p1"} 2',
    ]


def test_a_histogram_comes_by_its_labels_and_the_bound_after_them() -> None:
    one = histogram((["y"], [0, 1], 9), (["x"], [1, 0], 1), bounds=(5,), labels="z")
    assert lines([one]) == [
        'lag_bucket{z="x",le="5"} 1',
        'lag_bucket{z="x",le="+Inf"} 1',
        'lag_sum{z="x"} 1',
        'lag_count{z="x"} 1',
        'lag_bucket{z="y",le="5"} 0',
        'lag_bucket{z="y",le="+Inf"} 1',
        'lag_sum{z="y"} 9',
        'lag_count{z="y"} 1',
    ]


def test_a_histogram_is_what_the_client_library_reads() -> None:
    shown = written([histogram(([], [1, 2, 4], 70.5))]).decode()
    [read] = text_string_to_metric_families(shown)
    assert read.type == "histogram"
    assert [(sample.name, sample.labels.get("le"), sample.value) for sample in read.samples] == [
        ("lag_bucket", "0.5", 1),
        ("lag_bucket", "10", 3),
        ("lag_bucket", "+Inf", 7),
        ("lag_sum", None, 70.5),
        ("lag_count", None, 7),
    ]


def test_families_of_one_name_from_several_processes_have_one_help_and_one_type() -> None:
    one = Family("up", "gauge", "Whether.", ("process", "partition"), [(("worker", "p0"), 1)])
    other = Family("up", "gauge", "Whether it is.", ("process",), [(("broker",), 1)])
    assert render([("p0", [one])], [other]) == (
        b'# HELP up Whether.\n# TYPE up gauge\nup{partition="p0",process="worker"} 1\nup{process="broker"} 1\n'
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
        (-3.0, "-3"),
        (999_999.0, "999999"),
        (1e6, "1e+06"),
        (-1_234_567.5, "-1.2345675e+06"),
        (2.0**70, "1.1805916207174113e+21"),
        (0.0001, "0.0001"),
        (0.000012, "1.2e-05"),
        (math.nan, "NaN"),
        (-math.inf, "-Inf"),
    ],
)
def test_a_number_is_written_in_its_shortest_form(value: float, shown: str) -> None:
    assert number(value) == shown


def test_without_partitions_there_are_no_metrics() -> None:
    assert render([]) == b""


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(metrics_text).failed == 0
