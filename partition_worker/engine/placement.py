"""Placement: the rules of a partition, tried in order until one finds a queue that takes a submitted application.

To add a rule, write a subclass of `Rule` here with its name, and add the name to `RULES` in the validation of rules in
`common/config`. Defining the class registers it; `PlacementChain` builds the rules of a configuration from that
registry. The queue tree creates the queue of a path that does not exist yet.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Final

from yunishard.common.config import placement_rules
from yunishard.common.config.model import DENY, FilterConfig, PlacementRuleConfig
from yunishard.common.messages.rm_messages import AddApplicationRequest
from yunishard.common.names import GROUP, ILLEGAL_QUEUE, QUEUE, RECOVERY_QUEUE, ROOT, USER
from yunishard.common.rest.views import FilterView, RuleView
from yunishard.partition_worker.engine.placement_trace import PlacementTrace
from yunishard.partition_worker.engine.queues.queue import Queue
from yunishard.partition_worker.engine.queues.tree import Tree
from yunishard.partition_worker.engine.user_resolution import User, is_forced, tag_value
from yunishard.partition_worker.placement_reasons import PlacementReason

NO_RULE_MATCHED: Final = "no placement rule matched"
"""The end of the reason for the RM, if no rule found a queue and none of those found was stopped."""

# Placement work -------------------------------------------------------------------------------------------------------

UPDATE_WORK_MAX: Final = 100_000_000
"""Units for all applications of one update, two to three seconds at worst; further applications are rejected."""

APPLICATION_WORK_MAX: Final = 30_000_000
"""Units for one application, which is rejected beyond it. 1,000 groups of 30 characters and ten rules with usual
expressions take 5,000,000.
"""

_LOOKUP: Final = 3
"""Units for a name already matched in the same update."""

_MATCH: Final = 120
"""Units for a call of RE2, in addition to those for the name."""


class TooMuchWorkError(Exception):
    """A submission exceeds the placement work; the text is the reason for the RM."""


class PlacementWork:
    """The remaining work of one update, and the matches found in it.

    An RM chooses the number and length of group names, and a configuration the number and kind of rules. Rules count
    their work in units of about 25 ns, equal on all machines, so that decisions are, too.
    """

    def __init__(self, most: int = UPDATE_WORK_MAX) -> None:
        self._left = most
        self.left_for_one = APPLICATION_WORK_MAX
        self._found: dict[placement_rules.Expression, dict[str, bool]] = {}

    def spend(self, units: int) -> None:
        """Count work before it is done. Raises TooMuchWorkError."""
        if units > self.left_for_one:
            raise TooMuchWorkError(
                f"its groups take the placement rules more than {APPLICATION_WORK_MAX} units of work: "
                "submit it with fewer or shorter groups"
            )
        if units > self._left:
            self._left = 0
            raise TooMuchWorkError(
                f"the applications of this update take the placement rules more than {UPDATE_WORK_MAX} units of work: "
                "submit fewer applications in one update, or with fewer groups"
            )
        self._left -= units
        self.left_for_one -= units

    def any_matches(self, expression: placement_rules.Expression, names: Iterable[str]) -> bool:
        """Whether the expression matches any of the names. Raises TooMuchWorkError, NameTooLongError."""
        found = self._found.setdefault(expression, {})
        for name in names:
            matches = found.get(name)
            if matches is None:
                # RE2 takes at most one step for each instruction and byte, 10 ns each where it cannot cache its states
                self.spend(_MATCH + len(name.encode(errors="replace")) * expression.size // 2)
                matches = found[name] = expression.found_in(name)
            else:
                self.spend(_LOOKUP)
            if matches:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Submission:
    """A new application that placement chooses a queue for."""

    request: AddApplicationRequest
    user: User
    work: PlacementWork = field(default_factory=PlacementWork)
    """The work that placement may still do for the update with this submission."""
    trace: PlacementTrace | None = None
    """Records the checks; only for an explanation."""

    def check(self, code: PlacementReason, subject: str, *, passed: bool) -> bool:
        """Report a check to the trace, and return whether it passed; `code` is the reason if it did not."""
        if self.trace is not None:
            self.trace.add_check(code, subject, passed=passed)
        return passed

    @property
    def forced(self) -> bool:
        """Whether the application probably runs already and must get a queue."""
        return is_forced(self.request.tags)


ROOT_PREFIX: Final = f"{ROOT}."
DEFAULT_QUEUE: Final = "root.default"
DOT: Final = "_dot_"
"""Replaces a dot in the name of a queue that is named after a user, a group or a type."""

TYPE_TAG: Final = "application.type"
"""The application's tag with its type, for example `spark`. Tag names ignore case."""

