"""Both implementations of the choice of victims agree, on thousands of small clusters.

`make test` plays the same examples each time; PROPERTIES=long plays many more, other ones each time.
"""

import os
import random
import time
import zlib
from collections import Counter

import pytest

from tests.builders import apps, asks, foreign, nodes, released
from tests.partition_worker.engine.preemption.clusters import plan_for
from tests.partition_worker.engine.preemption.clusters import remaining as share_left
from tests.properties.plain_preemption import Manager, Plain, fit, fit_actual, remaining
from tests.trial import Trial
from yunishard.common.messages.kinds import Command
from yunishard.common.messages.reasons import Reason
from yunishard.common.messages.rm_messages import NODE_CREATE_DRAIN, NODE_DECOMMISSION, NODE_DRAIN, NODE_UPDATE
from yunishard.common.resources import total_of
from yunishard.partition_worker.engine import ledger, reservations
from yunishard.partition_worker.engine.allocation import Allocation
from yunishard.partition_worker.engine.application import Application
from yunishard.partition_worker.engine.nodes.node_index import Node
from yunishard.partition_worker.engine.preemption import victim_choice
from yunishard.partition_worker.engine.preemption.victim_candidates import Guarantees
from yunishard.partition_worker.engine.state import Preempt

LONG = os.environ.get("PROPERTIES") == "long"
CLUSTERS = 20_000 if LONG else 400
QUESTIONS = 4
"""Asked of each cluster."""

LEAVES = ("root.a", "root.ab", "root.p.a", "root.p.b", "root.p.q.c", "root.p.q.d", "root.e")
PARENTS = ("root.p", "root.p.q")
AMOUNTS = (
    *("memory=1", "memory=2", "memory=2", "memory=3", "memory=5", "gpu=1"),
    *("memory=2 gpu=1", "memory=1 gpu=2", "memory=0 gpu=1", "memory=3 vcore=1"),
)
FLAGS = ("victim",) * 6 + ("", "victim originator", "originator")
OLD_S = 3 * 3600
"""Asks are so old, about, that reservations of some have lasted too long."""


def some_queues(rng: random.Random) -> str:
    """A tree with guarantees, maximums, offsets, fences, and queues that lose nothing."""
    return "; ".join(some_queue(rng, path) for path in (*PARENTS, *LEAVES))


def some_queue(rng: random.Random, path: str) -> str:
    settings = [path]
    if rng.random() < 0.5:
        most = [f"memory:{rng.randint(1, 14)}", f"gpu:{rng.randint(1, 5)}"]
        settings.append("guaranteed=" + ",".join(rng.choice((most, most[:1], most[:1], most[1:]))))
    if rng.random() < 0.15:
        settings.append(f"max=memory:{rng.randint(14, 30)}")
    if rng.random() < 0.2:
        settings.append(f"priority.offset={rng.randint(-2, 2)}")
    if rng.random() < 0.1:
        settings.append("priority.policy=fence")
    if rng.random() < 0.1:
        settings.append(f"preemption.policy={rng.choice(('fence', 'disabled'))}")
    return " ".join(settings)


def some_cluster(rng: random.Random) -> Trial:
    """Nodes that are more or less full, with allocations of some queues on them, some of these on their way out."""
    trial = Trial(some_queues(rng))
    names = [f"n{number}" for number in range(rng.randint(1, 14 if rng.random() < 0.1 else 4))]
    trial.takes(nodes(*(f"{name} memory={rng.randint(4, 12)} gpu={rng.randint(0, 5)}" for name in names)))
    if rng.random() < 0.7:  # the cluster has room although the nodes are full, or more than that
        trial.takes(nodes("n99 memory=200 gpu=50", action=NODE_CREATE_DRAIN))
    trial.takes(apps(*(f"app-{number} {path}" for number, path in enumerate(LEAVES))))
    owners = rng.sample(range(len(LEAVES)), rng.randint(1, 4))
    running = [some_allocation(rng, trial, rng.choice(owners), names, number) for number in range(5 * len(names))]
    trial.takes(asks(*running))
    for allocation in tuple(trial.partition.allocations.values()):
        if allocation.application_id and rng.random() < 0.06:
            if rng.random() < 0.5:
                ledger.mark_preempted(trial.partition, trial.app(allocation.application_id), allocation)
            else:
                allocation.released = True
    if rng.random() < 0.1:
        trial.takes(nodes(rng.choice(names), action=NODE_DRAIN))
    return trial


