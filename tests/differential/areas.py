"""What generated traces are about: for each area a function that writes one, the same for the same seed.

Each builds a small cluster, lets it decide, and goes on with moves that an RM or operator might make, one at a time.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Final

from tests.conformance.items import Item
from tests.differential import trees
from tests.differential.draft import TYPES, Draft
from tests.differential.rest import Area, any_of

REQUIRED: Final = "yunikorn.apache.org/requiredNode"
Move = Callable[[Draft], None]


def trace_of(area: str, seed: int) -> list[Item]:
    """The steps of the trace with this seed."""
    draft = AREAS[area](random.Random(f"{area} {seed}"))
    draft.record()
    return draft.steps


# Moves --------------------------------------------------------------------------------------------------------------


def ask(draft: Draft) -> None:
    draft.tell("asks", draft.ask(draft.some_app(), draft.rng.randint(1, 12)))


def ask_urgently(draft: Draft) -> None:
    draft.tell(
        "asks", draft.ask(draft.rng.choice(draft.apps), draft.rng.randint(1, 9), priority=draft.rng.randint(1, 9))
    )


def release(draft: Draft) -> None:
    draft.release(*draft.known())


def release_somehow(draft: Draft) -> None:
    draft.release(*draft.known(), kind=draft.rng.choice(TYPES))


def release_as_ended(draft: Draft) -> None:
    """Not as timed out: the reference would go on to know it (docs/compatibility.md)."""
    draft.release(*draft.known(), kind=draft.rng.choice(TYPES[:3]))


def release_twice(draft: Draft) -> None:
    app, key = draft.known()
    draft.add("release", items=[{"app": app, "key": key}])
    draft.release(app, key)


def release_unknown(draft: Draft) -> None:
    app, key = draft.known()
    draft.release(*draft.rng.choice(((app, "nobody"), ("nobody", key), ("nobody", ""))))


def release_all(draft: Draft) -> None:
    draft.release(draft.rng.choice(draft.apps), "")


def remove_app(draft: Draft) -> None:
    draft.remove_app(draft.rng.choice(draft.apps))


def submit_again(draft: Draft) -> None:
    """Known or not, with another queue, and an ask for it."""
    name = draft.add_app(again=draft.rng.choice(draft.apps))
    if draft.may_ask(name):
        ask_of(draft, name)


def ask_of(draft: Draft, name: str) -> None:
    draft.tell("asks", draft.ask(name, draft.rng.randint(1, 9)))


def resize(draft: Draft) -> None:
    app, key = draft.known()
    draft.tell("asks", {"app": app, "key": key, "resources": {"memory": draft.rng.randint(1, 14)}})


def recover(draft: Draft) -> None:
    """Something runs already, the RM says; now and then something that it asked for."""
    node = draft.rng.choice(draft.nodes)
    if draft.rng.random() < 0.3:
        app, key = draft.known()
        draft.tell("asks", {"app": app, "key": key, "node": node, "resources": {"memory": draft.rng.randint(1, 9)}})
    else:
        draft.tell("asks", {**draft.ask(draft.rng.choice(draft.apps), draft.rng.randint(1, 9)), "node": node})


def drain(draft: Draft) -> None:
    draft.change_node(draft.rng.choice(draft.nodes), draft.rng.choice(("DRAIN_NODE", "DRAIN_TO_SCHEDULABLE")))


def open_node(draft: Draft) -> None:
    draft.change_node(draft.rng.choice(draft.nodes), "DRAIN_TO_SCHEDULABLE")


def resize_node(draft: Draft) -> None:
    draft.change_node(draft.rng.choice(draft.nodes), "UPDATE", draft.rng.randint(8, 45))


def remove_node(draft: Draft) -> None:
    draft.change_node(draft.rng.choice(draft.nodes), "DECOMISSION")


def add_node(draft: Draft) -> None:
    draft.add_nodes(draft.rng.randint(15, 40), action=draft.rng.choice(("CREATE", "CREATE", "CREATE_DRAIN")))


def add_node_again(draft: Draft) -> None:
    draft.change_node(draft.rng.choice(draft.nodes), "CREATE", draft.rng.randint(15, 40))


def foreign(draft: Draft) -> None:
    """Each node has one foreign allocation of its own, which comes, changes or goes."""
    node = draft.rng.choice(draft.nodes)
    if draft.rng.random() < 0.3:
        draft.release("", f"foreign-{node}")
        return
    amount = {"memory": draft.rng.randint(1, 15)}
    tags = {"foreign": draft.rng.choice(("default", "static"))}
    draft.tell("asks", {"app": "", "key": f"foreign-{node}", "node": node, "resources": amount, "tags": tags})


def ask_for_node(draft: Draft) -> None:
    node = draft.rng.choice(draft.nodes)
    app, amount = draft.rng.choice(draft.apps), draft.rng.randint(1, 9)
    draft.tell("asks", draft.ask(app, amount, priority=draft.rng.choice((0, 0, 5)), tags={REQUIRED: node}))


def withhold(draft: Draft) -> None:
    draft.add("confirm", releases=False)


def confirm(draft: Draft) -> None:
    draft.add("confirm", releases=True, withheld=True)
    draft.pause()


def ask_for_group(draft: Draft) -> None:
    """A real ask of a gang, that fits a placeholder or not."""
    draft.tell("asks", draft.ask(draft.rng.choice(draft.apps), draft.rng.choice((5, 5, 5, 3, 6)), group="tg"))


def ask_for_placeholder(draft: Draft) -> None:
    draft.tell("asks", draft.ask(draft.rng.choice(draft.apps), 5, group="tg", placeholder=True))


def play(draft: Draft, moves: dict[Move, int], *, count: int = 7) -> Draft:
    """So many moves, by weight; a state is recorded now and then."""
    for number in range(count):
        [move] = draft.rng.choices(list(moves), list(moves.values()))
        move(draft)
        if number % 2 and number + 1 < count:
            draft.record()
    return draft


# Areas --------------------------------------------------------------------------------------------------------------


def contended(
    rng: random.Random,
    settings: trees.Settings | None = None,
    *,
    priorities: tuple[int, ...] = (0,),
    groups: bool = False,
) -> Draft:
    """Everything is there before a node is; then queues are full long before the nodes are."""
    top = trees.queue("top", *trees.random_tree(rng, settings), maximum=rng.choice((53, 59, 67, 71)))
    draft = Draft(rng, [top])
    draft.add_nodes(rng.randint(350, 450), action="CREATE_DRAIN")
    asks = []
    for number in range(rng.randint(4, 6)):
        more = {"groups": [f"g-{number % 3}"]} if groups else {}
        app = draft.add_app(draft.leaves[number % len(draft.leaves)], **more)
        asks += [draft.ask(app, rng.randint(1, 12), priority=rng.choice(priorities)) for _ in range(rng.randint(2, 6))]
    rng.shuffle(asks)
    draft.tell("asks", *asks)
    open_node(draft)
    draft.record()
    return draft


MOVES: Final[dict[Move, int]] = {ask: 4, release: 5, remove_app: 1}


def queues(rng: random.Random) -> Draft:
    return play(contended(rng), {**MOVES, submit_again: 1})


def priorities(rng: random.Random) -> Draft:
    draft = contended(rng, trees.Priorities(), priorities=(0, 0, 1, 4, -2))
    return play(draft, {**MOVES, ask_urgently: 3})


def limits(rng: random.Random) -> Draft:
    draft = contended(rng, trees.Limits(), groups=True)
    draft.limits_applications = True
    return play(draft, MOVES)


def max_apps(rng: random.Random) -> Draft:
    draft = contended(rng, trees.MaxApps())
    draft.limits_applications = True
    return play(draft, {**MOVES, remove_app: 3, submit_again: 2})


def releases(rng: random.Random) -> Draft:
    moves = {ask: 4, release_somehow: 5, release_twice: 2, release_unknown: 1, release_all: 2, remove_app: 2}
    return play(contended(rng), {**moves, submit_again: 2}, count=9)


def resizes(rng: random.Random) -> Draft:
    return play(contended(rng), {resize: 6, ask: 1, release: 3, recover: 1})


def fill(draft: Draft, app: str, amount: int) -> None:
    """One application asks for about so much, all at once: as its asks are tried in order that is all the same."""
    asks = []
    while amount > 0:
        size = draft.rng.randint(2, 7)
        more = {"preemptSelf": draft.rng.random() < 0.8, "originator": draft.rng.random() < 0.1}
        asks.append(draft.ask(app, size, priority=draft.rng.choice((0, 0, 2)), **more))
        amount -= size
    asks.sort(key=lambda item: -item["priority"])
    draft.tell("asks", *asks)


def crowded(rng: random.Random, queues: list[Item], *, most: int = 12, per_app: int = 3) -> Draft:
    """Asks come one after the other, and nodes are soon full: what fits no more reserves."""
    draft = Draft(rng, queues)
    sizes = [rng.randint(14, 30) for _ in range(rng.randint(1, 4))]
    draft.add_nodes(*sizes)
    fill(draft, draft.add_app(), rng.randint(sum(sizes) // 4, sum(sizes)))
    for number in range(rng.randint(1, 2)):
        app = draft.add_app(draft.leaves[number % len(draft.leaves)])
        for _ in range(rng.randint(1, per_app)):
            draft.tell("asks", draft.ask(app, rng.randint(2, most)))
    draft.record()
    return draft


NODE_MOVES: Final[dict[Move, int]] = {
    ask: 4,
    release: 3,
    drain: 3,
    open_node: 2,
    resize_node: 2,
    remove_node: 2,
    add_node: 1,
    add_node_again: 1,
    foreign: 2,
}


def nodes(rng: random.Random) -> Draft:
    return play(crowded(rng, trees.random_tree(rng), most=6), NODE_MOVES, count=8)


def recovery(rng: random.Random) -> Draft:
    """Without nodes that go: the reference still knows what ran there, and refuses to hear of it again."""
    draft = crowded(rng, trees.random_tree(rng), most=6)
    return play(draft, {recover: 5, ask: 2, release_as_ended: 2, remove_app: 1, submit_again: 1})


def reservations(rng: random.Random) -> Draft:
    moves = {ask: 4, release: 4, drain: 1, resize_node: 1, resize: 1, remove_app: 1, foreign: 1}
    return play(
        crowded(rng, trees.random_tree(rng, trees.Open()), most=14, per_app=4), {**moves, ask_urgently: 2}, count=8
    )


def required(rng: random.Random) -> Draft:
    moves = {ask_for_node: 5, ask: 3, release: 3, drain: 1, resize_node: 1, withhold: 1, confirm: 2, remove_node: 1}
    return play(crowded(rng, trees.random_tree(rng, trees.Open()), most=14), moves, count=8)


def gang(rng: random.Random, draft: Draft, *, most: int = 4, **more: object) -> str:
    """An application with placeholders, in a message each."""
    count = rng.randint(1, most)
    app = draft.add_app(placeholderAsk={"memory": 5 * count}, **more)
    for _ in range(count):
        draft.tell("asks", draft.ask(app, 5, group="tg", placeholder=True))
    return app


GANG_MOVES: Final[dict[Move, int]] = {ask_for_group: 8, ask: 2, release: 2, withhold: 2, confirm: 3}


def gangs(rng: random.Random) -> Draft:
    """There is room for most of the placeholders, or for all. Which of them is replaced is nobody's business."""
    draft = Draft(rng, trees.random_tree(rng, trees.Gangs()))
    draft.detail["detail"] = "apps"
    draft.add_nodes(*(rng.randint(12, 30) for _ in range(rng.randint(1, 3))))
    nodes_go = rng.random() < 0.4
    for _ in range(rng.randint(1, 2)):
        gang(rng, draft, most=1 if nodes_go else 4)  # so that it is known what goes with a node
    draft.record()
    more: dict[Move, int] = {remove_node: 2, add_node: 1} if nodes_go else {ask_for_placeholder: 1}
    return play(draft, {**GANG_MOVES, **more, drain: 1, remove_app: 1}, count=9)


