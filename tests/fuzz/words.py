"""Values that nobody expects, and MessagePack documents with one of them inside.

Not here: headers and frames (`frames.py`).
"""

import random
from typing import Final

import msgspec

MOST: Final = 2**63 - 1
DEPTH_MAX: Final = 5_000

WALKED_MAX: Final = 12
"""How deep a document is changed from within."""

Tree = object
"""A MessagePack document, as Python has it."""

NOT_UTF8: Final = msgspec.Raw(b"\xa4\xff\xfe\xc0\x80")
LONE_SURROGATE: Final = msgspec.Raw(b"\xa3\xed\xa0\x80")
RESERVED: Final = msgspec.Raw(b"\xc1")
"""The only byte that means nothing in MessagePack."""

LENGTHS: Final = (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
                  b"\xc9\xff\xff\xff\xff\x01", b"\xdc\xff\xff", b"\xde\xff\xff", b"\xda\xff\xff")  # fmt: skip
"""Arrays, maps, texts, bytes and extensions that claim to be far longer than anything."""

NUMBERS: Final = (0, -1, 1, 2, 7, 99, 255, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**53 + 1, MOST, -MOST - 1,
                  MOST + 1, 2**64 - 1, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"), -float("inf"))  # fmt: skip

TEXTS: Final = (
    "", " ", "\0", "a\0b", "default", "gpu", "root", "root.batch", "root.small", "root.parent", "root.parent.child",
    "root.batch.x", "root..", ".", "root." + ".".join("a" * 300), "app", "k1", "n1", "alice", "nobody", "*", "x" * 200,
    "x" * 5_000, "\u202e\ufeff", "\U0001f40b" * 20, "\n2026-01-01 ERROR", "%s%n{0}", "../../etc/passwd", "$(reboot)",
    "nan", "inf", "-1", "1e400", "9" * 400, "true", "null", "[x]default", "si/node-partition", "creationTime",
    "unnumbered x", "unnumbered -5", "unnumbered 9999999999999999999999", "@record x", "@file x", "broker x",
    "supervisor 1",
    "native:00 x", "grpc:good x", "foreign", "static", "default\ud7ff",
)  # fmt: skip

EMPTY: Final[tuple[Tree, ...]] = (None, True, False, [], {}, b"", [[]], [{}], {"": {}}, b"\xff" * 9)


def odd(rng: random.Random) -> Tree:
    """A value that is hardly what somebody wants."""
    match rng.randrange(8):
        case 0 | 1:
            return rng.choice(NUMBERS)
        case 2 | 3:
            return rng.choice(TEXTS)
        case 4:
            return rng.choice(EMPTY)
        case 5:
            return msgspec.msgpack.Ext(rng.randrange(-128, 128), rng.randbytes(rng.randrange(20)))
        case 6:
            return rng.choice((NOT_UTF8, LONE_SURROGATE, RESERVED, msgspec.Raw(rng.choice(LENGTHS))))
        case _:
            return deep(rng)


def deep(rng: random.Random) -> msgspec.Raw:
    """Something in something in something."""
    return msgspec.Raw(rng.choice((b"\x91", b"\x81\xa0", b"\x81\x91")) * rng.randrange(1, DEPTH_MAX) + b"\xc0")


def confused(rng: random.Random, tree: Tree) -> Tree:
    """The same document with one place in it that is something else, missing, there twice, or under another name."""
    if not isinstance(tree, dict | list) or not tree or rng.random() < 0.1:
        return odd(rng)
    if isinstance(tree, list):
        at = rng.randrange(len(tree))
        match rng.randrange(10):
            case 0:
                return [*tree[:at], *tree[at + 1 :]]
            case 1:
                return [*tree[: at + 1], *tree[at:]]
            case 2:
                return [*tree, odd(rng)]
            case 3:
                return tree * rng.randrange(2, 40)
        return [*tree[:at], confused(rng, tree[at]), *tree[at + 1 :]]
    key = rng.choice(list(tree))
    match rng.randrange(8):
        case 0:
            return {name: value for name, value in tree.items() if name != key}
        case 1:
            return {rng.choice(TEXTS) if name == key else name: value for name, value in tree.items()}
        case 2:
            return {**tree, rng.choice(TEXTS): odd(rng)}
        case 3:
            return {**tree, key: tree[rng.choice(list(tree))]}
        case 4 if isinstance(tree[key], int):
            return {**tree, key: rng.choice(NUMBERS)}
    return {**tree, key: confused(rng, tree[key])}


def sprinkled(rng: random.Random, tree: Tree) -> Tree:
    """The same document in which every value is another one of the same sort: what is well-formed and makes no sense.
    A third of the places stay as they are.
    """
    if isinstance(tree, dict):
        return {name: sprinkled(rng, value) for name, value in tree.items() if rng.random() < 0.95}
    if isinstance(tree, list):
        return [sprinkled(rng, value) for value in tree for _ in range(rng.choice((1, 1, 1, 2, 5)))]
    if rng.random() < 0.33 or isinstance(tree, bytes):
        return tree
    if isinstance(tree, bool):
        return rng.random() < 0.5
    if isinstance(tree, int):
        return rng.choice([one for one in NUMBERS if isinstance(one, int) and -MOST <= one <= MOST])
    return rng.choice(TEXTS) if isinstance(tree, str) else tree


def encoded(tree: Tree) -> bytes:
    """As MessagePack."""
    return msgspec.msgpack.encode(tree)


def read(data: bytes) -> Tree:
    """From MessagePack; what cannot be read, or not be walked through, is an empty document."""
    try:
        tree = msgspec.msgpack.decode(data)
    except (ValueError, RecursionError, TypeError):
        return {}
    return tree if _shallow(tree) else {}


def _shallow(tree: Tree, room: int = WALKED_MAX) -> bool:
    if isinstance(tree, dict):
        return room > 0 and all(_shallow(value, room - 1) for value in tree.values())
    return not isinstance(tree, list) or (room > 0 and all(_shallow(value, room - 1) for value in tree))


def bitten(rng: random.Random, data: bytes) -> bytes:
    """The same bytes with something wrong in them."""
    if not data:
        return rng.randbytes(rng.randrange(1, 20))
    at = rng.randrange(len(data))
    match rng.randrange(7):
        case 0 | 1:
            return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
        case 2:
            return data[:at]
        case 3:
            return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]
        case 4:
            return data[:at] + rng.choice(LENGTHS) + data[at:]
        case 5:
            return data[:at] + data[rng.randrange(len(data)) :]
        case _:
            return data + data[:at]
