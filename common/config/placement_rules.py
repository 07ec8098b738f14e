"""Whether the placement rules of a partition can be built; a partition whose rules cannot places no application.

Validation does not ask this, because YuniKorn accepts such configurations, too. Each reason is the sentence that
building the rules would end with (it asks here), and the first problem is the one that it would end at.

Not here: what the rules do (the engine's placement), and what validation says of them (`check_rules.py`).
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import re2

from common.config.model import FilterConfig, PartitionConfig, PlacementRuleConfig, QueueConfig
from common.config.problems import NO_LINES, Lines, Problem, Report, under
from common.names import GROUP, ILLEGAL_QUEUE, QUEUE, ROOT, USER

# Regular expressions of filters ---------------------------------------------------------------------------------------

NAME_LENGTH_MAX: Final = 1024
"""Characters of a name that is matched. A longer name raises NameTooLongError, which rejects the application: the
answer "no match" would open a filter of type `deny`."""

PROGRAM_SIZE_MAX: Final = 10_000
"""Instructions of a compiled expression; validation refuses one that needs more. `.{900}` has 7,200, `\\pL` 1,200."""

MEMORY_MAX: Final = 1 << 20
"""Bytes that RE2 may use for an expression: its program, and the states that it caches while it matches. An expression
whose program does not fit is refused; when the cache is full RE2 matches without it, at a cost of at most instructions
times bytes of the name."""

_SPECIAL: Final = frozenset("^$*+?()[{}|")  # not `.`, which is part of many names
_BACKSLASH: Final = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|(?P<any_byte>C)|.)", re.DOTALL)


class ExpressionError(ValueError):
    """The text cannot be used as a regular expression; says why."""


class NameTooLongError(ValueError):
    """A name that is not matched because of its length."""


class _Pattern(Protocol):
    """What is used of a compiled expression; the library has no types of its own."""

    @property
    def programsize(self) -> int: ...

    @property
    def groupindex(self) -> dict[str, int]: ...

    def search(self, text: str) -> object | None: ...


def looks_like_expression(entry: str) -> bool:
    """Whether an only entry of a filter list is meant as an expression: it has a character that no name has."""
    return not _SPECIAL.isdisjoint(entry)


class Expression:
    """A compiled expression. It is compiled once, when the configuration is read, and never changes."""

    def __init__(self, text: str) -> None:
        """Compile the expression. Raises ExpressionError."""
        if any(escape["any_byte"] for escape in _BACKSLASH.finditer(text)):
            raise ExpressionError(r"this expression cannot be used: invalid escape sequence: \C")
        for name in _compile(text, captures=True).groupindex:
            if not name.isascii():
                raise ExpressionError(f"this expression cannot be used: invalid named capture group: {name}")
        self._pattern = _compile(text, captures=False)
        self.size = self._pattern.programsize
        """Instructions of its program: matching takes at most as many steps for each byte of a name."""
        re2.purge()  # the library would keep the memory of the last 128 expressions that nobody uses any more
        if self.size > PROGRAM_SIZE_MAX:
            raise ExpressionError(
                f"this expression is too large: it compiles to {self.size} instructions, at most {PROGRAM_SIZE_MAX} "
                "are allowed: use fewer or smaller repeat counts"
            )

    def found_in(self, name: str) -> bool:
        """Whether any part of the name matches the expression. Raises NameTooLongError."""
        if len(name) > NAME_LENGTH_MAX:
            raise NameTooLongError(f"a name of {len(name)} characters is not matched, the limit is {NAME_LENGTH_MAX}")
        return self._pattern.search(name) is not None


def _compile(text: str, *, captures: bool) -> _Pattern:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    options.never_capture = not captures
    try:
        pattern: _Pattern = re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        if "too large" in reason:
            reason = f"it needs more than {MEMORY_MAX} bytes: use fewer or smaller repeat counts"
        raise ExpressionError(f"this expression cannot be used: {reason}") from None
    except UnicodeEncodeError as error:
        raise ExpressionError(f"this expression cannot be used: it is not valid Unicode: {error.reason}") from None
    return pattern


# Rules that cannot be built ------------------------------------------------------------------------------------------

KIND: Final = "rules"

RULES: Final = ("fixed", "provided", "tag", "user", "primarygroup", "secondarygroup", "applicationtype")
"""Every rule that a configuration may name, in any case."""
RECOVERY: Final = "recovery"
"""The rule that ends every list, and is written in none."""


def find_rule_problems(partition: PartitionConfig, *, path: str = "", lines: Lines = NO_LINES) -> list[Problem]:
    """Return why the rules cannot be built, in the order of building; `path` is where the partition stands."""
    report = Report(lines)
    for index, rule in enumerate(partition.placement_rules):
        _check_buildable(rule, under(path, f"placementrules[{index}]"), report)
    return report.problems


def _check_buildable(rule: PlacementRuleConfig, path: str, report: Report) -> None:
    """The name, the parent rule, the filter, the value."""
    if wrong := check_rule_name(rule):
        report.add(KIND, under(path, "name"), wrong, hint=f"it is one of {', '.join(RULES)}")
    if rule.parent is not None:
        _check_buildable(rule.parent, under(path, "parent"), report)
    _check_expressions(rule.name, rule.filter, under(path, "filter"), report)
    if wrong := _wrong_value(rule):
        report.add(KIND, under(path, "value"), wrong)


def check_rule_name(rule: PlacementRuleConfig) -> str:
    """Return what is wrong with the name, nothing if there is such a rule."""
    if rule.name.lower() == RECOVERY:
        return "recovery rule cannot be part of the config, failing placement rule config"
    if rule.name.lower() not in RULES:
        return f"unknown rule name specified {rule.name}, failing placement rule config"
    return ""


def _wrong_value(rule: PlacementRuleConfig) -> str:
    """Return what is wrong with the value, nothing if the rule can use it."""
    match rule.name.lower():
        case "fixed":
            return check_fixed_queue(rule.value.lower(), has_parent=rule.parent is not None)
        case "tag":
            return check_tag(rule.value)
    return ""


def check_tag(tag: str) -> str:
    """Return what is wrong with the value of a rule `tag`, nothing if it can be used."""
    return "" if tag else "a tag queue rule must have a tag name set"


def check_fixed_queue(queue: str, *, has_parent: bool) -> str:
    """Return what is wrong with the value of a rule `fixed`, in lower case; nothing if it can be used."""
    if not queue:
        return "a fixed queue rule must have a queue name set"
    if not all(QUEUE.fullmatch(part) for part in queue.split(".")):
        return ILLEGAL_QUEUE
    if queue.startswith(ROOT) and has_parent:
        return f"a fixed queue rule with the whole path {queue} cannot have a parent rule"
    return ""


def _check_expressions(name: str, rule_filter: FilterConfig, path: str, report: Report) -> None:
    """An only entry that is meant as an expression is one, and not too large to be followed."""
    entries: tuple[tuple[str, Sequence[str]], ...] = (("users", rule_filter.users), ("groups", rule_filter.groups))
    for key, names in entries:
        if len(names) != 1 or not looks_like_expression(names[0]):
            continue
        try:
            Expression(names[0])
        except ExpressionError as error:
            report.add(KIND, under(path, f"{key}[0]"), describe_filter_error(name, error))


def describe_filter_error(rule: str, error: ExpressionError) -> str:
    """Return the sentence for a rule whose filter has an expression that is none."""
    return f"the filter of rule {rule} cannot be used: {error}"


# Validation -----------------------------------------------------------------------------------------------------------

FIXED: Final = "fixed"
FILTER_TYPES: Final = ("", "allow", "deny")

_RULE_NAME: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*")


class _StaticPath(NamedTuple):
    """The part of a rule's path that is known without an application."""

    value: str
    chain: str  # the names of the rules, outermost parent first
    is_whole: bool  # no rule of the chain looks at the application


