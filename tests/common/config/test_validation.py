"""The rules, one by one where the recorded verdicts do not show the message, the place, or several problems at once."""

from pathlib import Path
from typing import NotRequired, TypedDict

import msgspec
import pytest
import yaml

from yunishard.common.config.model import (
    ChildTemplateConfig,
    Configuration,
    LimitConfig,
    PartitionConfig,
    QueueConfig,
    compute_checksum,
)
from yunishard.common.config.parse import DEPTH_MAX, parse_with_lines
from yunishard.common.config.problems import PROBLEMS_MAX, ConfigError, Problem
from yunishard.common.config.validation import (
    DEFAULT_TEXT,
    find_build_problems,
    find_hierarchy_problems,
    find_name_problems,
    find_problems,
    load,
    validate,
)
from yunishard.common.names import ILLEGAL_QUEUE


def partition(keys: str) -> str:
    """A text with one partition of these keys."""
    return "partitions:\n- name: default\n" + "".join(f"  {line}\n" for line in keys.splitlines())


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as refused:
        load(text)
    return refused.value.problems


def only_problem(text: str) -> Problem:
    (problem,) = problems(text)
    return problem


def test_the_default_configuration_takes_every_namespace_as_a_queue() -> None:
    configuration = load(DEFAULT_TEXT)
    (only,) = configuration.partitions
    assert (only.name, only.root.name, only.root.submit_acl) == ("default", "root", "*")
    assert [(rule.name, rule.value, rule.create) for rule in only.placement_rules] == [("tag", "namespace", True)]
    assert find_build_problems(only) == []


def test_a_loaded_configuration_has_the_checksum_of_its_text() -> None:
    text = f"{DEFAULT_TEXT}checksum: ABC"
    assert load(text).checksum == compute_checksum(text) == compute_checksum(DEFAULT_TEXT)


def test_an_empty_text_stays_empty() -> None:
    assert load("").partitions == ()


def test_a_root_is_put_above_queues_that_have_none() -> None:
    root = load(partition("queues: [{name: a}, {name: root}]")).partitions[0].root
    assert root == QueueConfig(name="root", parent=True, queues=(QueueConfig(name="a"), QueueConfig(name="root")))


def test_a_root_that_is_written_is_used_and_is_a_parent() -> None:
    root = load(partition("queues: [{name: root, parent: false, submitacl: '*'}]")).partitions[0].root
    assert root == QueueConfig(name="root", parent=True, submit_acl="*")


@pytest.mark.parametrize("queues", ["[{name: a}]", "[{name: root}]"])
def test_limits_of_the_partition_become_those_of_root(queues: str) -> None:
    only = load(partition(f"queues: {queues}\nlimits: [{{users: [ann], maxapplications: 1}}]")).partitions[0]
    assert only.root.limits == only.limits == (LimitConfig(users=("ann",), max_applications=1),)


def test_loading_what_is_loaded_changes_nothing() -> None:
    configuration = load(partition("queues: [{name: a}]\nlimits: [{users: [ann], maxapplications: 1}]"))
    assert find_problems(configuration) == []
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(configuration), type=Configuration) == configuration


def test_a_queue_with_children_is_a_parent_whatever_it_says() -> None:
    assert QueueConfig(queues=(QueueConfig(),)).is_parent
    assert QueueConfig(parent=True).is_parent
    assert not QueueConfig().is_parent


def test_preemption_is_on_and_quota_preemption_off_unless_written() -> None:
    preemption = load(DEFAULT_TEXT).partitions[0].preemption
    assert (preemption.is_enabled, preemption.is_quota_enabled) == (True, False)


def test_nodes_are_sorted_fairly_by_cores_and_memory_unless_written() -> None:
    policy = load(DEFAULT_TEXT).partitions[0].node_sort_policy
    assert (policy.policy, policy.weights) == ("fair", {"vcore": 1.0, "memory": 1.0})