def some_allocation(rng: random.Random, trial: Trial, owner: int, names: list[str], number: int) -> str:
    node = rng.choice(names)
    required = f"required={node}" if rng.random() < 0.05 else ""
    created = int(trial.now) - OLD_S + rng.randint(0, 12)
    words = (rng.choice(AMOUNTS), rng.choice(FLAGS), f"priority={rng.randint(-1, 1)}", f"created={created}", required)
    return f"app-{owner} r{number} on={node} {' '.join(words)}"


def some_ask(rng: random.Random, trial: Trial, key: str) -> tuple[Application, Allocation]:
    having_least = min(rng.sample(range(len(LEAVES)), 2), key=lambda one: len(trial.app(f"app-{one}").allocations))
    application = trial.app(f"app-{having_least}")
    words = f"preemptor {rng.choice(AMOUNTS)} priority={rng.randint(-1, 2)} created={int(trial.now) - 60}"
    trial.takes(asks(f"{application.application_id} {key} {words}"))
    return application, application.requests[key]


def keep_some_nodes(rng: random.Random, trial: Trial) -> None:
    """For asks of different priorities, within and beyond the guarantees of their queues."""
    for number, node in enumerate(trial.partition.nodes):
        if rng.random() < 0.2:
            application, ask = some_ask(rng, trial, f"kept{number}")
            reservation = reservations.reserve(trial.partition, application, ask, node)
            if rng.random() < 0.2:
                reservations.keep_room(trial.partition, reservation)


def remember_some_preemptions(rng: random.Random, trial: Trial) -> None:
    """So that some queues may not strike back."""
    for _ in range(rng.randint(1, 4)):
        winner, loser = rng.sample(LEAVES, 2)
        at = trial.now - rng.choice((10, 200, 400))
        trial.partition.preemptions.cooldowns.record_win(winner, loser, at, first_s=300.0, again_s=300.0)


def odd_numbers(ask: Allocation, node: Node) -> bool:
    """Somebody who does not admit the ask to some nodes."""
    return int(node.node_id[1:]) % 2 == 1


@pytest.mark.timeout(1200 if LONG else 120)
def test_both_find_the_same_victims() -> None:
    seed = time.time_ns() if LONG else 0
    outcomes: Counter[str] = Counter()
    for number in range(CLUSTERS):
        rng = random.Random(f"{seed}-{number}")
        trial = some_cluster(rng)
        if rng.random() < 0.3:
            keep_some_nodes(rng, trial)
        if rng.random() < 0.3:
            remember_some_preemptions(rng, trial)
        for question in range(QUESTIONS):
            application, ask = some_ask(rng, trial, f"ask{question}")
            tried, admits = rng.random() < 0.5, odd_numbers if rng.random() < 0.2 else None
            plain = Plain(trial.partition, application, ask, nodes_tried=tried, admits=admits).plan()
            plan = plan_for(trial, ask, tried=tried, admits=admits)
            where = f"PROPERTIES seed {seed}-{number}, question {question}"
            if isinstance(plan, Reason):
                assert plan == plain, where
                outcomes[plan] += 1
            else:
                victims, cancels = [one.key for one in plan.victims], [one.ask.key for one in plan.cancels]
                assert (plan.node.node_id, victims, cancels) == plain, where
                outcomes[f"{min(len(victims), 3)} victims"] += 1
                outcomes["cancels"] += bool(cancels)
            if plan is not Reason.PREEMPTION_GUARANTEE_USED:
                assert victim_choice.may_ever_help(application.queue)
    assert min(outcomes.values()) > 0.001 * CLUSTERS, outcomes
    assert len(outcomes) == 8, outcomes


