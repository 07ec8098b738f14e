"""Draws explanations: why something waits, and what would help; and where an application would be placed.

The summary comes first, then the checks in the order of the scheduler, so that a reader may stop at any line. Words
carry the meaning: `passed`, `STOPS`; colours only repeat it.

Not here: requests (`explain.py`), making explanations (`partition_worker/engine/explain/`).
"""

import shlex
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from yunishard.cli.commands.display import BAD, GOOD, QUIET, STRONG, WARNING, Screen, draw_heading, draw_table
from yunishard.common.messages.reasons import MEANINGS, Reason
from yunishard.common.process.terminal import clean
from yunishard.common.rest.explain import CheckView, ExplanationView, RemedyView
from yunishard.common.text_formats import format_amount, format_seconds

REMEDIES_OF_ASK: Final = 2
"""Remedies shown for each of several asks; the explanation of the ask has all."""

_WIDTH_MIN: Final = 30
"""Characters of a wrapped text, however narrow the terminal is."""


def draw_explanation(screen: Screen, one: ExplanationView, now_ns: int) -> list[str]:
    """Return the lines of an explanation."""
    lines = [*_draw_title(screen, one, now_ns), "", *wrap(screen, one.summary, colour=STRONG)]
    if one.kind == "application" and len(one.asks) == 1:  # its checks repeat those of the application
        ask = one.asks[0]
        if ask.count > 1 or ask.state != "pending":
            lines += ["", *_draw_title(screen, ask, now_ns)]
        return lines + _draw_body(screen, ask if ask.ahead else structs.replace(ask, ahead=one.ahead))
    lines += _draw_body(screen, one)
    if one.asks:
        lines += draw_heading(screen, "The asks that wait, one line for equal ones")
        shown = {remedy.text for remedy in one.remedies}
        for ask in one.asks:
            lines += _draw_ask(screen, ask, now_ns, shown)
            shown.update(remedy.text for remedy in ask.remedies)
    return lines


def _draw_title(screen: Screen, one: ExplanationView, now_ns: int) -> list[str]:
    facts = [f"{one.kind} {one.name}", one.state]
    if one.count > 1:
        facts.append(f"{one.count:,} equal asks" if one.kind == "ask" else f"{one.count:,} asks wait")
    if one.since:
        facts.append(f"waiting for {format_seconds((now_ns - one.since) / 1e9)}")
    if one.stopped_by:
        facts.append(one.stopped_by)
    return wrap(screen, " · ".join(fact for fact in facts if fact), colour=QUIET)


def _draw_body(screen: Screen, one: ExplanationView) -> list[str]:
    """Return all parts but the title, the summary and the asks."""
    lines: list[str] = []
    is_of_many = one.kind == "application" and len(one.asks) > 1
    if one.checks and not (is_of_many and all(check.passed for check in one.checks)):  # those of its asks tell
        lines += draw_heading(screen, "Checks, in the order of the scheduler")
        lines += _draw_checks(screen, one)
    if one.remedies:
        ask = one.asks[0] if is_of_many else one
        name = ask.name if is_of_many else "it"
        which = f"{name}, one of {ask.count:,} equal asks," if ask.kind == "ask" and ask.count > 1 else name
        lines += draw_heading(screen, f"What would let {which} run, the smallest change first")
        for number, remedy in enumerate(one.remedies, 1):
            lines += wrap(screen, _describe_remedy(remedy), first=f"{number:3}. ")
        if ask.nodes and ask.nodes.keys() == {Reason.NODE_TOO_SMALL}:
            lines += wrap(screen, "Or lower the ask to what a node has.", first="  ")
        if one.ahead:
            lines += wrap(screen, "Those tried before it (below) may take what this frees.", first="  ")
    elif one.stopped_by == Reason.NO_NODE_FITS and not is_of_many:
        lines += draw_heading(screen, "What would let it run")
        lines += wrap(screen, "The ask has to change, or the RM has to report nodes that it accepts.", first="  ")
    holders = _find_holders(one)
    if holders:
        lines += draw_heading(screen, "Who has it now")
        lines += wrap(screen, holders, first="  ")
    if one.nodes.keys() - {Reason.NODE_FITS}:  # if all fit, a check states it
        lines += draw_heading(screen, "Nodes by reason")
        lines += _draw_codes(screen, one.nodes, "NODES")
    if one.nearest:
        lines += draw_heading(screen, "Nearest nodes")
        for miss in one.nearest:
            lines += wrap(screen, miss.text, first=f"  {clean(miss.node)}  ")
    if one.reservations:
        lines += draw_heading(screen, "Reserved nodes")
        for reservation in one.reservations:
            lines += wrap(screen, reservation.text, first=f"  {clean(reservation.node)}  ")
    if one.ahead:
        lines += draw_heading(screen, "Tried before it")
        for number, ahead in enumerate(one.ahead, 1):
            lines += wrap(screen, ahead.text, first=f"{number:3}. ")
    if one.reasons:
        lines += draw_heading(screen, "Waiting asks by reason")
        lines += _draw_codes(screen, one.reasons, "ASKS")
    return lines


