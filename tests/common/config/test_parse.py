"""Reading YAML strictly: what is accepted, what is refused, and that every refusal names its place."""

import math

import msgspec
import pytest
import yaml

from yunishard.common.config.model import Configuration, PartitionConfig, PreemptionConfig, QueueConfig, ResourcesConfig
from yunishard.common.config.parse import (
    DEPTH_MAX,
    TEXT_BYTES_MAX,
    VALUES_MAX,
    Reader,
    compose,
    explain_special,
    parse_with_lines,
)
from yunishard.common.config.problems import PROBLEMS_MAX, ConfigError, Problem

WHOLE = """\
partitions:
- name: gpu
  queues:
  - name: Team
    parent: true
    resources: {guaranteed: {memory: 1G}, max: {memory: 2G, vcore: 1500m}}
    maxapplications: 12
    properties: {priority.offset: 5, empty: }
    submitacl: "ann dev"
    adminacl: '*'
    childtemplate:
      maxapplications: 1
      properties: {a: b}
      resources: {max: {memory: 1}}
    limits:
    - {limit: some words, users: [ann], groups: [dev, '*'], maxapplications: 3, maxresources: {memory: 1}}
    queues:
    - name: 2024-01-31
  placementrules:
  - name: user
    create: yes
    value: x
    parent: {name: fixed, value: root.team}
    filter: {type: deny, users: [ann], groups: [dev]}
  limits:
  - users: [bob]
  preemption: {enabled: false, quotapreemptionenabled: true}
  nodesortpolicy: {type: binpacking, resourceweights: {vcore: 0x2, memory: .5}}
  usergroupresolver: {type: os}
checksum: 0000
"""


def parse(text: str) -> Configuration:
    return parse_with_lines(text)[0]


def queue(text: str) -> QueueConfig:
    """The one queue of a text that gives only the keys of that queue."""
    lines = "".join(f"    {line}\n" for line in text.splitlines())
    return parse(f"partitions:\n- queues:\n  - name: a\n{lines}").partitions[0].root


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert {problem.kind for problem in refused.value.problems} == {"parse"}
    return refused.value.problems


def test_every_key_is_read() -> None:
    partition = parse(WHOLE).partitions[0]
    team = partition.root
    assert (partition.name, team.name, team.parent, team.max_applications) == ("gpu", "Team", True, 12)
    assert team.resources == ResourcesConfig(guaranteed={"memory": "1G"}, max={"memory": "2G", "vcore": "1500m"})
    assert team.properties == {"priority.offset": "5", "empty": ""}
    assert (team.submit_acl, team.admin_acl) == ("ann dev", "*")
    assert team.child_template.max_applications == 1
    assert team.child_template.properties == {"a": "b"}
    assert team.child_template.resources.max == {"memory": "1"}
    assert team.limits[0].limit == "some words"
    assert team.limits[0].groups == ("dev", "*")
    assert team.limits[0].max_resources == {"memory": "1"}
    assert team.queues == (QueueConfig(name="2024-01-31"),)
    rule = partition.placement_rules[0]
    assert (rule.name, rule.create, rule.value) == ("user", True, "x")
    assert rule.parent is not None
    assert rule.parent.value == "root.team"
    assert (rule.filter.type, rule.filter.users, rule.filter.groups) == ("deny", ("ann",), ("dev",))
    assert partition.limits[0].users == ("bob",)
    assert partition.preemption == PreemptionConfig(enabled=False, quota_preemption_enabled=True)
    assert partition.node_sort_policy.weights == {"vcore": 2.0, "memory": 0.5}
    assert partition.user_group_resolver.type == "os"


def test_a_configuration_travels_under_the_names_of_the_file() -> None:
    configuration = parse(WHOLE)
    sent = msgspec.msgpack.encode(configuration)
    assert msgspec.msgpack.decode(sent, type=Configuration) == configuration
    assert set(msgspec.msgpack.decode(sent)["partitions"][0]) >= {
        "placementrules",
        "nodesortpolicy",
        "usergroupresolver",
    }


@pytest.mark.parametrize(
    "text", ["", "# nothing", "null", "~", "---\n---\npartitions: 5", "partitions:", "partitions: [null]"]
)
def test_a_text_without_partitions_is_an_empty_configuration(text: str) -> None:
    assert parse(text) == Configuration()


