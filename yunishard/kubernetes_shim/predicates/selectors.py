"""Selectors of labels and nodes, compiled once and evaluated often.

The rules are those of Kubernetes: a missing selector selects nothing, an empty one everything; `NotIn` and
`DoesNotExist` also hold without the label; `Gt` and `Lt` compare integers and hold for no label that is not one. An
operator or a value that Kubernetes would not accept holds for nothing.

Equal selectors are one object, so that whatever is counted for a selector is counted once, however many pods have it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from yunishard.kubernetes_shim.objects import LabelSelector, NodeSelector, Requirement

COMPILED_MAX: Final = 16_384
"""Compiled selectors that are kept for reuse. Beyond it, the least recently used one is compiled again when needed."""

INT64: Final = range(-(2**63), 2**63)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_VALUE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")

NODE_NAME_FIELD: Final = "metadata.name"
"""The only field of a node that a selector may name."""

Labels: TypeAlias = Mapping[str, str]
Pair: TypeAlias = tuple[str, str]
"""Key and value of a label."""


class Term(NamedTuple):
    """A requirement on one label."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    bound: int = 0
    """The integer of `Gt` and `Lt`."""

    def matches(self, labels: Labels) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        number = None if value is None else parse_integer(value)
        if number is None:
            return False
        return number > self.bound if self.operator == "Gt" else number < self.bound


class Selector(NamedTuple):
    """A compiled selector of labels; its terms must all hold."""

    terms: tuple[Term, ...]
    selects_nothing: bool = False

    def matches(self, labels: Labels) -> bool:
        if self.selects_nothing:
            return False
        return all(term.matches(labels) for term in self.terms)

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Labels of which whatever is selected has at least one; empty if there are no such labels."""
        listed = [term for term in self.terms if term.operator == "In"]
        if not listed:
            return ()
        shortest = min(listed, key=lambda term: len(term.values))
        return tuple((shortest.key, value) for value in sorted(shortest.values))

    def with_labels(self, labels: Labels) -> "Selector":
        """Return a selector that requires these labels, too."""
        added = tuple(Term(key, "In", frozenset((value,))) for key, value in labels.items())
        return self._replace(terms=tuple(dict.fromkeys(self.terms + added)))


EVERYTHING: Final = Selector(())
NOTHING: Final = Selector((), selects_nothing=True)


def parse_integer(text: str) -> int | None:
    """Return a 64-bit integer, or None if the text is none."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and number in INT64 else None


def compile_labels(selector: LabelSelector | None) -> Selector:
    """Compile a selector of pods or namespaces."""
    if selector is None:
        return NOTHING
    return _compile_labels(tuple(sorted(selector.match_labels.items())), _freeze(selector.match_expressions))


_Frozen: TypeAlias = tuple[tuple[str, str, tuple[str, ...]], ...]


def _freeze(requirements: Iterable[Requirement]) -> _Frozen:
    return tuple((one.key, one.operator, tuple(one.values)) for one in requirements)


@lru_cache(maxsize=COMPILED_MAX)
def _compile_labels(pairs: tuple[Pair, ...], requirements: _Frozen) -> Selector:
    terms = [Term(key, "In", frozenset((value,))) for key, value in pairs]
    for key, operator, values in requirements:
        term = _compile_term(key, operator, values, LABEL_OPERATORS)
        if term is None:
            return NOTHING
        terms.append(term)
    return Selector(tuple(dict.fromkeys(terms)))


LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS: Final = (*LABEL_OPERATORS, "Gt", "Lt")


def _compile_term(key: str, operator: str, values: Sequence[str], operators: Sequence[str]) -> Term | None:
    """Return a compiled requirement, or None if Kubernetes would not accept it."""
    if operator not in operators:
        return None
    if not all(_VALUE.fullmatch(value) for value in values):
        return None
    if operator in ("Gt", "Lt"):
        bound = parse_integer(values[0]) if len(values) == 1 else None
        return None if bound is None else Term(key, operator, bound=bound)
    if (operator in ("In", "NotIn")) != bool(values):
        return None
    return Term(key, operator, frozenset(values))


# Nodes ----------------------------------------------------------------------------------------------------------------


class NodeAlternative(NamedTuple):
    """One alternative of a node selector: requirements on labels and on the node's name."""

    labels: Selector
    names: tuple[Term, ...] = ()

    def matches(self, name: str, labels: Labels) -> bool:
        for term in self.names:
            if not term.matches({NODE_NAME_FIELD: name}):
                return False
        return self.labels.matches(labels)


class NodeRequirement(NamedTuple):
    """Requirements of a pod or volume on its node: labels, and one of several alternatives."""

    labels: tuple[Pair, ...] = ()
    alternatives: tuple[NodeAlternative, ...] | None = None
    """None: there is no such requirement. Empty: no node meets it."""

    def matches(self, name: str, labels: Labels) -> bool:
        for key, value in self.labels:
            if labels.get(key) != value:
                return False
        if self.alternatives is None:
            return True
        return any(alternative.matches(name, labels) for alternative in self.alternatives)


def compile_node_requirement(labels: Labels, selector: NodeSelector | None) -> NodeRequirement:
    """Compile what is required of a node. Alternatives that are empty or not acceptable are left out."""
    alternatives: tuple[NodeAlternative, ...] | None = None
    if selector is not None:
        compiled = (
            _compile_alternative(one.match_expressions, one.match_fields) for one in selector.node_selector_terms
        )
        alternatives = tuple(one for one in compiled if one is not None)
    return NodeRequirement(tuple(sorted(labels.items())), alternatives)


def _compile_alternative(expressions: Sequence[Requirement], fields: Sequence[Requirement]) -> NodeAlternative | None:
    if not expressions and not fields:
        return None
    terms = [_compile_term(one.key, one.operator, one.values, NODE_OPERATORS) for one in expressions]
    names = [_compile_field(one) for one in fields]
    if any(one is None for one in (*terms, *names)):
        return None
    return NodeAlternative(
        Selector(tuple(one for one in terms if one is not None)), tuple(one for one in names if one is not None)
    )


def _compile_field(field: Requirement) -> Term | None:
    if field.key != NODE_NAME_FIELD or field.operator not in ("In", "NotIn") or len(field.values) != 1:
        return None
    return Term(field.key, field.operator, frozenset(field.values))
