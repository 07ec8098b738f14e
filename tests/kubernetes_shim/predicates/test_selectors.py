"""Compiled selectors. `test_scheduler_cases.py` has more of their rules."""

from yunishard.kubernetes_shim.objects import LabelSelector, NodeSelector, NodeSelectorTerm, Requirement
from yunishard.kubernetes_shim.predicates import selectors
from yunishard.kubernetes_shim.predicates.selectors import EVERYTHING, NOTHING, compile_labels, compile_node_requirement


def test_a_missing_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert compile_labels(None) == NOTHING
    assert compile_labels(LabelSelector()) == EVERYTHING
    assert not NOTHING.matches({})
    assert EVERYTHING.matches({})


def test_equal_selectors_are_compiled_once() -> None:
    first, second = (compile_labels(LabelSelector(match_labels={"app": "web"})) for _ in range(2))
    assert first is second
    assert selectors._compile_labels.cache_info().maxsize == selectors.COMPILED_MAX


def test_unacceptable_requirements_select_nothing() -> None:
    wrong = [
        Requirement("app", "Gt", ["1"]),
        Requirement("app", "In", []),
        Requirement("app", "Exists", ["web"]),
        Requirement("app", "In", ["no label value!"]),
        Requirement("app", "Like", ["web"]),
    ]
    assert {compile_labels(LabelSelector(match_expressions=[one])) for one in wrong} == {NOTHING}


def test_the_labels_by_which_a_selector_is_found_are_those_with_the_fewest_values() -> None:
    expressions = [Requirement("tier", "In", ["b", "a"]), Requirement("disk", "Exists")]
    assert compile_labels(LabelSelector(match_expressions=expressions)).pairs == (("tier", "a"), ("tier", "b"))
    both = compile_labels(LabelSelector(match_labels={"app": "web"}, match_expressions=expressions))
    assert both.pairs == (("app", "web"),)
    assert compile_labels(LabelSelector(match_expressions=expressions[1:])).pairs == ()


def test_node_terms_are_alternatives_and_an_empty_one_matches_no_node() -> None:
    large = NodeSelectorTerm(match_expressions=[Requirement("cores", "Gt", ["16"])])
    named = NodeSelectorTerm(match_fields=[Requirement("metadata.name", "In", ["n1"])])
    requirement = compile_node_requirement({"zone": "a"}, NodeSelector([large, named, NodeSelectorTerm()]))
    assert requirement.matches("n2", {"zone": "a", "cores": "32"})
    assert requirement.matches("n1", {"zone": "a"})
    assert not requirement.matches("n1", {"zone": "b"})
    assert not requirement.matches("n2", {"zone": "a", "cores": "many"})
    assert not compile_node_requirement({}, NodeSelector([])).matches("n1", {})
