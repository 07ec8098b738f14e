"""Predicates of plug-ins: what is installed under the entry point `yunishard.predicates`, as far as it was chosen.

Not here: what a predicate is (`engine/predicates/predicate.py`).
"""

from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint

from common.names import PREDICATE_PLUGINS
from partition_worker.engine.predicates.evaluation import BUILT_IN
from partition_worker.engine.predicates.predicate import Predicate


class PluginError(OSError):
    """A plug-in that cannot be used: the worker does not start, rather than place asks where they must not run."""


def chosen(names: Sequence[str], installed: Iterable[EntryPoint]) -> list[Predicate]:
    """The predicates of these names, in this order, loaded.

    Raises:
        PluginError: one line with the name, and what is wrong.
    """
    found = {point.name: point for point in installed if point.group == PREDICATE_PLUGINS}
    predicates = [_loaded(name, found) for name in dict.fromkeys(names)]
    own = [predicate.name for predicate in (*BUILT_IN, *predicates)]
    if len(set(own)) < len(own):
        twice = next(name for name in own if own.count(name) > 1)
        raise PluginError(f"predicates: two are called {twice!r}: choose one of them, or give one another name")
    return predicates


def _loaded(name: str, found: dict[str, EntryPoint]) -> Predicate:
    point = found.get(name)
    if point is None:
        there = ", ".join(sorted(found)) or "none"
        raise PluginError(
            f"predicates: no plug-in {name!r} is installed (entry point {PREDICATE_PLUGINS}); there are: {there}"
        )
    try:
        predicate = point.load()
        if isinstance(predicate, type):
            predicate = predicate()
    except Exception as error:  # of the plug-in, whatever it is
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise PluginError(f"predicates: {name} ({point.value}) cannot be loaded: {reason}") from error
    if not isinstance(predicate, Predicate) or not isinstance(predicate.name, str):
        raise PluginError(f"predicates: {name} ({point.value}) is no predicate: it needs `name`, `read` and `refuses`")
    return predicate
