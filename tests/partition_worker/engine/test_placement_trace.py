import contextlib

from tests.partition_worker.engine.placement_builders import BOB, FakeTree, leaf, parent, rule, submission
from yunishard.common.rest.views import RuleView
from yunishard.partition_worker.engine.durable_records import OperatorMark
from yunishard.partition_worker.engine.placement import PlacementChain, PlacementRejected, Submission
from yunishard.partition_worker.engine.placement_trace import (
    CHECKS_MAX,
    PlacementCheck,
    PlacementTrace,
    find_failed_check,
)
from yunishard.partition_worker.engine.user_resolution import User
from yunishard.partition_worker.placement_reasons import PlacementReason

OTHER = RuleView(name="user", parameters={}, filter=None, parent_rule=None)


def traced(chain: PlacementChain, queue: str, places: FakeTree, user: User = BOB) -> PlacementTrace:
    trace = PlacementTrace()
    one = submission(queue, user=user)
    with contextlib.suppress(PlacementRejected):
        chain.place(Submission(one.request, user, trace=trace), places)
    return trace


def checks(trace: PlacementTrace) -> list[list[tuple[str, str, bool]]]:
    return [[(str(one.code), one.subject, one.passed) for one in rule.checks] for rule in trace.rules]


def test_the_checks_of_each_rule_that_is_tried_are_kept_in_order() -> None:
    chain = PlacementChain([rule("user"), rule("provided", only="bob"), rule("fixed", value="root.b")])
    trace = traced(chain, "root.a", FakeTree(leaf("root.a"), leaf("root.b")))
    assert checks(trace) == [
        [("rule-no-value", "bob", True), ("queue-missing", "root.bob", False)],
        [
            ("rule-no-value", "root.a", True),
            ("rule-filtered", "bob", True),
            ("queue-missing", "root.a", True),
            ("queue-parent", "root.a", True),
            ("queue-ending", "root.a", True),
            ("queue-acl", "root.a", True),
        ],
    ]
    assert [(one.path, one.decides) for one in trace.rules] == [("", False), ("root.a", True)]


def test_a_stopped_queue_is_the_check_that_fails() -> None:
    tree = FakeTree(leaf("root.p.a"))
    tree.stops["root.p"] = OperatorMark()
    trace = traced(PlacementChain([rule("provided")]), "root.p.a", tree)
    assert find_failed_check(trace.rules[0].checks) == PlacementCheck(
        PlacementReason.QUEUE_STOPPED, "root.p", passed=False
    )


def test_a_parent_rule_is_traced_inside_its_rule() -> None:
    chain = PlacementChain([rule("user", create=True, parent=rule("primarygroup"))])
    trace = traced(chain, "", FakeTree(parent("root.dev")))
    outer = trace.rules[0]
    assert outer.parent is not None
    assert (outer.parent.view.name, outer.parent.path) == ("primarygroup", "root.dev")
    assert checks(trace)[0][1:3] == [
        ("rule-parent-unmatched", "root.dev", True),
        ("queue-missing", "root.dev.bob", True),
    ]
    assert outer.checks[-1] == PlacementCheck(PlacementReason.QUEUE_ACL, "root.dev", passed=True)


def test_a_rule_that_rejects_the_application_has_the_reason() -> None:
    trace = traced(PlacementChain([rule("provided"), rule("user")]), "a b", FakeTree())
    [only] = trace.rules
    assert only.error.startswith("invalid queue name")
    assert find_failed_check(only.checks) == PlacementCheck(PlacementReason.QUEUE_NAME_ILLEGAL, "a b", passed=False)


def test_checks_beyond_the_bound_are_counted() -> None:
    user = User("bob", ("first", *(f"g{number}" for number in range(CHECKS_MAX + 5))))
    trace = traced(PlacementChain([rule("secondarygroup")]), "", FakeTree(), user)
    assert (len(trace.rules[0].checks), trace.rules[0].left_out) == (CHECKS_MAX, 6)


def test_a_rule_whose_last_check_passed_was_not_stopped() -> None:
    trace = PlacementTrace()
    assert find_failed_check(trace.begin_rule(OTHER, "").checks) is None
    trace.add_check(PlacementReason.QUEUE_MISSING, "root.a", passed=False)
    trace.add_check(PlacementReason.QUEUE_MISSING, "root.b", passed=True)
    assert find_failed_check(trace.rules[0].checks) is None
