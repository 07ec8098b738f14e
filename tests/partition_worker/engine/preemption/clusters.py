"""A cluster in a few words, and the question who has to go in it."""

from collections.abc import Callable

import pytest

from tests.builders import apps, asks, nodes
from tests.trial import Trial
from yunishard.common.messages.kinds import Resources
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.preemption.victim_candidates import GuaranteeShare
from yunishard.partition_worker.engine.state import Preempt


def cluster(queues: str, *parts: str) -> Trial:
    """Queues, each leaf with an application of its own name, and what runs: `n1 memory=10` is a node, and
    `root.a r1 n1 memory=2` an allocation that agreed to go (not so if `unwilling`). Of two allocations the later one is
    the newer, unless they say when they were created (in seconds).
    """
    trial = Trial(queues)
    trial.takes(apps(*(f"{queue.path} {queue.path}" for queue in trial.partition.tree if queue.leaf)))
    for age, part in enumerate(parts):
        first, key, *rest = part.split()
        if "=" in key:
            trial.takes(nodes(part))
        else:
            node, *words = rest
            created = [] if "created=" in part else [f"created={1000 + age}"]
            flags = [] if "unwilling" in words else ["victim"]
            text = [word for word in words if word != "unwilling"]
            trial.takes(asks(" ".join((first, key, f"on={node}", *flags, *created, *text))))
    return trial


def remaining(share: GuaranteeShare) -> Resources | None:
    """What is left of the guarantees that bind, per type; None if none does."""
    return {kind: min(level[kind] for level in levels) for kind, levels in share.bounds.items()} or None


def question(trial: Trial, text: str) -> Allocation:
    """An ask that may preempt: `root.b ask memory=5`."""
    application, key, *rest = text.split()
    trial.takes(asks(" ".join((application, key, "preemptor", *rest))))
    return trial.app(application).requests[key]


Admits = Callable[[Allocation, Node], bool]
"""Whether the predicates accept an ask on a node."""


def plan_for(trial: Trial, ask: Allocation, *, tried: bool, admits: Admits | None = None) -> Preempt | str:
    """Who has to go for this ask."""
    with pytest.MonkeyPatch.context() as patch:
        if admits is not None:
            patch.setattr(trial.partition.nodes, "is_accepted", lambda shape, node: admits(ask, node))
        return victim_choice.plan_victims(trial.partition, trial.app(ask.application_id), ask, nodes_tried=tried)


def plan(trial: Trial, text: str, *, tried: bool = True, admits: Admits | None = None) -> Preempt | str:
    """Who has to go for an ask of these words."""
    return plan_for(trial, question(trial, text), tried=tried, admits=admits)


def victims(trial: Trial, text: str, *, tried: bool = True) -> list[str]:
    """Their keys; nobody if there is no plan."""
    found = plan(trial, text, tried=tried)
    return [] if isinstance(found, str) else [victim.key for victim in found.victims]
