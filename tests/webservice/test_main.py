"""The command line says where to listen."""

import argparse

import pytest

from webservice.__main__ import host_and_port


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("127.0.0.1:9080", ("127.0.0.1", 9080)),
        ("localhost:0", ("localhost", 0)),
        ("[::1]:80", ("::1", 80)),
        (":80", ("", 80)),
    ],
)
def test_an_address_has_two_parts(text: str, parts: tuple[str, int]) -> None:
    assert host_and_port(text) == parts


@pytest.mark.parametrize("text", ["", "9080", "host", "host:", "host:x", "host:65536", "host:-1", "::1:80", "host:²"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"HOST:PORT|in brackets"):
        host_and_port(text)
