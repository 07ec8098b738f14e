"""The parts of the comparison that need no reference: traces, making them smaller, and differences that are meant."""

from typing import Any, Final

import pytest
import yaml

from tests.conformance.items import Item
from tests.differential.areas import AREAS, trace_of
from tests.differential.documents import body, levelled
from tests.differential.known import sort_differences, unexplained
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
    less = "[0]/partitions/default/users/bob/queues/root/used/memory: expected 2, got 3"
    assert unexplained([release_all], [less]) == [less]


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


def test_a_health_check_may_pass_in_spite_of_as_many_errors() -> None:
    place, steps = "[5]//ws/v1/scheduler/healthcheck/body/HealthChecks", [{"asks": {"items": [{"app": "gone"}]}}]
    errors = "There were {} scheduling errors logged in the metrics"
    passes = f"{place}[0]/Succeeded: expected false, got true"
    told = f'{place}[0]/DiagnosisMessage: expected "{errors}", got "{errors}, by resource managers"'
    assert unexplained(steps, [passes, told.format(2, 2)]) == []
    wrong = [told.format(2, 1), f"{place}[1]/Succeeded: expected false, got true"]
    assert unexplained(steps, wrong) == wrong


def test_only_the_reference_may_answer_nothing_about_the_utilization_of_nodes() -> None:
    place, steps = "[5]//ws/v1/scheduler/node-utilizations", [{"nodes": {"items": []}}]
    assert unexplained(steps, [f'{place}: expected null, got {{"status": 200}}']) == []
    wrong = [f'{place}: expected {{"status": 200}}, got null', f"{place}/body: expected null, got []"]
    assert unexplained(steps, wrong) == wrong


# Decisions: a node n of 20 that the queue `rich` fills, and another queue with a guarantee ----------------------------


def trace(*asks: Item) -> list[Item]:
    """Asks of two applications, `rich` and `poor`, each in a queue of its name."""
    guaranteed = {"rich": 4, "poor": 8}
    queues = [{"name": name, "resources": {"guaranteed": {"memory": n}}} for name, n in guaranteed.items()]
    config = yaml.safe_dump({"partitions": [{"name": "default", "queues": [{"name": "root", "queues": queues}]}]})
    apps = [{"id": name, "queue": f"root.{name}"} for name in guaranteed]
    return [{"register": {"config": config}}, {"apps": {"add": apps}}, {"asks": {"items": [*asks]}}, {"settle": {}}]


def asked(key: str, memory: int, **more: Any) -> Item:
    return {"app": key.partition("-")[0], "key": key, "resources": {"memory": memory}, **more}


def record(rich: int, poor: int, running: str, reserved: str = "", preempted: str = "") -> Any:
    """What a system records: used amounts, and keys."""
    used = {"root": rich + poor, "root.rich": rich, "root.poor": poor}
    partition = {
        "nodes": {"n": {"reservations": reserved.split(), "capacity": {"memory": 20}, "available": {"memory": 0}}},
        "queues": {path: {"allocated": {"memory": amount}} for path, amount in used.items()},
        "capacity": {"memory": 20},
    }
    released = [f"{key} PREEMPTED_BY_SCHEDULER" for key in preempted.split()]
    manager = {"running": dict.fromkeys(running.split(), "n"), "released": released}
    return [{"rms": {"rm-1": manager}, "partitions": {"default": partition}}]


def reasons(steps: list[Item], theirs: Any, mine: Any) -> list[str]:
    """Why the recordings may differ; none if they may not."""
    found = sort_differences(steps, theirs, mine)
    assert bool(found.reasons) != bool(found.unexplained)
    return found.reasons


RICH: Final = asked("rich-1", 10)


@pytest.mark.parametrize(("priority", "may_differ"), [(5, True), (0, False)])
def test_only_an_ask_of_higher_priority_may_take_a_reserved_node(priority: int, may_differ: bool) -> None:
    steps = trace(RICH, asked("rich-2", 12), asked("poor-3", 4, priority=priority))
    theirs, mine = record(10, 0, "rich-1", "rich-2"), record(10, 4, "rich-1 poor-3", "rich-2")
    assert reasons(steps, theirs, mine) == ["a reserved node takes no ask of higher priority"] * may_differ
    not_reserved = record(10, 0, "rich-1")
    assert not reasons(steps, not_reserved, mine)


