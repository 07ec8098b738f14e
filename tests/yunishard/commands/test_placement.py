"""Explained placements as text, rule by rule."""

from yunishard.cli.commands.display import Screen
from yunishard.cli.commands.placement import draw_placement
from yunishard.common.rest.explain import (
    PlacementAccessView,
    PlacementCheckView,
    PlacementExplanationView,
    PlacementLimitView,
    PlacementRuleView,
    PlacementTemplateView,
)
from yunishard.common.rest.views import FilterView


def test_an_accepted_application_shows_the_rule_the_queue_and_the_limits() -> None:
    rules = [
        PlacementRuleView(name="tag", outcome="no-match", stopped_by="rule-no-value"),
        PlacementRuleView(
            name="user",
            parameters={"create": "true"},
            filter=FilterView(type="allow", user_list=["alice"], group_exp="dev.*"),
            outcome="placed",
            queue="root.users.alice",
            checks=[PlacementCheckView(code="queue-missing", passed=True, text="root.users.alice can be created")],
            more_checks=7,
            parent_rule=PlacementRuleView(name="fixed", outcome="matched", queue="root.users"),
        ),
    ]
    one = PlacementExplanationView(
        kind="placement",
        name="alice",
        state="accepted",
        summary="It is placed in root.users.alice.",
        groups=["dev"],
        queue="root.users.alice",
        rules=rules,
        created=["root.users.alice"],
        access=PlacementAccessView(queue="root", acl="submitacl", entry="*"),
        template=PlacementTemplateView(queue="root.users", max_applications=3, max_resource={"vcore": 2000}),
        limits=[
            PlacementLimitView(queue="root.users", maximum={"vcore": 8000}, used={"vcore": 500}, max_applications=9),
            PlacementLimitView(queue="root", user="alice"),
        ],
        checks=[
            PlacementCheckView(code="queue-application-limit", passed=False, text="root.users may run 9 applications")
        ],
        problems=["namespace.resourcequota: not JSON"],
    )
    assert draw_placement(Screen(), one) == [
        "application of user alice · groups dev · accepted",
        "",
        "It is placed in root.users.alice.",
        "",
        "Placement rules, in their order",
        "  1. no match: tag, rule-no-value",
        "  2. DECIDES: user create=true, filter: allow users alice; groups like dev.*, gives root.users.alice",
        "     parent rule gives a queue: fixed, gives root.users",
        "     passed  root.users.alice can be created",
        "     and 7 checks more",
        "",
        "Queue",
        "  queue      root.users.alice",
        "  created    root.users.alice",
        "  access by  submitacl of root (*)",
        "  template   of root.users: maximum 2 vcore, applications 3",
        "",
        "Limits that apply",
        "  root.users: at most 8 vcore; used 0.5 vcore; 0 of 9 applications run",
        "  root for user alice: unlimited",
        "",
        "Whether it may start now",
        "  waits   root.users may run 9 applications",
        "",
        "Tags without an effect",
        "  namespace.resourcequota: not JSON",
    ]


def test_a_rejected_application_shows_the_message_of_the_rm() -> None:
    one = PlacementExplanationView(
        kind="placement",
        name="eve",
        state="rejected",
        summary="No rule takes it.",
        stopped_by="rules-unmatched",
        message="application rejected: no placement rule matched",
        rules=[
            PlacementRuleView(
                name="provided",
                outcome="rejected",
                checks=[PlacementCheckView(code="queue-acl", passed=False, text="root denies it")],
            )
        ],
    )
    lines = draw_placement(Screen(is_terminal=True, has_colours=True), one)
    assert lines[0] == "\x1b[2mapplication of user eve · rejected · rules-unmatched\x1b[0m"
    assert lines[3] == "The RM receives: application rejected: no placement rule matched"
    assert lines[6:8] == ["  1. \x1b[31mREJECTS\x1b[0m: provided", "     \x1b[31mfails\x1b[0m   root denies it"]
