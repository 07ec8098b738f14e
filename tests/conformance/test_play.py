"""Each trace has its recording; how two recordings are compared."""

from tests.conformance.items import expanded
from tests.conformance.play import GOLDEN, TRACES, differences


def test_each_trace_has_a_recording_of_the_reference() -> None:
    assert sorted(path.stem for path in GOLDEN.glob("*.json")) == list(TRACES)


def test_equal_recordings_do_not_differ() -> None:
    assert list(differences([{"a": [1, {"b": None}]}], [{"a": [1, {}]}])) == []


def test_each_difference_is_told_with_its_place() -> None:
    assert list(differences([{"a": {"b": 1}, "c": [1, 2]}], [{"a": {"b": 2}, "c": [1, 3]}])) == [
        "[0]/a/b: expected 1, got 2",
        "[0]/c[1]: expected 2, got 3",
    ]


def test_a_list_of_another_length_differs_as_a_whole() -> None:
    assert list(differences({"a": [1]}, {"a": [1, 2]})) == ["/a: expected [1], got [1, 2]"]


def test_an_item_with_a_count_stands_for_many() -> None:
    assert list(expanded([{"id": "n-{i}", "tags": {"t": ["{i}"]}, "count": 2}, {"id": "m-{i}"}])) == [
        {"id": "n-1", "tags": {"t": ["1"]}},
        {"id": "n-2", "tags": {"t": ["2"]}},
        {"id": "m-{i}"},
    ]
