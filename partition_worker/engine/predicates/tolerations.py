"""Taints and tolerations: a node whose attribute names taints takes only asks that tolerate each of them.

    node attribute  yunishard/taints       gpu=a100:NoSchedule,maintenance:NoExecute     key[=value]:Effect
    ask tag         yunishard/tolerations  gpu=a100:NoSchedule,maintenance,*:NoSchedule  key or *, [=value][:Effect]

As in Kubernetes: a toleration without a value takes any value, one without an effect any effect, and `*` is any key.
Nothing that runs is evicted here, so NoExecute means the same as NoSchedule; PreferNoSchedule refuses nobody. A taint
that cannot be read refuses everybody: whoever wrote it wanted to keep the node free.

Not here: what happens to asks that are refused everywhere; they wait.
"""

from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple

from partition_worker.engine.predicates.names import KEY, VALUE, check_length, shown
from partition_worker.engine.predicates.predicate import NodeView

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
