"""Limits on the size of a configuration, so that analysing it, and building its partitions, takes seconds at most.

`TEXT_BYTES_MAX`, `VALUES_MAX` and `DEPTH_MAX` in `parse.py` bound the text. The limits here bound what is more
expensive than a value: a queue is checked in several passes, and an expression is compiled, once for the analysis and
once by the worker of its partition. They are checked first, and a configuration beyond one of them is not checked any
further.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from yunishard.common.config import model
from yunishard.common.config.placement_rules import iterate_expressions, measure_expression
from yunishard.common.config.problems import Report

PARTITIONS_MAX: Final = 10_000
"""Partitions of a configuration, as many as the setting `partitions-max` allows at most. One with more is refused."""

QUEUES_MAX: Final = 50_000
"""Queues of a partition below root, as many as placement may fill it with. A configuration with more is refused."""

ALL_QUEUES_MAX: Final = 100_000
"""Queues of all partitions of a configuration. One with more is refused."""

RESOURCE_TYPES_MAX: Final = 100
"""Resource types that the queues, templates and limits of a partition name. A worker stores a number for each type with
each queue. A configuration with more is refused.
"""

RULES_MAX: Final = 1_000
"""Placement rules of a partition; the rule for a parent queue counts, too. A configuration with more is refused."""

ALL_RULES_MAX: Final = 10_000
"""Placement rules of all partitions of a configuration. One with more is refused."""

EXPRESSIONS_MAX: Final = 1_000
"""Regular expressions in the filters of a configuration. One with more is refused."""

EXPRESSIONS_SIZE_MAX: Final = 2_000_000
"""Total size of the expressions of a configuration: their characters and instructions (`measure_expression`). Compiling
takes a second for each 1,000,000. A configuration with more is refused."""


def check_size(configuration: model.Configuration, report: Report) -> None:
    """Report the limits that the configuration exceeds, each at the first value that is too much."""
    partitions = configuration.partitions
    if len(partitions) > PARTITIONS_MAX:
        message = f"{len(partitions)} partitions are too many, a configuration may have {PARTITIONS_MAX}"
        report.add("limit", f"partitions[{PARTITIONS_MAX}]", message)
    _check_counts(
        "queues",
        [_count_queues(model.find_top_queues(one)) for one in partitions],
        (QUEUES_MAX, ALL_QUEUES_MAX),
        report,
    )
    for index, partition in enumerate(partitions):
        types = _list_types(model.find_top_queues(partition))
        if len(types) > RESOURCE_TYPES_MAX:
            message = f"{len(types)} resource types are too many, a partition may have {RESOURCE_TYPES_MAX}"
            report.add("limit", f"partitions[{index}].queues", message)
    rules = [sum(1 for rule in one.placement_rules for _ in rule.walk()) for one in partitions]
    hint = "one rule with a list of users or groups does the work of many"
    _check_counts("placement rules", rules, (RULES_MAX, ALL_RULES_MAX), report, hint)
    if not report.problems:  # compiling is expensive
        _check_expressions(partitions, report)


def _check_counts(noun: str, counts: Sequence[int], limits: tuple[int, int], report: Report, hint: str = "") -> None:
    """Check the number in each partition, and in all."""
    most, most_of_all = limits
    path = "queues" if noun == "queues" else "placementrules"
    for index, count in enumerate(counts):
        if count > most:
            message = f"{count} {noun} are too many, a partition may have {most}"
            report.add("limit", f"partitions[{index}].{path}", message, hint=hint)
    if (total := sum(counts)) > most_of_all:
        message = f"{total} {noun} in all partitions are too many, a configuration may have {most_of_all}"
        report.add("limit", "partitions", message, hint=hint)


def _count_queues(queues: Sequence[model.QueueConfig]) -> int:
    return len(queues) + sum(_count_queues(queue.queues) for queue in queues if queue.queues)


def _list_types(queues: Sequence[model.QueueConfig]) -> set[str]:
    """Return the resource types that queues and those below them name."""
    found: set[str] = set()
    for queue in queues:
        for one in (queue.resources, queue.child_template.resources):
            found.update(one.max or (), one.guaranteed or ())
        for limit in queue.limits:
            found.update(limit.max_resources)
        if queue.queues:
            found |= _list_types(queue.queues)
    return found


def _check_expressions(partitions: Sequence[model.PartitionConfig], report: Report) -> None:
    """Measure the expressions one by one until they are too large together."""
    size = 0
    hint = "use lists of names, or fewer and smaller repeat counts"
    for number, (path, text) in enumerate(_iterate_all(partitions), 1):
        if number > EXPRESSIONS_MAX:
            count = sum(1 for _ in _iterate_all(partitions))
            message = (
                f"{count} filters with a regular expression are too many, a configuration may have {EXPRESSIONS_MAX}"
            )
            report.add(
                "limit", path, message, hint="one expression can have alternatives, and a filter a list of names"
            )
            return
        size += measure_expression(text)
        if size > EXPRESSIONS_SIZE_MAX:
            message = (
                f"the regular expressions up to this one, number {number}, have a size of {size} together, a"
                f" configuration may have {EXPRESSIONS_SIZE_MAX}"
            )
            report.add("limit", path, message, hint=hint)
            return


def _iterate_all(partitions: Sequence[model.PartitionConfig]) -> Iterator[tuple[str, str]]:
    """Yield the place and text of every expression of a configuration."""
    for index, partition in enumerate(partitions):
        yield from iterate_expressions(partition.placement_rules, f"partitions[{index}].placementrules")
