"""Whatever the dashboard and the alerts speak of is on the page of a filled system, so that they cannot rot."""

import doctest
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict

import pytest
import yaml

from tests.metrics import promql
from tests.metrics.promql import grouped, placeholders, selectors
from tests.metrics.series import Family, answers, narrowed

GRAFANA = Path("deploy/grafana")


class Asked(NamedTuple):
    """An expression, where it stands, and the texts that show labels of what it comes to."""

    where: str
    expression: str
    shown: str


class Rule(TypedDict):
    alert: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


def panels() -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((GRAFANA / "dashboard.json").read_text())["panels"]
    return found


def of_dashboard() -> Iterator[Asked]:
    for panel in panels():
        targets = panel.get("targets", [])
        assert isinstance(targets, list)
        for target in targets:
            yield Asked(f"panel {panel['title']}", target["expr"], target["legendFormat"])


def rules() -> list[Rule]:
    [group] = yaml.safe_load((GRAFANA / "alerts.yaml").read_text())["groups"]
    found: list[Rule] = group["rules"]
    return found


def of_alerts() -> Iterator[Asked]:
    for rule in rules():
        yield Asked(f"alert {rule['alert']}", rule["expr"], " ".join(rule["annotations"].values()))


def of_variables() -> Iterator[Asked]:
    for variable in json.loads((GRAFANA / "dashboard.json").read_text())["templating"]["list"]:
        if variable["type"] == "query":
            inner = variable["query"]["query"].removeprefix("label_values(").removesuffix(")")
            expression, _, label = inner.rpartition(", ")
            yield Asked(f"variable {variable['name']}", expression, "{{" + label + "}}")


ASKED = [*of_dashboard(), *of_alerts(), *of_variables()]


@pytest.mark.processes
@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked.where)
def test_everything_that_is_spoken_of_is_on_the_page(asked: Asked, families: dict[str, Family]) -> None:
    found = [answers(families, selector) for selector in selectors(asked.expression)]
    assert found, asked
    assert all(found), asked
    known = {label for one in found for labels in one for label in labels}
    assert known.issuperset([*grouped(asked.expression), *placeholders(asked.shown)]), asked


RMS = ("rm-1", "rm-2")
WHOLE_SYSTEM = "Whole system (whatever is chosen)"
ALL = ".*"


def rows() -> dict[str, list[Asked]]:
    """What each row of the dashboard asks for."""
    found: dict[str, list[Asked]] = {}
    current = ""
    for panel in panels():
        if panel["type"] == "row":
            current = str(panel["title"])
        targets = panel.get("targets", [])
        assert isinstance(targets, list)
        for target in targets:
            found.setdefault(current, []).append(Asked(str(panel["title"]), target["expr"], target["legendFormat"]))
    return found


def options(families: dict[str, Family], name: str, chosen: Mapping[str, str]) -> str:
    """What the variable stands for if all of its options are chosen, or its value for that."""
    listed = json.loads((GRAFANA / "dashboard.json").read_text())["templating"]["list"]
    [variable] = [one for one in listed if one["name"] == name]
    if "allValue" in variable:
        return str(variable["allValue"])
    expression, _, label = variable["definition"].removeprefix("label_values(").removesuffix(")").rpartition(", ")
    [selector] = selectors(expression)
    values = sorted({labels[label] for labels, _ in narrowed(families, selector, chosen)})
    return f"({'|'.join(map(re.escape, values))})"


def choice(families: dict[str, Family], rm: str = ALL, partition: str = "") -> dict[str, str]:
    """What the variables stand for, as Grafana puts it into expressions: whatever is not chosen is `All`."""
    chosen = {"rm": rm, "queue": ALL, "resource": ALL}
    return {**chosen, "partition": partition or options(families, "partition", chosen)}


