"""Whether placement rules can be built, told without building them.

That building them ends with the same sentence is tested in `tests/properties/test_rules.py`.
"""

import pytest

from common.config.model import FilterConfig, PartitionConfig, PlacementRuleConfig
from common.config.parse import parse_with_lines
from common.config.placement_rules import RULES, find_rule_problems
from common.config.problems import Problem
from common.names import ILLEGAL_QUEUE


def problems(*rules: PlacementRuleConfig) -> list[Problem]:
    return find_rule_problems(PartitionConfig(placement_rules=rules))


def only_problem(rule: PlacementRuleConfig) -> Problem:
    (problem,) = problems(rule)
    return problem


def test_every_rule_that_there_is_can_be_built() -> None:
    assert problems(*(PlacementRuleConfig(name=name, value="a") for name in RULES)) == []
    assert problems(PlacementRuleConfig(name="UsEr")) == []
    assert problems() == []


@pytest.mark.parametrize("name", ["nosuch", "test", ""])
def test_an_unknown_rule_is_a_problem_whose_hint_names_those_that_exist(name: str) -> None:
    problem = only_problem(PlacementRuleConfig(name=name))
    assert problem.message == f"unknown rule name specified {name}, failing placement rule config"
    assert (problem.kind, problem.path) == ("rules", "placementrules[0].name")
    assert problem.hint == ("it is one of fixed, provided, tag, user, primarygroup, secondarygroup, applicationtype")


def test_the_recovery_rule_cannot_be_written() -> None:
    message = "recovery rule cannot be part of the config, failing placement rule config"
    assert only_problem(PlacementRuleConfig(name="Recovery")).message == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "a fixed queue rule must have a queue name set"),
        ("a..b", ILLEGAL_QUEUE),
        ("root.a b", ILLEGAL_QUEUE),
        ("a" * 65, ILLEGAL_QUEUE),
    ],
)
def test_a_fixed_rule_needs_a_legal_queue(value: str, message: str) -> None:
    problem = only_problem(PlacementRuleConfig(name="fixed", value=value))
    assert (problem.message, problem.path) == (message, "placementrules[0].value")


def test_a_fixed_rule_with_the_whole_path_has_no_parent() -> None:
    parent = PlacementRuleConfig(name="user")
    assert problems(PlacementRuleConfig(name="fixed", value="a", parent=parent)) == []
    problem = only_problem(PlacementRuleConfig(name="Fixed", value="Rooted", parent=parent))
    assert problem.message == "a fixed queue rule with the whole path rooted cannot have a parent rule"


def test_a_tag_rule_needs_a_tag() -> None:
    assert only_problem(PlacementRuleConfig(name="tag")).message == "a tag queue rule must have a tag name set"


@pytest.mark.parametrize("entry", ["(?=b)", "a{1001}", "(a{1000}){1000}", "("])
def test_an_only_entry_of_a_filter_must_be_an_expression_that_can_be_followed(entry: str) -> None:
    problem = only_problem(PlacementRuleConfig(name="user", filter=FilterConfig(groups=(entry,))))
    assert problem.message.startswith("the filter of rule user cannot be used: ")
    assert problem.path == "placementrules[0].filter.groups[0]"


@pytest.mark.parametrize("entries", [("(", "ann"), ("9",), ()])
def test_any_other_filter_is_taken(entries: tuple[str, ...]) -> None:
    assert problems(PlacementRuleConfig(name="user", filter=FilterConfig(users=entries))) == []


def test_every_problem_is_told_with_its_line_in_the_order_of_building() -> None:
    text = """\
partitions:
- name: gpu
  placementrules:
  - name: fixed
    filter:
      users: ['(']
    parent:
      name: tag
  - name: group
"""
    configuration, lines = parse_with_lines(text)
    found = find_rule_problems(configuration.partitions[0], path="partitions[0]", lines=lines)
    assert [(problem.line, problem.path) for problem in found] == [
        (7, "partitions[0].placementrules[0].parent.value"),
        (6, "partitions[0].placementrules[0].filter.users[0]"),
        (4, "partitions[0].placementrules[0].value"),
        (9, "partitions[0].placementrules[1].name"),
    ]
