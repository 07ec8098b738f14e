"""The parts of the comparison that need no reference: traces, making them smaller, and differences that are meant."""

import pytest

from tests.conformance.items import Item
from tests.differential.areas import AREAS, trace_of
from tests.differential.documents import body, levelled
from tests.differential.known import unexplained
from tests.differential.shrinking import shrunk, up_to_record

STEPS: list[Item] = [
    {"register": {"config": ""}},
    {"asks": {"items": [{"key": "a"}, {"key": "b"}]}},
    {"settle": {}},
    {"sleep": 1},
    {"settle": {}},
]


@pytest.mark.parametrize("area", AREAS)
def test_the_same_seed_gives_the_same_trace(area: str) -> None:
    assert trace_of(area, 1) == trace_of(area, 1)
    assert trace_of(area, 1) != trace_of(area, 2)


@pytest.mark.parametrize("area", AREAS)
def test_a_trace_begins_with_a_registration_and_ends_with_a_record(area: str) -> None:
    names = [next(iter(step)) for step in trace_of(area, 3)]
    assert names[0] == "register"
    assert names[-1] == "settle"


@pytest.mark.parametrize("area", AREAS)
def test_no_two_asks_of_a_trace_are_equally_old(area: str) -> None:
    asked = [item for step in trace_of(area, 4) for item in step.get("asks", {}).get("items", [])]
    times = [item["tags"]["creationTime"] for item in asked if "creationTime" in item.get("tags", {})]
    assert len(times) == len(set(times)) > 0


def test_what_comes_after_the_first_differing_record_is_cut_off() -> None:
    assert up_to_record(STEPS, "[0]/rms: expected 1, got 2") == STEPS[:3]
    assert up_to_record(STEPS, "[1]/rms: expected 1, got 2") == STEPS
    assert up_to_record(STEPS, "ours breaks: alas") == STEPS


def test_a_trace_is_shrunk_to_what_still_disagrees() -> None:
    def disagree(steps: list[Item]) -> bool:
        return any({"key": "b"} in step.get("asks", {}).get("items", []) for step in steps)

    assert shrunk(STEPS, disagree, tries_max=100) == [STEPS[0], {"asks": {"items": [{"key": "b"}]}}, STEPS[-1]]


def test_shrinking_ends_after_so_many_tries() -> None:
    tried: list[int] = []

    def disagree(steps: list[Item]) -> bool:
        tried.append(len(steps))
        return True

    shrunk(STEPS, disagree, tries_max=2)
    assert len(tried) == 3


def test_a_known_difference_counts_only_where_its_cause_is() -> None:
    line = '[0]/partitions/default/users/bob: expected {"queues": {}}, got null'
    release_all: Item = {"release": {"items": [{"app": "app-1"}]}}
    assert unexplained([release_all], [line]) == []
    assert unexplained(STEPS, [line]) == [line]


def test_everything_differs_after_an_ask_that_only_one_system_takes() -> None:
    refused = '[1]/rms/rm-1/rejectedAsks: expected [], got ["app-1-5"]'
    before = "[0]/partitions/default/containers: expected 3, got 2"
    lines = [before, "[1]/partitions/default/containers: expected 3, got 2", refused, "[2]/rms: expected 1, got null"]
    submit: Item = {"apps": {"add": [{"id": "app-1", "gangStyle": "Hard"}]}}
    assert unexplained([submit], lines) == [before]
    assert unexplained([submit], [*lines, "ours breaks: alas"]) == [before, "ours breaks: alas"]
    assert unexplained(STEPS, lines) == lines
    taken = '[1]/rms/rm-1/rejectedAsks: expected ["app-1-5"], got []'
    assert unexplained([submit], [taken]) == [taken]


def test_a_known_difference_of_documents_counts_only_where_its_cause_is() -> None:
    line = '[5]//ws/v1/metrics/body/yunikorn_queue_app{queue="root.a",state="completed"}: expected 1.0, got null'
    assert unexplained([{"apps": {"remove": [{"id": "app-1"}]}}], [line]) == []
    assert unexplained(STEPS, [line]) == [line]


def test_new_applications_may_be_more_than_in_the_reference_but_not_fewer() -> None:
    series, steps = '/ws/v1/metrics/body/yunikorn_queue_app{queue="root.a",state="new"}', [{"apps": {"add": [{}]}}]
    assert unexplained(steps, [f"[5]/{series}: expected -2.0, got {mine}" for mine in ("1.0", "null")]) == []
    wrong = f"[5]/{series}: expected 2.0, got 1.0"
    assert unexplained(steps, [wrong]) == [wrong]


def test_that_more_is_preempted_explains_all_that_follows() -> None:
    asks: Item = {"asks": {"items": [{"app": "app-1", "key": "a", "preemptOther": True}]}}
    place, follows = "[1]/rms/rm-1/released: expected", "[2]/partitions/default/appCounts/Running: expected 2, got 3"
    more = f'{place} ["a TIMEOUT"], got ["a TIMEOUT", "b PREEMPTED_BY_SCHEDULER"]'
    assert unexplained([asks], [more, follows]) == []
    assert unexplained(STEPS, [more, follows]) == [more, follows]
    for lists in ('["b PREEMPTED_BY_SCHEDULER"], got []', '[], got ["b TIMEOUT"]'):
        assert unexplained([asks], [f"{place} {lists}", follows]) == [f"{place} {lists}", follows]


def test_documents_are_compared_without_what_is_our_own_and_in_our_names() -> None:
    told = body(
        "/ws/v1/nodes", {"content-type": "application/json"}, '{"of":"[rm-1]default","rmId":"rm-1","occupied":{"m":0}}'
    )
    assert levelled(told) == {"of": "rm-1_default"}


def test_events_are_compared_by_what_they_are_about() -> None:
    one = {"type": 2, "objectID": "app-1", "referenceID": "a", "eventChangeDetail": 201, "timestampNano": 5}
    lost = {**one, "eventChangeDetail": 504}
    assert levelled({"EventRecords": [one, {**one, "objectID": "app-2"}, lost, {**one, "eventChangeDetail": 100}]}) == {
        "EventRecords": {
            "2 app-1": {"a": [{"eventChangeDetail": 201}, {"eventChangeDetail": 504}]},
            "2 app-2": {"a": [{"eventChangeDetail": 201}]},
        }
    }
