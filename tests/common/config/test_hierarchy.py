"""A queue has the same parent in every partition that has it."""

import pytest

from common.config.hierarchy import find_hierarchy_problems
from common.config.model import Configuration, PartitionConfig, QueueConfig
from common.config.parse import parse_with_lines
from common.config.problems import PROBLEMS_MAX
from common.config.validation import load

Tree = dict[str, "Tree"]


def tree(paths: str) -> tuple[QueueConfig, ...]:
    """The queues of these paths, without root, separated by blanks."""
    top: Tree = {}
    for path in paths.split():
        level = top
        for name in path.split("."):
            level = level.setdefault(name, {})
    return queues(top)


def queues(level: Tree) -> tuple[QueueConfig, ...]:
    return tuple(QueueConfig(name=name, queues=queues(below)) for name, below in level.items())


def told(*partitions: str) -> list[str]:
    parts = (PartitionConfig(name=f"p{number}", queues=tree(paths)) for number, paths in enumerate(partitions))
    return [problem.message for problem in find_hierarchy_problems(Configuration(partitions=tuple(parts)))]


def test_a_queue_below_another_parent_is_a_problem() -> None:
    assert told("eng.dev", "ops.dev") == ["queue dev is below root.ops here, but below root.eng in partition p0"]


def test_a_queue_on_another_level_is_a_problem() -> None:
    assert told("dev", "dev.dev eng") == []
    assert told("dev", "eng.dev") == ["queue dev is below root.eng here, but below root in partition p0"]


@pytest.mark.parametrize(
    "partitions",
    [
        ("eng.dev ops", "eng.dev ops"),
        ("eng.dev", "eng", "ops.qa"),  # not every partition has every queue
        ("Eng.Dev", "eng.dev"),
        ("eng.dev", "eng.dev ops.dev"),
        ("eng.dev ops.dev", "eng.dev"),
        ("eng.dev ops.dev",),  # within one partition a name may stand anywhere
        (),
    ],
)
def test_partitions_agree_where_one_has_no_other_places_than_the_other(partitions: tuple[str, ...]) -> None:
    assert told(*partitions) == []


def test_partitions_disagree_where_each_has_a_place_of_its_own() -> None:
    assert told("eng.dev ops.dev", "eng.dev qa.dev") == [
        "queue dev is below root.qa here, but below root.eng and root.ops in partition p0"
    ]


def test_what_went_with_its_parent_is_not_told_again() -> None:
    assert told("a.eng.dev.x", "b.eng.dev.x") == ["queue eng is below root.b here, but below root.a in partition p0"]


def test_two_queues_that_changed_places_are_told_at_the_upper_one() -> None:
    assert told("a.b", "b.a") == ["queue b is below root here, but below root.a in partition p0"]


def test_every_partition_is_compared_with_all_before_it() -> None:
    assert told("eng.dev", "qa", "qa.dev", "qa.dev") == [
        "queue dev is below root.qa here, but below root.eng in partition p0",
        "queue dev is below root.qa here, but below root.eng in partition p0",
    ]


def test_a_problem_names_the_line_of_the_later_place() -> None:
    text = """\
partitions:
- queues:
  - name: eng
    queues:
    - name: dev
- name: gpu
  queues:
  - name: root
    queues:
    - name: Dev
"""
    (problem,) = find_hierarchy_problems(*parse_with_lines(text))
    assert (problem.line, problem.path) == (10, "partitions[1].queues[0].queues[0].name")
    assert problem.kind == "hierarchy"
    assert problem.message == "queue dev is below root here, but below root.eng in partition default"


def test_a_loaded_configuration_is_judged_as_the_parsed_one() -> None:
    text = "partitions: [{queues: [{name: a, queues: [{name: b}]}]}, {name: gpu, queues: [{name: b}]}]"
    (problem,) = find_hierarchy_problems(load(text))
    assert problem.message == "queue b is below root here, but below root.a in partition default"
    assert problem.path == "partitions[1].queues[0].queues[0].name"


def test_problems_are_bounded() -> None:
    names = [f"q{number}" for number in range(2 * PROBLEMS_MAX)]
    assert len(told(" ".join(f"a.{name}" for name in names), " ".join(f"b.{name}" for name in names))) == PROBLEMS_MAX
