"""The predicates of this package: what they read in tags, and which nodes they refuse."""

from collections.abc import Callable

import pytest

from yunishard.partition_worker.engine.predicates.predicate import (
    FORBIDDEN_NODES,
    NODE_SELECTOR,
    TAINTS,
    TOLERATIONS,
    ForbiddenNodes,
    NodeSelector,
    NodeView,
    Tolerations,
    quote,
)

FORBIDDEN = ForbiddenNodes()


def test_only_the_named_nodes_are_refused() -> None:
    demand = FORBIDDEN.read({FORBIDDEN_NODES: "n1, n2"})
    refusals = [FORBIDDEN.refuses(demand, NodeView(name, {}, {})) for name in ("n1", "n2", "n3", "n")]
    assert refusals == ["node is forbidden", "node is forbidden", "", ""]


@pytest.mark.parametrize("text", ["", "n1,,n2", "n1,", " "])
def test_a_missing_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="tag yunishard/forbiddenNodes: a node id is missing: write ids with commas"):
        FORBIDDEN.read({FORBIDDEN_NODES: text})


def test_no_tag_demands_nothing() -> None:
    assert FORBIDDEN.read({}) is None
    assert FORBIDDEN.refuses(None, NodeView("n1", {}, {})) == ""


SELECTOR = NodeSelector()
NODE = NodeView("n1", {"zone": "a", "disk": "ssd", "note": "", "example.org/gpu": "a100", "cores": "64"}, {})


def selector_refusal(text: str, node: NodeView = NODE) -> str:
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
        "cores>63",
        "cores < 65",
        "cores>-1,cores<+65",
        "zone=b || zone=a",
        "zone=b,disk||disk=ssd,zone in (a,b)||rack",
    ],
)
def test_a_node_whose_attributes_match_is_admitted(text: str) -> None:
    assert selector_refusal(text) == ""


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
        ("cores>64", "cores>64"),
        ("cores<64", "cores<64"),
        ("rack>1", "rack>1"),
        ("zone<1", "zone<1"),
        ("zone=b||zone=c,disk", "zone=b or zone=c"),
        ("zone=b,!disk||zone=b,disk", "zone=b"),
    ],
)
def test_another_one_is_refused_with_the_term_that_fails(text: str, term: str) -> None:
    assert selector_refusal(text) == f"node does not match {term}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "zone=a,",
        "=a",
        "zone in a",
        "zone in (a",
        "zone=a b",
        "!",
        "a=b=c",
        "(a)",
        "-a",
        "a>",
        "a>b",
        "a>1.5",
        "a>=1",
        "<1",
        "a||",
        "||a",
        "a>1<2",
        f"a>{10**19}",
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"^tag yunishard/nodeSelector: cannot read '.*': write key=value, "):
        SELECTOR.read({NODE_SELECTOR: text})


def test_an_endless_selector_is_not_read() -> None:
    with pytest.raises(ValueError, match="at most 65536 are read"):
        SELECTOR.read({NODE_SELECTOR: "a," * 40_000})


@pytest.mark.parametrize(
    ("tag", "most", "write", "message"),
    [
        (NODE_SELECTOR, 64, lambda n: "||".join(f"a={each}" for each in range(n)), "has 65 alternatives, at most 64"),
        (NODE_SELECTOR, 256, lambda n: "b||" + ",".join(["a"] * (n - 1)), "has 257 terms, at most 256"),
        (TOLERATIONS, 256, lambda n: ",".join(["a"] * n), "has 257 tolerations, at most 256"),
    ],
)
def test_a_tag_has_a_limit_of_parts(tag: str, most: int, write: Callable[[int], str], message: str) -> None:
    predicate = SELECTOR if tag == NODE_SELECTOR else Tolerations()
    assert predicate.read({tag: write(most)}) is not None
    with pytest.raises(ValueError, match=f"^tag {tag} {message} are read"):
        predicate.read({tag: write(most + 1)})


def test_a_node_with_endless_taints_refuses_all_asks() -> None:
    taints = ",".join(["a:NoSchedule"] * 200)
    assert toleration_refusal("*", taints[:2_040]) == ""
    assert toleration_refusal("*", taints) == "node has 2599 characters of taints, at most 2048 are read"


def test_no_selector_tag_demands_nothing() -> None:
    assert SELECTOR.read({"zone": "a"}) is None
    assert SELECTOR.refuses(None, NODE) == ""


def test_equal_selectors_are_one_demand() -> None:
    demands = {SELECTOR.read({NODE_SELECTOR: text}) for text in ("zone=a,disk", "zone=a, disk", "zone=a,disk,disk")}
    assert len(demands) == 1


PREDICATE = Tolerations()


def toleration_refusal(tolerations: str, taints: str) -> str:
    return PREDICATE.refuses(PREDICATE.read({TOLERATIONS: tolerations}), NodeView("n1", {TAINTS: taints}, {}))


@pytest.mark.parametrize(
    ("tolerations", "taints"),
    [
        ("", ""),
        ("gpu=a100:NoSchedule", "gpu=a100:NoSchedule"),
        ("gpu=a100", "gpu=a100:NoSchedule, gpu=a100:NoExecute"),
        ("gpu:NoSchedule", "gpu=a100:NoSchedule"),
        ("gpu", "gpu=a100:NoExecute"),
        ("*", "gpu=a100:NoSchedule,maintenance:NoExecute"),
        ("*:NoSchedule,maintenance", "gpu:NoSchedule,maintenance:NoExecute"),
        ("gpu=", "gpu:NoSchedule"),
        ("", "slow:PreferNoSchedule"),
    ],
)
def test_a_node_with_tolerated_taints_is_admitted(tolerations: str, taints: str) -> None:
    assert toleration_refusal(tolerations, taints) == ""


@pytest.mark.parametrize(
    ("tolerations", "taints", "taint"),
    [
        ("", "gpu:NoSchedule", "gpu:NoSchedule"),
        ("gpu=h100", "gpu=a100:NoSchedule", "gpu=a100:NoSchedule"),
        ("gpu:NoExecute", "gpu:NoSchedule", "gpu:NoSchedule"),
        ("gpu", "gpu:NoSchedule,maintenance:NoExecute", "maintenance:NoExecute"),
        ("gpu=", "gpu=a100:NoSchedule", "gpu=a100:NoSchedule"),
        ("*:NoExecute", "gpu:NoSchedule", "gpu:NoSchedule"),
    ],
)
def test_one_taint_that_is_not_tolerated_is_enough(tolerations: str, taints: str, taint: str) -> None:
    assert toleration_refusal(tolerations, taints) == f"node has the taint {taint}, which is not tolerated"


@pytest.mark.parametrize("taints", ["gpu", "gpu:Never", "*:NoSchedule", ":NoSchedule", "gpu=a b:NoSchedule"])
def test_a_taint_that_cannot_be_read_refuses_everybody(taints: str) -> None:
    assert toleration_refusal("*", taints) == f"node has the taint {taints!r}, which cannot be read"


@pytest.mark.parametrize("text", ["gpu:Never", ",", "gpu,", "=a", ":NoSchedule", "a b"])
def test_tolerations_that_cannot_be_read_are_refused_with_what_is_right(text: str) -> None:
    with pytest.raises(ValueError, match=r"^tag yunishard/tolerations: cannot read '.*': write key, key=value, or \*"):
        PREDICATE.read({TOLERATIONS: text})


def test_a_message_quotes_80_characters_of_a_tag() -> None:
    assert quote("x" * 80) == f"'{'x' * 80}'"
    assert quote("x" * 81) == f"'{'x' * 80}...'"
