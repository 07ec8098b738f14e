"""Every answer that was recorded of the reference, against ours to the same requests after the same steps."""

from typing import Final

import pytest

from tests.captures.answers import given_document, recorded_document
from tests.captures.canon import Document
from tests.captures.compare import Difference, differences
from tests.captures.deliberate import DELIBERATE
from tests.captures.scenario import Recorded, recorded

RECORDED: Final = recorded()


CONFIGURED: Final = 7
"""The setting `event.RESTResponseSize` at that time."""

EARLIER: Final = 2
"""So many more events the reference still has there, as it told of fewer since."""


def records(document: Document) -> list[Document]:
    match document:
        case {"body": {"EventRecords": list(found)}}:
            return found
    raise AssertionError(document)


def found_in(one: Recorded) -> list[Difference]:
    return list(differences(recorded_document(one), given_document(one)))


@pytest.mark.parametrize("one", RECORDED, ids=lambda one: f"{one.group}-{one.name}")
def test_the_answer_is_the_recorded_one_but_for_what_is_meant(one: Recorded) -> None:
    request = f"{one.group}-{one.name}"
    assert [found for found in found_in(one) if not any(each.covers(request, found) for each in DELIBERATE)] == []


def test_of_a_ring_that_has_gone_round_come_as_many_events_as_are_configured_without_a_gap() -> None:
    """The reference goes on behind the gap."""
    (one,) = (one for one in RECORDED if one.name == "events-batch-count100")
    told, ours = (records(document(one)) for document in (recorded_document, given_document))
    assert len(ours) == CONFIGURED
    assert ours[: CONFIGURED - EARLIER] == told[EARLIER:CONFIGURED]


def test_each_difference_that_is_meant_is_there() -> None:
    found = [(f"{one.group}-{one.name}", difference) for one in RECORDED for difference in found_in(one)]
    assert [one for one in DELIBERATE if not any(one.covers(*each) for each in found)] == []