def test_the_sentences_that_operators_know_are_kept() -> None:
    text = """\
partitions:
- name: default
- name: Default
  queues:
  - name: root
    resources: {max: {}}
    submitacl: a b c
    queues:
    - name: a
      resources: {guaranteed: {vcore: 2, gpu: 1}, max: {vcore: 1}}
    - name: A
    - name: b.c
"""
    assert [problem.message for problem in problems(text)] == [
        "queue config is not set",
        "duplicate partition name found with name default",
        "root queue must not have resource limits set",
        "multiple spaces found in ACL: 'a b c'",
        "duplicate child name found with name 'A', level 1",
        ILLEGAL_QUEUE,
        "guaranteed resource map[gpu:1 vcore:2000] is larger than maximum resource map[vcore:1000] for queue a",
    ]


def test_a_partition_without_a_name_meets_one_called_default() -> None:
    text = "partitions:\n- queues: []\n- {name: %s, queues: []}\n- {name: %s, queues: []}\n"
    assert [problem.hint for problem in problems(text % ("Default", "a"))] == [
        "a partition without a name is called default"
    ]
    (problem,) = problems(text % ("a", "A"))
    assert problem.hint == ""


def test_each_problem_names_the_line_and_the_path_that_were_written() -> None:
    text = """\
partitions:
- name: default
  limits:
  - users: ['9']
    maxapplications: 1
  queues:
  - name: a
    resources:
      max: {memory: 1x}
  - name: b
    maxapplications: 1
    queues:
    - name: c
  nodesortpolicy: {type: Fair, resourceweights: {vcore: -1}}
  placementrules:
  - name: user
    parent: {name: 9th}
    filter: {users: ['9lives']}
"""
    assert [(problem.line, problem.path, problem.kind) for problem in problems(text)] == [
        (4, "partitions[0].limits[0].users[0]", "limit-entry"),
        (9, "partitions[0].queues[0].resources.max.memory", "quantity"),
        (17, "partitions[0].placementrules[0].parent.name", "rule-name"),
        (18, "partitions[0].placementrules[0].filter.users[0]", "rule-filter"),
        (14, "partitions[0].nodesortpolicy.type", "node-sort"),
        (14, "partitions[0].nodesortpolicy.resourceweights.vcore", "node-sort"),
        (13, "partitions[0].queues[1].queues[0]", "max-apps"),
    ]


def test_limits_that_root_has_from_its_partition_are_found_there() -> None:
    text = partition("queues: [{name: root}]\nlimits: [{users: ['9'], maxapplications: 1}]")
    assert only_problem(text).path == "partitions[0].limits[0].users[0]"


def test_limits_that_root_has_itself_are_found_there() -> None:
    text = partition("queues: [{name: root, limits: [{users: ['9'], maxapplications: 1}]}]")
    assert only_problem(text).path == "partitions[0].queues[0].limits[0].users[0]"


@pytest.mark.parametrize(
    ("quantity", "message"),
    [("10GB", "invalid quantity"), ("5K", "invalid suffix"), ("10E", "invalid quantity: overflow")],
)
def test_a_wrong_quantity_is_told_once_with_what_would_be_right(quantity: str, message: str) -> None:
    keys = f"resources: {{max: {{memory: {quantity}}}}}, limits: [{{users: [ann], maxapplications: 1}}]"
    text = partition(f"queues: [{{name: a, {keys}}}]")
    problem = only_problem(text)
    assert problem.message == message
    assert quantity in problem.hint


def test_every_name_of_every_limit_is_looked_at() -> None:
    entries = "[{users: [a, a, '*', b, 1x], maxapplications: 1}, {groups: ['*', dev], maxresources: {memory: 0}}, {}]"
    assert [
        problem.path.removeprefix("partitions[0].queues[0].limits")
        for problem in problems(partition(f"queues:\n- name: a\n  limits: {entries}"))
    ] == [
        "[0].users[1]",
        "[0].users[3]",
        "[0].users[4]",
        "[1].groups[1]",
        "[1].maxresources",
        "[2]",
        "[2]",
    ]