@pytest.mark.parametrize(("memory", "may_differ"), [(8, True), (9, False)])
def test_only_an_ask_within_its_guarantee_may_take_a_node_that_is_reserved(memory: int, may_differ: bool) -> None:
    steps = trace(RICH, asked("rich-2", 12), asked("poor-3", memory, preemptOther=True))
    theirs, mine = record(10, 0, "rich-1", "rich-2"), record(10, memory, "rich-1 poor-3")
    assert reasons(steps, theirs, mine) == ["a guarantee is not reclaimed on nodes that are reserved"] * may_differ


@pytest.mark.parametrize(("memory", "may_differ"), [(11, True), (10, False)])
def test_an_ask_may_preempt_on_its_node_although_the_partition_has_no_room(memory: int, may_differ: bool) -> None:
    steps = trace(RICH, asked("poor-3", memory, tags={"yunikorn.apache.org/requiredNode": "n"}))
    theirs, mine = record(10, 0, "rich-1"), record(0, memory, "poor-3", preempted="rich-1")
    expected = ["an ask preempts on its node only if the rest of the partition has room"]
    assert reasons(steps, theirs, mine) == expected * may_differ


@pytest.mark.parametrize(("largest", "may_differ"), [(9, True), (8, False)])
def test_a_guarantee_may_be_reclaimed_although_a_candidate_is_larger_than_it(largest: int, may_differ: bool) -> None:
    steps = trace(asked("rich-1", largest), asked("rich-2", 8), asked("poor-3", 8, preemptOther=True))
    theirs = record(largest + 8, 0, "rich-1 rich-2")
    mine = record(largest, 8, "rich-1 poor-3", preempted="rich-2")
    expected = ["a candidate that is larger than the rest of the guarantee ends the search"]
    assert reasons(steps, theirs, mine) == expected * may_differ


def test_an_ask_may_preempt_on_its_node_and_go_with_it() -> None:
    required = asked("poor-3", 11, tags={"yunikorn.apache.org/requiredNode": "n"})
    steps = [*trace(RICH, required), {"settle": {}}]
    before, theirs, mine = record(10, 0, "rich-1"), record(0, 0, ""), record(0, 0, "", preempted="rich-1")
    assert not reasons(steps, before + theirs, before + mine)
    mine[0]["rms"]["rm-1"]["released"].append("poor-3 STOPPED_BY_RM")
    assert reasons(steps, before + theirs, before + mine)


@pytest.mark.parametrize(("used", "may_differ"), [(17, True), (4, False)])
def test_smaller_victims_may_be_preempted_in_queues_beyond_their_guarantee(used: int, may_differ: bool) -> None:
    steps = trace(asked("rich-2", 3), asked("poor-3", 5, preemptOther=True))
    theirs, mine = record(used, 0, "rich-2"), record(used - 3, 5, "poor-3", preempted="rich-2")
    assert reasons(steps, theirs, mine) == ["victims that are smaller than the ask are not preempted"] * may_differ


@pytest.mark.parametrize(("placed", "may_differ"), [("rich-3", True), ("", False)])
def test_an_ask_may_reserve_in_a_full_cluster_if_another_would_pass_over_it(placed: str, may_differ: bool) -> None:
    steps = trace(RICH, asked("poor-2", 12), asked("rich-3", 1))
    theirs, mine = record(10, 0, f"rich-1 {placed}"), record(10, 0, "rich-1", "poor-2")
    expected = ["an ask for which the cluster or a queue has no room reserves no node"]
    assert reasons(steps, theirs, mine) == expected * may_differ


@pytest.mark.parametrize(("memory", "may_differ"), [(21, True), (20, False)])
def test_a_reservation_may_end_when_its_node_is_too_small(memory: int, may_differ: bool) -> None:
    steps = trace(RICH, asked("poor-2", memory))
    theirs, mine = record(10, 0, "rich-1", "poor-2"), record(10, 0, "rich-1")
    assert reasons(steps, theirs, mine) == ["a reservation stays when its node becomes too small"] * may_differ


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