GROUP_WORK: Final = 60
"""Units of work to look for the queue of one group."""


class RuleError(ValueError):
    """A configured rule that cannot be built; the text states why."""


class PlacementRejected(Exception):
    """An application that gets no queue; the text is the reason that the RM receives."""

    def __init__(self, reason: str, code: PlacementReason) -> None:
        super().__init__(reason)
        self.code = code
        """The reason code for an explanation."""


REJECTIONS: Final = (PlacementRejected, placement_rules.NameTooLongError, TooMuchWorkError)
"""The exceptions that end placement without a queue."""


# Filters ------------------------------------------------------------------------------------------------------------


class _NameList:
    """One list of a filter: a single regular expression, or names. Entries that cannot be names are dropped."""

    def __init__(self, entries: Sequence[str], legal: re.Pattern[str]) -> None:
        is_expression = len(entries) == 1 and placement_rules.looks_like_expression(entries[0])
        self._expression = placement_rules.Expression(entries[0]) if is_expression else None
        self.expression = entries[0] if is_expression else ""
        """The text of the expression, empty for a list of names."""
        self.names = {} if is_expression else dict.fromkeys(entry for entry in entries if legal.fullmatch(entry))
        """The names as configured, without duplicates."""

    def has_any(self, names: Sequence[str], work: PlacementWork) -> bool:
        if self._expression is None:
            work.spend(1 + len(names))
            return not self.names.keys().isdisjoint(names)
        return work.any_matches(self._expression, names)


class Filter:
    """Selects the users whose applications a rule looks at.

    An allow filter selects users who are on its lists, a deny filter users who are on none. Without lists, an allow
    filter selects every user and a deny filter none.
    """

    def __init__(self, config: FilterConfig) -> None:
        """Read the lists. Raises ExpressionError if a single entry looks like an expression and is not valid."""
        self._allows = config.type != DENY
        self._for_all = not config.users and not config.groups
        self.selects_everybody = self._for_all and self._allows
        self._users = _NameList(config.users, USER)
        self._groups = _NameList(config.groups, GROUP)

    def selects(self, user: User, work: PlacementWork) -> bool:
        """Whether the rule looks at the user's applications.

        Raises NameTooLongError or TooMuchWorkError if that cannot be decided within the limits.
        """
        listed = self._for_all or self._users.has_any((user.name,), work) or self._groups.has_any(user.groups, work)
        return listed == self._allows

    def describe(self) -> FilterView | None:
        """Return the filter's REST view, or None if it selects every user."""
        if self.selects_everybody:
            return None
        return FilterView(
            type="allow" if self._allows else "deny",
            user_list=list(self._users.names),
            group_list=list(self._groups.names),
            user_exp=self._users.expression,
            group_exp=self._groups.expression,
        )


# What rules share ---------------------------------------------------------------------------------------------------