def test_a_wildcard_group_needs_a_named_one_first() -> None:
    problem = only_problem(partition("queues:\n- name: a\n  limits: [{groups: ['*'], maxapplications: 1}]"))
    assert problem.message.startswith("should not specify only one group limit that is using the wildcard.")


def test_a_limit_is_not_above_its_queue() -> None:
    limit = "{users: [ann], maxapplications: 2, maxresources: {memory: 2}}"
    queue = f"{{name: a, maxapplications: 1, resources: {{max: {{memory: 1}}}}, limits: [{limit}]}}"
    assert [(problem.message, problem.hint) for problem in problems(partition(f"queues: [{queue}]"))] == [
        ("invalid MaxApplications settings for limit  exceed current the queue MaxApplications", "2 is above 1"),
        (
            "invalid MaxResources settings for limit  exeecd current the queue MaxResources",
            "memory=2 is above memory=1",
        ),
    ]


def test_a_type_that_a_named_user_leaves_out_below_a_wildcard_is_open_again() -> None:
    def limits(user: str, amount: str) -> str:
        return f"limits: [{{users: ['{user}'], maxresources: {{{amount}}}}}]"

    lowest = f"{{name: c, {limits('ann', 'memory: 99')}}}"
    middle = f"{{name: b, {limits('ann', 'vcore: 1')}, queues: [{lowest}]}}"
    assert load(partition(f"queues: [{{name: a, {limits('*', 'memory: 1')}, queues: [{middle}]}}]"))


@pytest.mark.parametrize(("entry", "shown"), [("limit: one, maxapplications: 1", "'one' "), ("maxapplications: 1", "")])
def test_a_limit_that_names_nobody_is_shown_by_its_name(entry: str, shown: str) -> None:
    first, *_ = problems(partition(f"queues: [{{name: a, limits: [{{{entry}}}]}}]"))
    assert (first.message, first.kind) == (f"the limit {shown}names neither users nor groups", "limit-entry")


def test_a_limit_above_one_further_up_names_both_holders() -> None:
    lower = "{name: b, limits: [{users: [ann], maxapplications: 2}, {groups: [dev], maxresources: {memory: 2}}]}"
    upper = "limits: [{users: ['*'], maxapplications: 1}, {groups: [dev], maxresources: {memory: 1}}]"
    assert [
        problem.message for problem in problems(partition(f"queues: [{{name: a, {upper}, queues: [{lower}]}}]"))
    ] == [
        (
            "group dev max resource map[memory:2] of queue b is greater than"
            " immediate or ancestor parent maximum resource map[memory:1]"
        ),
        (
            "user ann max applications 2 of queue b is greater than"
            " wildcard max applications 1 of immediate or ancestor parent queue"
        ),
    ]


def test_guarantees_that_add_up_to_more_than_64_bits_are_cut_there() -> None:
    queue = "{name: %s, resources: {guaranteed: {memory: 9E}}}"
    most = "resources: {max: {memory: 9223372036854775807}}"
    assert load(partition(f"queues: [{{name: p, {most}, queues: [{queue % 'a'}, {queue % 'b'}]}}]"))


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("{name: fixed, value: root.b}", "(fixed) references non-existing queues (root.b) and create is 'false'"),
        ("{name: fixed, value: root.a.b, create: yes}", "because the last queue (a) in the hierarchy is a leaf"),
        ("{name: fixed, value: root}", "(fixed) references a queue (root) which is not a leaf"),
        (
            "{name: user, parent: {name: fixed, value: a}}",
            "(fixed->user) references a queue (root.a) which is not a parent",
        ),
    ],
)
def test_a_fixed_path_leads_to_a_queue_that_fits(rule: str, told: str) -> None:
    assert told in only_problem(partition(f"queues: [{{name: a}}]\nplacementrules: [{rule}]")).message


