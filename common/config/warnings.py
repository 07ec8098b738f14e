"""What a configuration may say although it does not do what its author seems to want.

All of this is allowed, runs, and silently means something else: a value that is not taken, a word in the wrong case, a
rule that can never match. So it is told as a warning, and only where hardly anybody can have meant it; what is merely
unusual is not told. `doubt_*.py` look at queues and rules.

Not here: what is not allowed (`check.py`), what cannot be built (`check.load_problems`, `rules.py`), queues that move
between partitions (`hierarchy.py`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final

from common.acl import NOBODY, AclError, find_ignored_entries, parse_acl
from common.config.model import (
    DENY,
    Configuration,
    FilterConfig,
    PlacementRuleConfig,
    QueueConfig,
    QueuePlace,
    ResolverConfig,
    ResourcesConfig,
    root_place,
)
from common.config.placement_rules import FIXED, looks_like_expression
from common.config.problems import NO_LINES, PROBLEMS_MAX, WARNING, Lines, Problem, Report
from common.config.properties import PROPERTIES, find_similar_property
from common.names import GROUP, RECOVERY_QUEUE, ROOT, USER, WHITE_SPACE

RESOLVERS: Final = ("", "os", "test")
"""The types of group resolvers there are, in this spelling."""
LDAP: Final = "ldap"
"""One that YuniKorn has as a preview, and we do not have."""


def find_warnings(configuration: Configuration, lines: Lines = NO_LINES) -> list[Problem]:
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
        report.add(WARNING, path, message, hint="os asks the operating system, which may ask a directory")
    elif resolver.type not in RESOLVERS:
        message = f"there is no resolver {resolver.type!r}, so each user is in one group of the same name"
        report.add(WARNING, path, message, hint=f"it is os, {LDAP} or test, in lower case")


# Queues ---------------------------------------------------------------------------------------------------------------

NAMED_MAX: Final = 5
"""Queues that nobody may submit to that are named; of more, only how many there are is told."""

_SPACE: Final = re.compile(f"[{WHITE_SPACE}]")
_ZERO: Final = re.compile(f"[{WHITE_SPACE}]*0+[^0-9]*")


def doubt_queue(place: QueuePlace, lines: Lines, report: Report) -> None:
    """All that can be said of one queue alone."""
    queue = place.queue
    if queue.properties:
        _doubt_properties(queue.properties, f"{place.path}.properties", report)
    _doubt_maximum(queue.resources, place, "resources", report)
    for key, text in (("adminacl", queue.admin_acl), ("submitacl", queue.submit_acl)):
        if text:
            _doubt_acl(text, place, key, report)
    _doubt_template(place, report)
    if queue.queues and not queue.parent and f"{place.path}.parent" in lines:
        message = f"queue {queue.name} is a parent all the same, because it has queues below it"
        report.add(WARNING, f"{place.path}.parent", message)
    if place.level and queue.name.lower() == ROOT:
        message = f"a queue called {ROOT} below another one" + (f" is {ROOT}.{ROOT}" if place.level == 1 else "")
        report.add(
            WARNING, f"{place.path}.name", message, hint=f"to be {ROOT} itself it must be the only queue at the top"
        )


def doubt_access(root: QueuePlace, report: Report) -> None:
    """Somebody may submit to each queue that is to run something; told once, at the first that is shut."""
    shut = _shut(root, root.queue.name.lower())
    named = list(islice(shut, NAMED_MAX))
    if not named:
        return
    others = sum(1 for _ in shut)
    paths = ", ".join(path for _, path in named) + (f" and {others} more" if others else "")
    message = f"nobody may submit to {paths}: no submitacl or adminacl there or above grants anything"
    report.add(
        WARNING, named[0][0].path, message, hint=f"submitacl: '*' at {ROOT} would let everybody submit everywhere"
    )


def _shut(place: QueuePlace, path: str) -> Iterator[tuple[QueuePlace, str]]:
    """Yield the queues at the ends of the tree to which no list on the way grants access, with their paths."""
    if _grants(place.queue) or path == RECOVERY_QUEUE:
        return
    if not place.children:
        yield place, path
    for child in place.children:
        yield from _shut(child, f"{path}.{child.queue.name.lower()}")


def _grants(queue: QueueConfig) -> bool:
    """Whether anybody is on one of the lists; a list that cannot be read is not judged here."""
    try:
        return any(parse_acl(text) != NOBODY for text in (queue.submit_acl, queue.admin_acl))
    except AclError:
        return True


def _doubt_properties(properties: Mapping[str, str], path: str, report: Report) -> None:
    """Known names have values that are taken, and unknown ones do not look like known ones."""
    for name, value in properties.items():
        if known := PROPERTIES.get(name):
            if known.misreads(value):
                message = f"{value!r} is no value of {name} and counts as its default, '{known.default}'"
                report.add(WARNING, f"{path}.{name}", message, hint=f"it takes {known.values}")
        elif (other := find_similar_property(name)) and other not in properties:
            message = f"{name} means nothing to a queue"
            report.add(WARNING, f"{path}.{name}", message, hint=f"did you mean {other}?")


def _doubt_maximum(resources: ResourcesConfig, place: QueuePlace, key: str, report: Report) -> None:
    """Zeros count only beside an amount. (A guarantee of nothing but zeros is none: that is what it says.)"""
    if resources.max and all(map(_ZERO.fullmatch, resources.max.values())):
        message = "a maximum of nothing but zeros is none: this is unlimited"
        hint = "zeros count only beside an amount; maxapplications or an access control list can shut a queue"
        report.add(WARNING, f"{place.path}.{key}.max", message, hint=hint)


def _doubt_acl(text: str, place: QueuePlace, key: str, report: Report) -> None:
    """No entry is left out, and no user has become a group by a blank."""
    try:
        without = find_ignored_entries(text)
    except AclError:
        return
    path = f"{place.path}.{key}"
    if without:
        names = ", ".join(map(repr, without[:NAMED_MAX]))
        more = f" and {len(without) - NAMED_MAX} more" if len(without) > NAMED_MAX else ""
        nobody = ", and nobody is left" if parse_acl(text) == NOBODY else ""
        hint = "* stands alone" if "*" in without else "no user or group of a list can be called so"
        if any(map(_SPACE.search, without)):
            hint = "one blank separates users from groups, and there is no other space"
        report.add(WARNING, path, f"{names}{more} in an access control list counts nothing{nobody}", hint=hint)
    users, _, groups = text.partition(" ")
    if users.endswith(",") and groups.strip(WHITE_SPACE):
        report.add(WARNING, path, f"{groups!r} are groups: users end at the blank", hint="no blank behind a comma")


def _doubt_template(place: QueuePlace, report: Report) -> None:
    """Queues below use it, so there can be some; and it says what it seems to say."""
    template, path = place.queue.child_template, f"{place.path}.childtemplate"
    if template.is_empty:
        return
    if not place.queue.is_parent:
        message = f"queue {place.queue.name} is a leaf, so its template is for nothing"
        report.add(WARNING, path, message, hint="parent: true lets queues be created below it")
        return
    _doubt_properties(template.properties, f"{path}.properties", report)
    _doubt_maximum(template.resources, place, "childtemplate.resources", report)


# Placement rules ------------------------------------------------------------------------------------------------------

_STARRED: Final = re.compile(r"([a-zA-Z0-9:#/_@-]*)[a-zA-Z0-9_]\*")
"""A name with a star at its end, as a shell would have it; what the expression asks for is all but the last letter."""


def doubt_rules(rules: Sequence[PlacementRuleConfig], root: QueuePlace, path: str, report: Report) -> None:
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
        report.add(WARNING, f"{path}.type", message, hint=f"{DENY}, in lower case")
    for key, entries, legal in (("users", written.users, USER), ("groups", written.groups, GROUP)):
        if len(entries) == 1:
            _doubt_expression(entries[0], legal, f"{path}.{key}[0]", report)
            continue
        for index, entry in enumerate(entries):
            if not legal.fullmatch(entry):
                is_expression = looks_like_expression(entry)
                hint = "a regular expression counts only as the one entry of a list" if is_expression else ""
                report.add(WARNING, f"{path}.{key}[{index}]", f"{entry!r} can be nobody's name", hint=hint)


def _doubt_expression(entry: str, legal: re.Pattern[str], path: str, report: Report) -> None:
    """What looks like a name, or like a pattern of a shell, is taken as a regular expression."""
    if looks_like_expression(entry) and legal.fullmatch(entry):
        message = f"{entry!r} is a regular expression: all names that end in {entry[:-1]}, and not {entry}"
        report.add(WARNING, path, message, hint=f"the name alone is ^{entry[:-1]}\\$$")
    elif starred := _STARRED.fullmatch(entry):
        whom = f"all names that have {starred[1]} in them" if starred[1] else "all names"
        message = f"{entry!r} is a regular expression: {whom}"
        report.add(WARNING, path, message, hint=f"names that begin with {entry[:-1]} are ^{entry[:-1]}")


def _doubt_creation(links: Sequence[tuple[PlacementRuleConfig, str]], report: Report) -> None:
    """A parent is only created together with the queue below it."""
    for (rule, _), (parent, at) in pairwise(links):
        if parent.create and not rule.create:
            message = f"create has no effect: rule {rule.name} may not create the queue below"
            report.add(WARNING, f"{at}.create", message, hint="both are created together, or none")


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
            report.add(WARNING, f"{at}.value", message, hint=f"without a parent rule the queue is below {ROOT}")
            return
        if not rule.create and path not in queues:
            message = f"the rule matches nothing as long as there is no queue {path}, which it may not create"
            report.add(WARNING, at, message, hint="create: true at each rule of the chain whose queue may be new")
            return
        above = path if path.startswith(f"{ROOT}.") else f"{ROOT}.{path}"


def _paths(root: QueuePlace) -> set[str]:
    """Return the paths of all configured queues in lower case."""
    found: set[str] = set()

    def walk(place: QueuePlace, path: str) -> None:
        found.add(path)
        for child in place.children:
            walk(child, f"{path}.{child.queue.name.lower()}")

    walk(root, ROOT)
    return found