def test_only_the_first_document_is_read() -> None:
    assert parse("partitions: [{name: a}]\n---\n] not yaml {").partitions == (PartitionConfig(name="a"),)


def test_a_byte_order_mark_and_carriage_returns_are_fine() -> None:
    assert parse("\ufeffpartitions:\r\n- name: a\r\n").partitions == (PartitionConfig(name="a"),)


def test_queues_that_are_absent_differ_from_no_queues() -> None:
    assert parse("partitions: [{queues: null}]").partitions[0].queues is None
    assert parse("partitions: [{queues: []}]").partitions[0].queues == ()


def test_resources_that_are_absent_differ_from_no_resources() -> None:
    assert queue("resources: {max: , guaranteed: {}}").resources == ResourcesConfig(max=None, guaranteed={})


@pytest.mark.parametrize(
    "word", ["true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "'on'", '"yes"']
)
def test_words_for_yes(word: str) -> None:
    assert queue(f"parent: {word}").parent


@pytest.mark.parametrize(
    "word", ["false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF", "'off'", "~", ""]
)
def test_words_for_no(word: str) -> None:
    assert not queue(f"parent: {word}").parent


@pytest.mark.parametrize("word", ["'true'", "tRUE", "oN", "1", "[]", "{}", "maybe"])
def test_other_words_are_neither_yes_nor_no(word: str) -> None:
    with pytest.raises(ConfigError, match="neither true nor false"):
        queue(f"parent: {word}")


@pytest.mark.parametrize(
    ("written", "number"),
    [
        ("12", 12),
        ("+5", 5),
        ("0x20", 32),
        ("0o17", 15),
        ("017", 15),
        ("08", 8),
        ("0b101", 5),
        ("1_000", 1000),
        ("2.9", 2),
        ("1e3", 1000),
        (".5", 0),
        ("-0", 0),
        ("!!int '7'", 7),
        ("! 7", 7),
        ("18446744073709551615", 2**64 - 1),
        ("~", 0),
    ],
)
def test_whole_numbers(written: str, number: int) -> None:
    assert queue(f"maxapplications: {written}").max_applications == number


@pytest.mark.parametrize(
    "written",
    [
        "-1",
        "-0.5",
        "'12'",
        "many",
        ".inf",
        ".nan",
        "18446744073709551616",
        "1e400",
        "1e",
        "0x",
        "_1",
        "!!str 5",
        "[1]",
        "1" * 500,
    ],
)
def test_what_is_no_whole_number_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match="not a whole number"):
        queue(f"maxapplications: {written}")


@pytest.mark.parametrize(
    ("written", "weight"),
    [("1", 1.0), ("-0.1", -0.1), ("0x10", 16.0), (".inf", math.inf), ("-.Inf", -math.inf), ("~", 0.0)],
)
def test_weights(written: str, weight: float) -> None:
    policy = (
        parse(f"partitions: [{{nodesortpolicy: {{resourceweights: {{vcore: {written}}}}}}}]")
        .partitions[0]
        .node_sort_policy
    )
    assert policy.resource_weights == {"vcore": weight}


def test_a_weight_may_be_no_number_at_all_but_not_a_quoted_one() -> None:
    text = "partitions: [{nodesortpolicy: {resourceweights: {vcore: %s}}}]"
    assert math.isnan(parse(text % ".nan").partitions[0].node_sort_policy.resource_weights["vcore"])
    assert "'1' is not a number" in str(problems(text % "'1'")[0])


@pytest.mark.parametrize("written", ["2024-01-31", "0x10", "true", "1.50", "'~'"])
def test_a_text_is_taken_literally(written: str) -> None:
    assert queue(f"submitacl: {written}").submit_acl == written.strip("'")


def test_null_elements_of_a_list_are_dropped_and_do_not_count() -> None:
    assert queue("limits:\n-\n- users: [~, ann]").limits[0].users == ("ann",)
    (problem,) = problems("partitions:\n-\n- name: []\n")
    assert (problem.path, problem.line) == ("partitions[0].name", 3)


