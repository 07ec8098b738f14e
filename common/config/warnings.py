"""Settings that are valid but probably unintended; reported as warnings.

The configuration runs, but a setting silently does something else than it seems to say: a value that is not accepted, a
word in the wrong case, a rule that never matches. Settings that are merely unusual are not reported.

Not here: what is invalid (`validation.py`), what cannot be built (`validation.py`, `placement_rules.py`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Final

from yunishard.common.config import model
from yunishard.common.config.acl import NOBODY, AclError, find_ignored_entries, parse_acl
from yunishard.common.config.model import PROPERTIES, find_similar_property
from yunishard.common.config.placement_rules import FIXED, looks_like_expression
from yunishard.common.config.problems import NO_LINES, Lines, Problem, Report
from yunishard.common.names import GROUP, RECOVERY_QUEUE, ROOT, USER, WHITE_SPACE

RESOLVERS: Final = ("", "os", "test")
"""The types of group resolvers, in this spelling."""

LDAP: Final = "ldap"
"""A type that YuniKorn has as a preview, and this system does not have."""

NAMES_MAX: Final = 5
"""Queues or entries that a warning names; further ones are counted."""

COMPARED_MAX: Final = 1_000
"""Different unknown properties of a configuration that are compared with the known ones. For further ones no warning
suggests a name."""

_ZERO: Final = re.compile(f"[{WHITE_SPACE}]*0+[^0-9]*")


def find_warnings(configuration: model.Configuration, lines: Lines = NO_LINES) -> list[Problem]:
    """Return the warnings about a valid configuration as it was parsed, in the order of the text, at most PROBLEMS_MAX.

    Without lines it is unknown whether a flag was written, so fewer warnings are found.
    """
    report = _Warnings(lines)
    for index, partition in enumerate(configuration.partitions):
        path = f"partitions[{index}]"
        root = model.root_place(partition, path)
        _check_resolver(partition.user_group_resolver, f"{path}.usergroupresolver.type", report)
        _check_rules(partition.placement_rules, root, f"{path}.placementrules", report)
        _check_access(root, report)
        for place in root.walk():
            _check_queue(place, lines, report)
            if report.is_full:
                break
    return sorted(report.problems, key=lambda problem: problem.line)


class _Warnings(Report):
    """The warnings about a configuration."""

    def __init__(self, lines: Lines) -> None:
        super().__init__(lines)
        self._compared: dict[str, str] = {}
        """Unknown property to the known one that it resembles."""

    def find_similar(self, name: str) -> str:
        """Return the property that an unknown one resembles; empty if there is none, or beyond COMPARED_MAX."""
        if name not in self._compared and len(self._compared) < COMPARED_MAX:
            self._compared[name] = find_similar_property(name)
        return self._compared.get(name, "")


def _check_resolver(resolver: model.ResolverConfig, path: str, report: Report) -> None:
    """An unknown type is the default: the groups of a user are the user's own name."""
    if resolver.type == LDAP:
        message = "groups are not looked up by LDAP: submissions that name no groups are rejected"
        report.warn(path, message, hint="os asks the operating system, which may ask a directory")
    elif resolver.type not in RESOLVERS:
        message = f"there is no resolver {resolver.type!r}, so each user is in one group of the same name"
        report.warn(path, message, hint=f"it is os, {LDAP} or test, in lower case")


# Queues ---------------------------------------------------------------------------------------------------------------


def _check_queue(place: model.QueuePlace, lines: Lines, report: "_Warnings") -> None:
    """Check a queue on its own."""
    queue = place.queue
    _check_properties(queue.properties, f"{place.path}.properties", report)
    _check_maximum(queue.resources, f"{place.path}.resources.max", report)
    for path, text in place.acls:
        if text:
            _check_acl(text, path, report)
    _check_template(place, report)
    if queue.queues and not queue.parent and f"{place.path}.parent" in lines:
        message = f"queue {queue.name} is a parent all the same, because it has queues below it"
        report.warn(f"{place.path}.parent", message)
    if place.level and queue.name.lower() == ROOT:
        message = f"a queue called {ROOT} below another one" + (f" is {ROOT}.{ROOT}" if place.level == 1 else "")
        hint = f"to be {ROOT} itself it must be the only queue at the top"
        report.warn(f"{place.path}.name", message, hint=hint)


