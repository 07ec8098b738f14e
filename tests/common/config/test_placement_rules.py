"""Whether placement rules can be built, told without building them.

That building them ends with the same sentence is tested in `tests/properties/test_rules.py`.
"""

import time

import pytest

from yunishard.common.config.model import FilterConfig, PartitionConfig, PlacementRuleConfig
from yunishard.common.config.parse import parse_with_lines
from yunishard.common.config.placement_rules import (
    NAME_LENGTH_MAX,
    PROGRAM_SIZE_MAX,
    RULES,
    Expression,
    ExpressionError,
    NameTooLongError,
    find_rule_problems,
    looks_like_expression,
)
from yunishard.common.config.problems import Problem
from yunishard.common.names import ILLEGAL_QUEUE


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


# Filter expressions mean what they mean to RE2 ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("b.b", "a bxb c"),
        ("svc$", "mysvc"),
        ("(?i)^BOB$", "bob"),
        ("a(?i)b|c", "aB"),
        ("a(?i)b|c", "C"),
        ("(?i:K)k", "kk"),
        ("(?m)^b$", "a\nb\nc"),
        ("(?s)a.b", "a\nb"),
        ("(?U)a+b", "aab"),
        ("^[[:alpha:]]+[0-9]{2}$", "team12"),
        ("^[[:^digit:]]+$", "team"),
        ("^[^a-c]+$", "def"),
        (r"^\Qa.b\E*$", "a.bbb"),
        (r"^\w+\z", "team_1"),
        (r"[\D]", "a"),
        (r"\bdev\b", "a-dev-b"),
        (r"\x{41}\x42\103", "ABC"),
        ("x{,2}", "x{,2}"),
        ("^a{2,3}?$", "aaa"),
        ("(?P<name>a)b", "ab"),
        ("]a", "]a"),
        ("[]a-]", "-"),
        ("^*", ""),
        ("()", ""),
        (r"^\B$", ""),
        (r"^\pL+$", "größe"),
        (r"^\p{Greek}\PL$", "ω1"),
        ("(?<name>a)b", "ab"),
        ("(?P<n>a)(?P<n>b)", "ab"),
        (r"\\C", r"\C"),
        (r"^\Q\C\E$", r"\C"),
        ("(?i)k", "\N{KELVIN SIGN}"),
        ("a" * 1001 + "|b", "b"),
        ("(" * 60 + "a" + ")" * 60, "a"),
    ],
)
def test_an_expression_matches(expression: str, text: str) -> None:
    assert Expression(expression).found_in(text)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("svc$", "svc\n"),
        (r"^svc\z", "svc\n"),
        ("a(?i)b|c", "AB"),
        ("a.b", "a\nb"),
        ("^b", "a\nb"),
        (r"\d", "\N{ARABIC-INDIC DIGIT ONE}"),
        (r"^\w+$", "größe"),
        ("^[^a-c]+$", "dea"),
        (r"[^\D]", "a"),
        ("[^[:ascii:]]", "plain"),
        (r"[^\x{0}-\x{10FFFF}]", "a"),
    ],
)
def test_an_expression_does_not_match(expression: str, text: str) -> None:
    assert not Expression(expression).found_in(text)


@pytest.mark.parametrize(
    "expression",
    [
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?<!a)",
        r"(a)\1",
        "(?P=n)",
        "(?>a)",
        "(?#x)",
        "(?(1)a|b)",
        "a++",
        "a**",
        r"\C",
        r"a\\\C",
        r"\Z",
    ],
)
def test_what_re2_lacks_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(",
        ")",
        "[",
        "[a",
        "[b-a]",
        "[[:foo:]]",
        r"[a-\d]",
        "*a",
        "a|*b",
        "a{1001}",
        "a{3,2}",
        "(?z)",
        "(?",
        "a\\",
        r"\y",
        r"\x{110000}",
        "(a{100}){100}",
        r"\E",
        r"\p{Foo}",
        "(?P<größe>a)",
        "\ud800",
        "[\\",
    ],
)
def test_what_is_malformed_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(expression)


def test_only_characters_that_no_name_has_make_an_expression() -> None:
    assert looks_like_expression("svc$")
    assert not looks_like_expression("a.b]c\\")


@pytest.mark.parametrize(
    "text", ["(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^a*a*a*a*a*a*$", "(.*a){20}b", "((a|b|ab)*){1,50}x"]
)
def test_expressions_that_backtracking_never_finishes_take_little_time(text: str) -> None:
    expression = Expression(text)
    started_s = time.process_time()
    assert not any(expression.found_in("a" * (NAME_LENGTH_MAX - 1) + last) for last in "!?#" * 10)
    assert time.process_time() - started_s < 1.0


@pytest.mark.parametrize("text", [r"\pL{10}", ".{600}.{600}.{600}", r"(\pL{1,100}){1,10}", r"\PL{1000}"])
def test_an_expression_that_compiles_to_too_large_a_program_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="use fewer or smaller repeat counts"):
        Expression(text)


def test_the_size_of_an_expression_is_the_number_of_its_instructions() -> None:
    assert Expression("abc").size < Expression("abcdef").size < Expression(".{900}").size < PROGRAM_SIZE_MAX


@pytest.mark.parametrize("text", ["((a{100}){100}){100}", "(((){900}){900}){900}"])
def test_nested_repeats_of_more_than_a_thousand_are_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="invalid repetition size"):
        Expression(text)


def test_a_name_that_is_too_long_gets_no_answer() -> None:
    assert Expression("a$").found_in("a" * NAME_LENGTH_MAX)
    with pytest.raises(NameTooLongError, match="a name of 1025 characters is not matched, the limit is 1024"):
        Expression("a$").found_in("a" * (NAME_LENGTH_MAX + 1))
