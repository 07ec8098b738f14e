"""The sizes of all tables that an object holds, so that a test sees which of them grow with the names that passed.

sizes = measure(partition)        {"Partition.ended": 3, "Users.learned": 1, ...}
"""

from collections import Counter, deque
from collections.abc import Callable, Container, Hashable, Iterator, Mapping

from yunishard.common.messages.kinds import Message
from yunishard.partition_worker.engine.sorted_items import Order, SortedItems

_ATOMS = (str, bytes, int, float, bool, type(None), Message, type, Callable)


def measure(root: object, without: Container[str] = ()) -> Counter[str]:
    """The number of entries in the tables of each attribute, summed over all objects of a class; not in these, nor in
    what they hold.
    """
    sizes: Counter[str] = Counter()
    seen: set[int] = set()
    todo: deque[tuple[str, object]] = deque([("", root)])
    while todo:
        name, thing = todo.popleft()
        if isinstance(thing, _ATOMS) or id(thing) in seen or name in without:
            continue
        seen.add(id(thing))
        match thing:
            case Mapping():
                sizes[name] += len(thing)
                todo.extend((f"{name}[]", value) for value in (*thing, *thing.values()))
            case list() | tuple() | deque() | set() | frozenset() | Order() | SortedItems():
                sizes[name] += len(thing)
                todo.extend((f"{name}[]", value) for value in thing)
            case _:
                todo.extend(_attributes(thing))
    return sizes


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    names: dict[Hashable, None] = dict.fromkeys(getattr(thing, "__dict__", ()))
    for base in type(thing).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.update(dict.fromkeys((slots,) if isinstance(slots, str) else slots))
    for name in map(str, names):
        if hasattr(thing, name):
            yield f"{type(thing).__name__}.{name}", getattr(thing, name)


def find_growing(
    root: object, play: Callable[[int], object], *, rounds: int = 12, without: Container[str] = ()
) -> dict[str, int]:
    """Play so many rounds, and as many again; the tables that grew by an entry in each round of the second half."""
    for number in range(rounds):
        play(number)
    before = measure(root, without)
    for number in range(rounds, 2 * rounds):
        play(number)
    after = measure(root, without)
    return {name: after[name] - before[name] for name in after if after[name] - before[name] >= rounds}