def test_only_the_outermost_of_fixed_rules_may_be_qualified() -> None:
    rule = "{name: fixed, value: root.a, parent: {name: fixed, value: root}}"
    problem = only_problem(partition(f"queues: [{{name: a}}]\nplacementrules: [{rule}]"))
    assert problem.message == "illegal fully qualified 'fixed' rule with value root.a"


@pytest.mark.parametrize(
    ("entry", "hint"),
    [("9lives", "an expression contains"), ("dev[", "missing ]"), ("(?=dev)", "invalid perl operator")],
)
def test_an_only_entry_of_a_filter_is_a_name_or_an_expression(entry: str, hint: str) -> None:
    problem = only_problem(
        partition(f"queues: [{{name: a}}]\nplacementrules: [{{name: user, filter: {{groups: ['{entry}']}}}}]")
    )
    assert problem.kind == "rule-filter"
    assert hint in problem.hint


def test_a_type_of_filter_or_sort_policy_is_named_when_it_is_unknown() -> None:
    text = partition(
        "queues: [{name: a}]\nplacementrules: [{name: user, filter: {type: block}}]\nnodesortpolicy: {type: Fair}"
    )
    assert [problem.message for problem in problems(text)] == [
        "invalid rule filter type block, filter type  must be either '', allow or deny",
        "undefined policy: Fair",
    ]


def test_queues_may_be_nested_as_deep_as_can_be_read() -> None:
    levels = DEPTH_MAX // 2 - 1
    text = "".join(f"{{name: q{level}, queues: [" for level in range(levels - 1)) + "]}" * (levels - 1)
    configuration = load(f"partitions: [{{queues: [{text}]}}]")
    assert find_build_problems(configuration.partitions[0]) == []


def test_a_root_in_another_case_does_not_load() -> None:
    (problem,) = find_build_problems(load(partition("queues: [{name: Root}]")).partitions[0])
    assert (problem.kind, problem.message) == ("load", "partition cannot be created without root queue")


@pytest.mark.parametrize("acl", ["a  b", " a b", "a b ", "  ", " * "])
def test_a_list_with_a_second_blank_passes_validation_but_does_not_load(acl: str) -> None:
    (only,) = load(partition(f"queues: [{{name: a, adminacl: '{acl}'}}]")).partitions
    (problem,) = find_build_problems(only)
    assert problem.message == f"multiple spaces found in ACL: '{acl}'"
    assert problem.path == "queues[0].queues[0].adminacl"


def test_a_template_is_read_where_queues_can_be_created_and_it_sets_something() -> None:
    wrong = "childtemplate: {maxapplications: 1, resources: {max: {memory: big}}}"
    empty = "childtemplate: {resources: {max: {memory: ''}}}"
    text = partition(
        f"queues: [{{name: a, {wrong}}}, {{name: b, parent: true, {wrong}}}, {{name: c, parent: true, {empty}}}]"
    )
    (problem,) = find_build_problems(load(text).partitions[0])
    assert (problem.path, problem.message) == (
        "queues[0].queues[1].childtemplate.resources.max.memory",
        "invalid quantity",
    )


def test_a_template_without_a_value_is_no_template() -> None:
    assert ChildTemplateConfig(properties={"a": "", "": "b"}).is_empty
    assert not ChildTemplateConfig(properties={"a": "b"}).is_empty


def test_problems_without_a_text_have_no_line() -> None:
    configuration = Configuration(partitions=(PartitionConfig(queues=(QueueConfig(name="a b"),)),))
    assert [(problem.line, problem.path) for problem in find_problems(configuration)] == [
        (0, "partitions[0].queues[0].name")
    ]


def test_the_configuration_is_checked_as_it_was_parsed() -> None:
    assert find_problems(parse_with_lines(DEFAULT_TEXT)[0]) == []


