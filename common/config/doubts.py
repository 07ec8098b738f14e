"""What a configuration may say although it does not do what its author seems to want.

All of this is allowed, runs, and silently means something else: a value that is not taken, a word in the wrong case, a
rule that can never match. So it is told as a warning, and only where hardly anybody can have meant it; what is merely
unusual is not told. `doubt_*.py` look at queues and rules.

Not here: what is not allowed (`check.py`), what cannot be built (`check.load_problems`, `rules.py`), queues that move
between partitions (`hierarchy.py`).
"""

from typing import Final

from common.config.doubt_queues import doubt_access, doubt_queue
from common.config.doubt_rules import doubt_rules
from common.config.model import Configuration, ResolverConfig
from common.config.normal import root_place
from common.config.problems import DOUBT, NO_LINES, PROBLEMS_MAX, Lines, Problem, Report

RESOLVERS: Final = ("", "os", "test")
"""The types of group resolvers there are, in this spelling."""
LDAP: Final = "ldap"
"""One that YuniKorn has as a preview, and we do not have."""


def doubts(configuration: Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return what is doubtful in a configuration that was parsed and obeys the rules, in the order of the text.

    At most PROBLEMS_MAX. Without lines it cannot be known whether a flag was written, so less is found.
    """
    report = Report(lines)
    for index, partition in enumerate(configuration.partitions):
        path = f"partitions[{index}]"
        root = root_place(partition, path)
        _doubt_resolver(partition.user_group_resolver, f"{path}.usergroupresolver.type", report)
        doubt_rules(partition.placement_rules, root, f"{path}.placementrules", report)
        doubt_access(root, report)
        for place in root.walk():
            doubt_queue(place, lines, report)
            if len(report.problems) == PROBLEMS_MAX:
                break
    return sorted(report.problems, key=lambda problem: problem.line)


def _doubt_resolver(resolver: ResolverConfig, path: str, report: Report) -> None:
    """An unknown type is the default, in which the groups of a user are the user's own name."""
    if resolver.type == LDAP:
        message = "groups are not looked up by LDAP: submissions that name no groups are rejected"
        report.add(DOUBT, path, message, hint="os asks the operating system, which may ask a directory")
    elif resolver.type not in RESOLVERS:
        message = f"there is no resolver {resolver.type!r}, so each user is in one group of the same name"
        report.add(DOUBT, path, message, hint=f"it is os, {LDAP} or test, in lower case")
