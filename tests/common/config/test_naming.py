"""Names of partitions that no core takes."""

import pytest

from common.config.naming import KIND, naming_problems
from common.config.parse import parse_with_lines


@pytest.mark.parametrize("name", ["rm 1", "[x]a", "a/b", "ü", "x" * 65, "a\\n"])
def test_a_name_that_no_core_takes_is_told_with_its_place(name: str) -> None:
    text = f'partitions:\n- queues: []\n- queues: []\n  name: "{name}"\n'
    (problem,) = naming_problems(*parse_with_lines(text))
    assert (problem.kind, problem.path, problem.line) == (KIND, "partitions[1].name", 4)
    assert "must be 1 to 64 letters, digits" in problem.message


@pytest.mark.parametrize("name", ["", "default", "gpu-1.a_B", "x" * 64])
def test_other_names_and_none_are_fine(name: str) -> None:
    assert naming_problems(*parse_with_lines(f"partitions: [{{name: '{name}'}}]")) == []