@pytest.mark.parametrize(
    ("queue", "kinds"),
    [
        (r'resources: {max: {memory: "\u00a05k\u3000"}}', []),
        (r'resources: {max: {memory: "\u001f5k"}}', ["quantity"]),
        (r'submitacl: "a\u00a0b\u2003c"', ["acl"]),
        (r'submitacl: "a\u001fb\u001fc"', []),
    ],
)
def test_the_white_space_of_unicode_separates_and_is_trimmed_but_no_other_separator_is(
    queue: str, kinds: list[str]
) -> None:
    text = partition(f"queues: [{{name: a, {queue}}}]")
    assert [problem.kind for problem in (problems(text) if kinds else ())] == kinds
    if not kinds:
        assert load(text).partitions


def test_load_problems_name_the_lines_of_the_text_when_they_are_known() -> None:
    configuration, lines = validate(partition("queues:\n- name: a\n  adminacl: 'a  b'"))
    (problem,) = find_build_problems(configuration.partitions[0], path="partitions[0]", lines=lines)
    assert (problem.line, problem.path) == (5, "partitions[0].queues[0].adminacl")


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        ("{name: a, submitacl: 'bob  dev'}", 1),
        ("{name: a, adminacl: ' bob  dev'}", 1),
        ("{name: a, parent: true, childtemplate: {resources: {max: {memory: much}}}}", 1),
        ("{name: a, parent: true, childtemplate: {resources: {guaranteed: {memory: 1Gi}, max: {vcore: 1}}}}", 0),
        ("{name: a, submitacl: ' dev', adminacl: 'bob dev,ops'}", 0),
    ],
)
def test_a_partition_is_looked_at_closely_only_where_there_may_be_a_problem(queue: str, told: int) -> None:
    text = partition(f"queues: [{{name: root, queues: [{queue}]}}]")
    assert len(find_build_problems(load(text).partitions[0])) == told


# Names of partitions


@pytest.mark.parametrize("name", ["rm 1", "[x]a", "a/b", "ü", "x" * 65, "a\\n"])
def test_a_name_that_no_core_takes_is_told_with_its_place(name: str) -> None:
    text = f'partitions:\n- queues: []\n- queues: []\n  name: "{name}"\n'
    (problem,) = find_name_problems(*parse_with_lines(text))
    assert (problem.kind, problem.path, problem.line) == ("partition-name", "partitions[1].name", 4)
    assert "must be 1 to 64 letters, digits" in problem.message


@pytest.mark.parametrize("name", ["", "default", "gpu-1.a_B", "x" * 64])
def test_other_names_and_none_are_fine(name: str) -> None:
    assert find_name_problems(*parse_with_lines(f"partitions: [{{name: '{name}'}}]")) == []


# Recorded verdicts of the reference scheduler

VECTORS = Path(__file__).parents[2] / "data" / "config-vectors.yaml"


class Vector(TypedDict):
    id: str
    config: str
    valid: bool
    error_kind: NotRequired[str]
    loads: NotRequired[bool]


def vectors(*, valid: bool) -> list[Vector]:
    found: list[Vector] = yaml.safe_load(VECTORS.read_text())
    return [vector for vector in found if vector["valid"] is valid]


def name(vector: Vector) -> str:
    return vector["id"]


@pytest.mark.parametrize("vector", vectors(valid=True), ids=name)
def test_a_valid_text_is_accepted_and_its_partitions_load_when_they_should(vector: Vector) -> None:
    configuration = load(vector["config"])
    problems = [problem for partition in configuration.partitions for problem in find_build_problems(partition)]
    assert (not problems) is vector["loads"], problems


@pytest.mark.parametrize("vector", vectors(valid=False), ids=name)
def test_an_invalid_text_is_refused_for_the_reason_that_decides(vector: Vector) -> None:
    with pytest.raises(ConfigError) as refused:
        load(vector["config"])
    assert refused.value.problems[0].kind == vector["error_kind"]


# A queue has the same parent in every partition that has it -----------------------------------------------------------

