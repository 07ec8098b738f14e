r"""Validation of placement rules, and the regular expressions of their filters.

A placement rule is checked twice. `check_rules` and `check_rule_paths` are part of validation. `find_rule_problems`
returns why a partition cannot build its rules, so that it places no application; validation accepts such
configurations, as YuniKorn does. The engine builds rules with the checks of this module, so the messages are the same.

Expressions have the syntax and the linear time of RE2, through `google-re2`. YuniKorn matches with Go's `regexp`, which
is RE2 in Go. A comparison over 200,000 generated expressions found two differences in the C++ library, and `Expression`
removes both: the library accepts `\C` (any byte), and group names that are not ASCII.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import re2

from yunishard.common.config.model import FilterConfig, PartitionConfig, PlacementRuleConfig, QueueConfig
from yunishard.common.config.problems import NO_LINES, Lines, Problem, Report, under
from yunishard.common.names import GROUP, ILLEGAL_QUEUE, QUEUE, ROOT, USER

RULES: Final = ("fixed", "provided", "tag", "user", "primarygroup", "secondarygroup", "applicationtype")
"""Every rule that a configuration may name, in any case."""

FIXED: Final = "fixed"

# Regular expressions of filters ---------------------------------------------------------------------------------------

NAME_LENGTH_MAX: Final = 1024
"""Characters of a name that is matched. A longer name raises NameTooLongError, which rejects the application: the
answer "no match" would open a filter of type `deny`."""

PROGRAM_SIZE_MAX: Final = 10_000
"""Instructions of a compiled expression; validation refuses one that needs more. `.{900}` has 7,200, `\\pL` 1,200."""

LENGTH_MAX: Final = 65_536
"""Length of an expression: its characters, and CLASS_LENGTH for each class of Unicode characters. A longer one is
refused before it is compiled."""

CLASS_LENGTH: Final = 300
"""Length of a class such as `\\pL` in an expression. Reading one takes up to 0.4 ms, as much as reading that many
characters."""

MEMORY_MAX: Final = 1 << 20
"""Bytes that RE2 may use for an expression: its program, and the states that it caches while it matches. An expression
whose program does not fit is refused. With a full cache RE2 matches without it, in at most instructions times bytes of
the name."""

_SPECIAL: Final = frozenset("^$*+?()[{}|")  # not `.`, which is part of many names
_BACKSLASH: Final = re.compile(r"\\(?:Q.*?(?:\\E|\Z)|(?P<any_byte>C)|(?P<char_class>[pP])|.)", re.DOTALL)
_NAMED_GROUP: Final = re.compile(r"\(\?P?<")
_CHECKED_LENGTH_MAX: Final = 1_000  # characters of an expression whose check is kept


class ExpressionError(ValueError):
    """The text is not a usable regular expression, for the reason in the message."""


class NameTooLongError(ValueError):
    """A name that is not matched because of its length."""


def looks_like_expression(entry: str) -> bool:
    """Whether the only entry of a filter list is an expression: it has a character that no name has."""
    return not _SPECIAL.isdisjoint(entry)


class Expression:
    """A compiled expression; immutable."""

    def __init__(self, text: str) -> None:
        """Compile the expression. Raises ExpressionError."""
        if any(escape["any_byte"] for escape in _BACKSLASH.finditer(text)):
            raise ExpressionError(r"this expression cannot be used: invalid escape sequence: \C")
        if (length := _measure_length(text)) > LENGTH_MAX:
            raise ExpressionError(
                f"this expression is too long: its length is {length}, at most {LENGTH_MAX} are allowed, and a class "
                f"such as \\pL counts {CLASS_LENGTH}: use a list of names, or several rules"
            )
        for name in _compile(text, captures=True)[0].groupindex if _NAMED_GROUP.search(text) else ():
            if not name.isascii():
                raise ExpressionError(f"this expression cannot be used: invalid named capture group: {name}")
        self._pattern, self.size = _compile(text, captures=False)
        # The size bounds the steps that matching takes for each byte of a name.
        re2.purge()  # otherwise the library keeps the memory of the last 128 expressions
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


def _compile(text: str, *, captures: bool) -> tuple[re.Pattern[str], int]:
    """Return an expression of the library, which has no types of its own, and the instructions of its program."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY_MAX
    options.never_capture = not captures
    try:
        pattern = re2.compile(text, options)
        return pattern, pattern.programsize
    except re2.error as error:
        reason = error.args[0].decode(errors="replace")
        if "too large" in reason:
            reason = f"it needs more than {MEMORY_MAX} bytes: use fewer or smaller repeat counts"
    except UnicodeEncodeError as error:
        reason = f"it is not valid Unicode: {error.reason}"
    raise ExpressionError(f"this expression cannot be used: {reason}") from None


