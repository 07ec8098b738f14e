"""The limits on the size of a configuration, and texts whose validation must not take quadratic time."""

import time
from collections.abc import Callable

import pytest

from yunishard.common.config import validation as limits
from yunishard.common.config.model import (
    Configuration,
    FilterConfig,
    PartitionConfig,
    PlacementRuleConfig,
    QueueConfig,
    ResourcesConfig,
)
from yunishard.common.config.parse import parse_with_lines
from yunishard.common.config.placement_rules import CLASS_LENGTH, LENGTH_MAX, Expression, ExpressionError
from yunishard.common.config.problems import PROBLEM_CHARS_MAX, ConfigError, Report
from yunishard.common.config.validation import (
    ALL_QUEUES_MAX,
    ALL_RULES_MAX,
    EXPRESSIONS_MAX,
    EXPRESSIONS_SIZE_MAX,
    PARTITIONS_MAX,
    QUEUES_MAX,
    RESOURCE_TYPES_MAX,
    RULES_MAX,
    check_size,
    find_hierarchy_problems,
    find_problems,
    validate,
)

QUEUE = QueueConfig(name="q")
RULE = PlacementRuleConfig(name="user")


def partition(
    *, queues: int = 1, rules: int = 0, expressions: int = 0, expression: str = "^a$", below: int = 0
) -> PartitionConfig:
    """A partition with this many queues at the top, rules for users, and rules with an expression."""
    found = [RULE] * rules
    for _ in range(below):
        found[-1:] = [PlacementRuleConfig(name="user", parent=found[-1] if found else None)]
    found += [PlacementRuleConfig(name="user", filter=FilterConfig(users=(expression,)))] * expressions
    return PartitionConfig(queues=(QUEUE,) * queues, placement_rules=tuple(found))


def find_limits(*partitions: PartitionConfig) -> list[tuple[str, str]]:
    """The place and message of each exceeded limit."""
    report = Report()
    check_size(Configuration(partitions=partitions), report)
    assert {one.kind for one in report.problems} <= {"limit"}
    return [(one.path, one.message) for one in report.problems]


def test_the_resource_types_of_a_partition_are_limited() -> None:
    def name_types(number: int) -> PartitionConfig:
        named = [ResourcesConfig(max={f"type-{one}": "1"}) for one in range(number)]
        return PartitionConfig(queues=tuple([QueueConfig(name=f"q{n}", resources=one) for n, one in enumerate(named)]))

    assert find_limits(name_types(RESOURCE_TYPES_MAX)) == []
    ((path, message),) = find_limits(name_types(RESOURCE_TYPES_MAX + 1))
    assert (path, message[:18]) == ("partitions[0].queues", "101 resource types")


LARGE = ".{900}"
LARGE_ONES = EXPRESSIONS_SIZE_MAX // (Expression(LARGE).size + len(LARGE))


@pytest.mark.parametrize(
    ("allowed", "refused", "path", "words"),
    [
        ([partition(queues=QUEUES_MAX)], [partition(queues=QUEUES_MAX + 1)], "partitions[0].queues", "50001 queues"),
        (
            [partition(queues=QUEUES_MAX)] * 2,
            [partition(queues=QUEUES_MAX)] * 2 + [partition()],
            "partitions",
            f"{ALL_QUEUES_MAX + 1} queues in all partitions",
        ),
        (
            [partition(rules=RULES_MAX)],
            [partition(), partition(rules=RULES_MAX + 1)],
            "partitions[1].placementrules",
            "1001 placement rules",
        ),
        ([partition(below=RULES_MAX)], [partition(below=RULES_MAX + 1)], "partitions[0].placementrules", "1001 pl"),
        (
            [partition(rules=RULES_MAX)] * 10,
            [*[partition(rules=RULES_MAX)] * 10, partition(rules=1)],
            "partitions",
            f"{ALL_RULES_MAX + 1} placement rules in all partitions",
        ),
        (
            [partition(expressions=EXPRESSIONS_MAX - 1), partition(expressions=1)],
            [partition(expressions=EXPRESSIONS_MAX - 1), partition(expressions=2)],
            "partitions[1].placementrules[1].filter.users[0]",
            "1001 filters with a regular expression",
        ),
        (
            [partition(expressions=LARGE_ONES, expression=LARGE)],
            [partition(expressions=LARGE_ONES + 5, expression=LARGE)],
            f"partitions[0].placementrules[{LARGE_ONES}].filter.users[0]",
            f"up to this one, number {LARGE_ONES + 1}, have a size of",
        ),
        (
            [partition()] * PARTITIONS_MAX,
            [partition()] * (PARTITIONS_MAX + 1),
            f"partitions[{PARTITIONS_MAX}]",
            "10001 partitions",
        ),
    ],
)
def test_a_configuration_above_a_limit_is_refused_with_the_place_and_the_count(
    allowed: list[PartitionConfig], refused: list[PartitionConfig], path: str, words: str
) -> None:
    assert find_limits(*allowed) == []
    [(place, message), *_] = find_limits(*refused)
    assert place == path
    assert words in message


