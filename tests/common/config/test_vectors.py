"""The recorded verdicts of the reference scheduler on small configurations."""

from pathlib import Path
from typing import NotRequired, TypedDict

import pytest
import yaml

from common.config.check import load, load_problems
from common.config.problems import ConfigError

VECTORS = Path(__file__).parents[2] / "data" / "config-vectors.yaml"


class Vector(TypedDict):
    id: str
    config: str
    valid: bool
    error_kind: NotRequired[str]
    loads: NotRequired[bool]


def vectors(*, valid: bool) -> list[Vector]:
    found: list[Vector] = yaml.safe_load(VECTORS.read_text())
    return [vector for vector in found if vector["valid"] is valid]


def name(vector: Vector) -> str:
    return vector["id"]


@pytest.mark.parametrize("vector", vectors(valid=True), ids=name)
def test_a_valid_text_is_accepted_and_its_partitions_load_when_they_should(vector: Vector) -> None:
    configuration = load(vector["config"])
    problems = [problem for partition in configuration.partitions for problem in load_problems(partition)]
    assert (not problems) is vector["loads"], problems


@pytest.mark.parametrize("vector", vectors(valid=False), ids=name)
def test_an_invalid_text_is_refused_for_the_reason_that_decides(vector: Vector) -> None:
    with pytest.raises(ConfigError) as refused:
        load(vector["config"])
    assert refused.value.problems[0].kind == vector["error_kind"]
