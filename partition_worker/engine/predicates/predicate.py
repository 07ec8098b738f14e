"""Predicates: rules, built-in or of a plug-in, that say on which nodes an ask may run; and the built-in ones.

A predicate reads the tags of an ask once, and is asked about nodes as often as the engine likes. Both must be pure and
quick: they run in the thread that schedules, must give the same result for the same arguments, and results are cached.
How to write one: `docs/predicates.md`.

Node selector, the tag `yunishard/nodeSelector`, for example `zone=a,gpu in (a100,h100),!spot`. All terms must hold:

    key=value  key==value  key!=value  key in (one,two)  key notin (one,two)  key  !key  key>8  key<8

As in `kubectl get --selector`, `!=` and `notin` also hold for a node without the attribute; as in the node affinity of
Kubernetes, `>` and `<` compare integers, and hold for no node without one. Alternatives, of which one must hold, are
separated by `||`: `zone=a,ssd || zone=b`.

Forbidden nodes, the tag `yunishard/forbiddenNodes`: ids of nodes that must not run the ask, `n1,n2`.

Taints and tolerations. A node whose attribute names taints takes only asks that tolerate each of them:

    node attribute  yunishard/taints       gpu=a100:NoSchedule,maintenance:NoExecute     key[=value]:Effect
    ask tag         yunishard/tolerations  gpu=a100:NoSchedule,maintenance,*:NoSchedule  key or *, [=value][:Effect]

As in Kubernetes, a toleration without a value takes any value, one without an effect any effect, and `*` is any key.
The scheduler evicts no running allocation, so NoExecute means NoSchedule; PreferNoSchedule refuses no ask. An
unreadable taint refuses every ask, because its author wanted to keep the node free.
"""

import re
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import Final, NamedTuple, Protocol, runtime_checkable


class NodeView(NamedTuple):
    """The properties of a node that do not change as allocations come and go, read-only."""

    node_id: str
    attributes: Mapping[str, str]
    capacity: Mapping[str, int]
    """By resource type, in base units."""


@runtime_checkable
class Predicate(Protocol):
    """A rule about nodes. It treats asks whose tags are read as equal demands alike."""

    name: str
    """Its name in settings and messages; unique."""

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        """Return what an ask with these tags demands; None if nothing.

        Raises:
            ValueError: the tags are wrong; the text names them and the right form. The ask is rejected with it.
        """

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        """Return why an ask with this demand cannot run on the node; empty if it can."""


class AttributePredicate(Predicate, Protocol):
    """A predicate that only reads some attributes of a node: nodes with equal ones are evaluated once."""

    def list_attributes(self, demand: Hashable | None) -> frozenset[str] | None:
        """Return the names of the attributes that `refuses` reads for this demand; None if it reads anything else."""


TAG_LENGTH_MAX: Final = 65_536
"""Maximum characters of a tag."""

KEY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
"""The key of a label or a taint."""

VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._/:@-]*[A-Za-z0-9])?)?")


def read_tag(tags: Mapping[str, str], name: str) -> str | None:
    """Return the text of a tag. Raises ValueError if it is too long."""
    text = tags.get(name)
    if text is not None and len(text) > TAG_LENGTH_MAX:
        raise ValueError(f"tag {name} has {len(text)} characters, at most {TAG_LENGTH_MAX} are read")
    return text