_HELD: Final = frozenset(
    {
        *(Reason.QUEUE_MAXIMUM, Reason.USER_LIMIT, Reason.GROUP_LIMIT),
        *(Reason.QUEUE_APPLICATION_LIMIT, Reason.USER_APPLICATION_LIMIT, Reason.GROUP_APPLICATION_LIMIT),
    }
)
"""Reasons of an ask that waits for what other applications have."""


def _find_holders(one: ExplanationView) -> str:
    """Return the command that lists the applications that have what the ask waits for; empty if it is not theirs."""
    stop = next((check for check in one.checks if not check.passed and check.code == one.stopped_by), None)
    if stop is None or stop.code not in _HELD or not stop.queue:
        return ""
    words = ["yunishard", "app", "list", "--queue", stop.queue, *(("--user", stop.user) if stop.user else ())]
    return shlex.join([*words, "--sort", "-used"])


def _draw_checks(screen: Screen, one: ExplanationView) -> list[str]:
    lines: list[str] = []
    is_stopped = False
    for check in one.checks:
        if check.passed:
            word, colour = "passed", GOOD
        elif not is_stopped and one.stopped_by in ("", check.code):
            word, colour, is_stopped = "STOPS", BAD, True
        elif check.code.startswith("preemption-"):
            word, colour = "note", QUIET  # it would help the ask, but nothing demands it
        else:
            word, colour = "fails", WARNING
        lines += draw_mark(screen, word, colour, _describe_check(check))
    return lines


def draw_mark(screen: Screen, word: str, colour: str, text: str, *, indent: str = "  ") -> list[str]:
    """Return the lines of a check: its result in a word, then the text."""
    lines = wrap(screen, text, first=f"{indent}{word:6}  ")
    return [lines[0].replace(word, screen.paint(word, colour), 1), *lines[1:]]


def _describe_check(check: CheckView) -> str:
    """The text, with the shortfall unless it has it; that about nodes states how far each of several is from it."""
    if check.passed or not check.shortfall or not check.resource or check.code == Reason.NO_NODE_FITS:
        return check.text
    amount = format_amount(check.resource, check.shortfall)
    return check.text if amount in check.text else f"{check.text} (short by {amount})"


def _describe_remedy(remedy: RemedyView) -> str:
    if remedy.seconds and "at most" not in remedy.text and "latest" not in remedy.text:
        return f"{remedy.text} ({format_seconds(remedy.seconds)} at the latest)"
    return remedy.text


def _draw_codes(screen: Screen, numbers: Mapping[str, int], heading: str) -> list[str]:
    """Return a table of codes with their meaning, the most frequent first."""
    meanings = {str(code): text for code, text in MEANINGS.items()}
    ordered = sorted(numbers.items(), key=lambda one: (-one[1], one[0]))
    rows = [(f"{number:,}", code, meanings.get(code, "")) for code, number in ordered]
    return [f"  {line}" for line in draw_table(_narrower(screen), (heading, "REASON", "MEANING"), rows, right={0})]


def _draw_ask(screen: Screen, ask: ExplanationView, now_ns: int, shown: Collection[str]) -> list[str]:
    """Return a few lines about one of several asks, without remedies that are shown; its own explanation has all."""
    lines = [*_draw_title(screen, ask, now_ns), *wrap(screen, ask.summary, first="  ")]
    for remedy in [one for one in ask.remedies[:REMEDIES_OF_ASK] if one.text not in shown]:
        lines += wrap(screen, _describe_remedy(remedy), first="    would help: ")
    return lines


# Text -----------------------------------------------------------------------------------------------------------------


def _narrower(screen: Screen) -> Screen:
    """The screen for lines that are indented by two characters."""
    width = max(1, screen.width - 2) if screen.width else 0
    return replace(screen, width=width)


def wrap(screen: Screen, text: str, *, first: str = "", colour: str = "") -> list[str]:
    """Return the lines of a text; on a terminal none is longer than it is wide, and further ones are indented."""
    text = clean(text)
    if not screen.width:
        return [screen.paint(first + text, colour)]
    indent = " " * min(len(first), 10)
    width = max(_WIDTH_MIN, screen.width)
    lines = textwrap.wrap(text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    return [screen.paint(line, colour) for line in lines or [first.rstrip()]]
