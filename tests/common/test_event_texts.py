"""Every event has words, and a filter selects by object, type, text and time."""

import pytest

from yunishard.common.messages import event_codes
from yunishard.common.rest.event_texts import EventFilter, describe_event, name_type
from yunishard.common.rest.records import EventResourceView, EventView

NOTHING = EventResourceView()
EVENT = EventView(
    type=2, objectID="app-1", referenceID="task-1", message="Over quota", timestampNano=7, resource=NOTHING
)


def test_every_detail_of_the_interface_has_words() -> None:
    details = [
        value for name, value in vars(event_codes).items() if name.isupper() and isinstance(value, int) and value >= 100
    ]
    texts = [describe_event(EventView(eventChangeDetail=one, resource=NOTHING)) for one in details]
    assert not [text for text in texts if "detail" in text or text == "-"]


def test_unknown_numbers_are_shown_as_they_are() -> None:
    event = EventView(type=9, eventChangeType=2, eventChangeDetail=999, resource=NOTHING)
    assert (name_type(event), describe_event(event)) == ("9", "detail 999 added")


@pytest.mark.parametrize(
    ("wanted", "is_selected"),
    [
        (EventFilter(), True),
        (EventFilter(type="app"), True),
        (EventFilter(type="node"), False),
        (EventFilter(object="app-1"), True),
        (EventFilter(object="task-1"), True),
        (EventFilter(object="app"), False),
        (EventFilter(text="over"), True),
        (EventFilter(text="under"), False),
        (EventFilter(since_ns=7), True),
        (EventFilter(since_ns=8), False),
        (EventFilter(type="app", object="app-1", text="TASK", since_ns=1), True),
    ],
)
def test_a_filter_selects_by_everything_that_it_has(wanted: EventFilter, *, is_selected: bool) -> None:
    assert wanted.selects(EVENT) is is_selected


def test_a_queue_selects_the_queues_below_it() -> None:
    below = EventView(type=4, objectID="root.a.b", resource=NOTHING)
    beside = EventView(type=4, objectID="root.ab", resource=NOTHING)
    wanted = EventFilter(object="root.a")
    assert (wanted.selects(below), wanted.selects(beside)) == (True, False)
