"""Explanations as text: the summary first, then the checks in order, then what would help."""

from msgspec import structs

from yunishard.cli.commands.display import Screen
from yunishard.cli.commands.explanation import draw_explanation
from yunishard.common.rest.explain import (
    AheadView,
    CheckView,
    ExplanationView,
    NearMissView,
    RemedyView,
    ReservationView,
)

NOW = 10**18
PLAIN = Screen()

ASK = ExplanationView(
    kind="ask",
    name="task-1",
    state="pending",
    summary="Waits because root.a is full.",
    since=NOW - 200 * 10**9,
    stopped_by="queue-maximum",
    count=3,
    checks=[
        CheckView(code="queue-stopped", passed=True, text="root.a takes asks"),
        CheckView(
            code="queue-maximum",
            passed=False,
            text="root.a: 4 vcore of 4 vcore used",
            resource="vcore",
            used=4000,
            maximum=4000,
            asked=1500,
            shortfall=1500,
        ),
        CheckView(code="preemption-delay", passed=False, text="it is too early to preempt"),
    ],
    ahead=[AheadView(text="app-0 was submitted before")],
    nodes={"node-fits": 2, "node-full": 17, "new-code": 1},
    nearest=[NearMissView(node="node-1", code="node-full", text="short by 1 vcore")],
    reservations=[ReservationView(node="node-2", text="reserved for an ask that you may not see")],
    remedies=[
        RemedyView(code="raise-maximum", text="raise the maximum of root.a by 1.5 vcore"),
        RemedyView(code="wait", text="wait for app-17", seconds=40),
    ],
)


def test_an_ask_is_explained_from_the_summary_to_what_is_ahead() -> None:
    assert draw_explanation(PLAIN, ASK, NOW)[:13] == [
        "ask task-1 · pending · 3 equal asks · waiting for 3 min 20 s · queue-maximum",
        "",
        "Waits because root.a is full.",
        "",
        "Checks, in the order of the scheduler",
        "  passed  root.a takes asks",
        "  STOPS   root.a: 4 vcore of 4 vcore used (short by 1.5 vcore)",
        "  note    it is too early to preempt",
        "",
        "What would let it, one of 3 equal asks, run, the smallest change first",
        "  1. raise the maximum of root.a by 1.5 vcore",
        "  2. wait for app-17 (40 s at the latest)",
        "  Those tried before it (below) may take what this frees.",
    ]


def test_where_nothing_is_known_to_help_it_says_so() -> None:
    ask = structs.replace(ASK, stopped_by="no-node-fits", remedies=[])
    lines = draw_explanation(PLAIN, ask, NOW)
    at = lines.index("What would let it run")
    assert lines[at + 1] == "  The ask has to change, or the RM has to report nodes that it accepts."


def test_a_command_lists_the_applications_that_have_what_an_ask_waits_for() -> None:
    full = structs.replace(ASK.checks[1], queue="root.a")
    limit = structs.replace(full, code="user-limit", user="ann x")
    texts = {
        code: draw_explanation(PLAIN, structs.replace(ASK, stopped_by=code, checks=[check]), NOW)
        for code, check in (("queue-maximum", full), ("user-limit", limit), ("cluster-full", full))
    }
    assert "  yunishard app list --queue root.a --sort -used" in texts["queue-maximum"]
    assert "  yunishard app list --queue root.a --user 'ann x' --sort -used" in texts["user-limit"]
    assert "Who has it now" not in texts["cluster-full"]


def test_nodes_are_counted_by_reason_the_most_frequent_first_also_those_of_a_later_release() -> None:
    lines = draw_explanation(PLAIN, ASK, NOW)
    at = lines.index("Nodes by reason")
    assert [line.split()[:2] for line in lines[at + 2 : at + 5]] == [
        ["17", "node-full"],
        ["2", "node-fits"],
        ["1", "new-code"],
    ]
    assert lines[at + 5 :] == [
        "",
        "Nearest nodes",
        "  node-1  short by 1 vcore",
        "",
        "Reserved nodes",
        "  node-2  reserved for an ask that you may not see",
        "",
        "Tried before it",
        "  1. app-0 was submitted before",
    ]