def check_rules(rules: Sequence[PlacementRuleConfig], path: str, report: Report) -> None:
    """Each rule by itself, its parent rule before its filter."""
    for index, rule in enumerate(rules):
        _check_rule(rule, f"{path}[{index}]", report)


def _check_rule(rule: PlacementRuleConfig, path: str, report: Report) -> None:
    if not _RULE_NAME.fullmatch(rule.name):
        message = f"invalid rule name {rule.name}, a name must be a valid identifier"
        report.add("rule-name", f"{path}.name", message)
    if rule.parent is not None:
        _check_rule(rule.parent, f"{path}.parent", report)
    _check_filter(rule.filter, f"{path}.filter", report)


def _check_filter(rule_filter: FilterConfig, path: str, report: Report) -> None:
    """The type is known, and an only entry is a name or an expression; longer lists take anything."""
    if rule_filter.type.lower() not in FILTER_TYPES:
        message = f"invalid rule filter type {rule_filter.type}, filter type  must be either '', allow or deny"
        report.add("rule-filter", f"{path}.type", message)
    for key, entries, name in (("users", rule_filter.users, USER), ("groups", rule_filter.groups, GROUP)):
        if len(entries) == 1 and not name.fullmatch(entries[0]) and (wrong := _not_an_expression(entries[0])):
            message = f"invalid rule filter {key.removesuffix('s')} list is not a proper list or regexp: [{entries[0]}]"
            report.add("rule-filter", f"{path}.{key}[0]", message, hint=wrong)


