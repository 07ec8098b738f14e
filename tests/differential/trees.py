"""Queue configurations, as lists of the children of the root. Not here: what happens in them (`areas.py`)."""

import random
from typing import Any, Final

from tests.conformance.items import Item

GUARANTEES: Final = (3, 5, 7, 11, 13, 17)
"""Primes: queues that use a few units of theirs seldom have equal shares. Three of them are less than MAXIMUM_ABOVE."""
MAXIMA: Final = (17, 19, 23, 29, 31, 37, 41, 43, 47)
MAXIMUM_ABOVE: Final = 53
"""Of queues that are no leaves."""


def queue(name: str, *children: Item, maximum: int = 0, guaranteed: int = 0, **more: Any) -> Item:
    """One queue, with amounts of memory; 0 is none."""
    resources = {"max": maximum, "guaranteed": guaranteed}
    found: Item = {"name": name, **more}
    amounts = {kind: {"memory": amount} for kind, amount in resources.items() if amount}
    if amounts:
        found["resources"] = amounts
    if children:
        found["queues"] = list(children)
    return found


def random_tree(rng: random.Random, settings: "Settings | None" = None) -> list[Item]:
    """Three leaves on one or two levels; `settings` adds what the area is about to any queue.

    Either all queues have a guarantee or none below has a maximum: where shares are relative to maxima, the reference
    mixes up those of neighbours (docs/compatibility.md).
    """
    guaranteed = isinstance(settings, Preemption) or rng.random() < 0.6
    free = rng.sample(GUARANTEES, 3)

    def make(name: str, *children: Item) -> Item:
        extra = {} if settings is None else settings(rng, bool(children))
        amounts = {
            "guaranteed": sum(guarantee_of(child) for child in children) if children else free.pop() * guaranteed,
            "maximum": (rng.choice((0, MAXIMUM_ABOVE)) if children else rng.choice((0, 0, *MAXIMA))) * guaranteed,
        }
        amounts |= {kind: extra.pop(kind) for kind in tuple(amounts) if kind in extra}
        return queue(name, *children, **amounts, **extra)

    shape = rng.randrange(3)
    if shape == 0:
        return [make("a"), make("b"), make("c")]
    if shape == 1:
        return [make("p", make("a"), make("b")), make("c")]
    return [make("p", make("q", make("a")), make("b")), make("c")]


def guarantee_of(child: Item) -> int:
    found: int = child.get("resources", {}).get("guaranteed", {}).get("memory", 0)
    return found


class Settings:
    """Something to call for what a queue has besides amounts."""

    def __call__(self, rng: random.Random, parent: bool) -> Item:
        return {}


class Priorities(Settings):
    def __call__(self, rng: random.Random, parent: bool) -> Item:
        found = {"priority.offset": str(rng.choice((0, 0, -3, 2, 5)))}
        if rng.random() < 0.25:
            found["priority.policy"] = "fence"
        if parent and rng.random() < 0.3:
            found["application.sort.priority"] = "disabled"
        return {"properties": found}


class MaxApps(Settings):
    def __call__(self, rng: random.Random, parent: bool) -> Item:
        return {"maxapplications": 3 if parent else rng.choice((1, 2, 2, 3))}


class Limits(Settings):
    def __call__(self, rng: random.Random, parent: bool) -> Item:
        """Users of the applications are user-app-N, their groups g-1 and g-2."""
        if rng.random() < 0.3:
            return {}
        # The same for all parents: one above may limit all users, and then no other limit below may be larger.
        most = {"memory": str(43 if parent else rng.choice((7, 11, 13, 17)))}
        applications = 2 if parent else rng.choice((1, 2))
        limits: list[Item] = []
        if rng.random() < 0.6:
            limits.append({"users": [f"user-app-{rng.randint(1, 3)}"]})
        if rng.random() < 0.5:
            limits.append({"groups": [f"g-{rng.randint(1, 2)}"]})
        if rng.random() < 0.5:
            limits.append({"users": ["*"]})
        limits = [{"limit": "some", "maxresources": most, "maxapplications": applications, **one} for one in limits]
        return {"limits": limits} if limits else {}


class Gangs(Settings):
    def __call__(self, rng: random.Random, parent: bool) -> Item:
        return {"guaranteed": 0, "maximum": rng.choice((0, 0, 0, 47))}


class BackOff(Settings):
    def __call__(self, rng: random.Random, parent: bool) -> Item:
        return {
            "maximum": 0,
            "properties": {
                "application.unschedasks.backoff": str(rng.randint(1, 4)),
                "application.unschedasks.backoff.delay": "120s",
            },
        }


class Open(Settings):
    """Room is only lacking on nodes."""

    def __call__(self, rng: random.Random, parent: bool) -> Item:
        return {"maximum": 0}


class Preemption(Settings):
    def __call__(self, rng: random.Random, parent: bool) -> Item:
        found = {"preemption.delay": "1s"}
        if rng.random() < 0.2:
            found["preemption.policy"] = rng.choice(("fence", "disabled"))
        if rng.random() < 0.3:
            found["priority.offset"] = str(rng.choice((-2, 1, 3)))
        return {"maximum": 0, "properties": found}
