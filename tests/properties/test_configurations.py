"""What holds for every configuration text, sound or broken."""

import hashlib
import os
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.configurations import broken_configurations, configurations, pairs_of_configurations
from yunishard.common.config.difference import find_differences
from yunishard.common.config.model import Configuration, compute_checksum
from yunishard.common.config.parse import Node, Scalar, compose, parse_with_lines
from yunishard.common.config.placement_rules import find_rule_problems
from yunishard.common.config.problems import PROBLEMS_MAX, ConfigError, Problem
from yunishard.common.config.validation import DEFAULT_TEXT, find_build_problems, find_problems, load

VECTORS = Path(__file__).parents[1] / "data" / "config-vectors.yaml"
EXAMPLES = 1500 if os.environ.get("PROPERTIES") == "long" else 40
EITHER = st.one_of(configurations(), broken_configurations())
GARBAGE = st.text(st.sampled_from("ab:-[]{},&*!|>'\"#% \n\t<ü\ufeff\x07"), max_size=40)


def problems(text: str) -> tuple[Problem, ...]:
    """Why a text is refused, nothing if it is not."""
    try:
        load(text)
    except ConfigError as error:
        return error.problems
    return ()


def composed(text: str, reader: type[yaml.CSafeLoader] | type[yaml.SafeLoader]) -> Node | str | None:
    """What a reader makes of the text; where it complains, and of what, and where nothing is, is its own affair."""
    try:
        node = compose(text, reader=reader)
    except ConfigError:
        return "refused"
    return None if isinstance(node, Scalar) and not node.text and not node.tag else node


@settings(max_examples=EXAMPLES)
@given(configurations())
def test_what_is_generated_as_sound_is_accepted_loads_and_has_rules_that_can_be_built(text: str) -> None:
    for partition in load(text).partitions:
        assert find_build_problems(partition) == []
        assert find_rule_problems(partition) == []


@settings(max_examples=EXAMPLES)
@given(pairs_of_configurations())
def test_so_is_what_an_operator_makes_of_it(pair: tuple[str, str]) -> None:
    before, after = map(load, pair)
    assert find_differences(before, before) == []
    there, back = find_differences(before, after), find_differences(after, before)
    assert {found.path for found in there} == {found.path for found in back}
    assert {(found.path, found.before, found.after) for found in there} == {
        (found.path, found.after, found.before) for found in back
    }


@settings(max_examples=EXAMPLES)
@given(st.one_of(broken_configurations(), GARBAGE))
def test_a_refusal_is_a_list_of_problems_each_with_its_place(text: str) -> None:
    found = problems(text)
    assert len(found) <= PROBLEMS_MAX
    for problem in found:
        assert 1 <= problem.line <= text.count("\n") + 1
        assert problem.message
        assert problem.path or problem.kind == "parse", "only what is no mapping at all has no path"


@settings(max_examples=EXAMPLES)
@given(EITHER)
def test_a_problem_names_a_path_that_was_written_or_is_missing_right_below_one(text: str) -> None:
    try:
        configuration, lines = parse_with_lines(text)
    except ConfigError:
        return
    for problem in find_problems(configuration, lines):
        around = problem.path[: max(problem.path.rfind("."), problem.path.rfind("["))]
        assert problem.path in lines or around in lines, problem


@settings(max_examples=EXAMPLES)
@given(configurations())
def test_a_configuration_survives_the_way_to_another_process(text: str) -> None:
    configuration = load(text)
    packed = msgspec.msgpack.encode(configuration)
    assert msgspec.msgpack.decode(packed, type=Configuration) == configuration
    assert find_problems(configuration) == []
    assert msgspec.json.decode(msgspec.json.encode(configuration), type=Configuration) == configuration


@settings(max_examples=EXAMPLES)
@given(configurations(), st.text(st.sampled_from("0123456789ABCDEF"), min_size=64, max_size=64))
def test_a_checksum_is_of_the_text_without_the_checksum_it_carries(text: str, carried: str) -> None:
    line = f"checksum: {carried}"
    checksum = hashlib.sha256(text.encode()).hexdigest().upper()
    assert load(text).checksum == compute_checksum(text) == checksum
    assert compute_checksum(text + line) == compute_checksum(line + text + line) == checksum
    assert compute_checksum(f"{text}{line}\n") == compute_checksum(f"{text}\n") != checksum


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="there is only one reader to compare")
@settings(max_examples=EXAMPLES)
@given(st.one_of(EITHER, EITHER.map(lambda text: text.replace("\n", "\r\n"))))
def test_both_readers_make_the_same_of_a_text(text: str) -> None:
    assert composed(text, yaml.CSafeLoader) == composed(text, yaml.SafeLoader)


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="there is only one reader to compare")
def test_so_they_do_of_every_recorded_configuration() -> None:
    for vector in yaml.safe_load(VECTORS.read_text()):
        assert composed(vector["config"], yaml.CSafeLoader) == composed(vector["config"], yaml.SafeLoader), vector["id"]


def test_the_default_configuration_is_one_that_could_be_generated() -> None:
    assert problems(DEFAULT_TEXT) == ()
