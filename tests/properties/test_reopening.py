"""A configuration change reopens what it may help: everything happens as if all applications tried again.

Between two changes there is a pause of a search for victims. An ask without a guarantee begins one with each attempt,
in vain, and if it got a guarantee by the next change within the pause, it would search later than without the attempt.

PROPERTIES=long plays 1,000 sessions, in about five minutes.
"""

import os
import random
import re
from collections import Counter

import pytest

from tests.builders import config
from tests.properties.sessions import LightTrial, Session, generate

LONG = os.environ.get("PROPERTIES") == "long"
SESSIONS = 1000 if LONG else 25
PAUSE = "pass 16"
CHANGE_EVERY = 8
"""Lines of a session."""

ADDED = (
    "application.sort.policy=fair",
    "application.sort.policy=stateaware",
    "application.sort.priority=disabled",
    "application.unschedasks.backoff=2",
    "guaranteed=memory:9",
    "limit.group.dev=memory:9",
    "limit.user.*=apps:2",
    "maxapps=1",
    "preemption.policy=disabled",
    "priority.offset=3",
)


def vary(rng: random.Random, queues: str) -> str:
    """Change some numbers of these queues, and mostly another setting of one."""
    numbers = r"(?<=[:=])\d+(?![.\d])"
    varied = re.sub(numbers, lambda found: str(max(1, int(found[0]) * rng.choice((2, 2, 1, 3, 4)) // 2)), queues)
    texts = [text.strip() for text in varied.split(";")]
    at, added = rng.randrange(len(texts)), rng.choice((*ADDED, ""))
    kept = [word for word in texts[at].split() if word.partition("=")[0] != added.partition("=")[0]]
    texts[at] = " ".join([*kept, added])
    return "; ".join(texts)


def with_changes(lines: list[str], rng: random.Random) -> list[str]:
    """Return the lines of a session with other and further configuration changes."""
    first = lines[0].removeprefix("config ")
    tree, changed = first, list[str]()
    for at, line in enumerate(lines):
        if line.startswith("reconfigure") or at % CHANGE_EVERY == CHANGE_EVERY - 1:
            tree = vary(rng, first if rng.random() < 0.3 else tree)
            changed += [PAUSE, f"reconfigure {tree}"]
        if not line.startswith("reconfigure"):
            changed.append(line)
    return changed


def reset_and_reconfigure(trial: LightTrial, queues: str) -> None:
    """Change the configuration, and let all applications try again."""
    now, partition = trial.partition.config, trial.partition
    quota = now.preemption.quota_preemption_enabled
    wanted = config(queues, nodes=now.node_sort_policy.type, rules=now.placement_rules, quota_preemption=quota)
    trial.effects += partition.reconfigure(wanted, trial.now)
    for leaf in partition.tree:
        partition.readiness.reset_leaf(leaf)
    trial.settles()


@pytest.mark.timeout(1200 if LONG else 120)
def test_everything_happens_as_if_all_applications_tried_again() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SESSIONS):
        lines = with_changes(generate(seed).lines, random.Random(seed))
        head = [one for one in lines if one.split(" ")[0] in ("config", "nodes", "create-queues", "enforce-quotas")]
        lazy, eager = Session(head), Session(head)
        for at, line in enumerate(lines[len(head) :], len(head)):
            before = len(lazy.trial.effects)
            lazy.play(line)
            if line.startswith("reconfigure"):
                reset_and_reconfigure(eager.trial, line.removeprefix("reconfigure "))
            else:
                eager.play(line)
            found, wanted = ([effect.part for effect in one.trial.effects[before:]] for one in (lazy, eager))
            assert found == wanted, "\n".join([f"seed {seed}", *lines[: at + 1]])
            if line.startswith("reconfigure"):
                seen.update(type(part).__name__ for part in found)
    assert min(seen["Allocation"], seen["AllocationRelease"]) > SESSIONS // 5, seen