def gang_timeouts(rng: random.Random) -> Draft:
    """The placeholders time out while some are still asked for, have been replaced, or are being replaced."""
    draft = Draft(rng, trees.random_tree(rng, trees.Gangs()))
    draft.detail["detail"] = "nodes"
    draft.add_nodes(rng.choice((12, 17, 22)))
    count = rng.randint(1, 4)
    style = rng.choice(("Soft", "Hard"))
    app = draft.add_app(placeholderAsk={"memory": 5 * count}, gangStyle=style, timeout=5000)
    draft.tell("asks", *(draft.ask(app, 5, group="tg", placeholder=True) for _ in range(count)))
    for _ in range(rng.randint(0, 2)):
        rng.choice((ask_for_group, ask_for_group, withhold, confirm))(draft)
    draft.sleep(5)
    draft.record()
    return play(draft, {ask_for_group: 3, ask: 2, confirm: 2, release: 1}, count=3)


def back_off(rng: random.Random) -> Draft:
    return play(crowded(rng, trees.random_tree(rng, trees.BackOff()), most=14, per_app=5), {ask: 5, release: 4})


def preemption(rng: random.Random) -> Draft:
    """One queue takes what it can; then others, with guarantees, want theirs."""
    tree = trees.random_tree(rng, trees.Preemption())
    draft = Draft(rng, tree)
    sizes = [rng.randint(15, 40) for _ in range(rng.randint(1, 2))]
    draft.add_nodes(*sizes)
    leaf = rng.choice(draft.leaves)
    fill(draft, draft.add_app(leaf), sum(sizes))
    others = [draft.add_app(other) for other in draft.leaves if other != leaf]
    if rng.random() < 0.3:
        withhold(draft)
    for _ in range(rng.randint(1, 4)):
        wanted = draft.ask(
            rng.choice(others), rng.randint(1, 6), priority=rng.choice((0, 0, 1, 5)), preemptOther=rng.random() < 0.9
        )
        draft.tell("asks", wanted)
        draft.record()
    confirm(draft)
    return draft


