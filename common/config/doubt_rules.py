"""What is doubtful about placement rules: filters that admit others than they seem to, and rules that never match.

Not here: when these are asked (`doubts.py`), what rules must obey (`check_rules.py`), and whether they can be built
(`rules.py`).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from common.config.check_rules import FIXED
from common.config.expressions import looks_like_expression
from common.config.model import DENY, FilterConfig, PlacementRuleConfig
from common.config.normal import Place
from common.config.problems import DOUBT, Report
from common.names import GROUP, ROOT, USER

_STARRED: Final = re.compile(r"([a-zA-Z0-9:#/_@-]*)[a-zA-Z0-9_]\*")
"""A name with a star at its end, as a shell would have it; what the expression asks for is all but the last letter."""


def doubt_rules(rules: Sequence[PlacementRuleConfig], root: Place, path: str, report: Report) -> None:
    """Look at each rule, with the rules that yield its parent."""
    queues = _paths(root) if any(rule.name.lower() == FIXED for one in rules for rule, _ in _links(one, "")) else set()
    for index, one in enumerate(rules):
        links = list(_links(one, f"{path}[{index}]"))
        for rule, at in links:
            _doubt_filter(rule.filter, f"{at}.filter", report)
        _doubt_creation(links, report)
        _doubt_fixed(links, queues, report)


def _links(rule: PlacementRuleConfig | None, path: str) -> Iterator[tuple[PlacementRuleConfig, str]]:
    """Yield a rule, the rule of its parent, and so on, each with its place."""
    while rule is not None:
        yield rule, path
        rule, path = rule.parent, f"{path}.parent"


def _doubt_filter(written: FilterConfig, path: str, report: Report) -> None:
    """It denies if it says so, and each entry of its lists can be somebody."""
    if written.type.lower() == DENY != written.type:
        message = f"{written.type!r} does not deny: the filter allows whom it lists"
        report.add(DOUBT, f"{path}.type", message, hint=f"{DENY}, in lower case")
    for key, entries, legal in (("users", written.users, USER), ("groups", written.groups, GROUP)):
        if len(entries) == 1:
            _doubt_expression(entries[0], legal, f"{path}.{key}[0]", report)
            continue
        for index, entry in enumerate(entries):
            if not legal.fullmatch(entry):
                is_expression = looks_like_expression(entry)
                hint = "a regular expression counts only as the one entry of a list" if is_expression else ""
                report.add(DOUBT, f"{path}.{key}[{index}]", f"{entry!r} can be nobody's name", hint=hint)


def _doubt_expression(entry: str, legal: re.Pattern[str], path: str, report: Report) -> None:
    """What looks like a name, or like a pattern of a shell, is taken as a regular expression."""
    if looks_like_expression(entry) and legal.fullmatch(entry):
        message = f"{entry!r} is a regular expression: all names that end in {entry[:-1]}, and not {entry}"
        report.add(DOUBT, path, message, hint=f"the name alone is ^{entry[:-1]}\\$$")
    elif starred := _STARRED.fullmatch(entry):
        whom = f"all names that have {starred[1]} in them" if starred[1] else "all names"
        message = f"{entry!r} is a regular expression: {whom}"
        report.add(DOUBT, path, message, hint=f"names that begin with {entry[:-1]} are ^{entry[:-1]}")


def _doubt_creation(links: Sequence[tuple[PlacementRuleConfig, str]], report: Report) -> None:
    """A parent is only created together with the queue below it."""
    for (rule, _), (parent, at) in pairwise(links):
        if parent.create and not rule.create:
            message = f"create has no effect: rule {rule.name} may not create the queue below"
            report.add(DOUBT, f"{at}.create", message, hint="both are created together, or none")


def _doubt_fixed(links: Sequence[tuple[PlacementRuleConfig, str]], queues: set[str], report: Report) -> None:
    """Each fixed queue on the way is configured or may be created."""
    above = ROOT
    for rule, at in reversed(links):
        if rule.name.lower() != FIXED:
            return  # from here on the way depends on the application
        value = rule.value.lower()
        path = value if value.startswith(ROOT) else f"{above}.{value}"
        if path == ROOT and rule is not links[0][0]:
            message = f"a parent rule that yields {ROOT} means {ROOT}.{ROOT}"
            report.add(DOUBT, f"{at}.value", message, hint=f"without a parent rule the queue is below {ROOT}")
            return
        if not rule.create and path not in queues:
            message = f"the rule matches nothing as long as there is no queue {path}, which it may not create"
            report.add(DOUBT, at, message, hint="create: true at each rule of the chain whose queue may be new")
            return
        above = path if path.startswith(f"{ROOT}.") else f"{ROOT}.{path}"


def _paths(root: Place) -> set[str]:
    """Return the paths of all configured queues in lower case."""
    found: set[str] = set()

    def walk(place: Place, path: str) -> None:
        found.add(path)
        for child in place.children:
            walk(child, f"{path}.{child.queue.name.lower()}")

    walk(root, ROOT)
    return found