def _check_access(root: model.QueuePlace, report: Report) -> None:
    """Each leaf can be submitted to; otherwise one warning, at the first closed leaf, names the closed ones."""
    closed = _find_closed(root)
    named = list(islice(closed, NAMES_MAX))
    if not named:
        return
    others = sum(1 for _ in closed)
    paths = ", ".join(place.full_path for place in named) + (f" and {others} more" if others else "")
    message = f"no user may submit to {paths}: no submitacl or adminacl there or above grants anything"
    report.warn(named[0].path, message, hint=f"submitacl: '*' at {ROOT} would let all users submit everywhere")


def _find_closed(place: model.QueuePlace) -> Iterator[model.QueuePlace]:
    """Yield the leaves to which no access control list up to root grants access."""
    try:
        is_open = any(parse_acl(text) != NOBODY for _, text in place.acls)
    except AclError:
        is_open = True  # reported elsewhere
    if is_open or place.full_path == RECOVERY_QUEUE:
        return
    if not place.children:
        yield place
    for child in place.children:
        yield from _find_closed(child)


def _check_properties(properties: Mapping[str, str], path: str, report: "_Warnings") -> None:
    """Known properties have accepted values, and unknown ones do not look like known ones."""
    for name, value in properties.items():
        if known := PROPERTIES.get(name):
            if known.misreads(value):
                message = f"{value!r} is not a valid value of {name}; the default '{known.default}' is used"
                report.warn(f"{path}.{name}", message, hint=f"it takes {known.values}")
        elif (other := report.find_similar(name)) and other not in properties:
            report.warn(f"{path}.{name}", f"{name} means nothing to a queue", hint=f"did you mean {other}?")


def _check_maximum(resources: model.ResourcesConfig, path: str, report: Report) -> None:
    """Zeros limit something only beside another amount."""
    if resources.max and all(map(_ZERO.fullmatch, resources.max.values())):
        message = "a maximum with only zeros means unlimited"
        hint = (
            "to close a queue, use maxapplications or an access control list; a zero counts only beside another amount"
        )
        report.warn(path, message, hint=hint)


def _check_acl(text: str, path: str, report: Report) -> None:
    """No entry is ignored, and no space has made a group of a user."""
    try:
        ignored = find_ignored_entries(text)
    except AclError:
        return
    if ignored:
        names = ", ".join(map(repr, ignored[:NAMES_MAX]))
        more = f" and {len(ignored) - NAMES_MAX} more" if len(ignored) > NAMES_MAX else ""
        empty = ", and no entry is left" if parse_acl(text) == NOBODY else ""
        hint = "* stands alone" if "*" in ignored else "no user or group of a list can be called so"
        if any(character in WHITE_SPACE for name in ignored for character in name):
            hint = "one space separates users from groups, and there is no other space"
        report.warn(path, f"{names}{more} in an access control list counts nothing{empty}", hint=hint)
    users, _, groups = text.partition(" ")
    if users.endswith(",") and groups.strip(WHITE_SPACE):
        hint = f"for a list of users, write {users}{groups.strip(WHITE_SPACE)}"
        report.warn(path, f"{groups!r} is read as groups: the first space ends the list of users", hint=hint)


def _check_template(place: model.QueuePlace, report: "_Warnings") -> None:
    """Queues can be created below a queue with a template, and the template's own settings have an effect."""
    template, path = place.queue.child_template, f"{place.path}.childtemplate"
    if template.is_empty:
        return
    if not place.queue.is_parent:
        message = f"queue {place.queue.name} is a leaf, so its template is for nothing"
        report.warn(path, message, hint="parent: true lets queues be created below it")
        return
    _check_properties(template.properties, f"{path}.properties", report)
    _check_maximum(template.resources, f"{path}.resources.max", report)