def quota(rng: random.Random) -> Draft:
    """A maximum is lowered below what is used, and the queue is brought down to it. All allocations are equals.

    Version 1.8 of the reference has another name for the property, acts only while something is asked for, dies when
    the maximum is that of a parent, and prefers other victims than the version after it, by which this system goes.
    """
    each, properties = 5, {"quota.preemption.delay": "1s", "preemption.quota.delay": "1s"}
    guaranteed = rng.choice((0, each, 2 * each))

    def tree(maximum: int) -> list[Item]:
        return [trees.queue("a", maximum=maximum, guaranteed=guaranteed, properties=properties), trees.queue("c")]

    draft = Draft(rng, tree(10 * each), partition={"preemption": {"quotapreemptionenabled": True}})
    draft.detail["detail"] = "nodes"
    draft.add_nodes(100)
    for leaf in draft.leaves:
        app = draft.add_app(leaf)
        draft.tell("asks", *(draft.ask(app, each, preemptSelf=True) for _ in range(rng.randint(2, 8))))
    draft.record()
    draft.reconfigure(tree(each * rng.randint(1, 6)))
    draft.tell("asks", draft.ask(draft.apps[0], 40))
    draft.sleep(3.2)
    draft.record()
    return draft


_DECIDING: Final[dict[str, Area]] = {
    "queues": queues,
    "priorities": priorities,
    "limits": limits,
    "max-apps": max_apps,
    "releases": releases,
    "resizes": resizes,
    "nodes": nodes,
    "recovery": recovery,
    "reservations": reservations,
    "required": required,
    "gangs": gangs,
    "gang-timeouts": gang_timeouts,
    "back-off": back_off,
    "preemption": preemption,
    "quota": quota,
}

_BY_CHANCE: Final = (gangs, gang_timeouts, quota)
"""Those in which nobody can say which of several equals it will be."""

AREAS: Final[dict[str, Area]] = {
    **_DECIDING,
    "rest": partial(any_of, tuple(area for area in _DECIDING.values() if area not in _BY_CHANCE)),
}
