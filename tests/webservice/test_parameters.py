"""Names and words are checked as the API tells."""

import pytest

from webservice.errors import RequestError
from webservice.parameters import active_status, application_state, decoded, has_bad_escape, queue_path, values


@pytest.mark.parametrize(("text", "bad"), [("a%20b", False), ("a%zzb", True), ("a%", True), ("%4", True), ("", False)])
def test_a_path_with_a_broken_escape_is_noticed(text: str, *, bad: bool) -> None:
    assert has_bad_escape(text) is bad


@pytest.mark.parametrize(
    ("text", "escape"),
    [
        ("a%zzz", "%zz"),
        ("a%", "%"),
        ("%4", "%4"),
        ('%"x', '%\\"x'),
        ("%\0\1", r"%\x00\x01"),
        ("%zé", r"%z\xc3"),
        ("%é", "%é"),
    ],
)
def test_a_broken_escape_is_shown(text: str, escape: str) -> None:
    with pytest.raises(RequestError) as refused:
        decoded(text)
    assert (refused.value.status, refused.value.text) == (400, f'invalid URL escape "{escape}"')


def test_plus_is_a_blank_and_escapes_are_utf_8() -> None:
    assert decoded("a+b%2Bc%C3%A9") == "a b+cé"


@pytest.mark.parametrize("text", ["", "root.", "root.a b", "root." + "a" * 65, "root.é", "root.a\n"])
def test_a_queue_path_of_something_else_than_names_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="invalid queue name"):
        queue_path(text)


def test_a_queue_path_is_lower_case() -> None:
    assert queue_path("Root.A#b@c:d-e_f/g." + "Z" * 64) == "root.a#b@c:d-e_f/g." + "z" * 64


def test_states_and_statuses_are_words_in_any_case() -> None:
    assert application_state("Completed", ("active", "completed")) == "completed"
    assert active_status("RESUMING") == "resuming"
    assert active_status("Starting") == "starting"
    assert active_status("") == ""


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {}),
        ("a=b+c%26&d", {"a": "b c&", "d": ""}),
        ("a=1&a=2&=x", {"a": "1", "": "x"}),
        ("a=b=c&&%61=2", {"a": "b=c"}),
        ("a=%zz&b=1;c=2&%=3&d=4", {"d": "4"}),
        ("a=%zz&a=1", {"a": "1"}),
    ],
)
def test_a_query_is_read_as_far_as_it_can_be_decoded(query: str, found: dict[str, str]) -> None:
    assert values(query) == found
