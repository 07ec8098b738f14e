"""Every way in which a call ends stands in the documentation, with its code and its text."""

from pathlib import Path

import pytest

from rmproxy import grpc_endings as endings
from rmproxy.grpc_endings import Ending
from rmproxy.grpc_requests import REQUEST_BYTES_MAX

DOCUMENT = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text()


@pytest.mark.parametrize(
    "ending",
    [
        endings.stopping(),
        endings.not_permitted("R", ("A",)),
        endings.in_progress("R"),
        endings.unanswered(60),
        endings.unregistered("NodeRequest", "R"),
        endings.registered_again("R"),
        endings.lost("..."),
        endings.left("R"),
        endings.taken_over("R"),
        endings.foreign("R", "X"),
        endings.malformed("NodeRequest", "..."),
    ],
    ids=lambda ending: ending.text,
)
def test_an_ending_is_documented(ending: Ending) -> None:
    retry = " *" if ending.retry_s else ""
    assert f"`{ending.code.name}`{retry} `{ending.text}`" in DOCUMENT


def test_the_limit_of_a_request_is_documented() -> None:
    text = endings.too_large(0, REQUEST_BYTES_MAX).text.replace(" 0 ", " N ")
    assert f"`RESOURCE_EXHAUSTED` `{text}`" in DOCUMENT
