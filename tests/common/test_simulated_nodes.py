"""The size of a simulated node is read strictly, and its name sorts by its number."""

import pytest

from yunishard.common.messages.rm_messages import NODE_CREATE
from yunishard.common.names import NODE_PARTITION
from yunishard.common.simulated_nodes import (
    NODE_RESOURCES,
    RESOURCE_TYPES_MAX,
    SIMULATED,
    build_simulated_nodes,
    name_simulated_nodes,
    parse_node_resources,
)


def test_amounts_are_read_as_in_a_configuration() -> None:
    assert parse_node_resources("vcore=500m, memory=2Gi,nvidia.com/gpu=4") == {
        "vcore": 500,
        "memory": 2 << 30,
        "nvidia.com/gpu": 4,
    }
    assert parse_node_resources(NODE_RESOURCES) == {"vcore": 16_000, "memory": 64 << 30}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected TYPE=AMOUNT with commas between, as in vcore=16,memory=64Gi, got ''"),
        ("vcore", "got 'vcore'"),
        ("vcore=4,", "got ''"),
        ("vcore=4 memory=2", "vcore: '4 memory=2' is not an amount such as 16, 500m or 64Gi"),
        ("vcore=4,vcore=2", "vcore is there twice"),
        ("vcore=-1", "vcore: '-1' is not an amount"),
        ("vcore=0", "vcore: a node needs more than 0 of it, or leave it out"),
        (",".join(f"r{n}=1" for n in range(RESOURCE_TYPES_MAX + 1)), "17 resource types, at most 16 are allowed"),
    ],
)
def test_what_is_no_size_is_refused_with_the_part_that_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        parse_node_resources(text)


def test_nodes_are_alike_and_sort_by_number() -> None:
    names = name_simulated_nodes(12)
    assert (names[0], names[-1]) == ("simulated-01", "simulated-12")
    assert names == sorted(names)
    first, *_ = nodes = build_simulated_nodes(names, {"vcore": 1}, partition="p")
    assert (first.action, first.attributes) == (NODE_CREATE, {SIMULATED: "true", NODE_PARTITION: "p"})
    assert {tuple((one.schedulable_resource or {}).items()) for one in nodes} == {(("vcore", 1),)}
    assert name_simulated_nodes(0) == []
