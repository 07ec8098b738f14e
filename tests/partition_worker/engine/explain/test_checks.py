"""Waiting asks by reason, against the explanation of each group."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import apps, asks, nodes
from tests.trial import Trial
from yunishard.common.messages.reasons import Reason
from yunishard.partition_worker.engine.explain.checks import UNCOUNTED, count_waiting_asks
from yunishard.partition_worker.engine.explain.explanations import explain_ask

QUEUES = (
    "root.a max=memory:4 maxapps=2; root.b limit.user.bob=memory:3 limit.user.eve=apps:1; "
    "root.c application.sort.policy=stateaware; root.d application.unschedasks.backoff=1"
)


def count_one_by_one(trial: Trial) -> Counter[str]:
    """Count the asks by the first check that stops each, as explained."""
    found = Counter[str]()
    for application in trial.partition.applications.values():
        for group in application.asks.groups_by_key.values():
            reason = explain_ask(trial.partition, application, group.head, trial.now).stopped_by
            found[to_nodes(reason)] += len(group)
    return found


def count_together(trial: Trial) -> Counter[str]:
    found = Counter[str]()
    for reason, number in count_waiting_asks(trial.partition, trial.now).items():
        found[to_nodes(reason)] += number
    return found


def to_nodes(reason: str) -> str:
    """Return one reason for those that only a look at nodes and other asks tells apart, which no count takes."""
    return reason if reason not in (Reason.NO_NODE_FITS, Reason.NOT_TRIED, Reason.BEHIND_OTHERS) else "nodes"


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(("bob", "eve"))), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from((1, 2, 5, 90))), max_size=12),
)
def test_the_counts_are_those_of_each_group(places: list[tuple[str, str]], wanted: list[tuple[int, int]]) -> None:
    trial = Trial(QUEUES).does(nodes("n1 memory=10", "n2 memory=6"))
    names = [f"app-{number}" for number in range(len(places))]
    trial.takes(apps(*(f"{name} root.{queue} user={user}" for name, (queue, user) in zip(names, places, strict=True))))
    for number, (at, amount) in enumerate(wanted):
        trial.takes(asks(f"{names[at % len(names)]} k{number} memory={amount}"))
    for _ in range(2):
        assert count_together(trial) == count_one_by_one(trial)
        trial.settles()
    assert sum(count_waiting_asks(trial.partition, trial.now).values()) == sum(
        len(one.requests) for one in trial.partition.applications.values()
    )


def test_equal_asks_are_counted_by_the_reason_of_each() -> None:
    trial = Trial("root.a limit.user.bob=memory:1").does(nodes("n1 memory=1"))
    trial.does(apps("gang root.a user=eve taskgroups=g:memory=5", "app-1 root.a user=bob", "app-2 root.a user=eve"))
    trial.does(asks("gang p1 memory=5 group=g placeholder", "gang r1 memory=5 group=g"))
    trial.does(asks("app-1 k1 memory=5", "app-2 k2 memory=5"))
    trial.does(asks("app-2 k3 memory=1 required=n1 tag.yunishard/forbiddenNodes=n1"))
    assert count_waiting_asks(trial.partition, trial.now) == {
        Reason.GANG_PLACEHOLDER: 1,
        Reason.USER_LIMIT: 1,
        Reason.CLUSTER_FULL: 2,
        Reason.REQUIRED_NODE_REFUSES: 1,
    }


@pytest.mark.parametrize(("most", "counted"), [(0, 0), (2, 2), (9, 3)])
def test_asks_beyond_the_bound_are_counted_without_a_reason(most: int, counted: int) -> None:
    trial = Trial().does(nodes("n1 memory=1"), apps("app-1 root.a"))
    trial.does(asks("app-1 k1 memory=5", "app-1 k2 memory=6", "app-1 k3 memory=7"))
    found = count_waiting_asks(trial.partition, trial.now, groups_max=most)
    assert (found.total(), found[UNCOUNTED]) == (3, 3 - counted)
