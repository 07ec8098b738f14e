"""Both implementations of quota enforcement choose the same victims, on hundreds of small clusters."""

import os
import random
from collections import Counter

from tests.builders import apps, asks, nodes, released
from tests.properties.plain_quota import PlainQuota, delay_starts, exceeds_maximum
from tests.trial import Trial
from yunishard.common.resources import total_of
from yunishard.partition_worker.engine import ledger
from yunishard.partition_worker.engine.queues.queue import Queue

CLUSTERS = 10_000 if os.environ.get("PROPERTIES") == "long" else 400
LEAVES = ("root.a", "root.p.a", "root.p.b", "root.p.q.c", "root.p.q.d")
QUEUES = ("root.p", "root.p.q", *LEAVES)
AMOUNTS = ("memory=1", "memory=2", "memory=5", "memory=9", "memory=2 gpu=1", "gpu=1", "memory=1 vcore=1")
LOOKS = 12
"""More than fit into the time in which victims leave."""
FLAGS = (*("victim",) * 4, "", "originator", "victim originator")


def some_queues(rng: random.Random) -> dict[str, str]:
    """The settings of each queue, some of which have a guarantee."""
    found = dict.fromkeys(QUEUES, " quota.preemption.delay=5s")
    for path in QUEUES:
        if rng.random() < 0.3:
            found[path] += f" guaranteed=memory:{rng.randint(1, 12)}" + rng.choice(("", ",gpu:1"))
    return found


def some_maximum(rng: random.Random) -> str:
    amounts = [f"memory:{rng.randint(1, 30)}", f"gpu:{rng.randint(1, 4)}"]
    return " max=" + ",".join(rng.choice((amounts, amounts[:1], amounts[1:])))


def some_allocation(rng: random.Random, number: int) -> str:
    owner, created = rng.randrange(len(LEAVES)), 1_600_000_000 + rng.randint(0, 3)
    text = f"app-{owner} r{number} on=n1 {rng.choice(AMOUNTS)} {rng.choice(FLAGS)}"
    required = "required=n1" if rng.random() < 0.1 else ""
    return f"{text} priority={rng.choice((0, 0, 0, 1))} created={created} {required}"


def written(queues: dict[str, str]) -> str:
    return "; ".join(path + settings for path, settings in queues.items())


def leaving(trial: Trial) -> set[str]:
    return {key for key, one in trial.partition.allocations.items() if one.preempted}


def check_again(trial: Trial, queue: Queue, rng: random.Random) -> str:
    """Let some victims leave, change some allocations, and compare what goes when the queue is looked at again."""
    state = trial.partition
    for one in tuple(state.allocations.values()):
        if one.preempted and rng.random() < 0.2:
            trial.takes(released(f"{one.application_id} {one.key} type=PREEMPTED_BY_SCHEDULER"))
        elif rng.random() < 0.1:
            trial.takes(asks(f"{one.application_id} {one.key} {rng.choice(AMOUNTS)}"))
    trial.waits(1)
    assert bool(queue.quota_preemption_at) == exceeds_maximum(queue)
    if not queue.quota_preemption_at:
        return "within"
    plain, before = PlainQuota(state, queue, at=queue.quota_preemption_at), leaving(trial)
    found = leaving(trial.waits(queue.quota_preemption_at - trial.now)) - before
    assert found == {one.key for one in plain.victims}
    return "again" if found else "not enough again"


def test_both_choose_the_same_victims() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CLUSTERS):
        rng = random.Random(seed)
        queues = some_queues(rng)
        changed = rng.choice(QUEUES)
        before = some_maximum(rng) if rng.random() < 0.7 else ""
        trial = Trial(written({**queues, changed: queues[changed] + before})).takes(nodes("n1 memory=999 gpu=99"))
        trial.takes(apps(*(f"app-{number} {path}" for number, path in enumerate(LEAVES))))
        trial.takes(asks(*(some_allocation(rng, number) for number in range(rng.randint(4, 20)))))
        for one in tuple(trial.partition.allocations.values()):
            if rng.random() < 0.05:
                ledger.mark_preempted(trial.partition, trial.app(one.application_id), one)
        old = trial.queue(changed).maximum
        trial.reconfigures(written({**queues, changed: queues[changed] + some_maximum(rng)}), quota_preemption=True)
        queue = trial.queue(changed)
        plain = PlainQuota(trial.partition, queue, at=trial.now)
        wanted = {one.key for one in plain.victims} if delay_starts(queue, old) else set()
        before = leaving(trial)
        found = leaving(trial.waits(7)) - before
        assert found == wanted, (seed, changed, sorted(found), sorted(wanted))
        given = total_of(one.resources for one in plain.victims)
        assert all(given.get(kind, 0) <= amount for kind, amount in plain.excess.items()), seed
        seen["victims" if wanted else "not enough" if plain.excess and delay_starts(queue, old) else "nothing"] += 1
        seen["parents"] += bool(wanted) and not queue.leaf
        if delay_starts(queue, old) and seed % 4 == 0:
            seen.update(check_again(trial, queue, rng) for _ in range(LOOKS))
    assert min(seen.values()) > CLUSTERS / 20, seen
