"""Filter expressions mean what they mean to RE2."""

import pytest

from common.config.expressions import LENGTH_MAX, ExpressionError, compile_expression, looks_like_expression


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
    ],
)
def test_an_expression_matches(expression: str, text: str) -> None:
    assert compile_expression(expression).search(text)


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
    assert not compile_expression(expression).search(text)


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
        r"\pL",
        r"\Z",
    ],
)
def test_what_re2_lacks_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(expression)


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
        "(?P<n>a)(?P<n>b)",
        "a" * (LENGTH_MAX + 1),
        "[\\",
    ],
)
def test_what_is_malformed_is_refused(expression: str) -> None:
    with pytest.raises(ExpressionError):
        compile_expression(expression)


def test_only_characters_that_no_name_has_make_an_expression() -> None:
    assert looks_like_expression("svc$")
    assert not looks_like_expression("a.b]c\\")