Tree = dict[str, "Tree"]


def tree(paths: str) -> tuple[QueueConfig, ...]:
    """The queues of these paths, without root, separated by blanks."""
    top: Tree = {}
    for path in paths.split():
        level = top
        for name in path.split("."):
            level = level.setdefault(name, {})
    return queues(top)


def queues(level: Tree) -> tuple[QueueConfig, ...]:
    return tuple(QueueConfig(name=name, queues=queues(below)) for name, below in level.items())


def told(*partitions: str) -> list[str]:
    parts = (PartitionConfig(name=f"p{number}", queues=tree(paths)) for number, paths in enumerate(partitions))
    return [problem.message for problem in find_hierarchy_problems(Configuration(partitions=tuple(parts)))]


def test_a_queue_below_another_parent_is_a_problem() -> None:
    assert told("eng.dev", "ops.dev") == ["queue dev is below root.ops here, but below root.eng in partition p0"]


def test_a_queue_on_another_level_is_a_problem() -> None:
    assert told("dev", "dev.dev eng") == []
    assert told("dev", "eng.dev") == ["queue dev is below root.eng here, but below root in partition p0"]


@pytest.mark.parametrize(
    "partitions",
    [
        ("eng.dev ops", "eng.dev ops"),
        ("eng.dev", "eng", "ops.qa"),  # not every partition has every queue
        ("Eng.Dev", "eng.dev"),
        ("eng.dev", "eng.dev ops.dev"),
        ("eng.dev ops.dev", "eng.dev"),
        ("eng.dev ops.dev",),  # within one partition a name may stand anywhere
        (),
    ],
)
def test_partitions_agree_where_one_has_no_other_places_than_the_other(partitions: tuple[str, ...]) -> None:
    assert told(*partitions) == []


def test_partitions_disagree_where_each_has_a_place_of_its_own() -> None:
    assert told("eng.dev ops.dev", "eng.dev qa.dev") == [
        "queue dev is below root.qa here, but below root.eng and root.ops in partition p0"
    ]


def test_what_went_with_its_parent_is_not_told_again() -> None:
    assert told("a.eng.dev.x", "b.eng.dev.x") == ["queue eng is below root.b here, but below root.a in partition p0"]


def test_two_queues_that_changed_places_are_told_at_the_upper_one() -> None:
    assert told("a.b", "b.a") == ["queue b is below root here, but below root.a in partition p0"]


def test_every_partition_is_compared_with_all_before_it() -> None:
    assert told("eng.dev", "qa", "qa.dev", "qa.dev") == [
        "queue dev is below root.qa here, but below root.eng in partition p0",
        "queue dev is below root.qa here, but below root.eng in partition p0",
    ]


def test_a_problem_names_the_line_of_the_later_place() -> None:
    text = """\
partitions:
- queues:
  - name: eng
    queues:
    - name: dev
- name: gpu
  queues:
  - name: root
    queues:
    - name: Dev
"""
    (problem,) = find_hierarchy_problems(*parse_with_lines(text))
    assert (problem.line, problem.path) == (10, "partitions[1].queues[0].queues[0].name")
    assert problem.kind == "hierarchy"
    assert problem.message == "queue dev is below root here, but below root.eng in partition default"


def test_a_loaded_configuration_is_judged_as_the_parsed_one() -> None:
    text = "partitions: [{queues: [{name: a, queues: [{name: b}]}]}, {name: gpu, queues: [{name: b}]}]"
    (problem,) = find_hierarchy_problems(load(text))
    assert problem.message == "queue b is below root here, but below root.a in partition default"
    assert problem.path == "partitions[1].queues[0].queues[0].name"


def test_problems_are_bounded() -> None:
    names = [f"q{number}" for number in range(2 * PROBLEMS_MAX)]
    assert len(told(" ".join(f"a.{name}" for name in names), " ".join(f"b.{name}" for name in names))) == PROBLEMS_MAX