@pytest.mark.processes
@pytest.mark.parametrize("rm", RMS)
def test_choosing_one_rm_narrows_every_panel(rm: str, families: dict[str, Family]) -> None:
    [other] = set(RMS) - {rm}
    chosen, missing, foreign = choice(families, rm), list[str](), list[str]()
    for row, asked in rows().items():
        for one in asked:
            for selector in selectors(one.expression):
                found = [labels for labels, _ in narrowed(families, selector, chosen)]
                of_other = [labels for labels in found if any(value.startswith(other) for value in labels.values())]
                foreign += [one.where] if of_other else []
                missing += [] if found else [one.where]
                of_nobody = [labels for labels in found if not {"rm", "partition"} & labels.keys()]
                if of_nobody and row != WHOLE_SYSTEM:
                    assert all("process" in labels for labels in of_nobody), f"{one.where} is about the whole system"
    assert (foreign, missing) == ([], [])


@pytest.mark.processes
def test_choosing_the_only_partition_empties_no_panel(of_one: dict[str, Family]) -> None:
    everything = {"rm": ALL, "partition": ALL, "queue": ALL, "resource": ALL}
    chosen = choice(of_one, partition="rm-1_default")
    emptied = [
        one.where
        for one in of_dashboard()
        for selector in selectors(one.expression)
        if narrowed(of_one, selector, everything) != narrowed(of_one, selector, chosen)
    ]
    assert emptied == []


@pytest.mark.processes
def test_the_variables_have_options_while_there_is_one_partition(of_one: dict[str, Family]) -> None:
    chosen = choice(of_one, rm="rm-1")
    assert chosen["partition"] == r"(rm\-1_default)"
    for asked in of_variables():
        assert all(narrowed(of_one, selector, chosen) for selector in selectors(asked.expression)), asked


@pytest.mark.processes
@pytest.mark.parametrize("rm", [ALL, *RMS])
def test_the_applications_by_state_are_never_negative(rm: str, families: dict[str, Family]) -> None:
    chosen = choice(families, rm)
    shown = dict[str, float]()
    for one in rows()["Applications"]:
        if one.where == "By state":
            [selector] = selectors(one.expression)
            assert re.fullmatch(r"sum( by \(state\) )?\(.*\)", one.expression), "else this test does not evaluate it"
            for labels, value in narrowed(families, selector, chosen):
                state = labels["state"] if "by" in one.expression else one.shown
                shown[state] = shown.get(state, 0) + value
    rms = 2 if rm == ALL else 1
    assert shown == {"new": 0, "accepted": 0, "running": 2 * rms, "rejected": rms}


@pytest.mark.processes
def test_all_that_we_say_of_ourselves_is_somewhere_on_the_dashboard(families: dict[str, Family]) -> None:
    shown = " ".join(asked.expression for asked in of_dashboard())
    missing = [name for name in families if name.startswith("yunishard_") and name not in shown]
    assert missing == []


def test_the_rows_of_the_dashboard_are_these() -> None:
    assert [panel["title"] for panel in panels() if panel["type"] == "row"] == [
        "Overview",
        "Queues",
        "Applications",
        "Nodes",
        "Preemption",
        "Latency",
        "Processes",
        "Journal and recovery",
        "Resource managers",
        WHOLE_SYSTEM,
    ]


def test_panels_have_numbers_of_their_own_and_do_not_cover_each_other() -> None:
    taken: dict[tuple[int, int], object] = {}
    for panel in panels():
        place = panel["gridPos"]
        assert isinstance(place, dict)
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    numbers = [str(panel["id"]) for panel in panels()]
    assert len(numbers) == len(set(numbers))
    assert all(x < 24 for x, _ in taken)


def test_alerts_have_names_of_their_own_and_say_how_bad_it_is() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    assert {rule["labels"]["severity"] for rule in rules()} <= {"critical", "warning", "info"}
    assert all({"summary", "description"} == rule["annotations"].keys() for rule in rules())


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(promql).failed == 0
