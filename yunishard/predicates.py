"""A say in which ask may run on which node: the answer of a resource manager to what the core asks.

Not here: when the core asks, and what it makes of the answer (`docs/predicates.md`).
"""

from collections.abc import Callable

from common.rm_messages import PredicatesAnswered, PredicatesArgs, PredicatesAsked, Verdict

Predicate = Callable[[str, str, bool], str | None]
"""Called with the key of an ask, the id of a node, and whether it is to run there now: otherwise the node is only to be
kept for it, or it is to take the place of its placeholder there. Gives the reason why it may not, or None (or "") if it
may. It is called in the thread of the connection, for many pairs at once: it looks at what it knows, and waits for
nothing.
"""


def answer(asked: PredicatesAsked, predicate: Predicate) -> PredicatesAnswered:
    """The verdicts on all that is asked."""
    return PredicatesAnswered(question=asked.question, verdicts=[_verdict(one, predicate) for one in asked.asked])


def _verdict(asked: PredicatesArgs, predicate: Predicate) -> Verdict:
    try:
        refusal = predicate(asked.allocation_key, asked.node_id, asked.allocate) or ""
        if not isinstance(refusal, str):
            raise TypeError(f"it must return the reason (str) or None, got {refusal!r}")
    except Exception as error:  # the core gets an answer all the same, and people read the reason
        refusal = f"predicate of the resource manager failed: {type(error).__name__}: {error}"
    return Verdict(
        allocation_key=asked.allocation_key,
        node_id=asked.node_id,
        allocate=asked.allocate,
        refusal=refusal.encode(errors="replace").decode(),
    )
