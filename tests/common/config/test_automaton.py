"""Matching is compared with Python's own engine, which is right wherever it is fast enough to say."""

import random

import pytest

from common.config.automaton import NAME_LENGTH_MAX, Expression, NameTooLongError
from common.config.expressions import ExpressionError, compile_expression

EXPRESSIONS = (
    *("b.*", "^b.*", "b$", "^(bob|ann)$", "^$", "a|", "(?i)^BOB$", "(?i:b)OB", r"\bob\b", r"o\B", r"^\w+-\d{2,3}$"),
    *("(a*)*$", "(a|ab)(c|bcd)$", "^(?:a{2}|b{1,}|c{0}d?){2}$", "a{,2}", "[^a-y]", r"[\]\-)]", "[[:upper:]|]", r"\)"),
    *("(?s)a.b", "a.b", "(?m)^b$", r"\Aa\z", "(?P<name>x)y+?", "(?U)x*", "[a-c]{3}", "^(ops-[a-z]+,?)+$", r"\.", "()"),
)
PIECES = (*"ab.*+?|()^$A-", "(?:", "[ab]", "[^a]", "{2}", "{0,2}", "{1,}", r"\b", r"\d", "(?i)", r"\.", "(?m)", "*?")
NAMES = (
    "",
    "b",
    "bob",
    "BOB",
    "rob",
    "ann",
    "aab",
    "abcd",
    "ops-a,ops-b",
    "node-17",
    "a\nb",
    "b\n",
    "z",
    "]",
    "é",
    "xyy",
)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_found_where_python_finds_it(text: str) -> None:
    expression, expected = Expression(text), compile_expression(text)
    assert [name for name in NAMES if expression.found_in(name)] == [name for name in NAMES if expected.search(name)]


def test_so_are_expressions_that_nobody_thought_of() -> None:
    chance = random.Random(4)
    compared = 0
    for _ in range(2000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 8)))
        try:
            expected = compile_expression(text)
        except ExpressionError:
            continue
        expression = Expression(text)
        for _ in range(3):
            name = "".join(chance.choices("abAB1.-\n", k=chance.randint(0, 6)))
            assert expression.found_in(name) is (expected.search(name) is not None), (text, name)
            compared += 1
    assert compared > 1000


@pytest.mark.parametrize("text", ["(a+)+$", "^(a|a)*$", "^(a|aa)+$", "^a*a*a*a*a*a*$", "(.*a){20}b"])
def test_expressions_that_backtracking_never_finishes_take_no_time(text: str) -> None:
    assert not Expression(text).found_in("a" * 200 + "!")


@pytest.mark.parametrize(
    "text", ["(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "(?>a)", "a*+", "a**", "(?(1)a)", "(", "[", "*"]
)
def test_what_re2_does_not_know_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


@pytest.mark.parametrize("text", ["((a{100}){100}){100}", "(((){900}){900}){900}", "((((a{0}){900}){900}){900})"])
def test_expressions_that_unfold_into_too_many_states_are_refused_at_once(text: str) -> None:
    with pytest.raises(ExpressionError, match="at most 2000 states"):
        Expression(text)


def test_expressions_that_are_nested_too_deeply_are_refused() -> None:
    assert Expression("(" * 49 + "a" + ")" * 49).found_in("a")
    with pytest.raises(ExpressionError, match="groups within groups"):
        Expression("(" * 50 + "a" + ")" * 50)


def test_a_name_that_is_too_long_gets_no_answer() -> None:
    assert Expression("a$").found_in("a" * NAME_LENGTH_MAX)
    with pytest.raises(NameTooLongError, match="a name of 1025 characters is not matched, the limit is 1024"):
        Expression("a$").found_in("a" * (NAME_LENGTH_MAX + 1))