# Placement rules ------------------------------------------------------------------------------------------------------

_STARRED: Final = re.compile(r"([a-zA-Z0-9:#/_@-]*)[a-zA-Z0-9_]\*")
"""A name with a star at its end, as in a shell pattern. As an expression it matches all but the last letter."""


def _check_rules(rules: Sequence[model.PlacementRuleConfig], root: model.QueuePlace, path: str, report: Report) -> None:
    """Check each rule together with the rules for its parent queue."""
    queues = {place.full_path for place in root.walk()} if rules else set()
    for index, rule in enumerate(rules):
        links = [(link, f"{path}[{index}]{'.parent' * depth}") for depth, link in enumerate(rule.walk())]
        for link, at in links:
            _check_filter(link.filter, f"{at}.filter", report)
        for (child, _), (parent, at) in pairwise(links):
            if parent.create and not child.create:
                message = f"create has no effect: rule {child.name} may not create the queue below"
                report.warn(f"{at}.create", message, hint="both are created together, or none")
        _check_fixed(links, queues, report)


def _check_filter(rule_filter: model.FilterConfig, path: str, report: Report) -> None:
    """A filter that is meant to deny does, and each entry can match a name."""
    if rule_filter.type.lower() == model.DENY != rule_filter.type:
        message = f"{rule_filter.type!r} does not deny: the filter allows whom it lists"
        report.warn(f"{path}.type", message, hint=f"{model.DENY}, in lower case")
    for key, entries, name in (("users", rule_filter.users, USER), ("groups", rule_filter.groups, GROUP)):
        if len(entries) == 1:
            _check_expression(entries[0], name, f"{path}.{key}[0]", report)
            continue
        for index, entry in enumerate(entries):
            if not name.fullmatch(entry):
                is_expression = looks_like_expression(entry)
                hint = "a regular expression counts only as the one entry of a list" if is_expression else ""
                report.warn(f"{path}.{key}[{index}]", f"{entry!r} cannot be a name", hint=hint)


def _check_expression(entry: str, name: re.Pattern[str], path: str, report: Report) -> None:
    """A regular expression does not look like a name, or like a shell pattern."""
    if looks_like_expression(entry) and name.fullmatch(entry):
        message = f"{entry!r} is a regular expression: all names that end in {entry[:-1]}, and not {entry}"
        report.warn(path, message, hint=f"the name alone is ^{entry[:-1]}\\$$")
    elif starred := _STARRED.fullmatch(entry):
        names = f"all names that have {starred[1]} in them" if starred[1] else "all names"
        message = f"{entry!r} is a regular expression: {names}"
        report.warn(path, message, hint=f"names that begin with {entry[:-1]} are ^{entry[:-1]}")


def _check_fixed(links: Sequence[tuple[model.PlacementRuleConfig, str]], queues: set[str], report: Report) -> None:
    """Each fixed queue of a path is configured or may be created."""
    above = ROOT
    for rule, at in reversed(links):
        if rule.name.lower() != FIXED:
            return  # from here on the path depends on the application
        value = rule.value.lower()
        path = value if value.startswith(ROOT) else f"{above}.{value}"
        if path == ROOT and rule is not links[0][0]:
            message = f"a parent rule that yields {ROOT} means {ROOT}.{ROOT}"
            report.warn(f"{at}.value", message, hint=f"without a parent rule the queue is below {ROOT}")
            return
        if not rule.create and path not in queues:
            message = f"the rule matches nothing as long as there is no queue {path}, which it may not create"
            report.warn(at, message, hint="create: true at each rule of the chain whose queue may be new")
            return
        above = path if path.startswith(f"{ROOT}.") else f"{ROOT}.{path}"
