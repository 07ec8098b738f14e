"""Built-in predicates: node selector, forbidden nodes, taints and tolerations.

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
from typing import Final, NamedTuple

from partition_worker.engine.predicates.predicate import NodeView

TAG_LENGTH_MAX: Final = 65_536
"""Characters of one tag that are read."""

KEY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
"""Of a label or a taint."""

VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._/:@-]*[A-Za-z0-9])?)?")


def check_length(tag: str, text: str) -> None:
    """Refuse what nobody writes by hand.

    Raises:
        ValueError: with the limit.
    """
    if len(text) > TAG_LENGTH_MAX:
        raise ValueError(f"tag {tag} has {len(text)} characters, at most {TAG_LENGTH_MAX} are read")


def shown(text: str) -> str:
    """A part of a tag, as a message repeats it."""
    return repr(text if len(text) <= 80 else f"{text[:80]}...")


FORBIDDEN_NODES: Final = "yunishard/forbiddenNodes"


class ForbiddenNodes:
    """The demand is the set of ids."""

    name = "forbidden-nodes"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = tags.get(FORBIDDEN_NODES)
        if text is None:
            return None
        check_length(FORBIDDEN_NODES, text)
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
    """One demand on one attribute."""

    text: str
    """As messages repeat it."""
    key: str
    values: frozenset[str] | None
    """One of which it must have; None if any will do."""
    holds: bool
    """Whether a match is wanted, or none."""

    def admits(self, attributes: Mapping[str, str]) -> bool:
        value = attributes.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found == self.holds


class NodeSelector:
    """The demand is the tuple of terms."""

    name = "node-selector"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = tags.get(NODE_SELECTOR)
        if text is None:
            return None
        check_length(NODE_SELECTOR, text)
        return tuple(dict.fromkeys(_term(part.strip()) for part in _TERMS.split(text)))

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        if isinstance(demand, tuple):
            for term in demand:
                if isinstance(term, Term) and not term.admits(node.attributes):
                    return f"node does not match {term.text}"
        return ""


def _term(text: str) -> Term:
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
    raise ValueError(f"tag {NODE_SELECTOR}: cannot read {shown(term.text)}: write {_RIGHT}, with commas between")


TAINTS: Final = "yunishard/taints"
TOLERATIONS: Final = "yunishard/tolerations"
ANY_KEY: Final = "*"
REPELLING: Final = ("NoSchedule", "NoExecute")
EFFECTS: Final = (*REPELLING, "PreferNoSchedule")


class Mark(NamedTuple):
    """A taint, or a toleration, which may leave things open."""

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
    """The demand is the tuple of tolerations; no demand tolerates nothing."""

    name = "tolerations"

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        text = tags.get(TOLERATIONS)
        if not text:
            return None
        check_length(TOLERATIONS, text)
        marks = tuple(dict.fromkeys(_mark(part.strip()) for part in text.split(",")))
        if None in marks:
            wrong = next(part.strip() for part in text.split(",") if _mark(part.strip()) is None)
            raise ValueError(
                f"tag {TOLERATIONS}: cannot read {shown(wrong)}: write key, key=value, or * for any key, "
                f"with :{', :'.join(EFFECTS)} behind or nothing for any effect, and commas between"
            )
        return marks

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        text = node.attributes.get(TAINTS)
        if not text:
            return ""
        tolerations = [one for one in demand if isinstance(one, Mark)] if isinstance(demand, tuple) else []
        for part in text.split(","):
            taint = _mark(part.strip())
            if taint is None or taint.key == ANY_KEY or not taint.effect:
                return f"node has the taint {shown(part.strip())}, which cannot be read"
            if taint.effect in REPELLING and not any(one.tolerates(taint) for one in tolerations):
                return f"node has the taint {part.strip()}, which is not tolerated"
        return ""


def _mark(text: str) -> Mark | None:
    """What is written, or None if it cannot be read."""
    front, colon, effect = text.partition(":")
    key, equals, value = front.partition("=")
    if (colon and effect not in EFFECTS) or not (key == ANY_KEY or KEY.fullmatch(key)) or not VALUE.fullmatch(value):
        return None
    return Mark(key, value if equals else None, effect)
