"""Indexes by labels: of things that require labels, and of the label sets of pods. Of thousands, only few concern one
pod, node or selector.

Pods of jobs and stateful sets have a label of their own, so there may be as many label sets as pods. A selector that
requires a label finds those that have it in an index of the label's key, which is built when a selector first needs it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from yunishard.kubernetes_shim.predicates.records import LabelSet
from yunishard.kubernetes_shim.predicates.selectors import Labels, Pair

_T = TypeVar("_T")

_ANYWHERE: Final[Pair] = ("", "")
"""In place of a label, for things that do not require one."""


class LabelIndex(Generic[_T]):
    """Things by labels of which each requires at least one."""

    def __init__(self) -> None:
        self._by_pair: dict[Pair, dict[_T, None]] = {}

    def add(self, thing: _T, pairs: Sequence[Pair]) -> None:
        for pair in pairs or (_ANYWHERE,):
            self._by_pair.setdefault(pair, {})[thing] = None

    def remove(self, thing: _T, pairs: Sequence[Pair]) -> None:
        for pair in pairs or (_ANYWHERE,):
            del self._by_pair[pair][thing]
            if not self._by_pair[pair]:
                del self._by_pair[pair]

    def find(self, labels: Labels) -> list[_T]:
        """Return all things whose requirement these labels may meet."""
        found = list(self._by_pair.get(_ANYWHERE, ()))
        for pair in labels.items():
            found += self._by_pair.get(pair, ())
        return found


class LabelSets:
    """All label sets of known pods, by namespace and by the labels that selectors require."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[bytes, LabelSet]] = {}
        self._by_label: dict[str, dict[str, dict[str, dict[bytes, LabelSet]]]] = {}
        """By namespace, then by the key of a label that some selector requires, then by its value."""

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def get(self, namespace: str, key: bytes) -> LabelSet | None:
        return self._by_namespace.get(namespace, {}).get(key)

    def list_namespace(self, namespace: str) -> list[LabelSet]:
        """Return all label sets of a namespace."""
        return list(self._by_namespace.get(namespace, {}).values())

    def add(self, labels: LabelSet) -> None:
        self._by_namespace.setdefault(labels.namespace, {})[labels.key] = labels
        for name, by_value in self._by_label.get(labels.namespace, {}).items():
            if name in labels.labels:
                by_value.setdefault(labels.labels[name], {})[labels.key] = labels

    def remove(self, labels: LabelSet) -> None:
        of_namespace = self._by_namespace[labels.namespace]
        del of_namespace[labels.key]
        if not of_namespace:
            del self._by_namespace[labels.namespace]
            self._by_label.pop(labels.namespace, None)
            return
        for name, by_value in self._by_label.get(labels.namespace, {}).items():
            value = labels.labels.get(name)
            if value is not None:
                del by_value[value][labels.key]
                if not by_value[value]:
                    del by_value[value]

    def find(self, namespaces: Iterable[str] | None, pairs: Sequence[Pair]) -> Iterator[LabelSet]:
        """Yield the label sets of these namespaces, or of all, that have one of some labels; all without labels."""
        for namespace in self._by_namespace if namespaces is None else namespaces:
            if not pairs:
                yield from self._by_namespace.get(namespace, {}).values()
            for name, value in pairs:
                yield from self._find_by_key(namespace, name).get(value, {}).values()

    def _find_by_key(self, namespace: str, name: str) -> dict[str, dict[bytes, LabelSet]]:
        if namespace not in self._by_namespace:
            return {}
        by_key = self._by_label.setdefault(namespace, {})
        if name not in by_key:
            by_value = by_key[name] = {}
            for labels in self._by_namespace[namespace].values():
                if name in labels.labels:
                    by_value.setdefault(labels.labels[name], {})[labels.key] = labels
        return by_key[name]
