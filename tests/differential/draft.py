"""A trace while it is being written: a small cluster, the moves of its resource manager, and what there is by now.

What a trace ends in must not depend on how fast anybody is, so the rules are:

- Creation times are given, each later than the one before: no two asks or applications are equally old, and all are
  older than any delay.
- What competes is asked for while the only node is draining, so that all is there when the node opens.
- Otherwise one thing happens at a time, with a silence after it.

Not here: what traces are about (`areas.py`).
"""

import random
import time
from typing import Any, Final

import yaml

from tests.conformance.items import Item

FIRST_CREATED: Final = int(time.time()) - 3600
"""An hour ago: asks are old enough for everything but to end each other's reservations, which the reference does also
where that helps nobody (docs/compatibility.md).
"""
TYPES: Final = ("STOPPED_BY_RM", "STOPPED_BY_RM", "UNKNOWN_TERMINATION_TYPE", "TIMEOUT", "PREEMPTED_BY_SCHEDULER")
QUIET_S: Final = 0.6
"""Silence before a state is recorded. The reference makes a reservation every 0.1 s, and tells nobody."""


class Draft:
    """Steps so far, and the names that later steps may use."""

    def __init__(self, rng: random.Random, queues: list[Item], *, partition: Item | None = None) -> None:
        self.rng = rng
        self.steps: list[Item] = []
        self.leaves = [leaf for queue in queues for leaf in _leaves(queue, f"root.{queue['name']}")]
        self.nodes: list[str] = []
        self.apps: list[str] = []
        self.asked: list[tuple[str, str]] = []
        """Application and key of all asks so far. Without placeholders: of one that is taken back before it has a node
        the reference does not know that it will never come (docs/compatibility.md)."""
        self.limits_applications = False
        """Whether running applications are limited. Then nothing is asked for an application of which everything was
        released: the reference lets it run beyond the limit (docs/compatibility.md)."""
        self._unreleased: dict[str, set[str]] = {}
        """The keys of each application that were asked for and not released."""
        self.detail: Item = {"detail": "placement", "quiet": QUIET_S}
        self._partition = partition or {}
        self._created = FIRST_CREATED
        self._keys = 0
        self.add("register", config=self._config(queues))

    def add(self, name: str, **body: Any) -> None:
        self.steps.append({name: body})

    def tell(self, name: str, *items: Item, **body: Any) -> None:
        """Something with items, and a silence after it."""
        self.add(name, items=list(items), settle=True, **body)

    def record(self) -> None:
        self.add("settle", **self.detail)

    def sleep(self, seconds: float) -> None:
        self.steps.append({"sleep": seconds})

    # The cluster ----------------------------------------------------------------------------------------------------

    def reconfigure(self, queues: list[Item]) -> None:
        self.add("config", config=self._config(queues))

    def _config(self, queues: list[Item]) -> str:
        root = {"name": "root", "submitacl": "*", "queues": queues}
        return yaml.safe_dump({"partitions": [{"name": "default", "queues": [root], **self._partition}]})

    def add_nodes(self, *memory: int, gpu: int = 0, action: str = "CREATE") -> None:
        first = len(self.nodes) + 1
        new = [f"n-{first + number}" for number in range(len(memory))]
        self.nodes += new
        self.tell(
            "nodes",
            *(
                {"id": name, "resources": _amounts(amount, gpu), **({} if action == "CREATE" else {"action": action})}
                for name, amount in zip(new, memory, strict=True)
            ),
        )

    def change_node(self, name: str, action: str, memory: int | None = None, gpu: int = 0) -> None:
        amounts = {} if memory is None else {"resources": _amounts(memory, gpu)}
        self.tell("nodes", {"id": name, "action": action, **amounts})

    # Applications ---------------------------------------------------------------------------------------------------

    def add_app(self, leaf: str | None = None, *, again: str = "", **more: Any) -> str:
        name = again or f"app-{len(self.apps) + 1}"
        if name not in self.apps:
            self.apps.append(name)
        app = {"id": name, "queue": leaf or self.rng.choice(self.leaves), "user": f"user-{name}", **more}
        self.add("apps", add=[app])
        return name

    def some_app(self) -> str:
        """One that something may be asked for."""
        return self.rng.choice([one for one in self.apps if self.may_ask(one)] or [self.add_app()])

    def may_ask(self, app: str) -> bool:
        return not self.limits_applications or app not in self._unreleased or bool(self._unreleased[app])

    def remove_app(self, name: str) -> None:
        self._unreleased.pop(name, None)
        self.add("apps", remove=[{"id": name}])

    # Asks -----------------------------------------------------------------------------------------------------------

    def ask(self, app: str, memory: int, *, gpu: int = 0, tags: dict[str, str] | None = None, **more: Any) -> Item:
        """One ask, to be sent."""
        self._keys += 1
        self._created += 1
        key = f"{app}-{self._keys}"
        self._unreleased.setdefault(app, set()).add(key)
        if not more.get("placeholder"):
            self.asked.append((app, key))
        stamped = {"creationTime": str(self._created), **(tags or {})}
        return {"app": app, "key": key, "resources": _amounts(memory, gpu), **more, "tags": stamped}

    def known(self) -> tuple[str, str]:
        return self.rng.choice(self.asked or [("app-1", "none")])

    def release(self, app: str, key: str, kind: str = "STOPPED_BY_RM") -> None:
        if app in self._unreleased:
            self._unreleased[app] -= {key} if key else self._unreleased[app]
        self.add("release", type=kind, items=[{"app": app, **({"key": key} if key else {})}])
        self.pause()

    def pause(self) -> None:
        """Let what follows from the last step come to its end: a message that says nothing, and a silence."""
        self.tell("asks")


def _amounts(memory: int, gpu: int = 0) -> dict[str, int]:
    return {"memory": memory, **({"gpu": gpu} if gpu else {})}


def _leaves(queue: Item, path: str) -> list[str]:
    children = queue.get("queues", [])
    if not children:
        return [path]
    return [leaf for child in children for leaf in _leaves(child, f"{path}.{child['name']}")]