def test_a_merge_key_adds_what_is_not_written() -> None:
    children = queue(
        "queues:\n- &a {name: a, maxapplications: 1}\n- &b {parent: true}\n- {<<: [*a, *b], name: c}"
    ).queues
    assert children[2] == QueueConfig(name="c", max_applications=1, parent=True)


def test_a_null_that_is_written_beats_what_is_merged() -> None:
    assert queue("queues:\n- &a {name: a, maxapplications: 1}\n- {<<: *a, name: b, maxapplications: ~}").queues[
        1
    ] == QueueConfig(name="b")


@pytest.mark.parametrize("value", ["5", "[5]", "[[]]"])
def test_only_mappings_can_be_merged(value: str) -> None:
    assert "cannot be merged" in problems(f"partitions:\n- <<: {value}\n")[0].message


def test_a_quoted_merge_key_is_an_unknown_key() -> None:
    assert "unknown key '<<'" in problems("partitions:\n- '<<': {name: a}\n")[0].message


def test_unknown_keys_are_refused_at_every_level_with_line_and_path() -> None:
    text = """\
Partitions: 1
partitions:
- nam: x
  preemption: {on: true}
  nodesortpolicy: {typ: x}
  usergroupresolver: {x: y}
  placementrules: [{queue: a, filter: {user: []}}]
  limits: [{user: a}]
  queues:
  - maxApplications: 1
    resources: {min: {}}
    childtemplate: {submitacl: x}
"""
    assert [(problem.line, problem.path) for problem in problems(text)] == [
        (1, "Partitions"),
        (3, "partitions[0].nam"),
        (4, "partitions[0].preemption.on"),
        (5, "partitions[0].nodesortpolicy.typ"),
        (6, "partitions[0].usergroupresolver.x"),
        (7, "partitions[0].placementrules[0].filter.user"),
        (7, "partitions[0].placementrules[0].queue"),
        (8, "partitions[0].limits[0].user"),
        (10, "partitions[0].queues[0].maxApplications"),
        (11, "partitions[0].queues[0].resources.min"),
        (12, "partitions[0].queues[0].childtemplate.submitacl"),
    ]


def test_a_key_in_another_spelling_is_recognised() -> None:
    for key in ("maxApplications", "max_applications", "maxaplications"):
        assert problems(f"partitions:\n- queues:\n  - {key}: 1\n")[0].hint == "did you mean maxapplications"


def test_values_of_the_wrong_type_are_all_told() -> None:
    text = """\
partitions:
- name: {a: b}
  preemption: true
  queues:
  - name: a
    submitacl: [ann]
    resources: {max: 5}
    properties: []
    limits:
    - {users: ann, maxresources: {memory: []}}
  placementrules: [{parent: [{name: user}]}]
"""
    assert [problem.path.removeprefix("partitions[0].") for problem in problems(text)] == [
        "name",
        "preemption",
        "queues[0].submitacl",
        "queues[0].resources.max",
        "queues[0].properties",
        "queues[0].limits[0].users",
        "queues[0].limits[0].maxresources.memory",
        "placementrules[0].parent",
    ]


@pytest.mark.parametrize("text", ["- a", "default", "5", "[]"])
def test_a_document_that_is_no_mapping_is_refused(text: str) -> None:
    assert "is not a mapping" in problems(text)[0].message


@pytest.mark.parametrize(("text", "is_hinted"), [("queues.yaml", True), ("conf/q.yml", True), ("queues", False)])
def test_a_file_name_in_place_of_the_text_gets_a_hint(text: str, is_hinted: bool) -> None:
    hint = "this looks like a file name: pass the text of the file"
    assert problems(text)[0].hint == (hint if is_hinted else "")


@pytest.mark.parametrize(
    "key", ["properties: {a: 1, a: 2}", "properties: {1: 1, '1': 2}", "parent: true\nparent: true"]
)
def test_a_key_twice_is_refused_even_in_maps_with_any_keys(key: str) -> None:
    with pytest.raises(ConfigError, match="is already defined at line"):
        queue(key)


@pytest.mark.parametrize("key", ["{[a]: 1}", "{{a: b}: 1}"])
def test_a_key_is_a_text(key: str) -> None:
    with pytest.raises(ConfigError, match="is not a key"):
        queue(f"properties: {key}")