def test_queues_below_others_count() -> None:
    tree = QueueConfig(name="p", queues=(QUEUE,) * (QUEUES_MAX - 1))
    assert find_limits(PartitionConfig(queues=(tree,))) == []
    assert find_limits(PartitionConfig(queues=(QUEUE, tree))) != []


def test_a_configuration_above_a_limit_is_not_checked_any_further() -> None:
    wrong = PartitionConfig(queues=(QueueConfig(name="not a name"),) * (QUEUES_MAX + 1))
    assert {one.kind for one in find_problems(Configuration(partitions=(wrong,)))} == {"limit"}


def test_aliases_count_as_the_queues_that_they_name() -> None:
    names = ", ".join(f"{{name: q{number}}}" for number in range(1_000))
    parents = ", ".join(f"{{name: p{number}, queues: *q}}" for number in range(50))
    text = f"partitions: [{{name: default, queues: [{{name: p, queues: &q [{names}]}}, {parents}]}}]"
    with pytest.raises(ConfigError, match=r"line 1, partitions\[0\].queues: 51051 queues are too many"):
        validate(text)


def test_no_expression_is_compiled_beyond_the_limit_on_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def measure(text: str) -> int:
        compiled.append(text)
        return 1

    monkeypatch.setattr(limits, "measure_expression", measure)
    find_limits(*[partition(expressions=EXPRESSIONS_MAX)] * 2)
    assert len(compiled) == EXPRESSIONS_MAX


@pytest.mark.parametrize(
    ("unit", "length"), [("a", 1), ("ab?", 3), (r"\pL", 3 + CLASS_LENGTH), (r"[\PN]", 5 + CLASS_LENGTH)]
)
def test_an_expression_that_is_too_long_is_refused_before_it_is_compiled(unit: str, length: int) -> None:
    text = unit * (LENGTH_MAX // length + 1)
    with pytest.raises(ExpressionError, match=r"this expression is too long: its length is 6[56]"):
        Expression(text)


# Texts that took quadratic time ------------------------------------------------------------------------------------


def number_each(pattern: str, count: int) -> str:
    return ", ".join(pattern.replace("#", str(number)) for number in range(count))


def text_of(queues: str) -> str:
    return f"partitions: [{{name: default, queues: [{{name: root, submitacl: '*', queues: [{queues}]}}]}}]"


def test_the_time_of_validation_is_proportional_to_the_text() -> None:
    """Each limit of a queue is compared with the maximum of the queue, which was read again for each of them."""
    users, types = number_each("{users: [u#], maxapplications: 9}", 4_000), number_each("t#: 9", 4_000)
    text = text_of(f"{{name: p, resources: {{max: {{{types}}}}}, limits: [{users}]}}")
    parse_s = measure_s(lambda: parse_with_lines(text))
    written, lines = parse_with_lines(text)
    assert measure_s(lambda: find_problems(written, lines)) < 5 * parse_s + 0.5  # it took fifty times as long


def test_the_limits_of_a_queue_do_not_hold_for_its_siblings() -> None:
    first, second = "{name: a, limits: [{users: [u], maxapplications: 1}]}", "{name: b, limits: [{users: [u], #}]}"
    above = text_of(f"{{name: p, limits: [{{users: [u], maxapplications: 5}}], queues: [{first}, {second}]}}")
    validate(above.replace("#", "maxapplications: 5"))
    with pytest.raises(ConfigError, match=r"user u max applications 6 of queue b is greater than .* 5"):
        validate(above.replace("#", "maxapplications: 6"))


def measure_s(work: Callable[[], object]) -> float:
    started_s = time.process_time()
    work()
    return time.process_time() - started_s


def test_a_problem_repeats_only_the_beginning_of_a_long_value() -> None:
    amounts = number_each("t#: 1", 1_000)
    text = text_of(f"{{name: p, resources: {{guaranteed: {{{amounts}, x: 2}}, max: {{{amounts}, x: 1}}}}}}")
    with pytest.raises(ConfigError) as refused:
        validate(text)
    assert all(len(one.message) <= PROBLEM_CHARS_MAX + 3 for one in refused.value.problems)


def test_a_queue_with_many_other_parents_names_the_first_ones() -> None:
    below = number_each("{name: p#, queues: [{name: x}]}", 20)
    text = (
        f"partitions: [{{name: a, queues: [{{name: root, queues: [{below}]}}]}},"
        " {name: b, queues: [{name: root, queues: [{name: other, queues: [{name: x}]}]}]}]"
    )
    [problem] = find_hierarchy_problems(*parse_with_lines(text))
    assert problem.message.count("root.p") == 10
    assert "and 10 more in partition a" in problem.message
