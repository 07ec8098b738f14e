"""Draws where an application would be placed, rule by rule, or why it would be rejected.

Not here: requests (`explain.py`), the trace of the rules (`partition_worker/engine/placement_trace.py`).
"""

from typing import Final

from yunishard.cli.commands.display import BAD, GOOD, QUIET, STRONG, WARNING, Screen, Text, draw_facts, draw_heading
from yunishard.cli.commands.explanation import draw_mark, wrap
from yunishard.common.process.terminal import clean
from yunishard.common.rest.explain import PlacementExplanationView, PlacementLimitView, PlacementRuleView, RuleOutcome
from yunishard.common.rest.views import FilterView
from yunishard.common.text_formats import format_resources

_OUTCOMES: Final[dict[RuleOutcome, tuple[str, str]]] = {
    "placed": ("DECIDES", GOOD),
    "matched": ("gives a queue", GOOD),
    "refused": ("refused", WARNING),
    "rejected": ("REJECTS", BAD),
    "no-match": ("no match", QUIET),
    "not-tried": ("not tried", QUIET),
}
"""The outcome of a rule in words, with a colour."""


def draw_placement(screen: Screen, one: PlacementExplanationView) -> list[str]:
    """Return the lines of an explained placement."""
    facts = [f"application of user {one.name}", f"groups {', '.join(one.groups)}" if one.groups else "", one.state]
    facts.append(one.stopped_by)
    lines = [screen.paint(clean(" · ".join(fact for fact in facts if fact)), QUIET), ""]
    lines += wrap(screen, one.summary, colour=STRONG)
    if one.message and one.message not in one.summary:
        lines += wrap(screen, one.message, first="The RM receives: ")
    if one.rules:
        lines += draw_heading(screen, "Placement rules, in their order")
        for number, rule in enumerate(one.rules, 1):
            lines += _draw_rule(screen, rule, f"{number}.", indent="  ")
    lines += _draw_queue(screen, one)
    if one.limits:
        lines += draw_heading(screen, "Limits that apply")
        lines += [line for limit in one.limits for line in wrap(screen, _describe_limit(limit), first="  ")]
    if one.checks:
        lines += draw_heading(screen, "Whether it may start now")
        for check in one.checks:
            mark = ("passed", GOOD) if check.passed else ("waits", WARNING)
            lines += draw_mark(screen, *mark, check.text, indent="  ")
    if one.problems:
        lines += draw_heading(screen, "Tags without an effect")
        lines += [line for problem in one.problems for line in wrap(screen, problem, first="  ")]
    return lines


def _draw_rule(screen: Screen, rule: PlacementRuleView, number: str, *, indent: str) -> list[str]:
    word, colour = _OUTCOMES[rule.outcome]
    name = " ".join([rule.name, *(f"{key}={value}" for key, value in sorted(rule.parameters.items()))])
    facts = [name, f"filter: {_describe_filter(rule.filter)}" if rule.filter else ""]
    facts += [f"gives {rule.queue}" if rule.queue else "", rule.stopped_by]
    text = wrap(screen, f"{word}: {', '.join(fact for fact in facts if fact)}", first=f"{indent}{number} ")
    lines = [text[0].replace(word, screen.paint(word, colour), 1), *text[1:]]
    if rule.parent_rule is not None:
        lines += _draw_rule(screen, rule.parent_rule, "parent rule", indent=f"{indent}   ")
    for check in rule.checks:
        mark = ("passed", GOOD) if check.passed else ("fails", WARNING if rule.outcome != "rejected" else BAD)
        lines += draw_mark(screen, *mark, check.text, indent=f"{indent}   ")
    if rule.more_checks:
        lines.append(f"{indent}   and {rule.more_checks:,} checks more")
    return lines


def _describe_filter(one: FilterView) -> str:
    lists = (("users", one.user_list), ("groups", one.group_list))
    facts = [f"{name} {', '.join(names)}" for name, names in lists if names]
    facts += [f"{name} like {text}" for name, text in (("users", one.user_exp), ("groups", one.group_exp)) if text]
    return " ".join([one.type, "; ".join(facts)]).strip()


def _draw_queue(screen: Screen, one: PlacementExplanationView) -> list[str]:
    """Return the queue, and all that follows from it."""
    if not one.queue:
        return []
    template = ""
    if one.template is not None:
        settings = {
            "maximum": format_resources(one.template.max_resource) if one.template.max_resource else "",
            "guaranteed": format_resources(one.template.guaranteed_resource)
            if one.template.guaranteed_resource
            else "",
            "applications": str(one.template.max_applications) if one.template.max_applications else "",
            **one.template.properties,
        }
        texts = ", ".join(f"{name} {value}" for name, value in settings.items() if value)
        template = f"of {one.template.queue}: {texts or 'sets nothing'}"
    access = f"{one.access.acl} of {one.access.queue} ({one.access.entry})" if one.access else ""
    facts: list[tuple[str, Text]] = [
        ("queue", one.queue),
        ("created", ", ".join(one.created)),
        ("access by", access),
        ("template", template),
    ]
    return [*draw_heading(screen, "Queue"), *(f"  {line}" for line in draw_facts(screen, facts))]


def _describe_limit(one: PlacementLimitView) -> str:
    whose = f" for user {one.user}" if one.user else f" for group {one.group}" if one.group else ""
    facts = []
    if one.maximum is not None:
        facts.append(f"at most {format_resources(one.maximum, limit=True)}; used {format_resources(one.used)}")
    if one.guaranteed:
        facts.append(f"guaranteed {format_resources(one.guaranteed)}")
    if one.max_applications:
        facts.append(f"{one.running_applications:,} of {one.max_applications:,} applications run")
    return f"{one.queue}{whose}: {'; '.join(facts) or 'unlimited'}"