def _not_an_expression(entry: str) -> str:
    """Return why an entry is no regular expression, nothing if it is one."""
    if not looks_like_expression(entry):
        return "an expression contains one of ^ $ * + ? ( ) [ { } |"
    try:
        Expression(entry)
    except ExpressionError as error:
        return str(error)
    return ""


def check_rule_paths(rules: Sequence[PlacementRuleConfig], root: QueueConfig, path: str, report: Report) -> None:
    """Where fixed rules lead without looking at an application there is a queue, or may be one.

    All paths are put together before any is followed, and a path that is wrong in itself is not followed.
    """
    paths: list[tuple[int, _StaticPath]] = []
    for index, rule in enumerate(rules):
        static = _static_path(rule, f"{path}[{index}]", report)
        if static is not None and static.value.startswith(ROOT):
            paths.append((index, static))
    for index, static in paths:
        wrong = _wrong_on_the_way(static, root, create=rules[index].create)
        if wrong:
            message = f"placement rule no. #{index} ({static.chain}) references {wrong}"
            report.add("rule-path", f"{path}[{index}]", message)


def _static_path(rule: PlacementRuleConfig, path: str, report: Report) -> _StaticPath | None:
    chain = _chain(rule)
    static, is_whole = "", True
    for position, link in enumerate(chain):
        # Exactly in lower case: `Fixed` is the same rule when placing, but has never been followed here.
        if link.name != FIXED:
            is_whole = False
            break
        if not link.value.startswith(ROOT):
            static = f"{static or ROOT}.{link.value}"
        elif position == 0:
            static = link.value
        else:
            message = f"illegal fully qualified 'fixed' rule with value {link.value}"
            report.add("rule-path", path, message, hint="it has a parent rule, so the value may not start with root")
            return None
    return _StaticPath(static, "->".join(link.name for link in chain), is_whole)


def _chain(rule: PlacementRuleConfig) -> list[PlacementRuleConfig]:
    """Return the rule and the parents it builds on, outermost parent first."""
    chain = [rule]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain[::-1]


def _wrong_on_the_way(static: _StaticPath, root: QueueConfig, *, create: bool) -> str:
    """Return what is wrong with the queues on a path, nothing if it can be used.

    Only names and flags as they are written count: a queue with capitals is never found, and one that is a parent only
    because of its children counts as a leaf at the end of a path.
    """
    missing = f"non-existing queues ({static.value})"
    level: Sequence[QueueConfig] = (root,)
    queue = root
    parts = static.value.lower().split(".")
    for part in parts:
        if not level and not queue.parent:
            return f"{missing} which cannot be created because the last queue ({queue.name}) in the hierarchy is a leaf"
        found = next((candidate for candidate in level if candidate.name == part), None)
        if found is None:
            return "" if create else f"{missing} and create is 'false'"
        queue, level = found, found.queues
    if static.is_whole and queue.parent:
        return f"a queue ({static.value}) which is not a leaf"
    if not static.is_whole and not queue.parent:
        return f"a queue ({static.value}) which is not a parent"
    return ""
