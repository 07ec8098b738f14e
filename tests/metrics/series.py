"""The page of metrics as Prometheus reads it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.metrics.promql import Selector

VARIABLE: Final = re.compile(r"\$")


@dataclass(slots=True)
class Family:
    """What is said about a name on the page, and its series."""

    name: str
    kind: str = ""
    help: str = ""
    series: list[tuple[str, dict[str, str], float]] = field(default_factory=list)
    """Names as they are written (those of a histogram end in `_bucket` and so on), labels, numbers."""

    @property
    def labels(self) -> list[str]:
        """The names of all its labels, without that of the buckets of a histogram."""
        return sorted({label for _, labels, _ in self.series for label in labels} - {"le"})


def read(text: str) -> dict[str, Family]:
    """The families of the page by name, in its order."""
    families: dict[str, Family] = {}
    for line in text.splitlines():
        match line.split(" ", 3):
            case ["#", "HELP", name, help_text]:
                assert name not in families, f"{name} is explained twice"
                families[name] = Family(name, help=help_text)
            case ["#", "TYPE", name, kind]:
                assert not families[name].kind, f"{name} has two types"
                families[name].kind = kind
    for name, labels, value in _series(text):
        family = families.get(name) or families[re.sub("_(bucket|sum|count)$", "", name)]
        family.series.append((name, labels, value))
    return families


def _series(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for parsed in text_string_to_metric_families(text):
        for sample in parsed.samples:
            yield sample.name, sample.labels, sample.value


def answers(families: dict[str, Family], selector: Selector) -> list[dict[str, str]]:
    """The labels of all series that a selector finds; what a variable of a dashboard would narrow is not narrowed."""
    found = [labels for family in families.values() for name, labels, _ in family.series if name == selector.name]
    for label, comparison, text in selector.matchers:
        if VARIABLE.search(text):
            may_be_absent = label == "partition" or text.endswith("|")
            assert may_be_absent or all(label in labels for labels in found), (selector, label)
        else:
            found = [labels for labels in found if _matches(labels.get(label, ""), comparison, text)]
    return found


def narrowed(
    families: dict[str, Family], selector: Selector, chosen: Mapping[str, str]
) -> list[tuple[dict[str, str], float]]:
    """The series that a selector finds once the variables of the dashboard stand for these regular expressions."""
    series = [one for family in families.values() for one in family.series]
    found = [(labels, value) for name, labels, value in series if name == selector.name]
    for label, comparison, text in selector.matchers:
        wanted = re.sub(r"\$(\w+)", lambda variable: chosen[variable[1]], text)
        found = [(labels, value) for labels, value in found if _matches(labels.get(label, ""), comparison, wanted)]
    return found


def _matches(value: str, comparison: str, text: str) -> bool:
    """As Prometheus compares: a label that is absent is empty, and a regular expression is of the whole value."""
    match comparison:
        case "=" | "!=":
            return (value == text) == (comparison == "=")
        case _:
            return bool(re.fullmatch(text, value)) == (comparison == "=~")