def _measure_length(text: str) -> int:
    classes = sum(escape["char_class"] is not None for escape in _BACKSLASH.finditer(text))
    return len(text) + CLASS_LENGTH * classes


def measure_expression(text: str) -> int:
    """Return the size of an expression, which bounds the time to compile it: its length and its instructions. One that
    cannot be used has those that are allowed at most.
    """
    length = _measure_length(text)
    return length + check_expression(text)[0] if length <= LENGTH_MAX else PROGRAM_SIZE_MAX


def check_expression(text: str) -> tuple[int, str]:
    """Return the instructions of an expression, and why it cannot be used; empty if it can."""
    return _check_short(text) if len(text) <= _CHECKED_LENGTH_MAX else _check(text)


def _check(text: str) -> tuple[int, str]:
    try:
        return Expression(text).size, ""
    except ExpressionError as error:
        return PROGRAM_SIZE_MAX, str(error)


_check_short: Final = lru_cache(maxsize=1024)(_check)  # each expression is checked up to three times


# Rules that cannot be built -------------------------------------------------------------------------------------------


def find_rule_problems(partition: PartitionConfig, *, path: str = "", lines: Lines = NO_LINES) -> list[Problem]:
    """Return why the rules cannot be built, in the order of building; `path` is the place of the partition."""
    report = Report(lines)
    for index, rule in enumerate(partition.placement_rules):
        _check_buildable(rule, under(path, f"placementrules[{index}]"), report)
    return report.problems


def _check_buildable(rule: PlacementRuleConfig, path: str, report: Report) -> None:
    """Check the name, the parent rule, the filter and the value, as building does."""
    if problem := check_rule_name(rule):
        report.add("rules", under(path, "name"), problem, hint=f"it is one of {', '.join(RULES)}")
    if rule.parent is not None:
        _check_buildable(rule.parent, under(path, "parent"), report)
    for key, entry in _single_entries(rule.filter):
        if looks_like_expression(entry) and (reason := check_expression(entry)[1]):
            report.add("rules", under(path, f"filter.{key}[0]"), describe_filter_error(rule.name, reason))
    kind = rule.name.lower()
    if kind == FIXED and (problem := check_fixed_queue(rule.value.lower(), has_parent=rule.parent is not None)):
        report.add("rules", under(path, "value"), problem)
    if kind == "tag" and (problem := check_tag(rule.value)):
        report.add("rules", under(path, "value"), problem)


def _single_entries(rule_filter: FilterConfig) -> Iterator[tuple[str, str]]:
    """Yield the key and the only entry of each list of a filter that has exactly one."""
    for key, entries in (("users", rule_filter.users), ("groups", rule_filter.groups)):
        if len(entries) == 1:
            yield key, entries[0]


def iterate_expressions(rules: Sequence[PlacementRuleConfig], path: str) -> Iterator[tuple[str, str]]:
    """Yield the place and text of each expression in the filters of rules, and of the rules for their parents."""
    for index, rule in enumerate(rules):
        for depth, link in enumerate(rule.walk()):
            for key, entry in _single_entries(link.filter):
                if looks_like_expression(entry):
                    yield f"{path}[{index}]{'.parent' * depth}.filter.{key}[0]", entry


def check_rule_name(rule: PlacementRuleConfig) -> str:
    """Return why there is no rule of this name, or nothing."""
    name = rule.name.lower()
    if name == "recovery":  # the last rule of every partition
        return "recovery rule cannot be part of the config, failing placement rule config"
    return "" if name in RULES else f"unknown rule name specified {rule.name}, failing placement rule config"


def check_tag(tag: str) -> str:
    """Return why a rule `tag` cannot have this value, or nothing."""
    return "" if tag else "a tag queue rule must have a tag name set"


def check_fixed_queue(queue: str, *, has_parent: bool) -> str:
    """Return why a rule `fixed` cannot have this value, in lower case, or nothing."""
    if not queue:
        return "a fixed queue rule must have a queue name set"
    if not all(QUEUE.fullmatch(part) for part in queue.split(".")):
        return ILLEGAL_QUEUE
    if queue.startswith(ROOT) and has_parent:
        return f"a fixed queue rule with the whole path {queue} cannot have a parent rule"
    return ""


def describe_filter_error(rule: str, error: ExpressionError | str) -> str:
    """Return the message for a rule whose filter has an invalid expression."""
    return f"the filter of rule {rule} cannot be used: {error}"


