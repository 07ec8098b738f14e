"""The command line says where to listen."""

import argparse

import pytest

from common.acl import Acl
from webservice.__main__ import acl, host_and_port


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


def test_administrators_are_a_list_as_in_a_queue() -> None:
    assert acl("alice,bob ops") == Acl(users=frozenset({"alice", "bob"}), groups=frozenset({"ops"}))
    assert acl("") == Acl()


def test_a_list_of_three_parts_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="multiple spaces"):
        acl("a b c")