def test_words_carry_the_meaning_and_colours_repeat_it() -> None:
    coloured = draw_explanation(Screen(is_terminal=True, has_colours=True), ASK, NOW)
    assert "  \x1b[31mSTOPS\x1b[0m   root.a: 4 vcore of 4 vcore used (short by 1.5 vcore)" in coloured
    assert "  \x1b[32mpassed\x1b[0m  root.a takes asks" in coloured


def test_no_line_is_wider_than_the_terminal() -> None:
    long = ExplanationView(
        kind="node",
        name="n",
        state="schedulable",
        summary="word " * 60,
        reasons={"queue-maximum": 5, "cluster-full": 2},
    )
    for one in (ASK, long):
        assert max(map(len, draw_explanation(Screen(is_terminal=True, width=40), one, NOW))) <= 70
        assert max(map(len, draw_explanation(Screen(is_terminal=True, width=80), one, NOW))) <= 80


def test_names_cannot_move_the_cursor() -> None:
    evil = ExplanationView(kind="node", name="\x1b[2J", state="schedulable", summary="a\x07b\nc")
    text = "".join(draw_explanation(PLAIN, evil, NOW))
    assert text.isprintable()


def test_an_application_with_one_kind_of_ask_is_explained_by_it() -> None:
    one = ExplanationView(
        kind="application",
        name="app-1",
        state="running",
        summary="3 asks wait.",
        count=3,
        checks=ASK.checks,
        ahead=ASK.ahead,
        asks=[ASK],
    )
    lines = draw_explanation(PLAIN, one, NOW)
    assert lines[0] == "application app-1 · running · 3 asks wait"
    assert lines[4].startswith("ask task-1 · pending")
    assert sum(line.startswith("Checks") for line in lines) == 1


def test_an_application_with_one_ask_has_one_title_and_no_table_of_nodes_that_all_fit() -> None:
    ask = structs.replace(ASK, count=1, nodes={"node-fits": 2}, nearest=[])
    one = ExplanationView(
        kind="application", name="app-1", state="running", summary="Ask task-1 waits.", count=1, asks=[ask]
    )
    lines = draw_explanation(PLAIN, one, NOW)
    assert lines[:5] == [
        "application app-1 · running",
        "",
        "Ask task-1 waits.",
        "",
        "Checks, in the order of the scheduler",
    ]
    assert "Nodes by reason" not in lines


def test_remedies_that_are_shown_already_are_not_repeated_for_each_ask() -> None:
    one = ExplanationView(
        kind="application",
        name="app-1",
        state="running",
        summary="6 asks wait.",
        count=6,
        checks=[CheckView(code="queue-stopped", passed=True, text="root.a takes asks")],
        remedies=ASK.remedies,
        asks=[ASK, structs.replace(ASK, name="task-2")],
    )
    lines = draw_explanation(PLAIN, one, NOW)
    assert lines[4] == "What would let task-1, one of 3 equal asks, run, the smallest change first"
    assert not any("would help" in line for line in lines)


def test_of_several_asks_each_gets_a_few_lines() -> None:
    one = ExplanationView(kind="queue", name="root.a", state="active", summary="6 asks wait.", count=6, asks=[ASK, ASK])
    lines = draw_explanation(PLAIN, one, NOW)
    at = lines.index("The asks that wait, one line for equal ones")
    assert lines[at + 1 : at + 5] == [
        "ask task-1 · pending · 3 equal asks · waiting for 3 min 20 s · queue-maximum",
        "  Waits because root.a is full.",
        "    would help: raise the maximum of root.a by 1.5 vcore",
        "    would help: wait for app-17 (40 s at the latest)",
    ]
