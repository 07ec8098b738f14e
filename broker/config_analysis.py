"""The analysis of a configuration text: everything that the broker uses of it, whichever RM it is for.

The broker's process parses no configuration: a large one takes seconds, in which it would route nothing. Child
processes analyse all texts (`analysis_process.py`). Checks that depend on the RM are in `state.py`.
"""

import msgspec

from yunishard.common.config import validation
from yunishard.common.config.model import compute_checksum, normalise
from yunishard.common.config.placement_rules import find_rule_problems
from yunishard.common.config.problems import ConfigError, Problem
from yunishard.common.config.warnings import find_warnings

ProblemTuple = tuple[Problem, ...]


class AnalysedPartition(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The analysis of one partition."""

    name: str
    config: msgspec.Raw
    """In normal form, encoded as workers receive it: the broker neither decodes nor encodes it."""
    building: ProblemTuple = ()
    """The problems that prevent building it."""
    rules: ProblemTuple = ()
    """Why its placement rules cannot be built."""


class ConfigAnalysis(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The analysis of a configuration text, whichever RM it is for. If there are `problems`, only the checksum is
    set, too."""

    checksum: str = ""
    """Of the text; empty if it is refused without an analysis."""
    partitions: tuple[AnalysedPartition, ...] = ()
    problems: ProblemTuple = ()
    """Why the text is not a valid configuration."""
    is_incomplete: bool = False
    """Whether there is no analysis, for the reason in `problems`, so that another attempt may succeed."""
    naming: ProblemTuple = ()
    """Partition names that this core does not allow."""
    hierarchy: ProblemTuple = ()
    """Queues with another parent in another partition."""
    warnings: ProblemTuple = ()
    """Warnings: settings that are valid but probably unintended."""


def analyze(text: str) -> ConfigAnalysis:
    """Parse and check a configuration text."""
    try:
        written, lines = validation.validate(text)
    except ConfigError as error:
        return ConfigAnalysis(checksum=compute_checksum(text), problems=error.problems)
    partitions: list[AnalysedPartition] = []
    for index, (one, normal) in enumerate(zip(written.partitions, normalise(written).partitions, strict=True)):
        path = f"partitions[{index}]"
        partitions.append(
            AnalysedPartition(
                name=normal.name,
                config=msgspec.Raw(msgspec.msgpack.encode(normal)),
                building=tuple(validation.find_build_problems(one, path=path, lines=lines)),
                rules=tuple(find_rule_problems(one, path=path, lines=lines)),
            )
        )
    return ConfigAnalysis(
        checksum=compute_checksum(text),
        partitions=tuple(partitions),
        naming=tuple(validation.find_name_problems(written, lines)),
        hierarchy=tuple(validation.find_hierarchy_problems(written, lines)),
        warnings=tuple(find_warnings(written, lines)),
    )