def test_a_key_is_taken_literally_too() -> None:
    assert queue("properties: {~: 1, 0x1: 2, true: 3}").properties == {"~": "1", "0x1": "2", "true": "3"}


def test_an_anchor_that_contains_itself_is_refused() -> None:
    (problem,) = problems("partitions: &p\n- name: default\n  queues: *p\n")
    assert (problem.line, problem.message) == (3, "anchor 'p' value contains itself")


def test_an_unknown_anchor_is_refused() -> None:
    assert problems("partitions: *p")[0].message == "unknown anchor 'p' referenced"


@pytest.mark.parametrize(
    ("text", "line"), [("partitions:\n\t- a", 2), ("a: [", 1), ("\n\na: \x01", 3), ("ö: ß\nb: \x00", 2)]
)
def test_what_is_no_yaml_is_refused_with_its_line(text: str, line: int) -> None:
    (problem,) = problems(text)
    assert "this is not YAML" in problem.message
    assert line <= problem.line <= line + 1


def test_what_is_no_unicode_is_refused() -> None:
    assert problems("a: 1\nb: \ud800")[0] == Problem(line=2, message="the text is not valid Unicode", kind="parse")


def test_no_more_problems_are_kept_than_anybody_reads() -> None:
    assert len(problems("".join(f"key{number}: 1\n" for number in range(PROBLEMS_MAX + 1)))) == PROBLEMS_MAX


def test_a_long_value_is_not_repeated_in_full() -> None:
    (problem,) = problems("x" * 10_000 + ": 1")
    assert len(str(problem)) < 300


def test_a_text_has_a_size_limit() -> None:
    assert str(TEXT_BYTES_MAX) in problems("#" * (TEXT_BYTES_MAX + 1))[0].message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_nesting_has_a_limit(opening: str) -> None:
    assert f"more than {DEPTH_MAX} levels" in problems(opening * 100_000)[0].message


def test_nesting_by_aliases_has_the_same_limit() -> None:
    text = "partitions:\n- queues:\n  - &q0 {name: a}\n"
    text += "".join(f"  - &q{number} {{queues: [*q{number - 1}]}}\n" for number in range(1, DEPTH_MAX))
    assert f"more than {DEPTH_MAX} levels" in problems(text)[0].message


def test_queues_may_be_nested_up_to_the_limit() -> None:
    levels = DEPTH_MAX // 2 - 1
    assert parse("partitions: [" + "{queues: [" * levels + "]}" * levels + "]").partitions


def test_aliases_to_aliases_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yunishard.common.config.parse.VALUES_MAX", 1000)
    text = "partitions:\n- queues:\n  - &q0 {name: a}\n"
    text += "".join(f"  - &q{level} {{queues: [{', '.join([f'*q{level - 1}'] * 10)}]}}\n" for level in range(1, 10))
    assert "expand to more than 1000 values" in problems(text)[0].message


def test_merges_of_merges_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yunishard.common.config.parse.VALUES_MAX", 1000)
    text = "partitions:\n- &q0 {name: a}\n"
    text += "".join(f"- &q{level} {{<<: [{', '.join([f'*q{level - 1}'] * 10)}]}}\n" for level in range(1, 10))
    assert "expand to more than 1000 values" in problems(text)[0].message


def test_a_long_text_repeated_by_aliases_does_not_fill_the_memory() -> None:
    text = f"partitions:\n- name: &long {'x' * (TEXT_BYTES_MAX // 8)}\n" + "- name: *long\n" * 8
    assert f"more than {TEXT_BYTES_MAX} characters" in problems(text)[0].message


def test_a_text_has_a_limit_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    assert VALUES_MAX >= 1_000_000
    monkeypatch.setattr("yunishard.common.config.parse.VALUES_MAX", 1000)
    assert "more than 1000 values" in problems("[" + "1, " * 1000 + "1]")[0].message


def test_lines_are_those_of_the_keys() -> None:
    _, lines = parse_with_lines(WHOLE)
    assert lines["partitions[0].queues[0].resources.max.vcore"] == 6
    assert lines["partitions[0].queues[0].queues[0].name"] == 18
    assert lines["partitions[0].queues[0].limits[0].groups[1]"] == 16
    assert lines["partitions[0].limits"] == 25


