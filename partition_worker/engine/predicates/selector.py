"""Node selector: what the attributes of a node must say, `zone=a,gpu in (a100,h100),!spot`.

Terms with commas between, all of which must hold, as `kubectl get --selector` takes them:

    key=value  key==value  key!=value  key in (one,two)  key notin (one,two)  key  !key

As there, `!=` and `notin` hold for a node without the attribute too.

Not here: preferences between nodes that match.
"""

import re
from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple

from partition_worker.engine.predicates.names import KEY, VALUE, check_length, shown
from partition_worker.engine.predicates.predicate import NodeView

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
