"""Filter expressions mean what they mean to RE2."""

import time

import pytest

from common.config.placement_rules import (
    NAME_LENGTH_MAX,
    PROGRAM_SIZE_MAX,
    Expression,
    ExpressionError,
    NameTooLongError,
    looks_like_expression,
)


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