# Validation -----------------------------------------------------------------------------------------------------------

_RULE_NAME: Final = re.compile(r"[_a-zA-Z][a-zA-Z0-9_]*")


def check_rules(rules: Sequence[PlacementRuleConfig], path: str, report: Report) -> None:
    """Check the name and filter of each rule, parent rules before the filter."""
    for index, rule in enumerate(rules):
        _check_rule(rule, f"{path}[{index}]", report)


def _check_rule(rule: PlacementRuleConfig, path: str, report: Report) -> None:
    if not _RULE_NAME.fullmatch(rule.name):
        message = f"invalid rule name {rule.name}, a name must be a valid identifier"
        report.add("rule-name", f"{path}.name", message)
    if rule.parent is not None:
        _check_rule(rule.parent, f"{path}.parent", report)
    if rule.filter.type.lower() not in ("", "allow", "deny"):
        message = f"invalid rule filter type {rule.filter.type}, filter type  must be either '', allow or deny"
        report.add("rule-filter", f"{path}.filter.type", message)
    for key, entry in _single_entries(rule.filter):  # longer lists accept anything
        noun, name = ("user", USER) if key == "users" else ("group", GROUP)
        if name.fullmatch(entry):
            continue
        problem = "an expression contains one of ^ $ * + ? ( ) [ { } |"
        if looks_like_expression(entry):
            problem = check_expression(entry)[1]
            if not problem:
                continue
        message = f"invalid rule filter {noun} list is not a proper list or regexp: [{entry}]"
        report.add("rule-filter", f"{path}.filter.{key}[0]", message, hint=problem)


def check_rule_paths(rules: Sequence[PlacementRuleConfig], root: QueueConfig, path: str, report: Report) -> None:
    """Check that fixed rules that do not depend on the application lead to a queue that exists or may be created.

    All paths are built before any is followed. A path that is invalid in itself is not followed.
    """
    problems: list[tuple[str, str]] = []
    levels = _Levels()
    for index, rule in enumerate(rules):
        chain = [rule]  # outermost parent first
        while chain[0].parent is not None:
            chain.insert(0, chain[0].parent)
        static, is_whole = "", True
        for position, link in enumerate(chain):
            # In lower case only: placement accepts `Fixed` for the same rule, validation never followed it.
            if link.name != FIXED:
                is_whole = False  # from here on the path depends on the application
                break
            if not link.value.startswith(ROOT):
                static = f"{static or ROOT}.{link.value}"
            elif position == 0:
                static = link.value
            else:
                message = f"illegal fully qualified 'fixed' rule with value {link.value}"
                hint = "it has a parent rule, so the value may not start with root"
                report.add("rule-path", f"{path}[{index}]", message, hint=hint)
                static = ""
                break
        if static and (problem := _follow(static, root, levels, create=rule.create, is_whole=is_whole)):
            names = "->".join(link.name for link in chain)
            problems.append((f"{path}[{index}]", f"placement rule no. #{index} ({names}) references {problem}"))
    for at, message in problems:
        report.add("rule-path", at, message)


class _Levels:
    """The children of queues by name, indexed once for all rules."""

    def __init__(self) -> None:
        self._by_parent: dict[int, dict[str, QueueConfig]] = {}
        """By the identity of the parent."""

    def find(self, parent: QueueConfig, name: str) -> QueueConfig | None:
        """Return the first child of this name."""
        if id(parent) not in self._by_parent:
            self._by_parent[id(parent)] = {child.name: child for child in reversed(parent.queues)}
        return self._by_parent[id(parent)].get(name)


def _follow(static: str, root: QueueConfig, levels: _Levels, *, create: bool, is_whole: bool) -> str:
    """Return what is wrong with the queues on a path, or nothing.

    Names and flags count as they are written: a queue with capitals is never found, and a queue that is a parent only
    because of its children counts as a leaf at the end of a path.
    """
    missing = f"non-existing queues ({static})"
    queue = root
    for number, part in enumerate(static.lower().split(".")):
        if number and not queue.queues and not queue.parent:
            return f"{missing} which cannot be created because the last queue ({queue.name}) in the hierarchy is a leaf"
        found = levels.find(queue, part) if number else root if root.name == part else None
        if found is None:
            return "" if create else f"{missing} and create is 'false'"
        queue = found
    if is_whole and queue.parent:
        return f"a queue ({static}) which is not a leaf"
    if not is_whole and not queue.parent:
        return f"a queue ({static}) which is not a parent"
    return ""