def quote(text: str) -> str:
    """Return a part of a tag, as a message quotes it."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


FORBIDDEN_NODES: Final = "yunishard/forbiddenNodes"


class ForbiddenNodes:
    """Refuses nodes by id. The demand is the set of ids."""

    name = "forbidden-nodes"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = read_tag(tags, FORBIDDEN_NODES)
        if text is None:
            return None
        ids = [one.strip() for one in text.split(",")]
        if not all(ids):
            raise ValueError(f"tag {FORBIDDEN_NODES}: a node id is missing: write ids with commas between, as in n1,n2")
        return frozenset(ids)

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        return "node is forbidden" if isinstance(demand, frozenset) and node.node_id in demand else ""

    def list_attributes(self, demand: Hashable | None) -> frozenset[str] | None:
        return frozenset() if demand is None else None


NODE_SELECTOR: Final = "yunishard/nodeSelector"

_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)")
_VALUES: Final = re.compile(rf"(?:\s*+{VALUE.pattern}\s*+(?:,|\Z))++")
_COMPARED: Final = re.compile(r"(?P<key>[^\s<>]+)\s*(?P<sign>[<>])\s*(?P<number>[+-]?[0-9]{1,19})")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_RIGHT: Final = "key=value, key!=value, key in (a,b), key notin (a,b), key, !key, key>8 or key<8"

ALTERNATIVES_MAX: Final = 64
"""Alternatives of a selector; an ask with more is rejected. Each costs as much as a selector for each node."""

TERMS_MAX: Final = 256
"""Terms in all alternatives of a selector; an ask with more is rejected. Each takes 4 µs to read, and an update of 64
MiB may have 1,000 different selectors.
"""

VALUE_CHARS_PER_UNIT: Final = 256
"""Characters of a set of values that are searched for the work of one comparison."""


class Term(NamedTuple):
    """A demand on one attribute."""

    text: str
    """As messages quote it."""
    key: str
    values: str | None
    """The values to match, each between commas: a set of them would take ten times the memory of the tag. None matches
    any.
    """
    holds: bool
    """Whether the attribute must match, or must not."""
    above: int | None = None
    below: int | None = None
    """An integer that the attribute must exceed, or fall short of."""

    def matches(self, attributes: Mapping[str, str]) -> bool:
        value = attributes.get(self.key)
        if self.above is not None or self.below is not None:
            if value is None or not _INTEGER.fullmatch(value):
                return False
            return (self.above is None or int(value) > self.above) and (self.below is None or int(value) < self.below)
        found = value is not None and (self.values is None or ("," not in value and f",{value}," in self.values))
        return found == self.holds


Terms = tuple[Term, ...]
"""Terms that must all hold."""


class Selector:
    """A parsed node selector. It is a key of many tables, so its hash is computed once."""

    __slots__ = ("_hash", "alternatives", "keys", "work")

    def __init__(self, alternatives: tuple[Terms, ...]) -> None:
        self.alternatives = alternatives
        """Of which one must hold."""
        terms = [term for one in alternatives for term in one]
        self.keys = frozenset(term.key for term in terms)
        """The attributes that it reads."""
        self.work = sum(1 + len(term.values or "") // VALUE_CHARS_PER_UNIT for term in terms)
        """The comparisons of an evaluation, at most."""
        self._hash = hash(alternatives)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Selector) and self._hash == other._hash and self.alternatives == other.alternatives
        )

    def __hash__(self) -> int:
        return self._hash


PARSED_MAX: Final = 1024
"""Parsed node selectors that are kept; beyond it the oldest one is parsed again when it is needed."""

PARSED_CHARS_MAX: Final = 8 << 20
"""Characters of their texts, likewise."""


class NodeSelector:
    """Refuses nodes by attributes. The demand is a `Selector`; equal texts share one while it is kept."""

    name = "node-selector"

    def __init__(self) -> None:
        self.parsed: dict[str, Selector] = {}
        """By the text of the tag, oldest first."""
        self.parsed_chars = 0
        """Characters of all these texts."""

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = read_tag(tags, NODE_SELECTOR)
        if text is None:
            return None
        known = self.parsed.get(text)
        if known is not None:
            return known
        parts = text.split("||")
        if len(parts) > ALTERNATIVES_MAX:
            raise ValueError(f"tag {NODE_SELECTOR} has {len(parts)} alternatives, at most {ALTERNATIVES_MAX} are read")
        terms = [_split_terms(part) for part in parts]
        if (count := sum(map(len, terms))) > TERMS_MAX:
            raise ValueError(f"tag {NODE_SELECTOR} has {count} terms, at most {TERMS_MAX} are read")
        selector = self.parsed[text] = Selector(tuple(dict.fromkeys(map(_parse_terms, terms))))
        self.parsed_chars += len(text)
        while len(self.parsed) > PARSED_MAX or self.parsed_chars > PARSED_CHARS_MAX:
            oldest = next(iter(self.parsed))
            del self.parsed[oldest]
            self.parsed_chars -= len(oldest)
        return selector

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        if not isinstance(demand, Selector):
            return ""
        attributes, failed = node.attributes, list[str]()
        for terms in demand.alternatives:
            for term in terms:
                if not term.matches(attributes):
                    failed.append(term.text)
                    break
            else:
                return ""
        return f"node does not match {' or '.join(dict.fromkeys(failed))}"

    def list_attributes(self, demand: Hashable | None) -> frozenset[str] | None:
        return demand.keys if isinstance(demand, Selector) else frozenset()


def _parse_terms(texts: Sequence[str]) -> Terms:
    return tuple(dict.fromkeys(_parse_term(text.strip()) for text in texts))


def _split_terms(text: str) -> list[str]:
    """Split at the commas that are not in parentheses, in one pass: a selector may have 30,000 values."""
    *closed, rest = text.split(")")
    terms, begun = list[str](), ""
    for part in closed:
        outside, opening, inside = part.rpartition("(")
        first, *others = outside.split(",")
        for other in others:
            terms.append(begun + first)
            begun, first = "", other
        begun += f"{first}{opening}{inside})"
    first, *others = rest.split(",")
    return [*terms, begun + first, *others]


def _parse_term(text: str) -> Term:
    if "(" in text and (listed := _SET.fullmatch(text)):
        return _checked(Term(text, listed["key"], _join_values(listed["values"]), listed["word"] == "in"))
    if (">" in text or "<" in text) and (compared := _COMPARED.fullmatch(text)):
        number, is_above = int(compared["number"]), compared["sign"] == ">"
        above, below = (number, None) if is_above else (None, number)
        return _checked(Term(text, compared["key"], None, holds=True, above=above, below=below))
    for sign, holds in (("!=", False), ("==", True), ("=", True)):
        key, found, value = text.partition(sign)
        if found:
            values = f",{value.strip()}," if VALUE.fullmatch(value.strip()) else ""
            return _checked(Term(text, key.strip(), values, holds))
    return _checked(Term(text, text.removeprefix("!").strip(), None, not text.startswith("!")))


def _join_values(text: str) -> str:
    """Return the listed values as in `Term.values`; empty if one cannot be read."""
    return f",{''.join(text.split())}," if _VALUES.fullmatch(text) else ""


def _checked(term: Term) -> Term:
    if KEY.fullmatch(term.key) and term.values != "":
        return term
    raise ValueError(
        f"tag {NODE_SELECTOR}: cannot read {quote(term.text)}: write {_RIGHT}, with commas between, "
        "and || between alternatives"
    )


TAINTS: Final = "yunishard/taints"
TOLERATIONS: Final = "yunishard/tolerations"
ANY_KEY: Final = "*"
REPELLING: Final = ("NoSchedule", "NoExecute")
EFFECTS: Final = (*REPELLING, "PreferNoSchedule")

TOLERATIONS_MAX: Final = 256
"""Tolerations of an ask; one with more is rejected."""

TAINTS_CHARS_MAX: Final = 2_048
"""Characters of the taints of a node; one with more refuses all asks. They are read whenever the node is evaluated."""


class Mark(NamedTuple):
    """A taint, or a toleration, in which value and effect are optional."""

    key: str
    value: str | None
    effect: str


class Tolerations:
    """Refuses nodes with taints. The demand is the set of tolerations; no demand tolerates nothing."""

    name = "tolerations"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = read_tag(tags, TOLERATIONS)
        if not text:
            return None
        parts = text.split(",")
        if len(parts) > TOLERATIONS_MAX:
            raise ValueError(f"tag {TOLERATIONS} has {len(parts)} tolerations, at most {TOLERATIONS_MAX} are read")
        marks: dict[Mark, None] = {}
        for part in map(str.strip, parts):
            mark = _parse_mark(part)
            if mark is None:
                raise ValueError(
                    f"tag {TOLERATIONS}: cannot read {quote(part)}: write key, key=value, or * for any key, "
                    f"with :{', :'.join(EFFECTS)} behind or nothing for any effect, and commas between"
                )
            marks[mark] = None
        return frozenset(marks)

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        text = node.attributes.get(TAINTS)
        if not text:
            return ""
        if len(text) > TAINTS_CHARS_MAX:
            return f"node has {len(text)} characters of taints, at most {TAINTS_CHARS_MAX} are read"
        tolerations: Set[Mark] = demand if isinstance(demand, frozenset) else frozenset()
        for part in text.split(","):
            taint = _parse_mark(part.strip())
            if taint is None or taint.key == ANY_KEY or not taint.effect:
                return f"node has the taint {quote(part.strip())}, which cannot be read"
            if taint.effect in REPELLING and not _is_tolerated(taint, tolerations):
                return f"node has the taint {part.strip()}, which is not tolerated"
        return ""

    def list_attributes(self, demand: Hashable | None) -> frozenset[str] | None:
        return frozenset((TAINTS,))


def _is_tolerated(taint: Mark, tolerations: Set[Mark]) -> bool:
    """Whether one of the tolerations tolerates a taint. Looks up those that would: there may be hundreds."""
    keys, values, effects = (taint.key, ANY_KEY), (None, taint.value or ""), (taint.effect, "")
    return any((key, value, effect) in tolerations for key in keys for value in values for effect in effects)


def _parse_mark(text: str) -> Mark | None:
    """Return the taint or toleration, or None if it cannot be read."""
    front, colon, effect = text.partition(":")
    key, equals, value = front.partition("=")
    if (colon and effect not in EFFECTS) or not (key == ANY_KEY or KEY.fullmatch(key)) or not VALUE.fullmatch(value):
        return None
    return Mark(key, value if equals else None, effect)
