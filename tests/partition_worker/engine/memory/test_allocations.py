import math

import pytest

from partition_worker.engine.applications.allocation import Allocation, from_message
from partition_worker.engine.memory import allocations
from partition_worker.engine.memory.allocations import Reading
from partition_worker.engine.memory.references import Lookup, Numbering
from partition_worker.engine.needs import Needs
from partition_worker.engine.predicates.constraint import Constraint
from partition_worker.engine.predicates.predicates import Predicates
from tests.builders import ask

DERIVED = {"application", "group", "reservation", "partner"}
"""Known by who has it."""


def again(one: Allocation) -> Allocation:
    numbering, lookup = Numbering({}), Lookup()
    memory = allocations.written(one, numbering)
    lookup.amounts = [dict(amounts) for amounts in numbering.amounts]
    return Reading(lookup, Predicates()).restored(memory, None)


def fields_of(one: Allocation) -> dict[str, object]:
    return {name: getattr(one, name) for name in Allocation.__slots__ if name not in DERIVED}


@pytest.mark.parametrize("text", ["", "victim", "preemptor", "victim preemptor", "placeholder group=g", "originator"])
def test_what_was_asked_for_is_asked_for(text: str) -> None:
    one = from_message(
        ask(f"app-1 a1 memory=4 gpu=1 priority=-3 created=100 required=n1 {text}"), None, stamp_ns=5, needs=Needs()
    )
    assert fields_of(again(one)) == fields_of(one)


FLAGS = [
    name
    for name, value in fields_of(from_message(ask("app-1 a1 memory=4"), None, stamp_ns=5, needs=Needs())).items()
    if value is False
]


@pytest.mark.parametrize("flag", FLAGS)
def test_what_happened_to_it_is_known(flag: str) -> None:
    one = from_message(ask("app-1 a1 memory=4"), None, stamp_ns=5, needs=Needs())
    setattr(one, flag, True)
    assert fields_of(again(one)) == fields_of(one)


def test_what_happens_rarely_is_known_too() -> None:
    one = from_message(ask("app-1 a1 memory=4"), None, stamp_ns=5, needs=Needs())
    assert fields_of(again(one)) == fields_of(one)
    one.placeholder_created_ns, one.unschedulable_told_at = 17, 1.5
    assert again(one).placeholder_created_ns == 17
    assert again(one).no_victim_told_at == -math.inf
    assert fields_of(again(one)) == fields_of(one)


def test_what_it_demands_is_read_from_its_tags_again() -> None:
    tagged, predicates = ask("app-1 a1 memory=4 tag.yunishard/nodeSelector=zone=a"), Predicates()
    for asks_manager in (False, True):
        predicates.asks_manager = asks_manager
        constraint = predicates.read(tagged.allocation_tags, "a1")
        assert constraint == Constraint(predicates.demanded(tagged.allocation_tags), "a1" if asks_manager else "")
        one = from_message(tagged, None, stamp_ns=5, needs=Needs(), constraint=constraint)
        assert again(one).need == one.need
