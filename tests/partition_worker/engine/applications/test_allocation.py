"""From a message to an allocation, and what the RM is told of it."""

import pytest

from common import rm_messages
from common.messages import INT64_MAX
from partition_worker.engine.applications.allocation import from_message
from partition_worker.engine.ask_shapes import Needs
from tests.builders import apps as new_apps
from tests.builders import ask, asks, nodes
from tests.trial import Trial

STAMP_NS = 1_700_000_000_000_000_123


def test_everything_of_the_message_is_kept() -> None:
    one = from_message(
        ask("app-1 a1 memory=4 priority=3 group=tg placeholder originator victim tag.x=y"),
        None,
        stamp_ns=STAMP_NS,
        needs=Needs(),
    )
    assert (one.key, one.resources, one.priority, one.task_group) == ("a1", {"memory": 4}, 3, "tg")
    assert (one.placeholder, one.originator, one.tags) == (True, True, {"x": "y"})
    assert one.preemption_policy == rm_messages.PreemptionPolicy(allow_preempt_self=True)
    assert (one.created_ns, one.node_id) == (STAMP_NS, "")


@pytest.mark.parametrize(
    ("tag", "created_ns"),
    [
        ("1600000000", 1_600_000_000 * 10**9),
        ("0", 0),
        ("1800000000", 1_800_000_000 * 10**9),  # the future
        ("99999999999", INT64_MAX),
        ("999999999999", STAMP_NS),
        ("-5", STAMP_NS),
        ("1.5", STAMP_NS),
        ("soon", STAMP_NS),
        ("", STAMP_NS),
        ("٣", STAMP_NS),
    ],
)
def test_the_creation_time_is_whole_seconds_or_else_now(tag: str, created_ns: int) -> None:
    one = from_message(ask(f"app-1 a1 memory=4 tag.creationTime={tag}"), None, stamp_ns=STAMP_NS, needs=Needs())
    assert one.created_ns == created_ns


def test_a_message_and_its_allocation_do_not_share_amounts() -> None:
    message = ask("app-1 a1 memory=4")
    one = from_message(message, None, stamp_ns=STAMP_NS, needs=Needs())
    one.resources["memory"] = 5
    assert message.resource_per_alloc == {"memory": 4}


def test_the_rm_is_told_only_what_it_needs_to_act() -> None:
    """Spec 1.5: no tags, priority or partition."""
    text = "app-1 a1 memory=4 priority=3 group=tg originator victim tag.x=y"
    trial = Trial().does(nodes("n1 memory=9"), new_apps("app-1 root.a"), asks(text))
    (told,) = (effect.part for effect in trial.effects if isinstance(effect.part, rm_messages.Allocation))
    assert told == rm_messages.Allocation(
        allocation_key="a1",
        application_id="app-1",
        node_id="n1",
        resource_per_alloc={"memory": 4},
        task_group_name="tg",
        originator=True,
        preemption_policy=rm_messages.PreemptionPolicy(allow_preempt_self=True),
    )