class Rule:
    """A placement rule: from a submission to the path of a queue, which exists or may be created."""

    registry: ClassVar[dict[str, type["Rule"]]] = {}
    """Every rule by its name; defining a subclass adds it."""

    name: ClassVar[str]
    """As a configuration spells it, in lower case."""

    takes_paths: ClassVar[bool] = False
    """Whether a name that starts with `root.` is the whole path, which skips the parent rule."""

    source: str
    """Where the name comes from, for explanations."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Rule.registry[cls.name] = cls

    def __init__(self, config: PlacementRuleConfig, parent: "Rule | None") -> None:
        self.create = config.create
        self.parent = parent
        self.filter = Filter(config.filter)

    def find_name(self, submission: Submission) -> str | None:
        """Return the name from which `find_path` makes a path, or None if the rule does not match."""
        return None

    def apply(self, submission: Submission, tree: Tree) -> str | None:
        """Call `find_path`, and record it in the trace of the submission."""
        if submission.trace is None:
            return self.find_path(submission, tree)
        rule = submission.trace.begin_rule(self.describe(), self.source)
        try:
            path = self.find_path(submission, tree)
        except REJECTIONS as error:
            rule.error = str(error)
            raise
        finally:
            submission.trace.end_rule()
        rule.path = path or ""
        return path

    def find_path(self, submission: Submission, tree: Tree) -> str | None:
        """Return the path, in the case of its source, or None if the rule does not match.

        Raises PlacementRejected if the rule matches a name that no queue can have. Then no other rule is tried.
        """
        name = self.find_name(submission)
        submission.check(PlacementReason.RULE_NO_VALUE, name or "", passed=name is not None)
        if name is None or not self.selects(submission):
            return None
        if not self.takes_paths or not name.startswith(ROOT_PREFIX):
            return self.path_below_parent(replace_dots(name, submission), submission, tree)
        submission.work.spend(20 * (1 + name.count(".")))
        for part in name.split("."):
            check_queue_name(part, submission)
        return self.usable_path(name, submission, tree)

    def selects(self, submission: Submission) -> bool:
        """Whether the filter selects the user. Raises NameTooLongError, TooMuchWorkError."""
        selected = self.filter.selects(submission.user, submission.work)
        if self.filter.selects_everybody:
            return selected
        return submission.check(PlacementReason.RULE_FILTERED, submission.user.name, passed=selected)

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the rule by their names in the REST API."""
        return {"create": str(self.create).lower()}

    def describe(self) -> RuleView:
        """Return the rule's REST view."""
        parent = None if self.parent is None else self.parent.describe()
        return RuleView(name=self.name, parameters=self.parameters(), filter=self.filter.describe(), parent_rule=parent)

    def path_below_parent(self, name: str, submission: Submission, tree: Tree) -> str | None:
        """Return the path of a queue below the one that the parent rule finds, or below root."""
        above = self.parent_path(submission, tree)
        return None if above is None else self.usable_path(f"{above}.{name}", submission, tree)

    def usable_path(self, path: str, submission: Submission, tree: Tree) -> str | None:
        """Return the path if its queue exists or may be created."""
        usable = self.create or tree.find(path) is not None
        return path if submission.check(PlacementReason.QUEUE_MISSING, path, passed=usable) else None

    def parent_path(self, submission: Submission, tree: Tree) -> str | None:
        """Return the path that the parent rule finds, or root without a parent rule; None if it does not match."""
        if self.parent is None:
            return ROOT
        path = self.parent.apply(submission, tree)
        submission.check(PlacementReason.RULE_PARENT_UNMATCHED, path or "", passed=path is not None)
        if path is None:
            return None
        if not path.startswith(ROOT_PREFIX):
            path = ROOT_PREFIX + path  # even `root`, which becomes `root.root`, as in YuniKorn
        above = tree.find(path)
        if above is not None and above.leaf:
            submission.check(PlacementReason.RULE_PARENT_LEAF, path, passed=False)
            raise PlacementRejected(f"parent rule returned a leaf queue: {path}", PlacementReason.RULE_PARENT_LEAF)
        return path


def may_submit(queue: Queue, submission: Submission) -> bool:
    """Whether the submission's user may submit to the queue. The ACLs of each level are compared with each group."""
    submission.work.spend((1 + len(submission.user.groups)) * (1 + queue.path.count(".")))
    return queue.admits_submission(submission.user)


def check_queue_name(name: str, submission: Submission) -> str:
    """Return the name. Raises PlacementRejected if no queue can have it."""
    if not QUEUE.fullmatch(name):
        submission.check(PlacementReason.QUEUE_NAME_ILLEGAL, name, passed=False)
        raise PlacementRejected(ILLEGAL_QUEUE, PlacementReason.QUEUE_NAME_ILLEGAL)
    return name


def replace_dots(name: str, submission: Submission) -> str:
    """Return the name of the one queue that is named after `name`; with its dots it would be a path."""
    return check_queue_name(name.replace(".", DOT), submission)


# The rules ----------------------------------------------------------------------------------------------------------


class Provided(Rule):
    """The queue that the submission names. A partition without configured rules has this rule."""

    name = "provided"
    source = "queue of the submission"
    takes_paths = True

    def find_name(self, submission: Submission) -> str | None:
        return submission.request.queue_name or None


