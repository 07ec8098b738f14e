"""What is told of placement rules beforehand is what building them ends with, in the same words."""

from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from yunishard.common.config.model import FilterConfig, PartitionConfig, PlacementRuleConfig
from yunishard.common.config.placement_rules import RULES, find_rule_problems
from yunishard.common.config.validation import load
from yunishard.partition_worker.engine.placement import PlacementChain

OURS = ("j03-unknown-name",)
"""The unknown name is `primarygroup`, a rule that we have."""
VECTORS = Path(__file__).parents[1] / "data" / "config-vectors.yaml"


def told(rules: tuple[PlacementRuleConfig, ...]) -> str:
    """The first problem, nothing if there is none."""
    problems = find_rule_problems(PartitionConfig(placement_rules=rules))
    return problems[0].message if problems else ""


def failed(rules: tuple[PlacementRuleConfig, ...]) -> str:
    """Why they cannot be built, nothing if they can."""
    return PlacementChain(rules).problem


def filters() -> SearchStrategy[FilterConfig]:
    entries = st.lists(st.sampled_from(("ann", "9", "^a", "(", "(?=a)", "(a{1000}){9}", "*")), max_size=2).map(tuple)
    return st.builds(FilterConfig, type=st.sampled_from(("", "deny")), users=entries, groups=entries)


def rules(depth: int = 2) -> SearchStrategy[PlacementRuleConfig]:
    """Rules of any kind, most of them with a flaw somewhere."""
    return st.builds(
        PlacementRuleConfig,
        name=st.sampled_from((*RULES, *map(str.title, RULES), "recovery", "test", "group", "")),
        value=st.sampled_from(("", "a", "a.b", "Root.a", "rooted", "a..b", "ü", ".")),
        parent=st.none() | rules(depth - 1) if depth else st.none(),
        filter=st.just(FilterConfig()) | filters(),
    )


@given(st.lists(rules(), max_size=3).map(tuple))
def test_rules_cannot_be_built_for_the_reason_that_is_told_first(configs: tuple[PlacementRuleConfig, ...]) -> None:
    assert told(configs) == failed(configs)


def test_so_it_is_for_every_recorded_configuration_and_the_recorded_verdicts_agree() -> None:
    inactive = []
    for vector in yaml.safe_load(VECTORS.read_text()):
        for partition in load(vector["config"]).partitions if vector["valid"] else ():
            assert told(partition.placement_rules) == failed(partition.placement_rules), vector["id"]
            if told(partition.placement_rules):
                inactive.append(vector["id"])
            if not vector.get("rules_active", True) and vector["id"] not in OURS:
                assert vector["id"] in inactive
    assert len(inactive) >= 7
