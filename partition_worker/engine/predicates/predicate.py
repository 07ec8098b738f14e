"""Predicates: rules, built-in or of a plug-in, that say on which nodes an ask may run; and the built-in ones.

A predicate reads the tags of an ask once, and is asked about nodes as often as the engine likes. Both must be pure and
quick: they run in the thread that schedules, must give the same result for the same arguments, and results are cached.
How to write one: `docs/predicates.md`.

Node selector, the tag `yunishard/nodeSelector`, for example `zone=a,gpu in (a100,h100),!spot`. All terms must hold:

    key=value  key==value  key!=value  key in (one,two)  key notin (one,two)  key  !key

As in `kubectl get --selector`, `!=` and `notin` also hold for a node without the attribute.

Forbidden nodes, the tag `yunishard/forbiddenNodes`: ids of nodes that must not run the ask, `n1,n2`.

Taints and tolerations. A node whose attribute names taints takes only asks that tolerate each of them:

    node attribute  yunishard/taints       gpu=a100:NoSchedule,maintenance:NoExecute     key[=value]:Effect
    ask tag         yunishard/tolerations  gpu=a100:NoSchedule,maintenance,*:NoSchedule  key or *, [=value][:Effect]

As in Kubernetes, a toleration without a value takes any value, one without an effect any effect, and `*` is any key.
The scheduler evicts no running allocation, so NoExecute means NoSchedule; PreferNoSchedule refuses no ask. An
unreadable taint refuses every ask, because its author wanted to keep the node free.
"""

import re
from collections.abc import Hashable, Mapping
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


NODE_SELECTOR: Final = "yunishard/nodeSelector"

_TERMS: Final = re.compile(r",(?![^(]*\))")
"""The commas that are not in parentheses."""

_SET: Final = re.compile(r"(?P<key>\S+)\s+(?P<word>in|notin)\s*\((?P<values>[^()]*)\)")
_RIGHT: Final = "key=value, key!=value, key in (a,b), key notin (a,b), key or !key"


class Term(NamedTuple):
    """A demand on one attribute."""

    text: str
    """As messages quote it."""
    key: str
    values: frozenset[str] | None
    """The values to match; None matches any."""
    holds: bool
    """Whether the attribute must match, or must not."""

    def matches(self, attributes: Mapping[str, str]) -> bool:
        value = attributes.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found == self.holds


class NodeSelector:
    """Refuses nodes by attributes. The demand is the tuple of terms."""

    name = "node-selector"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = read_tag(tags, NODE_SELECTOR)
        if text is None:
            return None
        return tuple(dict.fromkeys(_parse_term(part.strip()) for part in _TERMS.split(text)))

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        if isinstance(demand, tuple):
            for term in demand:
                if isinstance(term, Term) and not term.matches(node.attributes):
                    return f"node does not match {term.text}"
        return ""


def _parse_term(text: str) -> Term:
    if listed := _SET.fullmatch(text):
        values = frozenset(value.strip() for value in listed["values"].split(","))
        return _checked(Term(text, listed["key"], values, listed["word"] == "in"))
    for sign, holds in (("!=", False), ("==", True), ("=", True)):
        key, found, value = text.partition(sign)
        if found:
            return _checked(Term(text, key.strip(), frozenset((value.strip(),)), holds))
    return _checked(Term(text, text.removeprefix("!").strip(), None, not text.startswith("!")))


def _checked(term: Term) -> Term:
    if KEY.fullmatch(term.key) and all(VALUE.fullmatch(value) for value in term.values or ()):
        return term
    raise ValueError(f"tag {NODE_SELECTOR}: cannot read {quote(term.text)}: write {_RIGHT}, with commas between")


TAINTS: Final = "yunishard/taints"
TOLERATIONS: Final = "yunishard/tolerations"
ANY_KEY: Final = "*"
REPELLING: Final = ("NoSchedule", "NoExecute")
EFFECTS: Final = (*REPELLING, "PreferNoSchedule")


class Mark(NamedTuple):
    """A taint, or a toleration, in which value and effect are optional."""

    key: str
    value: str | None
    effect: str

    def tolerates(self, taint: "Mark") -> bool:
        return (
            self.key in (ANY_KEY, taint.key)
            and (self.value is None or self.value == (taint.value or ""))
            and self.effect in ("", taint.effect)
        )


class Tolerations:
    """Refuses nodes with taints. The demand is the tuple of tolerations; no demand tolerates nothing."""

    name = "tolerations"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = read_tag(tags, TOLERATIONS)
        if not text:
            return None
        marks: dict[Mark, None] = {}
        for part in map(str.strip, text.split(",")):
            mark = _parse_mark(part)
            if mark is None:
                raise ValueError(
                    f"tag {TOLERATIONS}: cannot read {quote(part)}: write key, key=value, or * for any key, "
                    f"with :{', :'.join(EFFECTS)} behind or nothing for any effect, and commas between"
                )
            marks[mark] = None
        return tuple(marks)

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        text = node.attributes.get(TAINTS)
        if not text:
            return ""
        tolerations = [one for one in demand if isinstance(one, Mark)] if isinstance(demand, tuple) else []
        for part in text.split(","):
            taint = _parse_mark(part.strip())
            if taint is None or taint.key == ANY_KEY or not taint.effect:
                return f"node has the taint {quote(part.strip())}, which cannot be read"
            if taint.effect in REPELLING and not any(one.tolerates(taint) for one in tolerations):
                return f"node has the taint {part.strip()}, which is not tolerated"
        return ""


def _parse_mark(text: str) -> Mark | None:
    """Return the taint or toleration, or None if it cannot be read."""
    front, colon, effect = text.partition(":")
    key, equals, value = front.partition("=")
    if (colon and effect not in EFFECTS) or not (key == ANY_KEY or KEY.fullmatch(key)) or not VALUE.fullmatch(value):
        return None
    return Mark(key, value if equals else None, effect)