class Fixed(Rule):
    """One queue for every application, written in the rule. Dots in the value separate queues.

    A value that starts with `root` is the whole path. That includes `rooted`, which no queue can have: such a rule
    never matches and is useful as a parent only.
    """

    name = "fixed"
    source = "value of the rule"

    def __init__(self, config: PlacementRuleConfig, parent: Rule | None) -> None:
        super().__init__(config, parent)
        self.queue = config.value.lower()
        self.qualified = self.queue.startswith(ROOT)
        if wrong := placement_rules.check_fixed_queue(self.queue, has_parent=parent is not None):
            raise RuleError(wrong)

    def find_path(self, submission: Submission, tree: Tree) -> str | None:
        if not self.selects(submission):
            return None
        if self.qualified:
            return self.usable_path(self.queue, submission, tree)
        return self.path_below_parent(self.queue, submission, tree)

    def parameters(self) -> dict[str, str]:
        return {**super().parameters(), "qualified": str(self.qualified).lower(), "queue": self.queue}


class UserName(Rule):
    """A queue for each user. The name is always one queue: `root.bob` becomes `root_dot_bob`, `svc$` is an error."""

    name = "user"
    source = "name of the user"

    def find_name(self, submission: Submission) -> str | None:
        return submission.user.name


class PrimaryGroup(Rule):
    """A queue named after the user's first group. A user without groups does not match."""

    name = "primarygroup"
    source = "first group of the user"

    def find_name(self, submission: Submission) -> str | None:
        return next(iter(submission.user.groups), None)


class SecondaryGroup(Rule):
    """A queue named after the first of the user's other groups that has one, or for which the user may create one.

    The rule skips a group whose name no queue can have, and a group without a queue where the user may not submit. It
    does not check whether the user may submit to an existing queue; the chain checks that after every rule.
    """

    name = "secondarygroup"
    source = "other groups of the user"

    def find_path(self, submission: Submission, tree: Tree) -> str | None:
        groups = submission.user.groups[1:]
        shown = ", ".join(groups) if submission.trace is not None else ""
        if not submission.check(PlacementReason.RULE_NO_VALUE, shown, passed=bool(groups)):
            return None
        if not self.selects(submission):
            return None
        above = self.parent_path(submission, tree)
        if above is None:
            return None
        submission.work.spend(GROUP_WORK * len(groups))
        existing = tree.find_nearest(above) if self.create else None
        may_create = existing is not None and may_submit(existing, submission)  # alike for all groups without a queue
        for group in groups:
            try:
                path = f"{above}.{replace_dots(group, submission)}"
            except PlacementRejected:
                continue
            usable = may_create or tree.find(path) is not None
            if submission.check(PlacementReason.QUEUE_MISSING, path, passed=usable):
                return path
        return None


class Tag(Rule):
    """The queue that a tag of the application names, such as its namespace. The value is read as by `provided`."""

    name = "tag"
    takes_paths = True

    def __init__(self, config: PlacementRuleConfig, parent: Rule | None) -> None:
        super().__init__(config, parent)
        if wrong := placement_rules.check_tag(config.value):
            raise RuleError(wrong)
        self.tag = config.value.lower()
        self.source = f"tag {self.tag}"

    def find_name(self, submission: Submission) -> str | None:
        return tag_value(submission.request.tags, self.tag) or None

    def parameters(self) -> dict[str, str]:
        return {**super().parameters(), "tagName": self.tag}


class ApplicationType(Rule):
    """A queue for each type of application. A type is one queue name, never a path as the value of a `tag` rule may be.

    An application without a type does not match.
    """

    name = "applicationtype"
    source = f"tag {TYPE_TAG}"

    def find_name(self, submission: Submission) -> str | None:
        return tag_value(submission.request.tags, TYPE_TAG) or None


class Recovery(Rule):
    """The last rule of every chain: the recovery queue for forced applications, else the default queue if it exists.

    An RM forces applications that ran before the scheduler restarted. If the changed configuration has no queue for
    one, it is kept in the recovery queue instead of being killed. A configuration cannot name this rule.
    """

    name = "recovery"
    source = "default queue"

    def __init__(self) -> None:
        super().__init__(PlacementRuleConfig(name="recovery", create=True), None)

    def find_path(self, submission: Submission, tree: Tree) -> str | None:
        if submission.forced:
            return RECOVERY_QUEUE
        exists = tree.find(DEFAULT_QUEUE) is not None
        return DEFAULT_QUEUE if submission.check(PlacementReason.QUEUE_MISSING, DEFAULT_QUEUE, passed=exists) else None

    def parameters(self) -> dict[str, str]:
        return {"queue": RECOVERY_QUEUE}


