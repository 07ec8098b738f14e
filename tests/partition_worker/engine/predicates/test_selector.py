import pytest

from partition_worker.engine.predicates.predicate import NodeView
from partition_worker.engine.predicates.selector import NODE_SELECTOR, NodeSelector

SELECTOR = NodeSelector()
NODE = NodeView("n1", {"zone": "a", "disk": "ssd", "note": "", "example.org/gpu": "a100"}, {})


def refusal(text: str, node: NodeView = NODE) -> str:
    return SELECTOR.refuses(SELECTOR.read({NODE_SELECTOR: text}), node)


@pytest.mark.parametrize(
    "text",
    [
        "zone=a",
        "zone == a",
        "zone=a,disk!=hdd",
        "zone in (a, b),disk notin (hdd)",
        "example.org/gpu in (a100,h100)",
        "disk,!spot",
        "rack!=r1",
        "rack notin (r1,r2)",
        "note=",
        "note in ()",
    ],
)
def test_a_node_whose_attributes_match_is_admitted(text: str) -> None:
    assert refusal(text) == ""


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("zone=b", "zone=b"),
        ("zone=a,disk!=ssd", "disk!=ssd"),
        ("zone in (b,c)", "zone in (b,c)"),
        ("zone notin (a,b)", "zone notin (a,b)"),
        ("rack", "rack"),
        ("!disk", "!disk"),
        ("rack=", "rack="),
    ],
)
def test_another_one_is_refused_with_the_term_that_fails(text: str, term: str) -> None:
    assert refusal(text) == f"node does not match {term}"


@pytest.mark.parametrize(
    "text", ["", "zone=a,", "=a", "zone in a", "zone in (a", "zone=a b", "!", "a=b=c", "(a)", "-a"]
)
def test_what_cannot_be_read_is_refused_with_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"^tag yunishard/nodeSelector: cannot read '.*': write key=value, "):
        SELECTOR.read({NODE_SELECTOR: text})


def test_an_endless_selector_is_not_read() -> None:
    with pytest.raises(ValueError, match="at most 65536 are read"):
        SELECTOR.read({NODE_SELECTOR: "a," * 40_000})


def test_no_tag_demands_nothing() -> None:
    assert SELECTOR.read({"zone": "a"}) is None
    assert SELECTOR.refuses(None, NODE) == ""


def test_equal_selectors_are_one_demand() -> None:
    demands = {SELECTOR.read({NODE_SELECTOR: text}) for text in ("zone=a,disk", "zone=a, disk", "zone=a,disk,disk")}
    assert len(demands) == 1
