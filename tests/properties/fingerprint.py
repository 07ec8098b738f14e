"""A fingerprint of everything that an object refers to, private fields, caches and orders included.

Two fingerprints of one object are equal if nothing in between changed it. Functions count by identity.
"""

from collections import deque
from collections.abc import Mapping, Set
from types import BuiltinFunctionType, FunctionType, MethodType

_VALUES = (str, bytes, int, float, bool, type(None), type, FunctionType, BuiltinFunctionType)


def fingerprint(root: object) -> list[object]:
    """Every value that is reachable, in the order in which it is found, and where objects are found again."""
    found: list[object] = []
    numbers: dict[int, int] = {}
    kept: list[object] = []  # so that no identity is used twice
    todo: deque[object] = deque([root])
    while todo:
        one = todo.popleft()
        if isinstance(one, _VALUES):
            found.append(one)
            continue
        if id(one) in numbers:
            found.append(("again", numbers[id(one)]))
            continue
        numbers[id(one)] = len(numbers)
        kept.append(one)
        parts = _parts(one)
        found.append((type(one).__name__, len(parts)))
        todo.extend(parts)
    return found


def _parts(one: object) -> list[object]:
    if isinstance(one, MethodType):
        return [one.__self__, one.__func__.__name__]
    parts: list[object] = []
    if isinstance(one, Mapping):
        parts += [part for item in one.items() for part in item]
    elif isinstance(one, Set):
        parts += sorted(one, key=repr)
    elif isinstance(one, list | tuple | deque):
        parts += one
    names = [name for base in reversed(type(one).__mro__) for name in _slots(base)]
    for name in (*names, *getattr(one, "__dict__", ())):
        if hasattr(one, name):
            parts += [name, getattr(one, name)]
    return parts


def _slots(base: type) -> tuple[str, ...]:
    slots = getattr(base, "__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(one for one in slots if one not in ("__weakref__", "__dict__"))
