"""What the limits of a configuration allow: to whom, at which queue."""

import pytest

from common.config.check import load
from partition_worker.engine.limits.limit import Allowance, group_of, limits_of
from tests.builders import config
from tests.trial import Trial


def test_only_queues_with_limits_have_any() -> None:
    limits = limits_of(config("root.p.a limit.user.bob=memory:5,apps:2; root.b"))
    assert list(limits) == ["root.p.a"]
    assert limits["root.p.a"].users == {"bob": Allowance({"memory": 5}, 2)}
    assert limits["root.p.a"].groups == {}


def test_queues_are_named_in_lower_case_however_they_are_written() -> None:
    """Spec 10.3: limits of queues that are written with capitals hold."""
    assert list(limits_of(config("root.Team.Alpha limit.user.bob=apps:1"))) == ["root.team.alpha"]


def test_amounts_are_in_base_units_and_a_missing_type_is_unlimited() -> None:
    limits = limits_of(config("root limit.user.bob=vcore:1500,memory:7 limit.group.dev=apps:3"))
    assert limits["root"].users["bob"] == Allowance({"vcore": 1500, "memory": 7}, 0)
    assert limits["root"].groups["dev"] == Allowance({}, 3)


def test_zero_is_a_limit_unless_all_types_are_zero() -> None:
    """Spec 5.3: only limits that are not all zero count."""
    limits = limits_of(config("root limit.user.bob=memory:0,gpu:1 limit.user.eve=memory:0,apps:1"))
    assert limits["root"].users == {"bob": Allowance({"memory": 0, "gpu": 1}, 0), "eve": Allowance({}, 1)}


def test_each_name_of_an_entry_is_limited_and_limits_of_the_partition_are_those_of_the_root() -> None:
    text = """
partitions:
  - name: default
    limits:
      - {limit: "", users: [bob, eve], groups: [dev], maxresources: {memory: 1k}}
      - {limit: "", users: ["*"], groups: [qa, "*"], maxapplications: 2}
    queues: [{name: root}]
"""
    limits = limits_of(load(text).partitions[0])["root"]
    assert limits.users == {"bob": ({"memory": 1000}, 0), "eve": ({"memory": 1000}, 0), "*": ({}, 2)}
    assert list(limits.groups) == ["dev", "qa", "*"]


# Which group --------------------------------------------------------------------------------------------------------

TREE = """root limit.group.admin=apps:9 limit.group.*=apps:9; root.p limit.group.dev=apps:5 limit.group.qa=apps:5;
root.p.a limit.user.bob=apps:1; root.p.b limit.group.ops=apps:1 limit.group.*=apps:1"""


@pytest.mark.parametrize(
    ("leaf", "groups", "expected"),
    [
        ("root.p.a", ["qa", "dev"], "dev"),  # the order of the configuration counts, not that of the user
        ("root.p.a", ["admin", "qa"], "qa"),  # the queue that is closest to the leaf
        ("root.p.a", ["admin"], "admin"),
        ("root.p.a", ["other"], "*"),
        ("root.p.b", ["dev"], "*"),  # `*` of a closer queue, before a name further up
        ("root.p.b", ["dev", "ops"], "ops"),
        ("root.p.a", [], None),  # not even `*`
        ("root.p.a", ["*"], "*"),
    ],
)
def test_the_group_that_is_charged(leaf: str, groups: list[str], expected: str | None) -> None:
    assert group_of(limits_of(config(TREE)), groups, Trial(TREE).queue(leaf)) == expected


def test_without_a_match_up_to_the_root_no_group_is_charged() -> None:
    tree = "root.a limit.group.dev=apps:1; root.b limit.group.qa=apps:1"
    assert group_of(limits_of(config(tree)), ["dev"], Trial(tree).queue("root.b")) is None
