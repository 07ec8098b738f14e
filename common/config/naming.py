"""Names of partitions that the core refuses, although a configuration may have them: they become names of processes,
metrics and paths.

Not here: whether another resource manager has the name already, which only the broker knows.
"""

from typing import Final

from common.config.model import Configuration
from common.config.normal import partition_name
from common.config.problems import NO_LINES, Lines, Problem, Report
from common.names import PARTITION

KIND: Final = "partition-name"


def naming_problems(configuration: Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return the partitions of a configuration, as it was parsed, that no core takes because of their name."""
    report = Report(lines)
    for index, partition in enumerate(configuration.partitions):
        name = partition_name(partition)
        if not PARTITION.fullmatch(name):
            message = f"partition name {name!r} must be 1 to 64 letters, digits and '_', '.', '-'"
            report.add(KIND, f"partitions[{index}].name", message)
    return report.problems