def test_the_message_for_people_has_one_line_for_each_problem() -> None:
    with pytest.raises(ConfigError) as refused:
        parse("partitions:\n- name: []\n  queues: 5\n")
    assert (
        str(refused.value)
        == "line 2, partitions[0].name: a list is not a text\nline 3, partitions[0].queues: '5' is not a list"
    )


@pytest.mark.parametrize(
    ("written", "text"),
    [("!!int 0x10", "0x10"), ("!!float 1", "1"), ("!!bool 'true'", "true"), ("!!str 5", "5"), ("!!binary Ym9i", "bob")],
)
def test_a_tagged_text_is_taken_as_it_is_written_unless_it_is_binary(written: str, text: str) -> None:
    assert queue(f"submitacl: {written}").submit_acl == text


@pytest.mark.parametrize("written", ["!!int fixed", "!!int 1.5", "!!float x", "!!bool yes", "!!null x", "!!binary '*'"])
def test_a_text_that_is_not_what_its_tag_says_is_refused(written: str) -> None:
    (problem,) = problems(f"partitions: [{{queues: [{{name: a, submitacl: {written}}}]}}]")
    assert problem.path == "partitions[0].queues[0].submitacl"
    kind = written.split()[0].removeprefix("!!")
    assert problem.message.endswith(f" is not a {kind}")


# Hints for texts that are not YAML ------------------------------------------------------------------------------------

TAB, COLUMN, COLON = "a tab is used for indentation", "wrong indentation?", "wrong indentation, or a value"

# PyYAML's own reader tells the same slips in other words.
READERS: list[Reader] = [yaml.SafeLoader, *([yaml.CSafeLoader] if yaml.__with_libyaml__ else [])]


def hint(text: str, reader: Reader) -> str:
    with pytest.raises(ConfigError) as refused:
        compose(text, reader=reader)
    (problem,) = refused.value.problems
    assert problem.kind == "parse"
    return problem.hint


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("partitions:\n\t- name: a\n", TAB),
        ("partitions:\n  - name: a\n\tqueues: []\n", TAB),
        ("partitions:\n  - name: a\n  \tqueues: []\n", TAB),
        ("submitacl: *\n", "a value that begins with * must be quoted: without quotes it is an alias"),
        ("submitacl: *,bob\n", "a value that begins with * must be quoted"),
        ("users: [*]\n", "a value that begins with * must be quoted"),
        ("users:\n- *", "a value that begins with * must be quoted"),
        ("submitacl: *bob\n", "a value that begins with * must be quoted"),
        ("submitacl: @ops\n", "a value that begins with @ must be quoted"),
        ("submitacl: `ops`\n", "a value that begins with ` must be quoted"),
        ("submitacl: %ops\n", "a value that begins with % must be quoted"),
        ("submitacl: & ops\n", "a value that begins with & must be quoted"),
        ("partitions:\n  - name: a\n   queues: []\n", COLUMN),
        ("- queues:\n  - name: root\n - name: b\n", COLUMN),
        ("a:\n   b: 1\n  c: 2\n", COLUMN),
        ("a: 1\n b: 2\n", COLON),
        ("limit: one: two\n", COLON),
        ("a: 1\nb\nc: 2\n", "a key without `:`"),
        ("a: 'x\nb: 1\n", "a quote that was opened"),
        ("a: [1, 2\nb: 1\n", "a `]`, `}` or `,` is missing"),
        ("submitacl: 'ann' dev\n", "a value that begins with a quote ends"),
    ],
)
def test_a_slip_is_named(text: str, begins: str, reader: Reader) -> None:
    assert hint(text, reader).startswith(begins)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", ["a: !x!y z\n", 'a: "\\q"\n', "a: ]\n"])
def test_where_nothing_comes_to_mind_nothing_is_said(text: str, reader: Reader) -> None:
    assert hint(text, reader) == ""


def test_what_may_begin_a_value_is_not_special() -> None:
    assert explain_special("a") == ""
    assert explain_special("") == ""
