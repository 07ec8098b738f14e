"""Predicates as somebody else might write them."""

from collections.abc import Hashable, Mapping

from yunishard.partition_worker.engine.predicates.predicate import NodeView


class Rack:
    """`rack=NAME` runs in that rack only; without it nowhere in the rack `private`."""

    name = "rack"

    def __init__(self) -> None:
        self.looks = 0

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        rack = tags.get("rack")
        if rack == "":
            raise ValueError("tag rack: name one")
        return rack

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        self.looks += 1
        rack = node.attributes.get("rack", "")
        return f"node is in rack {rack}" if rack != demand and (demand or rack == "private") else ""


class Broken:
    """Raises, or gives back what it must not, as often as it is asked about the tag `broken`."""

    name = "broken"

    def __init__(self, *, reading: bool = False, answer: Exception | str | None = None) -> None:
        self.reading = reading
        self.answer = KeyError("gpu") if answer is None else answer

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        if self.reading:
            raise RuntimeError("it is Sunday")
        return tags.get("broken")

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        if demand is None:
            return ""
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Unhashable(Broken):
    """Gives back a list where a value is expected."""

    def read(self, tags: Mapping[str, str]) -> Hashable | None:
        return list(tags)  # type: ignore[return-value]


class Silent(Broken):
    """Gives back None for yes."""

    def refuses(self, demand: Hashable | None, node: NodeView) -> str:
        return None if demand else ""  # type: ignore[return-value]