def some_manager(rng: random.Random) -> Manager:
    """An RM that has its own opinion about each node and number of victims, always the same."""
    mood = rng.random()

    def decide(key: str, node: str, victims: list[str], start: int) -> int | str:
        opinion = zlib.crc32(f"{mood} {key} {node} {victims}".encode())
        if opinion % 4 == 0:
            return "never there"
        return start + (opinion // 4) % (len(victims) - start)

    return decide


def plan_with(trial: Trial, ask: Allocation, manager: Manager, *, tried: bool) -> Preempt | Reason:
    """The plan, once the RM has answered all questions; it admits the ask to nodes with odd numbers."""
    verdicts, application = trial.partition.nodes.predicates.verdicts, trial.app(ask.application_id)
    for _ in range(50):  # ten nodes may be tried one after the other, with a few questions about each
        plan = victim_choice.plan_victims(trial.partition, application, ask, nodes_tried=tried)
        if plan is not Reason.VERDICT_PENDING:
            return plan
        asked = verdicts.next_question(trial.now)
        assert asked is not None
        answers: dict[tuple[str, str], tuple[str, int]] = {}
        for key, node, victims, start, _ in asked[0].removals:
            found = manager(key, node, list(victims), start)
            answers[key, node] = (found, -1) if isinstance(found, str) else ("", found)
        pairs = {pair: "" if int(pair.node_id[1:]) % 2 else "odd ones only" for pair in asked[0].pairs}
        assert verdicts.apply_answer(asked[0].number, pairs, trial.now, answers)
    raise AssertionError("the search does not end")


@pytest.mark.timeout(1200 if LONG else 120)
def test_both_find_the_same_victims_if_the_rm_decides_where_it_helps() -> None:
    outcomes: Counter[str] = Counter()
    for number in range(CLUSTERS // 2):
        rng = random.Random(f"rm-{number}")
        trial, manager = some_cluster(rng), some_manager(rng)
        predicates = trial.partition.nodes.predicates
        predicates.asks_manager = predicates.asks_about_victims = True
        for question in range(QUESTIONS):
            application, ask = some_ask(rng, trial, f"ask{question}")
            tried = rng.random() < 0.5
            plain = Plain(
                trial.partition, application, ask, nodes_tried=tried, admits=odd_numbers, manager=manager
            ).plan()
            plan = plan_with(trial, ask, manager, tried=tried)
            where = f"rm-{number}, question {question}"
            if isinstance(plan, Reason):
                assert plan == plain, where
                outcomes[plan] += 1
            else:
                assert (plan.node.node_id, [one.key for one in plan.victims], []) == plain, where
                outcomes[f"{min(len(plan.victims), 3)} victims"] += 1
    assert len(outcomes) == 6, outcomes


def could_run_without(plain: Plain, node: Node, victims: list[Allocation]) -> bool:
    """Whether the ask would have room on this node and in its queues, were it not for these."""
    free = total_of([node.available, *(one.resources for one in victims)])
    return fit(free, plain.wanted) and plain.lacking(victims) is None


def test_a_guarantee_is_reclaimed_if_one_candidate_or_the_first_few_are_enough() -> None:
    """However large they are, if the ask itself is within what remains of the guarantee."""
    reclaimed = 0
    for number in range(CLUSTERS):
        rng = random.Random(f"reclaim {number}")
        trial = some_cluster(rng)
        for question in range(QUESTIONS):
            application, ask = some_ask(rng, trial, f"ask{question}")
            plain = Plain(trial.partition, application, ask, nodes_tried=True)
            rest = remaining(plain.start[application.queue.path])
            if rest is None or not fit_actual(rest, plain.wanted) or not application.queue.guaranteed:
                continue
            candidates = plain.sorted(plain.candidates())
            for node in plain.usable_nodes()[0]:
                here = [one for one in candidates if one.node_id == node.node_id]
                missing = plain.shortfall(node.available)
                small = plain.small_ones(missing, here, [])
                exceeding = [one for one in here if plain.helps(one, missing, [], plain.start)]
                alone = any(could_run_without(plain, node, [one]) for one in exceeding)
                if not fit(node.available, plain.wanted) and (alone or could_run_without(plain, node, small)):
                    found = plan_for(trial, ask, tried=True)
                    assert isinstance(found, Preempt), (number, question, node.node_id, found)
                    assert could_run_without(plain, found.node, list(found.victims))
                    reclaimed += 1
                    break
    assert reclaimed > CLUSTERS / 20


def after_a_loss(number: int, *, is_new: bool) -> tuple[Trial, str] | None:
    """A cluster in which an ask has preempted others and has lost their room, or in which an equal new ask has taken
    its place; with what happened. None if it found no victims, or has its room still.
    """
    rng = random.Random(f"loss {number}")
    trial = some_cluster(rng)
    _, ask = some_ask(rng, trial, "ask")
    plan = plan_for(trial, ask, tried=True)
    if isinstance(plan, Reason):
        return None
    victim_choice.apply_preemption(trial.partition, plan)
    trial.partition.drain_effects()
    name, victim = plan.node.node_id, plan.victims[0]
    losses: dict[str, Command] = {
        "its node leaves": nodes(name, action=NODE_DECOMMISSION),
        "its node is drained": nodes(name, action=NODE_DRAIN),
        "its node shrinks": nodes(f"{name} memory=4 gpu=0", action=NODE_UPDATE),
        "a foreign allocation takes the room": foreign(f"f {name} memory=30 gpu=9"),
        "the RM reports an allocation there": asks(f"{victim.application_id} x on={name} memory=30 gpu=9"),
    }
    loss = rng.choice(list(losses))
    trial.takes(losses[loss])
    if ask.preemption_triggered:
        return None
    if is_new:
        words = " ".join(f"{kind}={amount}" for kind, amount in ask.resources.items())
        trial.takes(released(f"{ask.application_id} ask"))
        created = ask.created_ns // 10**9
        trial.takes(asks(f"{ask.application_id} ask preemptor {words} priority={ask.priority} created={created}"))
    trial.told()
    return trial, loss


def test_an_ask_that_has_lost_its_room_is_treated_as_an_equal_new_one() -> None:
    seen: Counter[str] = Counter()
    for number in range(CLUSTERS // 2):
        lost, new = after_a_loss(number, is_new=False), after_a_loss(number, is_new=True)
        if lost is None or new is None:
            assert lost is new is None
            continue
        (one, loss), (other, _) = lost, new
        for _ in range(4):  # the application of the new one may have begun again
            told, expected = (
                [line for line in trial.waits(8.0).told() if not line.startswith("app-")] for trial in (one, other)
            )
            assert told == expected, (number, loss)
            seen[loss] += bool(told)
    assert len(seen) == 5, seen
    assert min(seen.values()) > 0, seen


def test_both_say_the_same_of_what_remains() -> None:
    for number in range(CLUSTERS // 10):
        rng = random.Random(number)
        trial = some_cluster(rng)
        trial.queue("root").guaranteed = rng.choice((None, {"memory": 20}))
        application, ask = some_ask(rng, trial, "ask")
        snapshots = Plain(trial.partition, application, ask, nodes_tried=True).start
        guarantees = Guarantees(application.queue)
        for queue in trial.partition.tree:
            assert share_left(guarantees.share(queue)) == remaining(snapshots[queue.path]), (number, queue.path)