# The chain of rules ---------------------------------------------------------------------------------------------------

IMPLICIT: Final = (PlacementRuleConfig(name="provided"),)
"""The rules of a configuration that names none."""


class PlacementChain:
    """The rules of one configuration. Immutable: a new configuration makes a new chain."""

    def __init__(self, rules: Sequence[PlacementRuleConfig]) -> None:
        self._rules: tuple[Rule, ...] = ()
        """In order, the recovery rule included; none if one cannot be built: then every application is rejected."""
        self.problem = ""
        """Why a rule cannot be built."""
        try:
            self._rules = (*(_build(rule) for rule in rules or IMPLICIT), Recovery())
        except RuleError as error:
            self.problem = str(error)

    def describe(self) -> list[RuleView]:
        """Return the REST view of every rule in order, the recovery rule included."""
        return [rule.describe() for rule in self._rules]

    def place(self, submission: Submission, tree: Tree) -> str:
        """Return the path of the application's queue, in the case of its source. The queue may not exist yet.

        Raises PlacementRejected with the whole text that the RM receives.
        """
        submission.work.left_for_one = APPLICATION_WORK_MAX
        stopped = ""
        try:
            for rule in self._rules:
                path = rule.apply(submission, tree)
                if path is not None and (
                    (path == RECOVERY_QUEUE and submission.forced) or _accepts(path, submission, tree)
                ):
                    if submission.trace is not None:
                        submission.trace.rules[-1].decides = True
                    return path
                stopped = stopped or ("" if path is None else tree.find_stop(path))
            why = f": queue {stopped} is stopped by an operator" if stopped else ""
            code = PlacementReason.RULES_INVALID if self.problem else PlacementReason.RULES_UNMATCHED
            raise PlacementRejected(f"application rejected: {NO_RULE_MATCHED}{why}", code)
        except REJECTIONS as error:
            code = error.code if isinstance(error, PlacementRejected) else PlacementReason.RULES_REFUSED
            reason = f"failed to place application {submission.request.application_id}: {error}"
            raise PlacementRejected(reason, code) from error


@lru_cache(maxsize=2)
def build_chain(rules: tuple[PlacementRuleConfig, ...]) -> PlacementChain:
    """Return the chain of these rules. The vote on a configuration and its commit need the same one, and compiling a
    thousand expressions takes a second.
    """
    return PlacementChain(rules)


def _build(config: PlacementRuleConfig) -> Rule:
    """Return the rule with its parent rules. Raises RuleError."""
    if wrong := placement_rules.check_rule_name(config):
        raise RuleError(wrong)
    parent = None if config.parent is None else _build(config.parent)
    try:
        return Rule.registry[config.name.lower()](config, parent)
    except placement_rules.ExpressionError as error:
        raise RuleError(placement_rules.describe_filter_error(config.name, error)) from error


def _accepts(path: str, submission: Submission, tree: Tree) -> bool:
    """Whether the queue accepts the application, or could be created for it. Stopped queues, and those below them, only
    accept applications that probably run already.

    For a queue to be created, only the ACLs of the nearest existing queue count. If that queue is a leaf or drains,
    creating the queue fails later and rejects the application, as in YuniKorn.
    """
    queue, check = tree.find(path), submission.check
    stop = "" if submission.forced else tree.find_stop(path)
    if stop:
        return check(PlacementReason.QUEUE_STOPPED, stop, passed=False)
    if queue is None:
        above = tree.find_nearest(path)
        if above is None:
            return check(PlacementReason.QUEUE_OUTSIDE_ROOT, path, passed=False)
        return check(PlacementReason.QUEUE_ACL, above.path, passed=may_submit(above, submission))
    return (
        check(PlacementReason.QUEUE_PARENT, path, passed=queue.leaf)
        and check(PlacementReason.QUEUE_ENDING, path, passed=not queue.draining)
        and check(PlacementReason.QUEUE_ACL, path, passed=may_submit(queue, submission))
    )
