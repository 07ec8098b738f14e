"""The page of a filled system is what Prometheus accepts, and what we say of ourselves keeps to its customs."""

import re
from pathlib import Path

import pytest

from tests.metrics.series import Family

pytestmark = pytest.mark.processes

OURS = "yunishard_"
DOCUMENT = Path("docs/metrics.md")


def ours(families: dict[str, Family]) -> list[Family]:
    return [family for family in families.values() if family.name.startswith(OURS)]


def test_it_has_no_series_twice_and_each_name_has_one_help_and_one_type(families: dict[str, Family]) -> None:
    series = [(name, *labels.items()) for family in families.values() for name, labels, _ in family.series]
    assert len(series) == len(set(series))
    assert all(family.help and family.kind and family.series for family in families.values())


def test_families_come_by_name_and_their_series_by_the_values_of_their_labels(families: dict[str, Family]) -> None:
    assert list(families) == sorted(families)
    for family in families.values():
        if family.kind != "histogram":
            of_names: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
            for _, labels, _ in family.series:
                of_names.setdefault(tuple(labels), []).append(tuple(labels.values()))
            assert all(values == sorted(values) for values in of_names.values()), family.name


def test_numbers_have_their_shortest_form(text: str) -> None:
    numbers = [line.rpartition(" ")[2] for line in text.splitlines() if line[0] != "#"]
    assert not [number for number in numbers if re.search(r"\.0$|\d{7,}\.|^\d{7,}$|E", number)]


def test_both_resource_managers_are_there_and_neither_is_taken_for_the_other(families: dict[str, Family]) -> None:
    for name in ("yunikorn_queue_app", "yunikorn_queue_resource", "yunishard_decisions_total"):
        assert {labels["partition"] for _, labels, _ in families[name].series} == {"rm-1_default", "rm-2_default"}


def test_every_process_tells_of_itself(families: dict[str, Family]) -> None:
    told = {
        (labels["process"], labels.get("partition", "")): value
        for _, labels, value in families["yunishard_process_up"].series
    }
    assert told == {
        ("broker", ""): 1,
        ("rmproxy", ""): 1,
        ("supervisor", ""): 1,
        ("webservice", ""): 1,
        ("partition_worker", "rm-1_default"): 1,
        ("partition_worker", "rm-2_default"): 1,
    }
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds", "threads"):
        of_processes = families[f"yunishard_process_{name}"].series
        assert len(of_processes) == len(told), name
        assert all(value > 0 for _, _, value in of_processes), name


# Customs --------------------------------------------------------------------------------------------------------------


def test_our_names_say_what_they_count_in_and_only_counters_are_totals(families: dict[str, Family]) -> None:
    for family in ours(families):
        assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", family.name), family.name
        assert family.name.endswith("_total") == (family.kind == "counter"), family.name
        assert not re.search(r"_(count|sum|bucket|info|created)$", family.name), family.name
        assert not re.search(r"milli|micro|minute|hour|kilo|mega|percent|_ms|_kb|_mb", family.name), family.name
        for unit in ("seconds", "bytes"):
            told = unit in re.split(r"\. (?:worry|investigate)", family.help.lower())[0]
            assert bool(re.search(rf"_{unit}(_total)?$", family.name)) == told, f"{family.name}: {family.help}"


def test_our_labels_are_words(families: dict[str, Family]) -> None:
    for family in ours(families):
        assert all(re.fullmatch("[a-z]+", label) for label in family.labels), family.name
        assert family.kind not in family.labels


def test_our_help_is_a_sentence(families: dict[str, Family]) -> None:
    for family in ours(families):
        assert family.help[0].isupper(), family.name
        assert family.help.endswith("."), family.name
        assert 25 < len(family.help) < 400, family.name


def test_what_never_shrinks_is_a_counter_and_nothing_else_is_negative(families: dict[str, Family]) -> None:
    assert all(value >= 0 for family in ours(families) for _, _, value in family.series)


# The document ---------------------------------------------------------------------------------------------------------


def table(families: dict[str, Family]) -> list[str]:
    """Our families as the document lists them; `python -m tests.metrics` prints it."""
    rows = [
        f"| `{family.name}` | {family.kind} | {', '.join(family.labels)} | {family.help} |" for family in ours(families)
    ]
    return ["| name | type | labels | meaning |", "|---|---|---|---|", *rows]


def test_the_document_lists_all_of_our_families(families: dict[str, Family]) -> None:
    of_the_page, _, _ = DOCUMENT.read_text().partition("## Metrics of the Kubernetes processes")
    listed = [line for line in of_the_page.splitlines() if line.startswith("|")]
    assert listed == table(families)
