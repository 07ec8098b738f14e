"""Whatever the dashboard and the alerts speak of is on the page of a filled system, so that they cannot rot."""

import doctest
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

import pytest
import yaml

from tests.metrics import promql
from tests.metrics.promql import grouped, placeholders, selectors
from tests.metrics.series import Family, answers

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
