"""Access control lists, alone and, for the recorded verdicts, in a queue tree."""

from pathlib import Path
from typing import TypedDict

import msgspec
import pytest
import yaml

from yunishard.common.config.acl import (
    EVERYBODY,
    NOBODY,
    Acl,
    AclError,
    find_ignored_entries,
    has_too_many_fields,
    may_be_parsed,
    parse_acl,
)
from yunishard.common.config.model import QueueConfig
from yunishard.common.config.validation import load

VECTORS = Path(__file__).parents[1] / "data" / "acl-vectors.yaml"


class Vector(TypedDict, total=False):
    id: str
    kind: str
    acl: str
    config: str
    queue: str
    user: str
    groups: list[str]
    parse_ok: bool
    config_valid: bool
    allowed: bool
    submit: bool
    admin: bool


def vectors(kind: str) -> list[Vector]:
    found: list[Vector] = yaml.safe_load(VECTORS.read_text())
    return [vector for vector in found if vector["kind"] == kind]


def name(vector: Vector) -> str:
    return vector["id"]


def test_an_empty_text_is_nobody() -> None:
    assert parse_acl("") == NOBODY
    assert not NOBODY.allows("ann", ["dev"])


@pytest.mark.parametrize("text", ["*", " *", "* ", "*\t", "* dev", "ann *", "*, *"])
def test_a_star_that_stands_alone_in_a_list_is_everybody(text: str) -> None:
    assert parse_acl(text) == EVERYBODY


def test_users_and_groups_are_separated_by_one_blank() -> None:
    assert parse_acl("ann,bob dev,ops") == Acl(users=frozenset({"ann", "bob"}), groups=frozenset({"dev", "ops"}))


def test_names_that_nobody_can_have_are_left_out() -> None:
    assert parse_acl("9lives,,ann,*,a:b d.v,dev,o@ps") == Acl(users=frozenset({"ann"}), groups=frozenset({"dev"}))


@pytest.mark.parametrize("text", ["a  b", " a b", "a b ", "  ", " * ", "a b c"])
def test_a_second_blank_is_an_error_that_shows_the_text(text: str) -> None:
    with pytest.raises(AclError) as error:
        parse_acl(text)
    assert str(error.value) == f"multiple spaces found in ACL: '{text}'"
    assert not may_be_parsed(text)


@pytest.mark.parametrize("text", ["", "*", " ", "a ", " b", "a,c b"])
def test_a_text_with_at_most_one_blank_may_be_parsed(text: str) -> None:
    assert may_be_parsed(text)
    parse_acl(text)


def test_a_user_is_allowed_by_name_or_by_one_group_and_case_matters() -> None:
    acl = parse_acl("ann dev")
    assert acl.allows("ann", [])
    assert acl.allows("bob", ["ops", "dev"])
    assert not acl.allows("Ann", ["Dev"])


def test_a_list_can_be_sent_to_another_process() -> None:
    acl = parse_acl("ann dev")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(acl), type=Acl) == acl


@pytest.mark.parametrize("vector", vectors("acl"), ids=name)
def test_a_list_is_judged_as_recorded(vector: Vector) -> None:
    assert has_too_many_fields(vector["acl"]) is not vector["config_valid"]
    if vector["parse_ok"]:
        assert parse_acl(vector["acl"]).allows(vector["user"], vector["groups"]) is vector["allowed"]
    else:
        with pytest.raises(AclError):
            parse_acl(vector["acl"])


@pytest.mark.parametrize("vector", vectors("queue"), ids=name)
def test_rights_in_a_tree_are_as_recorded(vector: Vector) -> None:
    path = queues_to(load(vector["config"]).partitions[0].root, vector["queue"])
    admin = [parse_acl(queue.admin_acl).allows(vector["user"], vector["groups"]) for queue in path]
    submit = [parse_acl(queue.submit_acl).allows(vector["user"], vector["groups"]) for queue in path]
    assert any(admin) is vector["admin"]
    if vector["queue"] != "root.@recovery@":
        assert any(admin + submit) is vector["submit"]


def queues_to(root: QueueConfig, path: str) -> list[QueueConfig]:
    found = [root]
    for part in path.split(".")[1:]:
        found.append(next(queue for queue in found[-1].queues if queue.name.lower() == part))
    return found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ()),
        ("ann,bob dev,ops", ()),
        ("ann,,bob dev,", ()),
        ("svc$ dev$", ("dev$",)),
        ("bob,*,*,9", ("*", "9")),
        ("9to5 a.b", ("9to5", "a.b")),
        ("9to5 *", ()),
        (" dev,*", ("*",)),
    ],
)
def test_what_a_list_leaves_out_can_be_asked(text: str, names: tuple[str, ...]) -> None:
    assert find_ignored_entries(text) == names


def test_a_list_that_cannot_be_read_leaves_out_nothing() -> None:
    with pytest.raises(AclError):
        find_ignored_entries("a  b")
